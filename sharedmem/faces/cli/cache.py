"""Commands on the semantic cache: check, put, invalidate, clear, report, stats, calibrate."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.faces.cli.app import cache, command
from sharedmem.faces.cli.operations import Reads, operation_command
from sharedmem.faces.cli.output import (
    body,
    confirm,
    console,
    fields_table,
    format_count,
    format_duration,
    print_answer,
    progress,
    stack,
    styled_text,
    table,
)
from sharedmem.faces.cli.session import Options, options_of, perform
from sharedmem.faces.cli.values import read_value
from sharedmem.models import CachedResult, CacheStats
from sharedmem.runtime import Counters

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from sharedmem.cache.calibration import LabelledPairs, ThresholdAdvice, ThresholdPoint


Prompt = Annotated[str, typer.Argument(help="What is asked.")]
Key = Annotated[str, typer.Option(help="What else the answer depends on: a user, a document.")]
Model = Annotated[str, typer.Option(help="The model that answers.")]
PromptVersion = Annotated[str, typer.Option(help="Version of the template around the prompt.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may come again.")]


@command("check", None, group=cache, example='sharedmem cache check "what is the capital of France?"')
def cache_check(
    context: typer.Context,
    prompt: Prompt,
    *,
    threshold: Annotated[
        float | None, typer.Option(help="Cosine similarity from which meaning is near enough; without it the setting.")
    ] = None,
    key: Key = "",
    model: Model = "",
    prompt_version: PromptVersion = "",
    tag: Tags = None,
) -> None:
    """Show the answer that fits a prompt; exit code 3 if no answer fits."""
    options = options_of(context)
    found = perform(
        options,
        "cache.check",
        prompt=prompt,
        threshold=threshold,
        key=key,
        model=model,
        prompt_version=prompt_version,
        tags=tuple(tag or ()),
    )
    print_answer(options, found, lambda: _answer_picture(found))
    if found is None:
        raise typer.Exit(3)


@operation_command(
    "cache.put", "put", group=cache, example='sharedmem cache put "what is the capital of France?" Paris --tag geo'
)
def cache_put(  # noqa: PLR0913  # each is an option
    answer: str,
    prompt: Prompt,
    response: Annotated[str, typer.Argument(help="The answer: JSON or text; @file or - reads it."), Reads(read_value)],
    *,
    ttl: Annotated[float | None, typer.Option(help="Seconds until it is forgotten; without it the setting.")] = None,
    key: Key = "",
    model: Model = "",
    prompt_version: PromptVersion = "",
    tags: Tags = None,
    cost: Annotated[float, typer.Option(help="What the answer cost.")] = 0.0,
    tokens: Annotated[int, typer.Option(help="How many tokens it took.")] = 0,
) -> RenderableType:
    """Keep the answer to a prompt, and tell its id."""
    return styled_text(("kept as ", "dim"), answer)


@operation_command("cache.delete", "delete", group=cache, example="sharedmem cache delete --tag geo")
def cache_delete(
    dropped: int,
    tag: Annotated[str | None, typer.Option(help="Answers with this tag.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Answers to this prompt, whatever the model.")] = None,
    key: Annotated[str | None, typer.Option(help="Answers under this key.")] = None,
) -> RenderableType:
    """Forget answers to which all that is given applies."""
    return styled_text(format_count(dropped, "answer"), " forgotten")


@command("clear", None, group=cache, example="sharedmem cache clear --yes")
def cache_clear(
    context: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Forget every answer of the namespace; what was counted stays."""
    options = options_of(context)
    if not yes:
        namespace = options.settings().namespace
        confirm(lambda: f"Forget {_count_answers(options)} of namespace {namespace}?", "clear", namespace)
    dropped = perform(options, "cache.clear")
    print_answer(options, dropped, lambda: styled_text(format_count(dropped, "answer"), " forgotten"))


def _count_answers(options: Options) -> str:
    return format_count(perform(options, "cache.stats").entries, "answer")


@operation_command(
    "cache.report", "report", group=cache, example="sharedmem cache report 196c698fd5c5227e000c739b79c3b30d"
)
def cache_report(_: None, id_: Annotated[str, typer.Argument(metavar="ID", help="Of an answer.")]) -> RenderableType:
    """Tell that an answer did not fit the prompt it was given for; it is counted."""
    return styled_text("counted as a false hit")


