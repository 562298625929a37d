"""The state behind the screens, without Textual: a session, its event source, the run form."""
