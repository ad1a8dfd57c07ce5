"""Each Lua script keeps its word: header, body and typed caller say the same, in the dialect that all servers share."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sharedmem.errors import InternalError
from sharedmem.redis.scripts import DURABLE_SUFFIX, Script, lua_directory, scripts
from sharedmem.redis.scripts.conversations import ConversationAppend, ConversationScripts
from sharedmem.redis.scripts.coordination import (
    BarrierScripts,
    LeaseScripts,
    LimitRequest,
    NameScripts,
    OnceEnd,
    OnceRequest,
    OnceScripts,
    PresenceScripts,
    RateLimitScripts,
)
from sharedmem.redis.scripts.data import CollectionChange, DataScripts, GroupScripts, KeyWrite, ValueScripts
from sharedmem.redis.scripts.decisions import DecisionScripts
from sharedmem.redis.scripts.durable import (
    DurableScripts,
    FilledPart,
    KeyFill,
    KeyLook,
    KeyRestoreScripts,
    RecordRestoreScripts,
)
from sharedmem.redis.scripts.integrations import CheckpointScripts, ItemScripts, ObjectScripts
from sharedmem.redis.scripts.knowledge import CacheScripts, EpisodeScripts, GraphScripts, MemoryScripts, NoteScripts
from sharedmem.redis.scripts.task_queues import QueueScripts

LUA = lua_directory()
SCRIPTS = sorted(LUA.glob("*.lua"))
INCLUDES = sorted((LUA / "include").glob("*.lua"))

# The classes of typed callers; each script has its method in one of them.
CALLERS: tuple[type, ...] = (
    PresenceScripts,
    RecordRestoreScripts,
    CacheScripts,
    CheckpointScripts,
    DecisionScripts,
    BarrierScripts,
    GraphScripts,
    DurableScripts,
    LeaseScripts,
    NameScripts,
    RateLimitScripts,
    ValueScripts,
    DataScripts,
    GroupScripts,
    NoteScripts,
    ObjectScripts,
    QueueScripts,
    EpisodeScripts,
    ConversationScripts,
    MemoryScripts,
    ItemScripts,
    KeyRestoreScripts,
    OnceScripts,
)
# What the ledger and the store's signature give, so that callers do not.
GIVEN = {"slot", "number", "keep_ms", "actor"}
# How a key is kept (`wire.tier.Keep`) becomes the keys and arguments of include/kept.lua, which are cut off first.
KEPT_BY_THE_HUB = {"keep"}
# `INCLUDE keeping` means one of these: with a durable tier, or without.
KEEPING = {"keeping": ("kept", "unkept")}
# What real servers or fakeredis lack, what changes users' values, and what differs from run to run.
FORBIDDEN = ("os", "io", "cjson", "cmsgpack", "struct", "bit", "math.random", "print", "error", "loadstring", "_G")
WORDS = re.compile(r"--[^\n]*|'(?:\\.|[^'\\])*'")
WITHOUT_KEY = {"TIME", "PUBLISH"}


class Contract(NamedTuple):
    """The header of a script."""

    title: str
    includes: list[str]
    keys: list[str]
    argv: list[str]
    lines: list[str]


@cache
def contract(path: Path) -> Contract:
    header = []
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        header.append(line.removeprefix("--").strip())
    named = {word: [line.split()[1] for line in header if line.startswith(f"{word} ")] for word in ("KEYS", "ARGV")}
    includes = [name for names in re.findall(r"^-- INCLUDE (.+)$", text, re.MULTILINE) for name in names.split()]
    return Contract(header[0], includes, named["KEYS"], named["ARGV"], header)


def includes_of(path: Path, *, kept: bool = False) -> list[Path]:
    """The files that a script includes, in the form that a durable tier takes, or in the plain one."""
    names = [KEEPING[name][0 if kept else 1] if name in KEEPING else name for name in contract(path).includes]
    return [LUA / "include" / f"{name}.lua" for name in names]


def code(path: Path) -> str:
    """The body without comments and strings."""
    return WORDS.sub(lambda found: "''" if found[0].startswith("'") else "", path.read_text(encoding="utf-8"))


def by_name(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


# -- header ---------------------------------------------------------------------------------------


@by_name(SCRIPTS + INCLUDES)
def test_a_script_says_what_it_does(path: Path) -> None:
    name, colon, story = contract(path).title.partition(": ")

    assert (name, colon) == (path.stem, ": ")
    assert story.endswith((".", ")"))


@by_name(SCRIPTS)
def test_a_header_names_keys_arguments_and_answers(path: Path) -> None:
    lines = contract(path).lines

    assert contract(path).keys
    assert any(line.startswith("RETURNS ") for line in lines)
    for line in lines:
        if line.startswith(("KEYS ", "ARGV ")):
            assert len(line.split()) >= 4, f"name, type and meaning are wanted: {line}"


@by_name(SCRIPTS)
def test_what_a_script_includes_exists(path: Path) -> None:
    assert set(includes_of(path) + includes_of(path, kept=True)) <= set(INCLUDES)


@by_name(SCRIPTS)
def test_a_body_uses_every_key_and_argument_of_its_header(path: Path) -> None:
    for word, names in (("KEYS", declared(path).keys), ("ARGV", declared(path).argv)):
        used = {int(number) for number in re.findall(rf"\b{word}\[(\d+)\]", assembled(path))}
        fixed = [name for name in names if not name.endswith("...")]
        assert used <= set(range(1, len(fixed) + 1)), f"{word} beyond the header"
        assert set(range(1, len(fixed) + 1)) <= used, f"{word} that is never read"
        assert len(fixed) == len(names) or re.search("#(KEYS|ARGV)", assembled(path)), f"{word} that repeats"


@by_name([path for path in SCRIPTS if "mutation" in contract(path).includes])
def test_a_mutation_remembers_what_it_answered(path: Path) -> None:
    assert re.search(r"return (done|changed)\(", code(path)), "a repeat would do it again"


@by_name([path for path in SCRIPTS if "packet = {}" in code(path)])
def test_a_script_that_collects_changes_announces_them_however_it_ends(path: Path) -> None:
    body = code(path).partition("packet = {}")[2]
    endings = re.findall(r"^(?:if [^\n]*)?\breturn\b[^\n]*", body, re.MULTILINE)

    assert "packing" in contract(path).includes
    assert endings
    assert all(re.search(r"return (done|changed)\(", ending) for ending in endings)


def declared(path: Path) -> Contract:
    """The contract with that of its includes before it."""
    parts = [contract(include) for include in includes_of(path)] + [contract(path)]
    keys = [name for part in parts for name in part.keys]
    argv = [name for part in parts for name in part.argv]
    return contract(path)._replace(keys=keys, argv=argv)


def assembled(path: Path, *, kept: bool = False) -> str:
    return "".join(code(file) for file in [*includes_of(path, kept=kept), path])


@by_name(SCRIPTS)
def test_a_typed_caller_takes_what_the_header_says(path: Path) -> None:
    (caller,) = (vars(callers)[path.stem] for callers in CALLERS if path.stem in vars(callers))
    parameters = inspect.signature(caller, eval_str=True).parameters

    taken = [name.rstrip("_") for name in spread(parameters) if name not in {"self", "space"} | GIVEN | KEPT_BY_THE_HUB]
    wanted = [name.rstrip(".") for name in contract(path).keys + contract(path).argv if name not in GIVEN]
    if path.stem == "value_write":
        # Its records are a key, a body, and terms made of the rest.
        assert taken == ["records", "together"]
        assert KeyWrite._fields == ("target", "expect", "ttl_ms", "codec", "body", "mode")
        taken = ["values", "together", "terms", "body"]
    elif path.stem == "collection_change":
        # The terms of a change are its operation, the number of arguments, the expiry and the length.
        assert taken == ["changes"]
        assert CollectionChange._fields == (
            "target",
            "operation",
            "arguments",
            "ttl_ms",
            "max_length",
            "mode",
            "size",
        )
        taken = ["collections", "terms", "arguments"]
    elif path.stem in {"limit_window_take", "limit_bucket_take"}:
        # A request is the key of its limit, and the numbers of its algorithm.
        assert taken == ["requests"]
        assert LimitRequest._fields == ("key", "numbers", "size")
        taken = ["logs" if path.stem == "limit_window_take" else "buckets", "requests"]
    elif path.stem == "once_begin":
        # A request is the keys of its piece of work, and the arguments in order.
        assert taken == ["requests"]
        assert OnceRequest._fields == ("keys", "name", "waits", "lease_ms", "ttl_ms")
        taken = ["keys", "requests"]
    elif path.stem == "once_finish":
        # An end is the keys of its piece of work, and the arguments in order.
        assert taken == ["ends"]
        assert OnceEnd._fields == ("keys", "token", "ttl_ms", "result")
        taken = ["keys", "ends"]
    elif path.stem == "conversation_append":
        # An append is the keys of its conversation, and the arguments in order; the count of entries follows from them.
        assert taken == ["appends"]
        assert ConversationAppend._fields == ("target", "terms", "fields", "entries", "size", "is_kept")
        taken = ["heads", "terms", "count", "fields", "entries"]
    elif path.stem == "key_look":
        # A look is a key, its state, its logical key and its mode.
        assert taken == ["clock", "kept", "looks", "token", "lease_ms"]
        assert KeyLook._fields == ("place", "logical", "mode")
        taken = ["clock", "kept", "pairs", "token", "lease_ms", "pairs"]
    elif path.stem == "key_fill":
        # A fill is a key, its state and its parts, and the words about these.
        assert taken == ["clock", "kept", "fills", "token", "cache_ms", "absent_ms"]
        assert KeyFill._fields == ("place", "what", "expires", "stamp", "logical", "parts", "size")
        assert FilledPart._fields == ("place", "staged", "command", "row")
        taken = ["clock", "kept", "keys", "token", "cache_ms", "absent_ms", "words"]
    elif "space" in parameters and "mutation" not in contract(path).includes:
        taken = ["clock", "changes", *taken]
    assert taken == wanted


def spread(parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    """The names of parameters; of named tuples of keys or arguments, those of their fields."""
    for name, parameter in parameters.items():
        yield from getattr(parameter.annotation, "_fields", (name,))


def test_every_script_has_one_typed_caller() -> None:
    named = [name for callers in CALLERS for name in vars(callers) if not name.startswith("_")]

    assert sorted(named) == sorted(name for name in scripts() if not name.endswith(DURABLE_SUFFIX))


@by_name([path for path in SCRIPTS if "keeping" in contract(path).includes])
def test_a_script_whose_changes_last_has_both_forms_with_the_same_functions(path: Path) -> None:
    assert {path.stem, path.stem + DURABLE_SUFFIX} <= set(scripts())
    plain, kept = includes_of(path), includes_of(path, kept=True)
    assert [one for one in plain if one not in kept] == [LUA / "include" / "unkept.lua"]


def test_without_a_tier_whatever_a_script_says_of_lasting_does_nothing() -> None:
    body = code(LUA / "include" / "unkept.lua")
    offered = set(local_names(body)) - {"nothing"}

    assert "is_unknown" in offered
    assert offered <= set(local_names(code(LUA / "include" / "kept.lua")))
    assert "redis" not in body


@pytest.mark.parametrize("name", scripts())
def test_a_script_creates_no_function_that_it_does_not_use(name: str) -> None:
    source = scripts()[name].source
    words = Counter(re.findall(r"\w+", re.sub(r"--.*", "", source)))

    functions = re.findall(r"^local function (\w+)", source, re.MULTILINE)
    assert [one for one in functions if words[one] == 1] == []


def test_a_script_that_was_changed_without_its_digest_says_what_to_do() -> None:
    with pytest.raises(InternalError, match="'value_write'; run make generate"):
        _ = Script("value_write", "0" * 40).source


# -- dialect --------------------------------------------------------------------------------------


@by_name(SCRIPTS + INCLUDES)
def test_a_script_speaks_the_common_dialect(path: Path) -> None:
    # Only the body of a script can return a reply: this is how a function ends it.
    body = code(path).replace("local function damaged(key) error(", "")

    found = [name for name in FORBIDDEN if re.search(rf"(?<![\w.]){re.escape(name)}\s*[.({{]", body)]
    assert not found
    assert set(re.findall(r"\bredis\.(\w+)", body)) <= {"call", "pcall", "error_reply", "status_reply"}


@by_name(SCRIPTS)
def test_a_script_assigns_no_globals(path: Path) -> None:
    body = assembled(path) + assembled(path, kept=True)

    assert set(assigned(body)) <= set(local_names(body))
    assert not re.findall(r"(?<!local )\bfunction +\w", body), "a named function is local"


def local_names(body: str) -> Iterator[str]:
    for names in re.findall(r"\blocal +(?!function)([\w, ]+)", body):
        yield from (name.strip() for name in names.split(","))
    for parameters in re.findall(r"\bfunction *\w*\(([\w, ]*)\)", body):
        yield from (name.strip() for name in parameters.split(","))
    for names in re.findall(r"\bfor +([\w, ]+?) *(?:=|\bin\b)", body):
        yield from (name.strip() for name in names.split(","))
    yield from re.findall(r"\blocal function +(\w+)", body)


def assigned(body: str) -> Iterator[str]:
    statement = re.compile(
        r"(?:^|\bthen\b|\belse\b|\bdo\b|;)\s*+(?!(?:local|for|return|if|elseif|while|until)\b)([\w, ]+?) *=(?!=)",
        re.MULTILINE,
    )
    for targets in statement.findall(body):
        yield from (target.strip() for target in targets.split(","))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("local a = 1\nb = 2", {"b"}),
        ("local a, b\na, b = 1, 2", set()),
        ("if x then y = 1 end", {"y"}),
        ("local t = {}\nt.field = 1\nt[1] = 2", set()),
    ],
)
def test_the_search_for_globals_finds_them(body: str, found: set[str]) -> None:
    assert set(assigned(body)) - set(local_names(body)) == found


@by_name(SCRIPTS + INCLUDES)
def test_every_key_that_is_touched_was_declared(path: Path) -> None:
    text = re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))
    text = re.sub(r"('XGROUP'|'XINFO'), '\w+'", r"\1", text)
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, *([^,)]+(?:\[[^\]]*\])?))?", text)
    handed_in = set(re.findall(r"\bfunction +\w+\((\w+)", text)) | set(
        re.findall(r"\bfunction[ \w]*\([^)]*\b(key|state|facts|refusals)\b", text)
    )

    for command, key in calls:
        if command not in WITHOUT_KEY and not key.startswith(("KEYS[", "states[")):
            assert key in keys_of(text) | handed_in, f"{command} touches {key}, which is none of KEYS"


def keys_of(text: str) -> set[str]:
    """The locals that contain keys."""
    found = {"clock", "changes", "operations"}  # given by the include that every mutation begins with
    for names, values in re.findall(r"\blocal +([\w, ]+) = ([^\n]+)", text):
        for name, value in zip(names.split(","), values.split(","), strict=False):
            if value.strip().startswith(("KEYS[", "table.remove(KEYS)")):
                found.add(name.strip())
    return found
