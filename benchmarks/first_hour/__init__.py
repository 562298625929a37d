"""The first hour on a GPU: what was only read so far is tried on a card, finding by finding."""
