"""Tokens as tests show them."""

from __future__ import annotations


def shown(token: str) -> str:
    """The `authorization` header of a caller."""
    return f"Bearer {token}"
