"""The report of the newsroom as Markdown: pure functions from readings to text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reading import Contradiction, Duplicate, Finding, Reading

_TOLD_IN_FIGURES = ("crown", "passenger", "people", "home", "metre", "kilometre", "centimetre", "pile", "votes")


def assembled(readings: Sequence[Reading], readers: dict[str, str]) -> str:
    """Return the writer's part: the documents, the chronicle, and the figures.

    Args:
        readings: one for each document.
        readers: name of the agent that read it, by document.
    """
    ordered = sorted(readings, key=lambda reading: reading.document)
    findings = [finding for reading in ordered for finding in reading.findings]
    words = sum(reading.words for reading in ordered)
    parts = [
        "# The bridge of Carrow Haven: what the documents say",
        f"{len(ordered)} documents, {words:,} words, {len(findings)} statements with a value.",
        "## Documents",
        _document_table(ordered, readers),
        "## Chronicle",
        _lines(sorted(_only(findings, {"date"}), key=lambda finding: finding.value)),
        "## Figures",
        _lines(sorted(_only(findings, _TOLD_IN_FIGURES), key=_figure_order)),
    ]
    return "\n\n".join(parts) + "\n"


def reviewed(contradictions: Sequence[Contradiction], duplicates: Sequence[Duplicate]) -> str:
    """Return the reviewer's part: contradictions between documents, and near duplicates."""
    parts = [
        "## Review",
        "Found by offline heuristics: compare the sentences before you print anything.",
        f"### {len(contradictions)} contradictions",
        "\n\n".join(_contradiction(number, found) for number, found in enumerate(contradictions, start=1)) or "None.",
        f"### {len(duplicates)} near duplicates",
        "\n".join(
            f"- `{pair.first}` and `{pair.second}` share {pair.jaccard:.0%} of their wording" for pair in duplicates
        )
        or "None.",
    ]
    return "\n" + "\n\n".join(parts) + "\n"


def in_one_line(contradiction: Contradiction) -> str:
    """Return a contradiction for a chat: `metre: 4.26 (03) against 4.62 (01, 02)`."""
    sides = (f"{side[0].written} ({', '.join(_number(finding) for finding in side)})" for side in contradiction.sides)
    return f"{contradiction.unit}: {' against '.join(sides)}"


def _number(finding: Finding) -> str:
    return finding.document.partition("-")[0]


def _document_table(readings: Sequence[Reading], readers: dict[str, str]) -> str:
    rows = (
        f"| {reading.document} | {reading.title} | {reading.words} | {len(reading.findings)} "
        f"| {readers.get(reading.document, '?')} |"
        for reading in readings
    )
    return "\n".join(["| document | title | words | statements | read by |", "|---|---|--:|--:|---|", *rows])


def _only(findings: Iterable[Finding], units: Iterable[str]) -> list[Finding]:
    wanted = frozenset(units)
    return [finding for finding in findings if finding.unit in wanted]


def _figure_order(finding: Finding) -> tuple[int, str]:
    return _TOLD_IN_FIGURES.index(finding.unit), finding.document


def _lines(findings: Iterable[Finding]) -> str:
    """Return one line for each sentence; reprints have the same sentences in several documents."""
    sources: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        sources.setdefault((finding.written, finding.sentence), []).append(f"`{finding.document}`")
    return "\n".join(
        f"- **{written}** {sentence} ({', '.join(names)})" for (written, sentence), names in sources.items()
    )


def _contradiction(number: int, found: Contradiction) -> str:
    first = found.sides[0][0]
    head = f"{number}. **{first.subject}: {first.attribute}** ({found.unit}, likeness {found.likeness:.2f})"
    quotes = (
        f"   - {finding.written} in `{finding.document}`: {finding.sentence}"
        for side in found.sides
        for finding in side
    )
    return "\n".join([head, *quotes])
