"""What a screen shows, without Textual: the session, its events, derived values and forms."""
