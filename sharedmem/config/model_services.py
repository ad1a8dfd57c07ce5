"""Model services by name: where each is, the variables with its key, and what it offers.

All but Azure, Anthropic, Cohere and Jina have the API of OpenAI; a setting with a base URL takes the place of the
address in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ModelService(NamedTuple):
    """One service."""

    label: str
    """Its name in messages."""
    base_url: str | None
    """None: each account has its own."""
    key_variables: tuple[str, ...] = ()
    """Variables in which users of the service's own client have its key; empty if it takes none."""
    offers: frozenset[str] = frozenset({"embedder", "llm"})
    """The settings that may name it."""


_TEXT, _VECTORS_AND_TEXT, _RANKS = frozenset({"llm"}), frozenset({"embedder", "llm"}), frozenset({"reranker"})
MODEL_SERVICES: Mapping[str, ModelService] = {
    "openai": ModelService("OpenAI", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "azure": ModelService("Azure", None),
    "anthropic": ModelService("Anthropic", "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), _TEXT),
    "gemini": ModelService(
        "Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        _VECTORS_AND_TEXT,
    ),
    "mistral": ModelService("Mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    "groq": ModelService("Groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), _TEXT),
    "deepseek": ModelService("DeepSeek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), _TEXT),
    "openrouter": ModelService("OpenRouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), _TEXT),
    "ollama": ModelService("Ollama", "http://localhost:11434/v1"),
    "vllm": ModelService("vLLM", "http://localhost:8000/v1"),
    "lmstudio": ModelService("LM Studio", "http://localhost:1234/v1"),
    "cohere": ModelService("Cohere", "https://api.cohere.com/v2", ("COHERE_API_KEY", "CO_API_KEY"), _RANKS),
    "jina": ModelService("Jina", "https://api.jina.ai/v1", ("JINA_API_KEY",), _RANKS),
}
"""By the provider in a setting such as `llm="ollama:qwen3"`."""
CHOOSERS: Mapping[str, tuple[str, str]] = {
    "embedder": ("embedding_url", "embedding_key"),
    "llm": ("llm_url", "llm_key"),
    "reranker": ("reranker_url", "reranker_key"),
}
"""The settings with the base URL and the key, by the setting that names a service."""


def services_for(chooser: str) -> tuple[str, ...]:
    """Return the providers that a setting may name: `embedder`, `llm` or `reranker`."""
    return tuple(name for name, service in MODEL_SERVICES.items() if chooser in service.offers)


def key_variables(given: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold the keys of the chosen services, by the setting that lacks its key.

    Args:
        given: the settings so far.
        environment: variables of the process.
    """
    found = {}
    for chooser, (url, key) in CHOOSERS.items():
        chosen = given.get(chooser)
        # The key of a service is not sent to another address.
        if not isinstance(chosen, str) or key in given or given.get(url) is not None:
            continue
        service = MODEL_SERVICES.get(chosen.partition(":")[0])
        variable = next((name for name in service.key_variables if environment.get(name)), None) if service else None
        if variable is not None:
            found[key] = variable
    return found
