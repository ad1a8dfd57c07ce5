"""The temporal knowledge graph: what was true, and what was known of it."""
