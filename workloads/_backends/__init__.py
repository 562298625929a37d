"""The libraries that compute: one file each, which binds a `Backend` to BACKEND."""