@operation_command("cache.stats", "stats", group=cache, example="sharedmem cache stats")
def cache_stats(stats: CacheStats) -> RenderableType:
    """Show how the cache of the namespace has done."""
    checks = stats.hits + stats.misses
    rate = styled_text((f"{stats.hit_rate:.1%}", "green" if stats.hits else "dim"), (f" of {checks:,} checks", "dim"))
    return fields_table(
        [
            ("answers", stats.entries),
            ("hit rate", rate),
            ("hits", styled_text(f"{stats.hits:,}", (f", {stats.exact_hits:,} by the same prompt", "dim"))),
            ("misses", stats.misses),
            ("guarded", styled_text(f"{stats.guarded:,}", (" near prompts that ask for something else", "dim"))),
            ("false hits", styled_text((f"{stats.false_hits:,}", "red" if stats.false_hits else ""))),
            ("saved", styled_text(f"{stats.saved_cost:,.2f}", (f", {stats.saved_tokens:,} tokens", "dim"))),
        ]
    )


def _answer_picture(found: CachedResult | None) -> RenderableType:
    if found is None:
        return styled_text(("no answer fits", "yellow"))
    how = "the same prompt" if found.exact else f"similarity {found.similarity:.4f}"
    rows = [("id", found.id), ("asked", found.prompt), ("found by", how), ("age", format_duration(found.age_s))]
    return stack(body(found.response), fields_table(rows))


SETTING = "SHAREDMEM_CACHE_SIMILARITY"
_BAR_WIDTH = 24
_MAX_REPORTED_LINES = 10
_LONGEST_BYTES = 1 << 28
_GZIP = b"\x1f\x8b"
_STEP = 0.02


@dataclass(frozen=True)
class Calibration:
    """What was measured on labelled pairs, and what follows."""

    embedder: str
    pairs: LabelledPairs
    max_false_hits: float
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
            "setting": f"{SETTING}={self.advice.threshold:g}" if self.advice else None,
        }


@command("calibrate", None, group=cache, example="sharedmem cache calibrate pairs.jsonl --max-false-hits 0.005")
def cache_calibrate(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help='Lines of JSON {"a": "...", "b": "...", "same": true}; may be compressed (.gz).')
    ],
    max_false_hits: Annotated[
        float, typer.Option(help="Share of the pairs that differ which may be taken for the same.")
    ] = 0.005,
) -> None:
    """Measure which threshold is safe for your prompts and embedder; changes nothing, tells the setting."""
    options = options_of(context)
    measured = asyncio.run(_calibrate(options.settings(), _read_pairs(file), max_false_hits))
    _report_bad_lines(measured.pairs.bad_lines)
    print_answer(options, measured.data(), lambda: _calibration_picture(measured))


def _read_pairs(file: Path) -> LabelledPairs:
    from sharedmem.cache.calibration import read_pairs  # noqa: PLC0415  few commands need vectors

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


async def _calibrate(settings: Settings, found: LabelledPairs, max_false_hits: float) -> Calibration:
    from sharedmem.cache.calibration import (  # noqa: PLC0415
        THRESHOLDS,
        advise_threshold,
        pair_similarities,
        threshold_curve,
    )
    from sharedmem.providers.factory import open_embedder  # noqa: PLC0415

    embedder = open_embedder(settings, SystemClock(), Counters())
    if embedder is None:
        raise UnsupportedError("calibration without an embedder", "pip install 'sharedmem-hub[local]', or set embedder")
    try:
        with progress("comparing", total=len(found.good), noun="pairs") as done:
            near = await pair_similarities(embedder, found.good, progress=done)
    finally:
        await embedder.close()
    advised = advise_threshold(found.good, near, max_false_hits=max_false_hits)
    thresholds = {*THRESHOLDS, advised.threshold} if advised else THRESHOLDS
    points = threshold_curve(found.good, near, thresholds=sorted(thresholds, reverse=True))
    return Calibration(embedder.name, found, max_false_hits, points, advised)


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
        (f"export {SETTING}={advised.threshold:g}", "bold green"),
    ]
    if not advised.is_certain:
        few = f"\n{measured.different:,} pairs that differ are too few to be sure of {tolerated}; give more of them."
        parts.append((few, "yellow"))
    return styled_text(*parts)
