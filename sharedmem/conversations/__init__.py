"""Conversations: ordered logs of entries with a head revision, forks, and a document beside each log."""
