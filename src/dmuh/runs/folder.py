"""One run folder: what a training leaves on disk, and how it goes on after a crash.

    config.toml             all settings, resolved; `dmuh train --config` takes it as it is
    run.json                what the other files belong to: digests of the settings and of the split, and of the images
    environment.json        versions and machine
    data.json               what was noticed about the data: counts, missing files, copies
    split.safetensors       which images train, query and are searched, and of which data
    left_out.safetensors    which images do not train as their labels are probably wrong, where that was asked for
    metrics.jsonl           one line per epoch: loss terms, uncertainty, validation MAP
    trace.jsonl             one line per epoch: outputs of a few training images, for the figure of two bits
    checkpoint.safetensors  everything the next epoch needs; gone when the training is done
    model.safetensors       the trained networks and what is needed to use them
    model.onnx              the same for ONNX Runtime, made when first used; its digest is in model.onnx.sha256
    text_head.onnx          the same of the texts' network, of a method for images and texts
    query_codes.safetensors, database_codes.safetensors   codes of the test images, made when first measured
    evaluation.json         what the test queries gave

Every file is written whole or not at all, has a checksum, and says which run it belongs to; one that was altered, or is
another run's, is refused. A checkpoint follows its epoch's lines, so lines beyond it are cut on resume.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.codes import Codes
from dmuh.config import Config, DataSettings, build, parse_toml, read_toml, settings_digest
from dmuh.datasets import Dataset, ImageFiles, load_dataset
from dmuh.errors import ConfigError, DataError, FormatError, RunError
from dmuh.files import (
    Array,
    ArrayFile,
    clear_torn,
    load_arrays,
    locked,
    save_arrays,
    saved_checksum,
    write_text,
)
from dmuh.files.documents import Journal, read_document, write_document
from dmuh.protocols import Split
from dmuh.runs.environment import environment

_CHECKPOINT, _MODEL, _VERSION = "dmuh checkpoint", "dmuh model", 2
_RUN, _ENVIRONMENT, _DATA, _EVALUATION = "dmuh run", "dmuh environment", "dmuh data summary", "dmuh evaluation"
_STUDY = "dmuh study of uncertainty"
_LEFT_OUT, _LEFT_OUT_VERSION = "dmuh left out", 3
_OF_THE_START = (
    "left_out.safetensors",
    "metrics.jsonl",
    "trace.jsonl",
    "data.json",
)  # what a run writes before its first checkpoint


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
    def text_onnx_file(self) -> Path:
        """The trained network of texts for ONNX Runtime, of a method for images and texts."""
        return self.path / "text_head.onnx"

    @property
    def started(self) -> bool:
        """Whether a training was ever begun here."""
        return self.config_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the training is done."""
        return self._model_file.is_file()

    @property
    def begun_in_vain(self) -> bool:
        """Whether a training was begun here and stopped before its first epoch was done, so that nothing is lost."""
        results = [name for name in self._written if name not in _OF_THE_START and (self.path / name).exists()]
        return self.started and self._run_file.is_file() and not results

    @property
    def _model_file(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def _checkpoint_file(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def _left_out_file(self) -> Path:
        return self.path / "left_out.safetensors"

    @property
    def _written(self) -> tuple[str, ...]:
        """The files that a run writes after its settings."""
        later = ("metrics.jsonl", "trace.jsonl", "data.json", "evaluation.json", "model.onnx", "model.onnx.sha256",
                 "text_head.onnx", "text_head.onnx.sha256")  # fmt: skip
        arrays = (
            self._left_out_file,
            self._checkpoint_file,
            self._model_file,
            self.query_codes,
            self.database_codes,
        )
        return (*later, *(file.name for file in arrays))

    def refuse_if_taken(self) -> None:
        """Raise if a new run cannot begin here, because there is one or because it would replace other files.

        A run that stopped before its first epoch was done is no reason: there is nothing to go on from.
        """
        if self.begun_in_vain:
            return
        if self.started:
            raise RunError(f"{self.path} holds a run already: go on with it by --resume, or choose another folder")
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is not a folder: give the path of a folder")
        taken = [name for name in self._written if (self.path / name).exists()]
        if taken:
            raise RunError(
                f"{self.path} holds no run but has {' and '.join(taken)}, which it would replace: choose another folder"
            )

    def begin(self, config: Config, split: Split, dataset: Dataset) -> None:
        """Lay out a new run folder; one that holds a run is refused, unless that was begun in vain."""
        self.refuse_if_taken()
        self.path.mkdir(parents=True, exist_ok=True)
        for name in (*_OF_THE_START, self.config_file.name):  # what a run that was begun in vain left; settings last
            (self.path / name).unlink(missing_ok=True)
        text = config.to_toml()
        write_document(self.path / "environment.json", _ENVIRONMENT, environment())
        split.save(self.split_file, dataset.fingerprint())
        about = {"settings": settings_digest(parse_toml(text, self.config_file)), "split": split.digest()}
        write_document(self._run_file, _RUN, {**about, "images": vars(dataset.image_files(split.train))})
        write_text(self.config_file, text)  # last: from here on the run counts as started

    def settings(self) -> dict[str, Any]:
        """Return the settings that the run was begun with, as one flat layer."""
        if not self.started:
            raise RunError(f"{self.path} holds no run")
        layer = read_toml(self.config_file)
        if self._run_file.is_file() and settings_digest(layer) != self._about()["settings"]:
            raise RunError(
                f"{self.config_file} was altered since the run began, or is of another run: put the old one back, or "
                "begin another run with it by --config"
            )
        return layer

    @property
    def identity(self) -> str:
        """What every file of the run says it belongs to; empty for runs of a dmuh that did not write it down."""
        if not self._run_file.is_file():
            return ""
        about = self._about()
        return hashlib.sha256(f"{about['settings']} {about['split']}".encode()).hexdigest()

    @property
    def split_digest(self) -> str:
        """What tells the run's split from others."""
        return str(self._about()["split"])

    def load_dataset(self, data: str | Path | None = None) -> Dataset:
        """Return the data set that the run was begun with, from where `data` says if it moved; needs no torch."""
        problems: list[str] = []
        moved = {} if data is None else {"data": str(data)}
        settings = build(DataSettings, self.settings() | moved, problems)
        if settings is None:
            raise ConfigError(f"{self.config_file}: {'; '.join(problems)}")
        if data is None and settings.data and not Path(settings.data).exists():
            raise DataError(
                f"{settings.data}, the data of {self.path}, does not exist: put it back, or say "
                "where it is by --data (of dmuh train, evaluate and export)"
            )
        return load_dataset(settings)

    def load_split(self, dataset: Dataset) -> Split:
        """Return which images of the data set train, query and are searched; the split of another run is refused."""
        split = Split.load(self.split_file, dataset.fingerprint())
        if self._run_file.is_file() and split.digest() != self._about()["split"]:
            raise RunError(f"{self.split_file} belongs to another run: put that of this run back")
        return split

    def same_images(self, dataset: Dataset, split: Split) -> bool:
        """Return whether the image files are those that the run began with, by all sizes and a few contents."""
        if not self._run_file.is_file():
            return True
        return dataset.image_files(split.train) == ImageFiles(**self._about()["images"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while this one trains; the lock ends with the process, however it ends."""

        def busy() -> None:
            raise RunError(f"another process is training in {self.path}")

        with locked(self.path / ".lock", busy):
            clear_torn(self.path)
            yield

    def save_data_summary(self, summary: Mapping[str, Any]) -> None:
        """Write what was noticed about the data."""
        write_document(self.path / "data.json", _DATA, summary)

    def save_left_out(self, positions: Array, absence: Array) -> None:
        """Write which images (n,) of the split do not train, and how probably each image takes no part in an epoch."""
        arrays, about = {"positions": positions, "absence": absence}, {"run": self.identity}
        save_arrays(self._left_out_file, _LEFT_OUT, _LEFT_OUT_VERSION, arrays, about)

    def load_left_out(self) -> tuple[Array, Array | None] | None:
        """Return what `save_left_out` wrote, or None; version 1 of it knew no absence, version 2 called it doubt."""
        file = self._left_out_file
        if not file.is_file():
            return None
        arrays = self._of_this_run(file, load_arrays(file, _LEFT_OUT, _LEFT_OUT_VERSION, older=(1, 2))).arrays
        return arrays["positions"], arrays.get("absence", arrays.get("doubt"))

    def log_epoch(self, metrics: Mapping[str, Any], trace: Mapping[str, Any]) -> None:
        """Append an epoch's figures."""
        self._journal("metrics.jsonl").append(metrics)
        self._journal("trace.jsonl").append(trace)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the figures of each epoch."""
        return self._journal("metrics.jsonl").lines(closed=self.finished)

    def trace(self) -> list[dict[str, Any]]:
        """Return the traced outputs of each epoch."""
        return self._journal("trace.jsonl").lines(closed=self.finished)

    def save_checkpoint(self, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        save_arrays(self._checkpoint_file, _CHECKPOINT, _VERSION, arrays, {**state, "run": self.identity})

    def load_checkpoint(self) -> ArrayFile | None:
        """Return the last checkpoint, or None."""
        if not self._checkpoint_file.is_file():
            return None
        return self._of_this_run(self._checkpoint_file, load_arrays(self._checkpoint_file, _CHECKPOINT, _VERSION))

    def cut_logs(self, done: int) -> None:
        """Cut the lines of epochs beyond the first `done` off the logs."""
        for journal in map(self._journal, ("metrics.jsonl", "trace.jsonl")):
            lines = [line for line in journal.lines() if line["epoch"] <= done]
            if len(lines) < done:
                raise FormatError(f"{journal.path} has {len(lines)} lines of {done} epochs: it was cut short")
            journal.write(lines)

    def save_model(self, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> None:
        """Write the trained networks; with that the run is finished and its checkpoint goes."""
        for name in ("metrics.jsonl", "trace.jsonl"):
            self._journal(name).close()
        save_arrays(self._model_file, _MODEL, _VERSION, arrays, {**about, "run": self.identity})
        self._checkpoint_file.unlink(missing_ok=True)

    def load_model(self) -> ArrayFile:
        """Return the trained networks."""
        if not self.path.is_dir():
            raise RunError(f"{self.path} does not exist, expected the folder of a finished run")
        if not self.finished:
            what = "is not finished: go on by dmuh train --resume" if self.started else "holds no run"
            raise RunError(f"{self.path} {what}")
        return self._of_this_run(self._model_file, load_arrays(self._model_file, _MODEL, _VERSION))

    def save_codes(self, query: Codes, database: Codes) -> None:
        """Save the codes of the test images."""
        for file, codes in ((self.query_codes, query), (self.database_codes, database)):
            codes.save(file, of=self._codes_of(file))

    def load_codes(self) -> tuple[Codes, Codes]:
        """Return the saved codes of the query and of the database images; those of another model are refused."""
        query, database = (
            Codes.load(file, of=self._codes_of(file)) for file in (self.query_codes, self.database_codes)
        )
        return query, database

    def save_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """Write what the test queries gave."""
        about = {**evaluation, "model": saved_checksum(self._model_file)}
        write_document(self.path / "evaluation.json", _EVALUATION, about)

    @property
    def has_evaluation(self) -> bool:
        """Whether the test was measured, with soft rankings too, which earlier versions did not."""
        file = self.path / "evaluation.json"
        return file.is_file() and "soft" in read_document(file, _EVALUATION)

    def evaluation(self) -> dict[str, Any]:
        """Return what the test queries gave."""
        file = self.path / "evaluation.json"
        value = read_document(file, _EVALUATION)
        if value.pop("model") != saved_checksum(self._model_file):
            raise FormatError(f"{file} is of another model than this run's: measure it by dmuh evaluate {self.path}")
        return value

    def save_study(self, study: Mapping[str, Any]) -> None:
        """Write what the uncertainty of the test queries predicts."""
        write_document(self.path / "uncertainty.json", _STUDY, {**study, "model": saved_checksum(self._model_file)})

    def study(self) -> dict[str, Any] | None:
        """Return what the uncertainty of the test queries predicts, if that was looked at."""
        file = self.path / "uncertainty.json"
        if not file.is_file():
            return None
        value = read_document(file, _STUDY)
        if value.pop("model") != saved_checksum(self._model_file):
            raise FormatError(f"{file} is of another model than this run's: run the same dmuh bench again")
        return value

    def environment(self) -> dict[str, Any]:
        """Return the versions and the machine that the run was made with."""
        return read_document(self.path / "environment.json", _ENVIRONMENT)

    @property
    def _run_file(self) -> Path:
        return self.path / "run.json"

    def _about(self) -> dict[str, Any]:
        return read_document(self._run_file, _RUN)

    def _of_this_run(self, file: Path, content: ArrayFile) -> ArrayFile:
        """Return what a file of arrays holds, if it is of this run."""
        said, known = content.metadata.get("run", ""), self.identity
        if said and known and said != known:
            raise RunError(f"{file} belongs to another run: put that of this run back, or begin anew in another folder")
        return content

    def _codes_of(self, file: Path) -> str:
        return f"{file.stem} of the model {saved_checksum(self._model_file)}"

    def _journal(self, name: str) -> Journal:
        return Journal(self.path / name, f"{name} of {self.identity}")
