"""The shared data structures of one namespace."""
