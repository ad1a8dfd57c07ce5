"""Search: finding records by meaning, by words and by facts."""
