"""The embedded Redis server: a private server of a data directory, shared by its processes."""
