"""Prices of tokens: list prices of OpenAI for pay-as-you-go, as of 2025-08-01, in US dollars.

Prices change, and contracts differ: a computed cost is an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

AS_OF = "2025-08-01"
_MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars for a million tokens."""

    read: float
    written: float = 0.0


PRICES = {
    "text-embedding-3-small": Price(0.02),
    "text-embedding-3-large": Price(0.13),
    "text-embedding-ada-002": Price(0.10),
    "gpt-4o": Price(2.50, 10.00),
    "gpt-4o-mini": Price(0.15, 0.60),
    "gpt-4.1": Price(2.00, 8.00),
    "gpt-4.1-mini": Price(0.40, 1.60),
    "gpt-4.1-nano": Price(0.10, 0.40),
}
LOCAL = frozenset({"wordllama", "hashing", "onnx", "sentence-transformers", "extractive"})


def cost_usd(name: str, *, read: int, written: int = 0) -> float | None:
    """Return about the cost of tokens; None without a known price, as for a deployment or another service.

    Args:
        name: provider and model, the `name` of a provider.
        read: tokens sent.
        written: tokens received.
    """
    provider, _, model = name.partition(":")
    if provider in LOCAL:
        return 0.0
    price = PRICES.get(model.partition("@")[0]) if provider == "openai" else None
    return None if price is None else (read * price.read + written * price.written) / _MILLION
