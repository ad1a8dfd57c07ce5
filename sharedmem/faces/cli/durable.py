"""Commands on the durable tier: how it is, what waits for it, what it refused, and bringing its keys back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sharedmem.clock import SystemClock
from sharedmem.config import Settings
from sharedmem.durable.admin import DurableAdmin
from sharedmem.durable.samples import SAMPLES
from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.faces.cli.app import DURABLE, command, durable
from sharedmem.faces.cli.output import (
    dim,
    empty_text,
    fields_table,
    format_age,
    format_count,
    format_duration,
    format_size,
    print_answer,
    progress,
    rows_table,
    stack,
    styled_text,
)
from sharedmem.faces.cli.session import Options, options_of, use_hub
from sharedmem.models import (
    Charges,
    DeadLetter,
    DurableLag,
    DurableStatus,
    SampleQuery,
    SampleResult,
    Verification,
)
from sharedmem.runtime import Counters

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")
Namespaces = Annotated[
    list[str] | None, typer.Argument(help="Which; without any, all that the tier has.", metavar="NAMESPACE")
]
_LONG_S = 60.0
_SOMETHING_IS_WRONG = 1


@command("status", None, group=durable, example="sharedmem durable status")
def durable_status(context: typer.Context) -> None:
    """Show how the durable tier is and how far it is behind; exit code 1 when something is wrong with it."""
    options = options_of(context)
    status = use_hub(options, lambda hub, _: hub.durable.status())
    print_answer(options, status, lambda: _status_picture(status))
    if not status.reachable or status.problems:
        raise typer.Exit(_SOMETHING_IS_WRONG)


@command("lag", None, group=durable, example="sharedmem durable lag --json")
def durable_lag(context: typer.Context) -> None:
    """Show what waits in Redis for the durable tier, namespace by namespace."""
    options = options_of(context)
    lags = use_hub(options, lambda hub, _: hub.durable.lags())
    print_answer(options, lags, lambda: _lag_picture(lags))


@command("drain", None, group=durable, example="sharedmem durable drain --timeout 120")
def durable_drain(
    context: typer.Context,
    namespace: Annotated[str | None, typer.Argument(help="Whose changes; by default of all namespaces.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to try for.")] = 60.0,
) -> None:
    """Carry what waits to the durable tier, and return when it is there; exit code 7 when it cannot be done."""
    options = options_of(context)
    use_hub(options, lambda hub, _: hub.durable.drain(namespace, timeout=timeout))
    print_answer(options, True, lambda: styled_text(("all of it is in the durable tier", "green")))


@command("dead", None, group=durable, example="sharedmem durable dead --namespace research")
def durable_dead(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="Show at most that many.", min=1)] = 100,
    discard: Annotated[
        list[str] | None, typer.Option(help="Give this one up for good; repeatable, or `all`.", metavar="ID")
    ] = None,
) -> None:
    """Show what the durable tier refused for good, oldest first; `durable replay` tries it again."""
    options = options_of(context)
    if discard:
        ids = None if discard == ["all"] else discard
        gone = use_hub(options, lambda hub, name: hub.durable.discard(name, ids))
        print_answer(options, gone, lambda: styled_text(format_count(gone, "dead letter"), " given up"))
        return
    letters = use_hub(options, lambda hub, name: hub.durable.dead_letters(name, limit=limit))
    print_answer(options, letters, lambda: _dead_letters_picture(letters))


@command("replay", None, group=durable, example="sharedmem durable replay --namespace research")
def durable_replay(context: typer.Context) -> None:
    """Try all dead letters of the namespace again, oldest first."""
    options = options_of(context)
    moved = use_hub(options, lambda hub, name: hub.durable.replay(name))
    print_answer(options, moved, lambda: styled_text(format_count(moved, "dead letter"), " on the way again"))


@command("verify", None, group=durable, example="sharedmem durable verify research")
def durable_verify(context: typer.Context, namespaces: Namespaces = None) -> None:
    """Compare Redis with the durable tier, and name what differs; exit code 1 when something does.

    What is in the tier alone is as it should be, and what still waits for it is not compared.
    """
    options = options_of(context)
    found = use_hub(options, lambda hub, _: _verify_namespaces(hub.durable, namespaces))
    print_answer(options, found, lambda: _verified_picture(found))
    if any(one.differences for one in found):
        raise typer.Exit(_SOMETHING_IS_WRONG)


@command("restore", DURABLE, example="sharedmem restore research")
def restore(context: typer.Context, namespaces: Namespaces = None) -> None:
    """Load into Redis what the durable tier has, so that no call waits for it after a loss of Redis.

    Keys that are in Redis stay as they are. It need not be done: a key that is read is loaded by itself.
    """
    options = options_of(context)
    restored = use_hub(options, lambda hub, _: _restore_namespaces(hub.durable, namespaces))
    print_answer(options, restored, lambda: _restored_picture(restored))


@command("samples", None, group=durable, example="sharedmem durable samples")
def durable_samples(context: typer.Context) -> None:
    """List the sample queries that `durable sample` runs on the memories of the durable tier."""
    print_answer(options_of(context), SAMPLES, lambda: _samples_picture(SAMPLES))


@command("sample", None, group=durable, example='sharedmem durable sample nearest --text "when is high tide?"')
def durable_sample(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which; `durable samples` lists them.")],
    thread: Annotated[str | None, typer.Option(help="Only memories of this thread.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Words, or a phrase; for a query by meaning it is embedded as the settings say.")
    ] = None,
    category: Annotated[str | None, typer.Option(help="Only memories of this category.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-k", help="Show at most that many.")] = 10,
) -> None:
    """Run a sample query on the memories in the durable tier, without Redis."""
    options = options_of(context)
    given = _sample_parameters(options, name, {"thread_id": thread, "text": text, "category": category})
    found = use_hub(options, lambda hub, namespace: hub.durable.run_sample(name, namespace, **given, limit=limit))
    print_answer(options, found, lambda: _sample_picture(found))


def _sample_parameters(options: Options, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a sample; where it takes a vector, that of the text."""
    takes = next(({*one.requires, *one.takes} for one in SAMPLES if one.name == name), set[str]())
    text = given["text"]
    if "vector" not in takes:
        return given
    if not text:
        raise InvalidError("text", text, f"the sample {name} requires it; give --text")
    vector = asyncio.run(_embedded(options.settings(), text))
    return {**given, "text": text if "text" in takes else None, "vector": vector}


