"""Reading one episode by rules, and what it said in short."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sharedmem.knowledge.graph.extracting.loading import loaded
from sharedmem.knowledge.graph.extracting.rules import RuleExtractor
from sharedmem.knowledge.graph.extraction import Extraction, Known, Statement
from sharedmem.models import Episode

WEDNESDAY = datetime(2024, 5, 15, 10, 30, tzinfo=UTC)
SHIPPED = RuleExtractor()


async def read(text: str | dict[str, Any], extractor: RuleExtractor = SHIPPED, **fields: Any) -> Extraction:
    return await extractor.extract(Episode(content=text, group_id="g", occurred_at=WEDNESDAY, **fields), Known())


async def said(text: str, extractor: RuleExtractor = SHIPPED, **fields: Any) -> list[str]:
    """Statements in short: `holds Anna lives_in Berlin`."""
    return [in_short(statement) for statement in (await read(text, extractor, **fields)).statements]


def in_short(statement: Statement) -> str:
    end = statement.target or repr(statement.value)
    return f"{statement.says} {statement.source} {statement.type} {end}"


def rules(*lines: str | Mapping[str, Any], **fields: Any) -> RuleExtractor:
    return loaded({"rules": lines, "builtin": False, **fields}).extractor


def day(month: int, number: int, year: int = 2024) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


async def times(text: str, extractor: RuleExtractor = SHIPPED) -> list[tuple[object, object]]:
    return [(statement.valid_from, statement.valid_to) for statement in (await read(text, extractor)).statements]
