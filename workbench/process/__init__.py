"""Child processes that speak in lines, and words for how they ended."""
