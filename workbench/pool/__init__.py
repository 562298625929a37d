"""The worker processes of a run: start, ask, freeze and end them."""
