"""Conversations become notes; notes that agree are consolidated, those that contradict are superseded; nothing is lost."""
