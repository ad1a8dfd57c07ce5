"""Finding: episodes, entities and facts by words and by meaning, and the context for a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from sharedmem.errors import InvalidError, UnavailableError, UnsupportedError
from sharedmem.knowledge.graph.base import check_limit
from sharedmem.knowledge.graph.lookups import Lookups
from sharedmem.knowledge.graph.meaning import Meaning, meaning_of
from sharedmem.knowledge.graph.records import Candidate, Hits, Letter, Search, Seen, Wanted, When
from sharedmem.knowledge.graph.retrieving.retrieval import Retrieval, Sought
from sharedmem.knowledge.graph.retrieving.weights import Weights
from sharedmem.knowledge.graph.views import KINDS, entity_of, episode_of, fact_of, version_at
from sharedmem.models import ContextSet, Entity, Episode, Fact, GraphHit, GraphKind
from sharedmem.search.analysis import query_terms
from sharedmem.telemetry import measured
from sharedmem.wire.vectors import Vector, check_vector
