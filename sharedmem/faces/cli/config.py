"""Commands about the installation: demo, config."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sharedmem
from sharedmem.config import Setting
from sharedmem.errors import InvalidError, NotFoundError, UnsupportedError
from sharedmem.faces.cli.app import SERVER, command
from sharedmem.faces.cli.output import cell, print_answer, rows_table, styled_text, write_line
from sharedmem.faces.cli.session import Options, options_of
from sharedmem.faces.cli.values import json_text

if TYPE_CHECKING:
    from rich.console import RenderableType


_ENDING_S = 3.0


class Demo(StrEnum):
    """The demos there are."""

    NEWSROOM = "newsroom"
    TRADING = "trading"


_PLACES = {Demo.NEWSROOM: Path("newsroom") / "demo.py", Demo.TRADING: Path("trading_desk") / "floor.py"}


@command("demo", SERVER, example="sharedmem demo trading")
def demo(
    context: typer.Context,
    which: Annotated[Demo, typer.Argument(help="Readers of documents, or a desk that never places an order twice.")] = (
        Demo.NEWSROOM
    ),
    researchers: Annotated[int, typer.Option(min=2, help="Newsroom: readers; the second of them is killed.")] = 3,
    think_s: Annotated[float, typer.Option(min=0.01, help="Newsroom: seconds to think over a document.")] = 1.0,
    lease_s: Annotated[
        float, typer.Option(min=0.1, help="Newsroom: seconds until others take a dead one's work.")
    ] = 2.0,
    plain: Annotated[bool, typer.Option("--plain", help="Newsroom: lines instead of live tables.")] = False,
    console: Annotated[bool, typer.Option("--console", help="Newsroom: look on in the browser, until Ctrl-C.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link of --console only.")] = False,
    naive: Annotated[bool, typer.Option("--naive", help="Trading: without the decision log, to see it fail.")] = False,
) -> None:
    """Watch agents work together while some of them die; exit code 1 if anything was lost or done twice."""
    options = options_of(context)
    module = _load_module(_demo_path(which))
    server = {"redis_url": options.url, "data_dir": options.data_dir}
    if which is Demo.TRADING:
        chosen = module.Options(naive=naive, **server)
    else:
        shown = plain or options.json
        chosen = module.Options(researchers=researchers, think_s=think_s, lease_s=lease_s, plain=shown, **server)
    if console and which is Demo.TRADING:
        raise InvalidError("console", "trading", "look on at the newsroom: sharedmem demo --console")
    running = _watched(options, module, chosen, opens_browser=not no_browser) if console else module.run(chosen)
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        summary = asyncio.run(running)
    if options.json:
        write_line(json_text(summary))
    raise typer.Exit(0 if summary.ok else 1)


async def _watched(options: Options, module: ModuleType, chosen: Any, *, opens_browser: bool) -> Any:
    """Run the newsroom while somebody looks on in the console, until Ctrl-C."""
    from sharedmem.faces.cli.console import open_console  # noqa: PLC0415  # needs an extra, which it names itself

    page = open_console(options, namespace=module.NAMESPACE, port=0, write=True, opens_browser=opens_browser)
    async with page as told:
        work, end = asyncio.create_task(module.run(chosen, visit=told)), asyncio.create_task(told.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({work}, timeout=_ENDING_S)
            if not work.done():
                raise typer.Exit(1)  # Ctrl-C before the agents were done
            return await work
        finally:
            for task in (work, end):
                task.cancel()
            await asyncio.gather(work, end, return_exceptions=True)


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
        print_answer(options, rows, lambda: _settings_picture(rows))
        return
    settings.origin(name)  # says what is near when there is no such setting
    value = next(row.value_shown for row in rows if row.name == name)
    print_answer(options, value, lambda: cell(value))


def _settings_picture(rows: list[Setting]) -> RenderableType:
    shown = []
    for row in rows:
        style = "dim" if row.origin == "default" else "bold"
        shown.append((styled_text((row.name, style)), row.value_shown, styled_text((row.origin, style))))
    return rows_table(shown, "setting", "value", "origin")


def _demo_path(which: Demo) -> Path:
    package = Path(sharedmem.__file__).resolve().parent
    for folder in (package, package.parent):
        path = folder / "examples" / _PLACES[which]
        if path.is_file():
            return path
    raise NotFoundError("demo", str(_PLACES[which]), "install sharedmem-hub anew, or run it in a checkout")


def _load_module(path: Path) -> ModuleType:
    """The module of a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location("sharedmem_demo", path)
    if spec is None or spec.loader is None:
        raise UnsupportedError("the demo", f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
