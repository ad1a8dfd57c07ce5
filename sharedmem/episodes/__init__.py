"""Episodic memory: the events of sessions, in order."""
