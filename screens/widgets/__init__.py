"""Pieces that more than one screen draws."""
