"""Commands about what is installed and set: demo, config."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

import sharedmem
from sharedmem.config import Setting
from sharedmem.errors import NotFoundError, UnsupportedError
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.output import answer, cell, said, table, write_line
from sharedmem.faces.cli.session import options_of
from sharedmem.faces.cli.values import json_text

if TYPE_CHECKING:
    from rich.table import Table

_DEMO = Path("examples") / "newsroom" / "demo.py"


@command("demo", SERVER, example="sharedmem demo")
def demo(
    context: typer.Context,
    researchers: Annotated[int, typer.Option(min=2, help="Processes that read; the second of them is killed.")] = 3,
    think_s: Annotated[
        float, typer.Option(min=0.01, help="Seconds that each pretends to think over a document.")
    ] = 1.0,
    lease_s: Annotated[float, typer.Option(min=0.1, help="Seconds until the work of the dead falls to others.")] = 2.0,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of live tables.")] = False,
) -> None:
    """Watch agents read a folder of documents together, one of them killed; exit code 1 if work was lost."""
    options = options_of(context)
    newsroom = _loaded(_demo_path())
    chosen = newsroom.Options(
        researchers=researchers,
        think_s=think_s,
        lease_s=lease_s,
        plain=plain or options.json,
        redis_url=options.url,
        data_dir=options.data_dir,
    )
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        summary = asyncio.run(newsroom.run(chosen))
    if options.json:
        write_line(json_text(summary))
    raise typer.Exit(0 if summary.ok else 1)


@command("config", SERVER, example="sharedmem config data_dir")
def config(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Only this setting's value.")] = None,
) -> None:
    """Show every setting with its origin; secrets are masked."""
    options = options_of(context)
    settings = options.settings()
    rows = settings.describe()
    if name is None:
        answer(options, rows, lambda: _settings_picture(rows))
        return
    settings.origin(name)  # says what is near when there is no such setting
    value = next(row.value_shown for row in rows if row.name == name)
    answer(options, value, lambda: cell(value))


def _settings_picture(rows: list[Setting]) -> Table:
    picture = table("setting", "value", "origin")
    for row in rows:
        style = "dim" if row.origin == "default" else "bold"
        picture.add_row(said((row.name, style)), cell(row.value_shown), said((row.origin, style)))
    return picture


def _demo_path() -> Path:
    package = Path(sharedmem.__file__).resolve().parent
    for folder in (package, package.parent):
        if (folder / _DEMO).is_file():
            return folder / _DEMO
    raise NotFoundError("demo", str(_DEMO), "install sharedmem-hub anew, or run it in a checkout")


def _loaded(path: Path) -> ModuleType:
    """The module of a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location("sharedmem_demo", path)
    if spec is None or spec.loader is None:
        raise UnsupportedError("the demo", f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
