"""Structures without behaviour: what a run reads, measures and decides, as it is written."""
