"""Texts that both front ends show: built once, without colours of their own."""
