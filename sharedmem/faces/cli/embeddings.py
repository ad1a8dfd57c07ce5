"""Commands on embeddings: show the vectors of texts and their cost, calibrate thresholds, look after search indexes."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.faces.cli.app import MEMORY, command, index
from sharedmem.faces.cli.output import (
    console,
    dim,
    fields_table,
    format_count,
    format_size,
    print_answer,
    progress,
    rows_table,
    stack,
    styled_text,
    table,
    without_total,
)
from sharedmem.faces.cli.session import Options, options_of, use_hub, with_operator_access
from sharedmem.hub import Hub
from sharedmem.models import IndexStatus
from sharedmem.runtime import Counters

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from sharedmem.hub.embeddings import EmbeddedTexts
    from sharedmem.providers.calibration import LabelledPairs, ThresholdAdvice, ThresholdPoint
    from sharedmem.providers.protocol import Embedder, EmbedderThresholds


# -- embed ----------------------------------------------------------------------------------------


_NUMBERS_SHOWN = 4


@command("embed", MEMORY, example="sharedmem embed 'the car broke down' 'our automobile failed'")
def embed(
    context: typer.Context,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="What to turn into vectors.")],
) -> None:
    """Show the vectors of texts, who made them, what they cost, and how near they are to the first."""
    from sharedmem.hub.embeddings import embed_texts  # noqa: PLC0415  few commands need vectors

    options = options_of(context)
    settings = options.settings()
    embedded = asyncio.run(embed_texts(with_operator_access(settings), settings.namespace, texts))
    print_answer(options, embedded, lambda: _vectors_picture(embedded, texts))


def _vectors_picture(embedded: EmbeddedTexts, texts: list[str]) -> RenderableType:
    cost = "unknown" if embedded.cost_usd is None else f"{embedded.cost_usd:.3g} USD"
    rows = [
        ("dimension", f"{embedded.dimension:,}"),
        ("tokens", f"{embedded.tokens:,}"),
        ("cost", cost),
        ("cached", f"{embedded.cached:,} of {len(set(texts)):,}"),
    ]
    return stack(fields_table(rows, title=embedded.name), _vectors(embedded, texts))


def _vectors(embedded: EmbeddedTexts, texts: list[str]) -> RenderableType:
    first, rows = embedded.vectors[0], []
    for text, vector in zip(texts, embedded.vectors, strict=True):
        nearness = sum(one * other for one, other in zip(first, vector, strict=True))
        shown = " ".join(f"{number:.3f}" for number in vector[:_NUMBERS_SHOWN])
        rows.append((text, f"{nearness:.3f}", f"{shown} ..."))
    return rows_table(rows, "text", "nearness", "vector", right=["nearness"])


# -- calibrate ------------------------------------------------------------------------------------


PairFile = Annotated[
    Path, typer.Argument(help='Lines of JSON {"a": "...", "b": "...", "same": true}; may be compressed (.gz).')
]
_BAR_WIDTH = 24
_MAX_REPORTED_LINES = 10
_LONGEST_BYTES = 1 << 28
_GZIP = b"\x1f\x8b"
_STEP = 0.02
_SETTINGS = {
    "dedup": "SHAREDMEM_DEDUP_SIMILARITY",
    "cache": "SHAREDMEM_CACHE_SIMILARITY",
    "link": "SHAREDMEM_SYNTHESIS_LINK_THRESHOLD",
    "recall": "SHAREDMEM_SYNTHESIS_RECALL_THRESHOLD",
    "score": "SHAREDMEM_SYNTHESIS_SCORE_THRESHOLD",
}
"""The environment variable of each threshold."""


@dataclass(frozen=True)
class Calibration:
    """What was measured on labelled pairs, and what follows."""

    embedder: str
    pairs: LabelledPairs
    max_false_hits: float
    setting: str
    """The environment variable of the threshold."""
    curve: list[ThresholdPoint]
    advice: ThresholdAdvice | None
    """None when no threshold keeps to the tolerated false hits."""

    @property
    def same(self) -> int:
        """Pairs that ask for the same."""
        return sum(pair.same for pair in self.pairs.good)

    @property
    def different(self) -> int:
        """Pairs that do not."""
        return len(self.pairs.good) - self.same

    def data(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "embedder": self.embedder,
            "same": self.same,
            "different": self.different,
            "bad_lines": self.pairs.bad_lines,
            "max_false_hits": self.max_false_hits,
            "curve": [point._asdict() for point in self.curve],
            "advice": self.advice._asdict() if self.advice else None,
            "setting": f"{self.setting}={self.advice.threshold:g}" if self.advice else None,
        }


def calibrate(options: Options, file: Path, max_false_hits: float, *, setting: str) -> None:
    """Measure the pairs of a file with the embedder of the settings, and print curve, advice and setting."""
    measured = asyncio.run(_measure(options.settings(), _read_pairs(file), max_false_hits, setting))
    _report_bad_lines(measured.pairs.bad_lines)
    print_answer(options, measured.data(), lambda: _calibration_picture(measured))


@command("calibrate", MEMORY, example="sharedmem calibrate pairs.jsonl")
def calibrate_all(context: typer.Context, file: PairFile) -> None:
    """Measure all similarity thresholds that the embedder needs; changes nothing, prints the settings."""
    options = options_of(context)
    found = _read_pairs(file)
    name, measured = asyncio.run(_measure_all(options.settings(), found))
    _report_bad_lines(found.bad_lines)
    chosen = {setting: getattr(measured, threshold) for threshold, setting in _SETTINGS.items()}
    data = {
        "embedder": name,
        "pairs": len(found.good),
        "bad_lines": found.bad_lines,
        "thresholds": {"noise": measured.noise, **{threshold: getattr(measured, threshold) for threshold in _SETTINGS}},
        "settings": [f"{setting}={value:g}" for setting, value in chosen.items()],
    }
    print_answer(options, data, lambda: _thresholds_picture(name, len(found.good), measured))


async def _measure_all(settings: Settings, found: LabelledPairs) -> tuple[str, EmbedderThresholds]:
    from sharedmem.providers.calibration import (  # noqa: PLC0415  few commands need vectors
        measure_thresholds,
        pair_similarities,
        unrelated_pairs,
    )

    embedder = _open_embedder(settings)
    try:
        with progress("comparing", total=len(found.good), noun="pairs") as done:
            near = await pair_similarities(embedder, found.good, progress=done)
            far = await pair_similarities(embedder, unrelated_pairs(found.good), progress=done)
    finally:
        await embedder.close()
    return embedder.name, measure_thresholds(found.good, near, far)


def _open_embedder(settings: Settings) -> Embedder:
    from sharedmem.providers.factory import open_embedder  # noqa: PLC0415

    embedder = open_embedder(settings, SystemClock(), Counters())
    if embedder is None:
        raise UnsupportedError("calibration without an embedder", "pip install 'sharedmem-hub[local]', or set embedder")
    return embedder


def _thresholds_picture(embedder: str, pairs: int, measured: EmbedderThresholds) -> RenderableType:
    picture = table("threshold", "similarity", "setting", right=["similarity"])
    for threshold, setting in _SETTINGS.items():
        shown = f"export {setting}={getattr(measured, threshold):g}"
        picture.add_row(threshold, f"{getattr(measured, threshold):.3f}", styled_text((shown, "green")))
    picture.add_row("noise", f"{measured.noise:.3f}", "unrelated texts reach it")
    return stack(fields_table([("embedder", embedder), ("pairs", f"{pairs:,}")]), styled_text(""), picture)


def _read_pairs(file: Path) -> LabelledPairs:
    from sharedmem.providers.calibration import read_pairs  # noqa: PLC0415  few commands need vectors

    try:
        content = file.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(_LONGEST_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError("file", str(file), "give the path of a file of labelled pairs") from None
    except (OSError, EOFError) as error:
        raise InvalidError("file", str(file), f"it cannot be read: {error}") from error
    if len(content) > _LONGEST_BYTES:
        raise InvalidError("file", str(file), f"it holds more than {_LONGEST_BYTES >> 20} MiB; give fewer pairs")
    found = read_pairs(content.splitlines())
    if not found.good:
        raise InvalidError("file", str(file), 'it holds no line such as {"a": "...", "b": "...", "same": true}')
    return found


async def _measure(settings: Settings, found: LabelledPairs, max_false_hits: float, setting: str) -> Calibration:
    from sharedmem.providers.calibration import (  # noqa: PLC0415
        THRESHOLDS,
        advise_threshold,
        pair_similarities,
        threshold_curve,
    )

    embedder = _open_embedder(settings)
    try:
        with progress("comparing", total=len(found.good), noun="pairs") as done:
            near = await pair_similarities(embedder, found.good, progress=done)
    finally:
        await embedder.close()
    advised = advise_threshold(found.good, near, max_false_hits=max_false_hits)
    thresholds = {*THRESHOLDS, advised.threshold} if advised else THRESHOLDS
    points = threshold_curve(found.good, near, thresholds=sorted(thresholds, reverse=True))
    return Calibration(embedder.name, found, max_false_hits, setting, points, advised)


def _report_bad_lines(numbers: list[int]) -> None:
    if not numbers:
        return
    shown = ", ".join(map(str, numbers[:_MAX_REPORTED_LINES])) + (", ..." if len(numbers) > _MAX_REPORTED_LINES else "")
    console(beside=True).print(f"sharedmem: {format_count(len(numbers), 'line')} hold no pair: {shown}", style="yellow")


# -- pictures -------------------------------------------------------------------------------------


def _calibration_picture(measured: Calibration) -> RenderableType:
    facts = [
        ("embedder", measured.embedder),
        ("pairs", f"{measured.same:,} that ask for the same, {measured.different:,} that do not"),
    ]
    return stack(
        fields_table(facts), styled_text(""), _curve_picture(measured), styled_text(""), _advice_picture(measured)
    )


def _curve_picture(measured: Calibration) -> Table:
    right = ["threshold", "same", "different", "same, guarded", "different, guarded"]
    picture = table(*right, "found (green) and mistaken (red), guarded", right=right)
    chosen = measured.advice.threshold if measured.advice else None
    for point in _shown_points(measured.curve, chosen):
        style = "bold" if point.threshold == chosen else ""
        picture.add_row(
            styled_text((f"{point.threshold:.3f}".removesuffix("0"), style or "cyan")),
            *(styled_text((f"{share:.1%}", style or "dim")) for share in (point.same_hit, point.different_hit)),
            styled_text((f"{point.same_hit_guarded:.1%}", f"{style} green".strip())),
            styled_text((f"{point.different_hit_guarded:.2%}", f"{style} red".strip())),
            _bars(point),
        )
    return picture


def _shown_points(points: list[ThresholdPoint], chosen: float | None) -> list[ThresholdPoint]:
    """Every second hundredth, and the threshold that is advised."""
    return [point for point in points if point.threshold == chosen or _is_round(point.threshold)]


def _is_round(threshold: float) -> bool:
    return abs(threshold / _STEP - round(threshold / _STEP)) < 1e-6


def _bars(point: ThresholdPoint) -> Text:
    """Two bars, one after the other: the same that were found, and others that were taken for it."""
    found, mistaken = (share * _BAR_WIDTH for share in (point.same_hit_guarded, point.different_hit_guarded))
    return styled_text(("━" * round(found), "green"), ("━" * max(round(mistaken), int(mistaken > 0)), "red"))


def _advice_picture(measured: Calibration) -> Text:
    advised, tolerated = measured.advice, f"{measured.max_false_hits:.2%}"
    if advised is None:
        return styled_text(
            ("No threshold keeps mistakes within ", "yellow"), (tolerated, "yellow"), ": only the same prompt."
        )
    parts: list[str | tuple[str, str]] = [
        ("At ", "dim"),
        (f"{advised.threshold:g}", "bold"),
        (f" with guards {advised.same_hit:.1%} of the same are found, ", "dim"),
        (f"{advised.different_hit:.2%} of the others are mistaken (tolerated {tolerated}).\n", "dim"),
        (f"export {measured.setting}={advised.threshold:g}", "bold green"),
    ]
    if not advised.is_certain:
        few = f"\n{measured.different:,} pairs that differ are too few to be sure of {tolerated}; give more of them."
        parts.append((few, "yellow"))
    return styled_text(*parts)


# -- indexes --------------------------------------------------------------------------------------


T = TypeVar("T")
Family = Annotated[str, typer.Option(help="What the index holds: memory or cache.")]


@command("list", None, group=index, example="sharedmem index list")
def index_list(context: typer.Context) -> None:
    """Show every search index: what it holds, and whether it is well."""
    options = options_of(context)
    found = use_hub(options, lambda hub, _: hub.index.all())
    print_answer(options, found, lambda: _picture(found))


@command("check", None, group=index, example="sharedmem --namespace research index check")
def index_check(context: typer.Context) -> None:
    """Check the search indexes of the namespace; exit code 1 if something is wrong."""
    options = options_of(context)
    problems = use_hub(options, lambda hub, namespace: hub.index.check(namespace))
    print_answer(options, problems, lambda: _problems_picture(problems))
    if problems:
        raise typer.Exit(1)


@command("promote", None, group=index, example="sharedmem --namespace research index promote")
def index_promote(context: typer.Context, family: Family = "memory") -> None:
    """Give the namespace an index of its own, while it is used."""
    options = options_of(context)

    async def promoted(hub: Hub, namespace: str) -> list[IndexStatus]:
        with progress("promoting", noun="documents") as bar:
            await hub.index.promote(namespace, family=family, progress=without_total(bar))
        return await hub.index.all()

    found = use_hub(options, promoted)
    print_answer(options, found, lambda: _picture(found))


@command("rebuild", None, group=index, example="sharedmem --namespace research index rebuild")
def index_rebuild(
    context: typer.Context,
    family: Family = "memory",
    shared: Annotated[
        bool, typer.Option("--shared", help="Of all indexes the one that small namespaces share.")
    ] = False,
) -> None:
    """Build anew the index in which the namespace is searched, beside the old one; searches go on meanwhile.

    After a change of the embedder the memories in it get new vectors.
    """
    options = options_of(context)

    async def rebuilt(hub: Hub, namespace: str) -> list[IndexStatus]:
        with progress("rebuilding", noun="documents") as bar:
            await hub.index.rebuild(None if shared else namespace, family=family, progress=without_total(bar))
        return await hub.index.all()

    found = use_hub(options, rebuilt)
    print_answer(options, found, lambda: _picture(found))


def _picture(found: list[IndexStatus]) -> RenderableType:
    rows = [
        (
            one.family,
            ", ".join(one.namespaces) or dim("shared"),
            styled_text(f"{one.documents:,}", (f", {one.failures:,} failed", "red") if one.failures else ""),
            format_size(one.bytes),
            f"{one.algorithm}, being built" if one.indexing else one.algorithm,
            one.model or dim("none"),
        )
        for one in found
    ]
    picture = rows_table(rows, "holds", "of", "documents", "size", "by", "embedder", right=["documents", "size"])
    problems = [
        problem if one.name in problem else f"{one.name}: {problem}" for one in found for problem in one.problems
    ]
    return stack(picture, *(styled_text(("! ", "yellow"), problem) for problem in problems))


def _problems_picture(problems: list[str]) -> RenderableType:
    if not problems:
        return styled_text(("well", "green"))
    lines = (styled_text(("! ", "yellow"), problem) for problem in problems)
    return stack(styled_text((format_count(len(problems), "problem"), "yellow")), *lines)
