"""Conversations become notes; those that agree are consolidated, those that contradict superseded; none is lost."""
