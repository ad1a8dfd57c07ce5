"""Storage backends of the graph."""
