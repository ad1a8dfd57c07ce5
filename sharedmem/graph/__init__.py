"""The temporal knowledge graph: dated facts with valid time and transaction time."""
