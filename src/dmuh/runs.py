"""Run folders: what a training leaves on disk, and how it goes on after a crash.

    config.toml             all settings, resolved; `dmuh train --config` takes it as it is
    environment.json        versions and machine
    data.json               what was noticed about the data: counts, missing files, copies
    split.safetensors       which images train, ask and answer, and of which data
    metrics.jsonl           one line an epoch: loss terms, uncertainty, validation MAP
    trace.jsonl             one line an epoch: outputs of a few training images, for the figure of two bits
    checkpoint.safetensors  everything the next epoch needs; gone when the training is done
    model.safetensors       the trained networks and what is needed to use them
    model.onnx              the same for ONNX Runtime, made when first asked for; its digest is in model.onnx.sha256
    query_codes.safetensors, database_codes.safetensors   codes of the test images, made when first asked for
    evaluation.json         what the test queries gave

Every file is written whole or not at all. A checkpoint follows its epoch's lines, so lines beyond it are cut on resume.
"""

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.config import Config
from dmuh.errors import RunError
from dmuh.files import (
    Array,
    ArrayFile,
    append_json_line,
    load_arrays,
    locked,
    read_json,
    read_json_lines,
    save_arrays,
    write_json,
    write_text,
)

_CHECKPOINT, _MODEL, _VERSION = "dmuh checkpoint", "dmuh model", 2
_PACKAGES = ("dmuh", "torch", "onnxruntime", "numpy", "pillow")


@dataclass(frozen=True)
class Run:
    """One run folder."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The settings."""
        return self.path / "config.toml"

    @property
    def split_file(self) -> Path:
        """The split."""
        return self.path / "split.safetensors"

    @property
    def query_codes(self) -> Path:
        """Codes of the query images."""
        return self.path / "query_codes.safetensors"

    @property
    def database_codes(self) -> Path:
        """Codes of the database images."""
        return self.path / "database_codes.safetensors"

    @property
    def onnx_file(self) -> Path:
        """The trained networks for ONNX Runtime."""
        return self.path / "model.onnx"

    @property
    def started(self) -> bool:
        """Whether a training was ever begun here."""
        return self.config_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the training is done."""
        return self._model_file.is_file()

    @property
    def _model_file(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def _checkpoint_file(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def refuse_if_taken(self) -> None:
        """Raise if a new run cannot begin here."""
        if self.started:
            raise RunError(f"{self.path} holds a run already: go on with it by --resume, or choose another folder")
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is not a folder: a run needs a folder of its own")

    def begin(self, config: Config) -> None:
        """Lay out a new run folder; one that holds a run is refused."""
        self.refuse_if_taken()
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "environment.json", environment())
        write_text(self.config_file, config.to_toml())  # last: from here on the run counts as started

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while this one trains; the lock ends with the process, however it ends."""

        def busy() -> None:
            raise RunError(f"another process is training in {self.path}")

        with locked(self.path / ".lock", busy):
            yield

    def save_data_summary(self, summary: Mapping[str, Any]) -> None:
        """Write what was noticed about the data."""
        write_json(self.path / "data.json", summary)

    def log_epoch(self, metrics: Mapping[str, Any], trace: Mapping[str, Any]) -> None:
        """Append an epoch's figures."""
        append_json_line(self.path / "metrics.jsonl", metrics)
        append_json_line(self.path / "trace.jsonl", trace)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the figures of each epoch."""
        return self._lines("metrics.jsonl")

    def trace(self) -> list[dict[str, Any]]:
        """Return the traced outputs of each epoch."""
        return self._lines("trace.jsonl")

    def save_checkpoint(self, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        save_arrays(self._checkpoint_file, _CHECKPOINT, _VERSION, arrays, state)

    def load_checkpoint(self) -> ArrayFile | None:
        """Return the last checkpoint, or None."""
        if not self._checkpoint_file.is_file():
            return None
        return load_arrays(self._checkpoint_file, _CHECKPOINT, _VERSION)

    def cut_logs(self, done: int) -> None:
        """Cut the lines of epochs beyond the first `done` off the logs."""
        for name in ("metrics.jsonl", "trace.jsonl"):
            kept = [line for line in self._lines(name) if line["epoch"] <= done]
            write_text(self.path / name, "".join(json.dumps(line) + "\n" for line in kept))

    def save_model(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Write the trained networks; with that the run is finished and its checkpoint goes."""
        save_arrays(self._model_file, _MODEL, _VERSION, arrays, about)
        self._checkpoint_file.unlink(missing_ok=True)

    def load_model(self) -> ArrayFile:
        """Return the trained networks."""
        if not self.path.is_dir():
            raise RunError(f"{self.path} does not exist, expected the folder of a finished run")
        if not self.finished:
            what = "is not finished: go on by dmuh train --resume" if self.started else "holds no run"
            raise RunError(f"{self.path} {what}")
        return load_arrays(self._model_file, _MODEL, _VERSION)

    def save_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """Write what the test queries gave."""
        write_json(self.path / "evaluation.json", evaluation)

    def evaluation(self) -> dict[str, Any]:
        """Return what the test queries gave."""
        value: dict[str, Any] = read_json(self.path / "evaluation.json")
        return value

    def _lines(self, name: str) -> list[dict[str, Any]]:
        file = self.path / name
        return read_json_lines(file) if file.is_file() else []


def environment() -> dict[str, Any]:
    """Return the versions and the machine that a run was made with."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "python": platform.python_version(),
        "packages": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
