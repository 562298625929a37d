"""Lines of text for the screens: tables, curves, details."""
