"""Webhooks: report the outcome of a task over HTTP, signed, to public addresses only."""
