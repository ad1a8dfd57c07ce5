"""One way in and one way out: what an agent should know now, in a budget of tokens, from all that a store remembers."""
