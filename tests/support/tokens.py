"""Tokens as tests show them."""

from __future__ import annotations


def bearer_header(token: str) -> str:
    """The `authorization` header of a caller."""
    return f"Bearer {token}"