async def _embedded(settings: Settings, text: str) -> list[float]:
    from sharedmem.providers.factory import open_embedder  # noqa: PLC0415  # few commands need vectors

    embedder = open_embedder(settings, SystemClock(), Counters())
    if embedder is None:
        raise UnsupportedError("a query by meaning", "pip install 'sharedmem-hub[local]', or set embedder")
    try:
        numbers: list[float] = (await embedder.embed([text], purpose="query")).vectors[0].tolist()
    finally:
        await embedder.close()
    return numbers


async def _verify_namespaces(tier: DurableAdmin, namespaces: Sequence[str] | None) -> list[Verification]:
    found = []
    for namespace in namespaces or await tier.namespaces():
        with progress(f"comparing {namespace}") as done:
            found.append(await tier.verify(namespace, done))
    return found


async def _restore_namespaces(tier: DurableAdmin, namespaces: Sequence[str] | None) -> dict[str, int]:
    restored = {}
    for namespace in namespaces or await tier.namespaces():
        with progress(f"restoring {namespace}") as done:
            restored[namespace] = await tier.restore(namespace, done)
    return restored


# -- pictures -------------------------------------------------------------------------------------


def _status_picture(status: DurableStatus) -> RenderableType:
    health = (
        styled_text(("in reach", "green")) if status.reachable else styled_text((f"away: {status.why}", "bold red"))
    )
    facts: list[tuple[str, object]] = [("where", status.url), ("id", status.id), ("state", health)]
    facts += [("problem", styled_text((problem, "bold red"))) for problem in status.problems]
    facts += _charges(status.charges)
    if status.spent.since is not None:
        units, since = status.spent.request_units, status.spent.since
        facts.append(("all hubs", f"{units:,.1f} RU since {since:%Y-%m-%d %H:%M} UTC"))
    return stack(fields_table(facts, title="durable tier"), "", _lag_picture(status.namespaces))


