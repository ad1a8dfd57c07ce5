"""Variables that begin with SHAREDMEM_: a misspelt one is refused, others' are left alone, one forbids a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sharedmem import Hub
from sharedmem.config import Settings, unknown_environment
from sharedmem.errors import ConfigError


def test_variables_that_set_nothing_are_listed_with_what_was_meant() -> None:
    environment = {
        "SHAREDMEM_PREFIX": "a",
        "SHAREDMEM_CONFIG": "b",
        "SHAREDMEM_REDIS_URI": "c",
        "SHAREDMEM_prefix": "d",
        "SHAREDMEM_EMPTY": "",
        "PATH": "e",
    }

    assert unknown_environment(environment) == {
        "SHAREDMEM_REDIS_URI": "did you mean SHAREDMEM_REDIS_URL?",
        "SHAREDMEM_prefix": "did you mean SHAREDMEM_PREFIX?",
    }


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SHAREDMEM_REDIS_ULR", "did you mean SHAREDMEM_REDIS_URL?"),
        ("SHAREDMEM_REDISURL", "did you mean SHAREDMEM_REDIS_URL?"),
        ("sharedmem_redis_url", "did you mean SHAREDMEM_REDIS_URL?"),
        ("SHAREDMEM_REDIS_PASSWRD", "did you mean SHAREDMEM_REDIS_PASSWORD?"),
        ("SHAREDMEM_CONFG", "did you mean SHAREDMEM_CONFIG?"),
        ("SHAREDMEM_REDIS_PORT", "did you mean SHAREDMEM_"),
        ("SHAREDMEM_XYZZY", "unset it; `sharedmem config` lists all settings"),
    ],
)
def test_a_misspelt_variable_is_refused_with_what_was_likely_meant(variable: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        Settings.load(start=tmp_path, environment={variable: "geheim"})

    assert f"(from environment {variable}): there is no such setting; {meant}" in str(found.value)
    assert "geheim" not in str(found.value)


def test_a_misspelt_key_of_a_file_is_refused_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "sharedmem.yaml").write_text("redis-url: redis://geheim\n")

    with pytest.raises(ConfigError, match="there is no such setting; did you mean 'redis_url'") as found:
        Settings.load(start=tmp_path, environment={})
    assert "geheim" not in str(found.value)


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    """Kubernetes tells every container about each service; ours may be named `sharedmem` or `sharedmem-redis`."""
    environment = {
        "SHAREDMEM_SERVICE_HOST": "10.0.0.1",
        "SHAREDMEM_SERVICE_PORT": "8420",
        "SHAREDMEM_SERVICE_PORT_HTTP": "8420",
        "SHAREDMEM_PORT": "tcp://10.0.0.1:8420",
        "SHAREDMEM_PORT_8420_TCP": "tcp://10.0.0.1:8420",
        "SHAREDMEM_PORT_8420_TCP_PROTO": "tcp",
        "SHAREDMEM_PORT_8420_TCP_PORT": "8420",
        "SHAREDMEM_PORT_8420_TCP_ADDR": "10.0.0.1",
        "SHAREDMEM_REDIS_SERVICE_HOST": "10.0.0.2",
        "SHAREDMEM_REDIS_PORT": "tcp://10.0.0.2:6379",
        "SHAREDMEM_REDIS_PORT_6379_TCP_ADDR": "10.0.0.2",
        "SHAREDMEM_FENCING_TOKEN": "41",
        "SHAREDMEM_CONFIG": "",
        "SHAREDMEM_TEST_THOROUGH": "1",
        "SHAREDMEM_CRASH_ROUNDS": "50",
        "_SHAREDMEM_COMPLETE": "complete_bash",
    }

    assert Settings.load(start=tmp_path, environment=environment).redis_url is None


def test_every_variable_that_we_write_about_is_one_that_is_accepted() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in _places_that_name_variables())
    named = set(re.findall(r"\bSHAREDMEM_[A-Z][A-Z_]*[A-Z]\b", text))

    assert {"SHAREDMEM_REDIS_URL", "SHAREDMEM_EMBEDDED"} <= named
    assert unknown_environment(dict.fromkeys(named - {"SHAREDMEM_X"}, "set")) == {}


def _places_that_name_variables() -> list[Path]:
    root = Path(__file__).resolve().parents[2]
    folders = ("docs", "deploy", "examples", "benchmarks", "tools")
    kinds = {".md", ".py", ".yml", ".yaml", ".bicep", ".sh", ""}
    inside = [path for folder in folders for path in (root / folder).rglob("*") if path.suffix in kinds]
    there = [*inside, root / "README.md", root / "Makefile", root / "docker-compose.yml"]
    return [path for path in there if path.is_file()]


async def test_a_private_server_can_be_forbidden(tmp_path: Path) -> None:
    """docs/operations.md: with `SHAREDMEM_EMBEDDED=never` no private server is started."""
    environment = {"SHAREDMEM_EMBEDDED": "never", "SHAREDMEM_DATA_DIR": str(tmp_path / "data")}
    settings = Settings.load(start=tmp_path, environment=environment)

    with pytest.raises(ConfigError, match=r"'redis_url' .*embedded=never forbids .*; set SHAREDMEM_REDIS_URL"):
        await Hub.open(settings=settings).__aenter__()
    assert not (tmp_path / "data").exists()


def test_whether_a_private_server_is_forbidden_is_one_of_two_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"embedded.*'auto' or 'never'"):
        Settings.load(start=tmp_path, environment={"SHAREDMEM_EMBEDDED": "no"})


def test_the_image_forbids_a_private_server() -> None:
    image = (Path(__file__).resolve().parents[2] / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ENV .*\bSHAREDMEM_EMBEDDED=never\b", image, re.MULTILINE)
