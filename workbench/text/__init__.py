"""Numbers and words as people read them, text of others made safe, and a user's TOML."""
