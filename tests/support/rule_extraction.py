"""Reading one episode by rules, and what it said in short."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sharedmem.graph.extraction.rule_extractor import RuleExtractor, parse_rules
from sharedmem.graph.protocol import Extraction, Known, Statement
from sharedmem.models import Episode

WEDNESDAY = datetime(2024, 5, 15, 10, 30, tzinfo=UTC)
DEFAULT_EXTRACTOR = RuleExtractor()


async def extract_text(
    text: str | dict[str, Any], extractor: RuleExtractor = DEFAULT_EXTRACTOR, **fields: Any
) -> Extraction:
    return await extractor.extract(Episode(content=text, group_id="g", occurred_at=WEDNESDAY, **fields), Known())


async def extract_statements(text: str, extractor: RuleExtractor = DEFAULT_EXTRACTOR, **fields: Any) -> list[str]:
    """Statements in short: `holds Anna lives_in Berlin`."""
    return [format_statement(statement) for statement in (await extract_text(text, extractor, **fields)).statements]


def format_statement(statement: Statement) -> str:
    end = statement.target or repr(statement.value)
    return f"{statement.says} {statement.source} {statement.type} {end}"


def make_rules(*lines: str | Mapping[str, Any], **fields: Any) -> RuleExtractor:
    return parse_rules({"rules": lines, "builtin": False, **fields}).extractor


def day(month: int, number: int, year: int = 2024) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


async def extract_times(text: str, extractor: RuleExtractor = DEFAULT_EXTRACTOR) -> list[tuple[object, object]]:
    return [
        (statement.valid_from, statement.valid_to) for statement in (await extract_text(text, extractor)).statements
    ]
