"""How episodes become statements: by rules, or by a language model."""
