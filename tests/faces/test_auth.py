"""Tokens: who is let in, as whom, and that nothing secret is ever told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sharedmem import AccessDeniedError, ConfigError, Grant, InvalidError
from sharedmem.faces.auth import Bearer, Everyone, TokenFile, TokenRefusedError, add_entry, new_token, read_entries
from sharedmem.testing import fake_hub

PLANNER = Bearer.of(
    "desk", actor="planner", subscribe=["news"], grants=["chat:team*", Grant(pattern="x:y", writes=False)]
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.yaml"


# -- admission ------------------------------------------------------------------------------------


async def test_a_token_stands_for_its_actor() -> None:
    token, entry = new_token(PLANNER)
    _, other = new_token(Bearer.of("desk", actor="executor"))

    admitted = await TokenFile([other, entry]).admit(f"Bearer {token}")

    assert (admitted.namespace, admitted.actor, admitted.grants) == ("desk", "planner", PLANNER.grants)


async def test_the_scheme_is_read_in_any_case() -> None:
    token, entry = new_token(PLANNER)

    assert await TokenFile([entry]).admit(f"bearer  {token} ") is entry


@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        (None, "carries no token"),
        ("", "carries no token"),
        ("Bearer", "not of the form"),
        ("Bearer ", "not of the form"),
        ("Basic dXNlcjpwYXNz", "not of the form"),
        ("Bearer " + "x" * 20_000, "not of the form"),
        ("Bearer smt_wrong", "not known"),
        ("Bearer \udcff", "not known"),
    ],
)
async def test_a_caller_without_a_known_token_is_refused_without_a_quote(authorization: str | None, says: str) -> None:
    _, entry = new_token(PLANNER)

    with pytest.raises(TokenRefusedError, match=says) as refusal:
        await TokenFile([entry]).admit(authorization)

    assert isinstance(refusal.value, AccessDeniedError)
    assert refusal.value.codes.grpc_status == "UNAUTHENTICATED"
    assert "wrong" not in str(refusal.value)


async def test_a_digest_is_no_token() -> None:
    _, entry = new_token(PLANNER)

    with pytest.raises(TokenRefusedError):
        await TokenFile([entry]).admit(f"Bearer {entry.sha256}")


async def test_everyone_is_the_same_actor() -> None:
    assert await Everyone(PLANNER).admit(None) is PLANNER


def test_tokens_are_long_and_random() -> None:
    tokens = {new_token(PLANNER)[0] for _ in range(100)}

    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43


def test_neither_tokens_nor_digests_are_shown() -> None:
    token, entry = new_token(PLANNER)

    assert repr(TokenFile([entry])) == "<Tokens, 1 of them>"
    assert token not in repr(entry)
    assert entry.sha256 == hashlib.sha256(token.encode()).hexdigest()


async def test_a_bearer_opens_the_store_of_its_actor() -> None:
    async with fake_hub() as hub:
        store = PLANNER.store(hub)

    assert (store.namespace, store.actor) == ("desk", "planner")
    assert store.access.may("write", "chat:team-a")
    assert store.access.may("read", "x:y")
    assert not store.access.may("write", "x:y")


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tokens.yaml", "tokens.json", "tokens"])
async def test_what_is_added_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    tokens = []
    for bearer in (PLANNER, Bearer.of("desk"), Bearer.of("desk", actor="executor")):
        token, entry = new_token(bearer)
        add_entry(path, entry)
        tokens.append(token)

    known = TokenFile.read(path)

    bearers = [await known.admit(f"Bearer {token}") for token in tokens]
    assert [bearer.actor for bearer in bearers] == ["planner", None, "executor"]
    assert bearers[0].grants == PLANNER.grants
    assert path.stat().st_mode & 0o077 == 0
    assert not [token for token in tokens if token in path.read_text()]


def test_comments_stay_when_an_entry_is_added(file: Path) -> None:
    add_entry(file, new_token(PLANNER)[1])
    file.write_text(f"# of the day shift\n{file.read_text()}  # the last one")

    add_entry(file, new_token(PLANNER)[1])

    assert file.read_text().startswith("# of the day shift\n")
    assert len(read_entries(file)) == 2


def test_a_list_in_brackets_grows_too(file: Path) -> None:
    file.write_text(json.dumps([new_token(PLANNER)[1].written()]))

    add_entry(file, new_token(PLANNER)[1])

    assert len(read_entries(file)) == 2


def _digest(**more: object) -> dict[str, object]:
    return {"sha256": "a" * 64, "namespace": "desk", "actor": "ada"} | more


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no token"),
        ("[]", "holds no token"),
        ("tokens: 3", "should be a list"),
        ("- {", "neither YAML nor JSON in line"),
        ("- just a text", "entry 1"),
        (json.dumps([{"namespace": "desk"}]), "entry 1: sha256: Field required"),
        (json.dumps([_digest(sha256="smt_secret")]), "never the token itself"),
        (json.dumps([_digest(token="smt_secret")]), "entry 1: token: Extra inputs"),
        (json.dumps([_digest(), _digest(actor="bob")]), "is in two entries"),
        (json.dumps([_digest(actor="a b")]), "entry 1: actor: name 'a b' is refused"),
        (json.dumps([_digest(namespace="*")]), "entry 1: namespace"),
        (json.dumps([_digest(grants=["*"])]), "entry 1: grants"),
        (json.dumps([_digest(grants=7)]), "entry 1: grants"),
        (json.dumps([_digest(subscribe=["a:b"])]), "entry 1: subscribe"),
    ],
)
def test_a_bad_file_is_told_in_one_sentence_without_secrets(file: Path, content: str, says: str) -> None:
    file.write_text(content)

    with pytest.raises(ConfigError, match=says) as problem:
        TokenFile.read(file)

    assert str(file) in str(problem.value)
    assert "smt_secret" not in f"{problem.value!r}{problem.value.__cause__!r}"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda _: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    ],
)
def test_an_unreadable_file_is_told(file: Path, spoil: Callable[[Path], object], says: str) -> None:
    spoil(file)

    with pytest.raises(ConfigError, match=says):
        TokenFile.read(file)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        add_entry(tmp_path / "nowhere" / "tokens.yaml", new_token(PLANNER)[1])


@pytest.mark.parametrize("rights", [{"actor": "a:b"}, {"subscribe": ["*"]}, {"grants": ["plain"]}])
def test_rights_that_are_none_are_refused(rights: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        Bearer.of("desk", **rights)
