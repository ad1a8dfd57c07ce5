"""Search: find records by meaning, by words and by filters."""
