"""Agents that read conversations, judge conflicts and write successors: a language model, or rules."""
