"""Words and numbers as people read them, and files as they are read and written."""
