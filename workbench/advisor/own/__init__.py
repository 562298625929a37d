"""Advice on the user's own code: where and how to run it, and how much that gains."""
