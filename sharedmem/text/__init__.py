"""Language rules that several parts share: search terms, contradictions, dates, summaries, escaping."""
