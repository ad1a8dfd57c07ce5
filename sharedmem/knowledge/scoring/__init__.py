"""Scoring: in which order what was found is told. Pure functions; nothing here waits for anything."""
