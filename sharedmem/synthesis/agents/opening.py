"""Agents as the language model allows: rules for the offline one, the model itself otherwise."""

from __future__ import annotations

from sharedmem.providers.extractive import ExtractiveSummarizer
from sharedmem.providers.protocol import LanguageModel
from sharedmem.synthesis.agents.model import ModelAgents
from sharedmem.synthesis.agents.offline import RuleAgents
from sharedmem.synthesis.protocol import Agents


def agents_of(model: LanguageModel) -> Agents:
    """Who does the work of synthesis.

    Args:
        model: what the settings have chosen, or the caller brought along.
    """
    return RuleAgents() if isinstance(model, ExtractiveSummarizer) else ModelAgents(model)
