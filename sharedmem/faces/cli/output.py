"""The output of a command: JSON for programs, pictures for people, progress beside both; and words that mean values.

What JSON cannot hold is printed readably.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.faces.cli.session import Options

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


# -- values as words and as JSON ------------------------------------------------------------------


# Begins as an object, an array or a quoted text does; `{name}` and `[draft] ...` are texts that people write.
_MEANT_AS_JSON = re.compile(r"""\s*(?:\{\s*(?:["'}]|\w+\s*:)|\[\s*(?:["'\[{\]]|-?\d)|"[^"]*$)""")


def read_value(word: str) -> Any:
    """The value that an argument means: `@file` or `-` (standard input) for its content; JSON, else text.

    `@@` at the beginning means one `@` of a text. A content that is not UTF-8 is a value of bytes.

    A text that looks like broken JSON is warned of on standard error.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it cannot be read, or is nested too deeply.
    """
    if word == "-":
        return _content(sys.stdin.buffer.read())
    if word.startswith("@@"):
        return word[1:]
    return _content(_file(Path(word[1:]))) if word.startswith("@") else _parse_json(word)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path), "for a text that begins with @ write @@") from error
    except OSError as error:
        raise InvalidError("file", str(path), f"it cannot be read: {error.strerror}") from error


def _content(raw: bytes) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return _parse_json(text)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_json)
    except json.JSONDecodeError as error:
        if _MEANT_AS_JSON.match(text):
            what = f"{error.msg} at character {error.pos + 1}"
            sys.stderr.write(f"sharedmem: warning: the value looks like broken JSON ({what}); it is kept as a text\n")
        return text
    except ValueError:
        return text
    except RecursionError:
        raise InvalidError("value", text, "it is nested too deeply") from None


def _no_json(name: str) -> float:
    raise ValueError(name)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON; see `plain`."""
    return json.dumps(plain(value), ensure_ascii=False, indent=indent, allow_nan=False)


def plain(value: object) -> Any:
    """A value as JSON can hold it.

    Times as ISO 8601 text, durations in seconds, bytes as `{"$base64": "..."}`, sets sorted, arrays as lists,
    NaN and infinities as null; identifiers, decimals and keys of mappings that are not text as their text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case set() | frozenset():
            return [plain(item) for item in sort_members(value)]
        case list() | tuple():
            return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else _leaf(value)


def _leaf(value: object) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case bytes():
            return {"$base64": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    return str(value)


def sort_members(members: Collection[Any]) -> list[Any]:
    """The members of a set, always in the same order: numbers, then the rest by type and text."""
    numbers = sorted(member for member in members if isinstance(member, int | float))
    others = (member for member in members if not isinstance(member, int | float))
    return numbers + sorted(others, key=lambda member: (type(member).__name__, str(member)))
