"""A child process at the other end of one pipe, and how it ended, in words."""
