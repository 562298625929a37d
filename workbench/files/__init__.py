"""Files: the one way to write what a user names, and the one way to read what others wrote."""
