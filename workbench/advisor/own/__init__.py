"""The race of the user's own code: its candidates, and what its results mean."""
