"""Settings: where each value comes from, what is refused, and that secrets stay secret."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from sharedmem.config import Kind, KindRules, Settings, masked
from sharedmem.errors import ConfigError, NotFoundError

SECRET = "hunter2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two below a home of its own, so that no file of this machine is found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    return inner


def load(folder: Path, environment: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    return Settings.load(start=folder, environment=environment or {}, **arguments)


def refusal(**arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Settings.load(environment={}, start=Path("/"), **arguments)
    return str(caught.value)


def test_without_a_word_from_anybody_the_defaults_hold(folder: Path) -> None:
    settings = load(folder)

    assert settings == Settings()
    assert (settings.redis_url, settings.prefix, settings.embedded_modules) == (None, "sm", ("search", "json"))
    assert settings.kind_rules["temp:*"] is Kind.EPHEMERAL
    assert {setting.origin for setting in settings.describe()} == {"default"}


def test_an_argument_beats_the_environment_which_beats_the_file_which_beats_the_default(folder: Path) -> None:
    file = folder / "sharedmem.yaml"
    file.write_text("prefix: from-file\nnamespace: from-file\nactor: from-file\n")

    settings = load(
        folder, {"SHAREDMEM_PREFIX": "from-environment", "SHAREDMEM_NAMESPACE": "from-environment"}, prefix="argument"
    )

    assert (settings.prefix, settings.namespace, settings.actor) == ("argument", "from-environment", "from-file")
    assert settings.origin("prefix") == "argument"
    assert settings.origin("namespace") == "environment SHAREDMEM_NAMESPACE"
    assert settings.origin("actor") == f"file {file}"
    assert settings.origin("access") == "default"


def test_an_argument_of_none_and_an_empty_variable_count_as_not_given(folder: Path) -> None:
    settings = load(folder, {"SHAREDMEM_PREFIX": "env", "SHAREDMEM_ACTOR": ""}, prefix=None)

    assert (settings.prefix, settings.actor) == ("env", None)


def test_the_environment_of_the_process_is_read_when_none_is_passed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_MAX_CONNECTIONS", "7")

    assert Settings.load(start=folder).max_connections == 7


def test_constructing_settings_reads_neither_environment_nor_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sharedmem.yaml").write_text("prefix: file\n")
    monkeypatch.setenv("SHAREDMEM_PREFIX", "env")
    monkeypatch.chdir(folder)

    settings = Settings(actor="planner")

    assert (settings.prefix, settings.origin("actor"), settings.origin("prefix")) == ("sm", "argument", "default")


def test_every_kind_of_value_can_be_written_in_the_environment(folder: Path) -> None:
    settings = load(
        folder,
        {
            "SHAREDMEM_TLS_VERIFY": "false",
            "SHAREDMEM_RETRY_FOR_S": "0",
            "SHAREDMEM_EMBEDDED_MODULES": "search, graph",
            "SHAREDMEM_KIND_RULES": '{"draft:*": "session"}',
            "SHAREDMEM_DATA_DIR": "~/data",
            "SHAREDMEM_REDIS_PASSWORD": SECRET,
        },
    )

    assert (settings.tls_verify, settings.retry_for_s, settings.embedded_modules) == (False, 0.0, ("search", "graph"))
    assert settings.kind_rules == {"draft:*": Kind.SESSION}
    assert settings.data_dir == Path.home() / "data"
    assert settings.redis_password is not None
    assert settings.redis_password.get_secret_value() == SECRET


SECRET_WORDS = re.compile(r"secret|password|token(?!s)|credential|_key$|^key_")


def secret_settings() -> list[str]:
    """The settings whose names sound like secrets; `redis_url` may contain a password too."""
    return ["redis_url", *(name for name in Settings.model_fields if SECRET_WORDS.search(name))]


def test_settings_that_sound_like_secrets_are_found() -> None:
    assert set(secret_settings()) >= {"redis_password", "cosmos_key", "blob_key", "llm_key", "webhook_secret"}


@pytest.mark.parametrize("name", secret_settings())
def test_a_secret_that_is_refused_is_not_quoted(folder: Path, name: str) -> None:
    number = 987_654_321_987
    (folder / "sharedmem.yaml").write_text(f"{name}: {number}\n")

    with pytest.raises(ConfigError) as from_file:
        load(folder)
    with pytest.raises(ConfigError) as from_argument:
        Settings.model_validate({name: [str(number)]})

    for caught in (from_file, from_argument):
        assert caught.value.field == name
        assert str(number) not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", secret_settings())
def test_a_secret_is_masked_wherever_settings_are_shown(name: str) -> None:
    text = "whsec_" + "c2VjcmV0" * 6 if name == "webhook_secret" else "c2VjcmV0" * 6
    settings = Settings.model_validate({name: f"redis://user:{text}@host" if name == "redis_url" else text})
    shown = [
        repr(settings),
        str(settings),
        settings.model_dump_json(),
        *(one.value_shown for one in settings.describe()),
    ]

    assert [one for one in shown if text in one] == []


@pytest.mark.parametrize("text", ["[]", " [ ] "])
def test_no_embedded_module_at_all_is_written_as_empty_brackets(folder: Path, text: str) -> None:
    assert load(folder, {"SHAREDMEM_EMBEDDED_MODULES": text}).embedded_modules == ()


def test_modules_may_be_written_as_json_too(folder: Path) -> None:
    assert load(folder, {"SHAREDMEM_EMBEDDED_MODULES": '["search", "json"]'}).embedded_modules == ("search", "json")


def test_the_nearest_file_wins_and_yaml_goes_before_toml(folder: Path) -> None:
    (folder.parent / "sharedmem.yaml").write_text("prefix: far\nactor: far\n")
    (folder / "pyproject.toml").write_text('[tool.sharedmem]\nprefix = "toml"\n')

    assert load(folder).prefix == "toml"
    (folder / "sharedmem.yaml").write_text("prefix: yaml\n")
    assert (load(folder).prefix, load(folder).actor) == ("yaml", None)


def test_a_pyproject_without_our_table_is_passed_by_even_when_it_is_broken(folder: Path) -> None:
    (folder.parent / "sharedmem.yaml").write_text("prefix: above\n")
    for foreign in ('[project]\nname = "sharedmem-user"\n', "[project\n"):
        (folder / "pyproject.toml").write_text(foreign)
        assert load(folder).prefix == "above"


def test_the_search_ends_at_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "sharedmem.yaml").write_text("prefix: outside\n")
    monkeypatch.setenv("HOME", str(folder))

    assert load(folder).prefix == "sm"


def test_an_empty_file_says_nothing(folder: Path) -> None:
    (folder / "sharedmem.yaml").write_text("# all as it is\n")

    assert load(folder) == Settings()


def test_sharedmem_config_names_a_file_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    (folder / "sharedmem.yaml").write_text("prefix: near\n")
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text('[tool.sharedmem]\nprefix = "named"\n')

    settings = load(folder, {"SHAREDMEM_CONFIG": str(elsewhere)})

    assert (settings.prefix, settings.origin("prefix")) == ("named", f"file {elsewhere}")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("gone.yaml", None, "there is no file"), ("a.ini", "", "neither YAML"), ("a.toml", "", "neither YAML")],
)
def test_a_named_file_that_cannot_serve_is_an_error_with_its_name(
    folder: Path, name: str, text: str | None, words: str
) -> None:
    file = folder / name
    if text is not None:
        file.write_text(text)

    with pytest.raises(ConfigError, match=words) as caught:
        load(folder, {"SHAREDMEM_CONFIG": str(file)})

    assert str(file) in str(caught.value)
    assert caught.value.origin == "environment SHAREDMEM_CONFIG"


def test_paths_in_a_file_are_relative_to_the_file_and_always_absolute(folder: Path) -> None:
    (folder.parent / "sharedmem.yaml").write_text("data_dir: data\ntls_ca_file: /etc/ca.pem\nblob_dir: ~/blobs\n")

    settings = load(folder)

    assert settings.data_dir == folder.parent / "data"
    assert settings.tls_ca_file == Path("/etc/ca.pem")
    assert settings.blob_path() == Path.home() / "blobs"


def test_blobs_lie_in_the_data_folder_unless_told_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    settings = Settings(data_dir=Path("here"))

    assert settings.data_dir == folder / "here"
    assert settings.blob_path() == folder / "here" / "blobs"


def test_the_word_no_of_yaml_is_understood(folder: Path) -> None:
    (folder / "sharedmem.yaml").write_text("embedded_fsync: no\n")

    assert load(folder).embedded_fsync == "no"


def test_an_unknown_field_in_a_file_names_the_file_and_a_close_match(folder: Path) -> None:
    file = folder / "sharedmem.yaml"
    file.write_text(f"redis_pasword: {SECRET}\n")

    with pytest.raises(ConfigError) as caught:
        load(folder)

    assert str(caught.value) == (
        f"setting 'redis_pasword' (from file {file}): there is no such setting; did you mean 'redis_password'?"
    )


def test_an_unknown_field_without_a_close_match_points_to_the_list(folder: Path) -> None:
    assert refusal(zzz=1).endswith("there is no such setting; `sharedmem config` lists all settings")


def test_a_wrong_value_names_the_field_the_variable_and_what_it_should_be(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, {"SHAREDMEM_MAX_CONNECTIONS": "many"})

    assert (caught.value.field, caught.value.origin) == ("max_connections", "environment SHAREDMEM_MAX_CONNECTIONS")
    assert "'many' is refused: it should be a valid integer" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"redis_password: {SECRET}\n  prefix: [\n",
        f"redis_password: '{SECRET}\n",
        f"- {SECRET}\n",
        f"{SECRET}\n",
        "actor: 2024-99-99\n",
        "actor: \x01\n",
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_named_without_quoting_it(folder: Path, text: str) -> None:
    file = folder / "sharedmem.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(folder)

    assert str(file) in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'[tool.sharedmem]\nredis_password = "{SECRET}\n', "not valid TOML"),
        ('[tool]\nsharedmem = "yes"\n', "not a str"),
    ],
)
def test_a_broken_toml_table_is_named_without_quoting_it(folder: Path, text: str, words: str) -> None:
    (folder / "pyproject.toml").write_text(text)

    with pytest.raises(ConfigError, match=words) as caught:
        load(folder)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_no_text_is_an_error_with_its_name(folder: Path) -> None:
    (folder / "sharedmem.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(folder)


@pytest.mark.parametrize(
    "url",
    [
        "unix:///run/redis.sock",
        f"unix://user:{SECRET}@/run/a@b.sock?db=1",
        "redis://localhost",
        "redis://[::1]:6379/3",
        f"rediss://user:{SECRET}@host:6380/0",
        f"redis+sentinel://:{SECRET}@a:26379,b:26379/mymaster?sentinel_password={SECRET}",
        "rediss+sentinel://a:26379/mymaster",
        "redis+cluster://a:7000,b:7001,[::1]:7002",
        "rediss+cluster://a",
    ],
)
def test_urls_of_all_schemes_are_taken_as_they_are_and_shown_without_passwords(url: str) -> None:
    settings = Settings(redis_url=url)

    assert settings.redis_url == url
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()
    assert all(SECRET not in setting.value_shown for setting in settings.describe())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:6379", "begin with one of unix://"),
        (f"http://:{SECRET}@host", "begin with one of"),
        (f"REDIS://:{SECRET}@host", "begin with one of"),
        (f"redis://:{SECRET}", "name its host and a port"),
        ("redis://", "name its host"),
        ("redis://:@", "name its host"),
        ("redis://a:0", "a port from 1"),
        ("redis://a:65536", "a port from 1"),
        ("redis://a:1,b:2", "name its host"),
        ("redis+cluster://a:1,", "name its host"),
        (f"redis://[:{SECRET}", "it is not a URL"),
        (f"redis://:{SECRET}/x@host", "percent-encode"),
        (f"redis://:{SECRET}?x@host", "percent-encode"),
        (f"redis://:{SECRET}#x@host", "percent-encode"),
        (f"redis://:{SECRET}@host\n", "no blanks"),
        ("redis://host/mydb", "database number"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://", "three slashes"),
    ],
)
def test_a_wrong_url_is_refused_with_advice_and_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Settings(redis_url=url)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@given(
    user=st.text(max_size=8),
    password=st.text(min_size=1, max_size=12).map(lambda text: f"<<{text}>>"),
    scheme=st.sampled_from(["redis", "rediss+sentinel", "unix"]),
)
def test_no_password_is_ever_left_in_a_masked_url(user: str, password: str, scheme: str) -> None:
    shown = masked(f"{scheme}://{user.replace('@', '')}:{password}@host:1/0")

    assert password not in shown
    assert "***" in shown


def test_passwords_are_shown_nowhere(folder: Path) -> None:
    settings = load(folder, {"SHAREDMEM_REDIS_PASSWORD": SECRET}, redis_url=f"redis://me:{SECRET}@host")

    assert SECRET not in repr(settings) + str(settings) + f"{settings.describe()}" + settings.model_dump_json()
    assert "redis://me:***@host" in repr(settings)
    assert settings.redis_url == f"redis://me:{SECRET}@host"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prefix", "a b"),
        ("prefix", "a:b"),
        ("prefix", "{a}"),
        ("prefix", "a*"),
        ("prefix", ""),
        ("namespace", "a:b"),
        ("namespace", ""),
        ("actor", "$changes"),
        ("actor", "a\nb"),
        ("actor", 42),
        ("access", "closed"),
        ("embedded_fsync", "sometimes"),
        ("kind_rules", {"a:*": "eternal"}),
        ("kind_rules", {"": "session"}),
        ("kind_rules", "temp"),
        ("kind_rules", ["temp:*"]),
        ("embedded_modules", 3),
        ("data_dir", "~nobody-of-this-name/x"),
        ("tls_verify", "perhaps"),
        ("redis_password", 1234),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_field(field: str, value: object) -> None:
    assert refusal(**{field: value}).startswith(f"setting '{field}' (from argument): ")


@pytest.mark.parametrize("field", sorted(Settings.model_fields))
def test_each_setting_refuses_what_is_of_another_kind_in_words_for_people(field: str) -> None:
    said = refusal(**{field: object()})

    assert said.startswith(f"setting '{field}' (from argument): ")
    assert "it should be" in said
    assert not {"pattern", "instance", "unable"} & set(said.split())


@pytest.mark.parametrize(
    ("field", "value", "advice"),
    [
        ("trace_content", "perhaps", "it should be true or false"),
        ("otlp_endpoint", "collector:4318", "it should be a URL without a password, such as http://127.0.0.1:4318"),
    ],
)
def test_a_refusal_says_what_a_setting_should_be(field: str, value: object, advice: str) -> None:
    assert refusal(**{field: value}).endswith(advice)


@pytest.mark.parametrize(
    "field",
    [
        "ephemeral_ttl_s",
        "session_ttl_s",
        "connect_timeout_s",
        "response_timeout_s",
        "max_connections",
        "change_log_length",
        "blob_threshold_bytes",
        "subscriber_queue_length",
        "episode_events",
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 10**12])
def test_numbers_are_positive_and_finite_and_not_absurd(field: str, value: object) -> None:
    assert " is refused: it should be " in refusal(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("retry_for_s", -1), ("retry_for_s", float("inf")), ("embedded_port", -1), ("embedded_port", 65_536)],
)
def test_numbers_that_may_be_zero_are_bounded_too(field: str, value: object) -> None:
    assert " is refused: it should be " in refusal(**{field: value})


def test_text_that_yaml_took_for_a_number_is_to_be_quoted() -> None:
    assert refusal(actor=42).endswith("42 is refused: it should be text; put it in quotes")


def test_a_wrong_rule_is_pointed_at() -> None:
    assert "'eternal' at 'a:*' is refused" in refusal(kind_rules={"a:*": "eternal"})


def test_settings_do_not_change_and_can_be_shared() -> None:
    settings = Settings(redis_url="redis://host", kind_rules={"a:*": Kind.SESSION})

    with pytest.raises(ValidationError, match="frozen"):
        settings.prefix = "other"  # type: ignore[misc]  # that it is refused is the point
    with pytest.raises(TypeError):
        settings.kind_rules["b:*"] = Kind.SESSION  # type: ignore[index]  # likewise
    twin = pickle.loads(pickle.dumps(settings))
    assert twin == settings
    assert hash(twin) == hash(settings)
    assert twin.origin("redis_url") == "argument"
    assert isinstance(twin.kind_rules, KindRules)


def test_a_replaced_value_is_validated_and_the_others_keep_their_origin(folder: Path) -> None:
    settings = load(folder, {"SHAREDMEM_PREFIX": "env"}, redis_password=SecretStr(SECRET))

    other = settings.replace(actor="planner")

    assert (other.prefix, other.actor, settings.actor) == ("env", "planner", None)
    assert other.redis_password == settings.redis_password
    assert (other.origin("prefix"), other.origin("actor")) == ("environment SHAREDMEM_PREFIX", "argument")
    with pytest.raises(ConfigError, match="actor"):
        settings.replace(actor="a:b")


def test_every_setting_is_described_with_a_help_text_and_a_value_as_one_would_write_it(folder: Path) -> None:
    described = {setting.name: setting for setting in load(folder, {"SHAREDMEM_EMBEDDED_PORT": "6400"}).describe()}

    assert list(described) == list(Settings.model_fields)
    assert all(setting.help.endswith(".") for setting in described.values())
    assert described["tls_verify"].value_shown == "true"
    assert described["actor"].value_shown == "not set"
    assert described["embedded_modules"].value_shown == "search, json"
    assert described["kind_rules"].value_shown.startswith("temp:* = ephemeral, chat:* = session")
    assert described["embedded_port"].origin == "environment SHAREDMEM_EMBEDDED_PORT"


def test_the_repr_shows_only_what_was_chosen() -> None:
    assert repr(Settings(prefix="team")) == "Settings(prefix='team')"
    assert str(Settings()) == "Settings()"


def test_the_origin_of_no_setting_is_an_error_with_a_close_match() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'prefix'"):
        Settings().origin("prefx")


def test_importing_the_settings_loads_no_reader_of_files() -> None:
    code = "import sys, sharedmem.config; print({'yaml', 'tomllib', 'platformdirs'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "set()"
