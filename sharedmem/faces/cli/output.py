"""The output of a command: JSON for programs, pictures for people, progress beside both."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from sharedmem.errors import InvalidError
from sharedmem.faces.cli.session import Options
from sharedmem.faces.cli.values import json_text, plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Progress = Callable[[int], None]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_COLUMNS = 6
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def is_interactive(options: Options) -> bool:
    """Whether standard output is a terminal that was not asked for JSON."""
    return sys.stdout.isatty() and not options.json


def print_answer(options: Options, data: object, picture: Callable[[], RenderableType]) -> None:
    """Print data for a program, or a picture, which is only made for a terminal."""
    if is_interactive(options):
        console().print(picture())
    else:
        write_line(json_text(data))


def write_line(text: str) -> None:
    """Write a line to standard output at once, so that a reader of a pipe need not wait."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def console(*, beside: bool = False) -> Console:
    """The terminal; `beside` is standard error, for what is no answer."""
    from rich.console import Console  # noqa: PLC0415  a pipe does not wait for it

    return Console(stderr=beside, highlight=False, soft_wrap=True, emoji=False, markup=False)


def confirm(question: Callable[[], str], argument: str, value: str | None, *, otherwise: str = "say --yes") -> None:
    """Ask the person at the terminal before something is lost.

    Args:
        question: makes the question, which may need a look at what would be lost.
        argument, value: what is rejected without a terminal.
        otherwise: what to do there.

    Raises:
        InvalidError: standard input is no terminal.
        typer.Exit: the person does not agree.
    """
    if not sys.stdin.isatty():
        raise InvalidError(argument, value, f"it cannot be confirmed without a terminal; {otherwise}")
    if not typer.confirm(question(), err=True):
        raise typer.Exit(1)


def read_text(text: str | None, otherwise: str) -> str:
    """Return the text that a command was given, or that of standard input.

    Args:
        text: the argument; None or `-` for standard input, where that is no terminal.
        otherwise: advice for a caller who gave no text.

    Raises:
        InvalidError: no text was given.
    """
    given = sys.stdin.read().rstrip("\n") if text in {None, "-"} and not sys.stdin.isatty() else text
    if not given:
        raise InvalidError("text", given, otherwise)
    return given


def print_note(text: str) -> None:
    """Say something to the person at the terminal, if there is one."""
    if sys.stderr.isatty():
        console(beside=True).print(text, style="dim")


def capability_name(power: str) -> str:
    """What people call a power of the server: graphs as such need no module, FalkorDB does."""
    return "FalkorDB" if power == "graph" else power.replace("_", " ")


@contextmanager
def progress(title: str, *, total: int | None = None, noun: str = "keys") -> Iterator[Progress | None]:
    """A bar on standard error that is gone at the end; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  likewise

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,}} {noun}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(beside=True), transient=True) as bars:
        bar = bars.add_task(title, total=total)
        yield lambda done: bars.update(bar, completed=done)


def without_total(told: Progress | None) -> Callable[[int, int], None] | None:
    """A progress callback for work that also says how much there is: the bar only counts what was done."""
    return None if told is None else lambda done, _: told(done)


# -- pictures -------------------------------------------------------------------------------------


def styled_text(*parts: str | tuple[str, str] | Text) -> Text:
    """A sentence, with parts that have a style."""
    from rich.text import Text  # noqa: PLC0415  likewise

    return Text.assemble(*parts)


def table(*headings: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the house style."""
    from rich import box  # noqa: PLC0415  likewise
    from rich.table import Table  # noqa: PLC0415  likewise

    picture = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False
    )
    picture.show_edge = False
    for heading in headings:
        picture.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return picture


def rows_table(
    rows: Sequence[Sequence[object]], *headings: str, title: str | None = None, right: Iterable[str] = ()
) -> Table | Text:
    """A table with these rows; without any, the text that says so."""
    if not rows:
        return empty_text()
    picture = table(*headings, title=title, right=right)
    for row in rows:
        picture.add_row(*map(_drawn, row))
    return picture


def stack(*parts: RenderableType) -> RenderableType:
    """Parts below each other."""
    from rich.console import Group  # noqa: PLC0415  likewise

    return Group(*parts)


def fields_table(rows: Iterable[tuple[str, object]], *, title: str | None = None) -> Table:
    """Names and values below each other, without lines around, so that they can be copied."""
    from rich.table import Table  # noqa: PLC0415  likewise

    picture = Table.grid(padding=(0, 2))
    picture.title, picture.title_justify, picture.title_style = title, "left", "bold"
    picture.add_column(style="dim", no_wrap=True)
    picture.add_column(overflow="fold")
    for name, value in rows:
        picture.add_row(name, _drawn(value))
    return picture


def _drawn(value: object) -> RenderableType:
    return typing.cast("RenderableType", value) if hasattr(value, "__rich_console__") else cell(value)


def dim(text: str) -> Text:
    """A text that is less important than those beside it."""
    return styled_text((text, "dim"))


def cell(value: object) -> Text:
    """A value in one place of a table: text as it is, anything else as JSON, coloured by its type."""
    from rich.text import Text  # noqa: PLC0415  likewise

    if isinstance(value, str):
        return Text(escape_control(value))
    ready = plain(value)
    styles = {bool: "magenta", int: "cyan", float: "cyan", type(None): "dim"}
    return Text(json_text(ready), style=styles.get(type(ready), "green" if isinstance(value, datetime) else ""))


def body(value: object) -> RenderableType:
    """A value by itself: text with its lines, anything else as indented and coloured JSON."""
    if isinstance(value, str):
        return cell(value)
    from rich.json import JSON  # noqa: PLC0415  likewise

    return JSON(json_text(value), indent=2)


def empty_text() -> Text:
    """What stands where there is nothing to show."""
    return dim("nothing there")


def list_table(values: Sequence[Any], *, first: int) -> Table | Text:
    """A list as a table; items that are mappings with the same few names get a column for each name."""
    if not values:
        return empty_text()
    names = list(values[0]) if isinstance(values[0], Mapping) else []
    alike = all(isinstance(item, Mapping) and list(item) == names for item in values)
    uniform = alike and 0 < len(names) <= _MOST_COLUMNS
    picture = table("#", *map(str, names if uniform else ["value"]), right=["#"])
    for number, item in enumerate(values, start=first):
        cells = [cell(item[name]) for name in names] if uniform else [cell(item)]
        picture.add_row(styled_text((str(number), "dim")), *cells)
    return picture


def escape_control(text: str) -> str:
    """A text that cannot command the terminal: control characters but line feeds and tabs are shown."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def format_size(count: int) -> str:
    """Bytes in the unit in which they read best."""
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def format_count(count: int, noun: str) -> str:
    """`1 key`, `2,000 keys`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Seconds in the two largest units that matter: `2 d 3 h`, `45 s`."""
    left, parts = round(seconds), []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def format_age(moment: datetime | None) -> str:
    """How long ago that was."""
    if moment is None:
        return "at an unknown time"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return "just now" if seconds < 1 else f"{format_duration(seconds)} ago"
