"""Who reads conversations, judges conflicts and writes successors: a language model, or rules."""