def _charges(charges: Charges) -> list[tuple[str, object]]:
    asked = f"{charges.reads:,} reads, {charges.writes:,} writes, {charges.queries:,} queries"
    rows: list[tuple[str, object]] = [("asked", asked)]
    if charges.request_units:
        rows.append(("charged", f"{charges.request_units:,.1f} RU"))
    if charges.throttled:
        rows.append(("throttled", styled_text((format_count(charges.throttled, "time"), "yellow"))))
    return rows


def _lag_picture(lags: Sequence[DurableLag]) -> RenderableType:
    if not lags:
        return dim("nothing has changed lately")
    numbers = ["waiting", "in hand", "dead letters"]
    rows = []
    for lag in lags:
        style = "bold red" if lag.oldest > _LONG_S else "yellow" if lag.waiting else "green"
        oldest = format_duration(lag.oldest) if lag.waiting else "-"
        waiting, dead = (
            styled_text((f"{lag.waiting:,}", style)),
            styled_text((f"{lag.dead:,}", "red" if lag.dead else "dim")),
        )
        recovery = styled_text((lag.recovery, "dim" if lag.recovery == "complete" else "yellow"))
        rows.append((lag.namespace, waiting, f"{lag.delivered:,}", oldest, dead, recovery))
    return rows_table(rows, "namespace", *numbers[:2], "oldest", numbers[2], "recovery", right=numbers)


def _dead_letters_picture(letters: Sequence[DeadLetter]) -> RenderableType:
    rows = [
        (
            letter.id,
            f"{letter.key} [{letter.element}]" if letter.element else letter.key or letter.name,
            letter.type or "?",
            format_size(letter.size),
            format_age(letter.at),
            styled_text((letter.reason, "red")),
        )
        for letter in letters
    ]
    return rows_table(rows, "id", "key", "type", "bytes", "refused", "why", right=["bytes"])


def _verified_picture(found: Sequence[Verification]) -> RenderableType:
    parts: list[RenderableType] = []
    for one in found:
        if one.differences:
            parts.append(_differences_picture(one))
        different = (format_count(len(one.differences), "difference"), "bold red")
        same = different if one.differences else ("the same", "green")
        waits = f", {format_count(one.waiting, 'key')} with changes under way" if one.waiting else ""
        parts.append(styled_text(f"{one.namespace}: ", format_count(one.keys, "key"), ", ", same, waits))
    return stack(*parts) if parts else empty_text()


def _differences_picture(found: Verification) -> RenderableType:
    rows = [
        (f"{one.key} [{one.element}]" if one.element else one.key, styled_text((one.what, "red")), one.redis, one.tier)
        for one in found.differences
    ]
    return rows_table(rows, "key", "what", "in Redis", "in the tier", title=f"namespace {found.namespace}")


def _samples_picture(samples: Sequence[SampleQuery]) -> RenderableType:
    rows = [
        (one.name, one.description, ", ".join(_options(one.requires)), ", ".join(_options(one.takes)))
        for one in samples
    ]
    return rows_table(rows, "name", "what it returns", "requires", "takes")


def _options(parameters: Sequence[str]) -> list[str]:
    """Return the options of parameters; a vector is that of the text."""
    spelled = {"thread_id": "--thread", "text": "--text", "vector": "--text", "category": "--category"}
    return list(dict.fromkeys(spelled[parameter] for parameter in parameters))


def _sample_picture(found: SampleResult) -> RenderableType:
    if not found.rows:
        return empty_text()
    if "id" not in found.rows[0]:
        return fields_table([(name.replace("_", " "), value) for name, value in found.rows[0].items()])
    has_similarity = any("similarity" in row for row in found.rows)
    headings = ["id", "thread", "turn", "when", "memory", *(["similarity"] if has_similarity else [])]
    rows = [
        (
            *(row["id"], row["thread_id"], "-" if row["turn_index"] is None else row["turn_index"]),
            *(row["timestamp"] or "-", row["memory"] or ""),
            *((f"{row['similarity']:.3f}",) if has_similarity else ()),
        )
        for row in found.rows
    ]
    return rows_table(rows, *headings, right=["turn", "similarity"])


def _restored_picture(restored: dict[str, int]) -> RenderableType:
    if not restored:
        return empty_text()
    return fields_table([(name, format_count(count, "key")) for name, count in restored.items()], title="restored")
