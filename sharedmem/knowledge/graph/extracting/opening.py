"""By what rules a graph takes in what it is told, as the settings say."""

from __future__ import annotations

from sharedmem.config import Settings
from sharedmem.errors import ConfigError, InvalidError
from sharedmem.knowledge.graph.base import Ways
from sharedmem.knowledge.graph.extracting.loading import SETTING, load_rules
from sharedmem.knowledge.graph.extracting.model import ModelExtractor
from sharedmem.knowledge.graph.relations import Vocabulary
from sharedmem.providers.protocol import LanguageModel

OFFLINE = "extractive"


def open_ways(settings: Settings, model: LanguageModel | None) -> Ways:
    """Vocabulary and extractor. Reads the rules file, if one is named; no round trip.

    Args:
        settings: `llm` and `graph_rules`.
        model: who reads the episodes, unless it is the offline one, which reads nothing.

    Raises:
        ConfigError: the rules file cannot be read, or something in it is wrong.
    """
    rules = load_rules(settings.graph_rules)
    try:
        vocabulary = Vocabulary(rules.relations)
    except InvalidError as error:
        raise ConfigError(SETTING, str(settings.graph_rules), f"relations: {error}") from error
    if model is None or settings.llm == OFFLINE:
        return Ways(vocabulary, rules.extractor)
    return Ways(vocabulary, ModelExtractor(model, vocabulary))
