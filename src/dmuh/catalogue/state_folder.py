"""StateFolder: where a service keeps the catalogue, and the files of images that were added through it."""

import logging
import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from dmuh.catalogue.catalogue import Catalogue
from dmuh.catalogue.writer import is_added_name
from dmuh.errors import ConfigError, DataError
from dmuh.files import clear_torn

log = logging.getLogger(__name__)


class Model(Protocol):
    """What makes codes: how long they are, and what tells it from other models."""

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    @property
    def digest(self) -> str:
        """Digest of its weights."""


@dataclass(frozen=True)
class StateFolder:
    """The folder of a service: the catalogue, and the files of images that were added through the service."""

    path: Path

    @property
    def catalogue_file(self) -> Path:
        """The SQLite file."""
        return self.path / "catalogue.sqlite"

    @property
    def added(self) -> Path:
        """The folder of the added images' files."""
        return self.path / "added"

    @property
    def set_aside(self) -> Path:
        """The folder of added images' files that the catalogue does not list."""
        return self.path / "set-aside"

    @property
    def lock(self) -> Path:
        """The file that is locked while a service runs, so that no second one starts."""
        return self.path / ".lock"

    def check_apart(self, images: Path) -> None:
        """Raise if added images would be found as images of the folder that is served."""
        folder = os.path.realpath(images)
        for subfolder in (self.added, self.set_aside):
            real = Path(os.path.realpath(subfolder))
            if real.is_relative_to(folder) and not any(part[0] == "." for part in real.relative_to(folder).parts):
                raise ConfigError(
                    f"--state {self.path} would keep added images in {subfolder}, among the images of {images}: give a "
                    "folder outside of it, or one whose name begins with a dot"
                )

    def open(self, hasher: Model, *, of_any_model: bool = False) -> Catalogue:
        """Open the catalogue, which must hold codes of this model, and set files aside that it does not know.

        The caller must hold the lock. With `of_any_model` the codes may be of another one: the caller replaces
        them.
        """
        is_new = not self.catalogue_file.is_file() or not self.catalogue_file.stat().st_size
        if is_new and self.added.is_dir() and any(self.added.iterdir()):
            raise DataError(
                f"{self.added} holds files, but there is no catalogue that knows them: put {self.catalogue_file} back, "
                "or give another --state"
            )
        if self.path.is_dir():
            clear_torn(self.path, self.catalogue_file.name)
        catalogue = Catalogue(self.catalogue_file, hasher.n_bits)
        try:
            made_by = catalogue.about("model")
            if made_by not in (None, hasher.digest) and not of_any_model:
                raise DataError(
                    f"{self.path} holds codes of another model: serve it with that one, or give another --state"
                )
            if made_by is None:
                catalogue.note(model=hasher.digest)
            self.added.mkdir(exist_ok=True)
            self._tidy(catalogue.added_files())
        except BaseException:
            catalogue.close()
            raise
        return catalogue

    def _tidy(self, listed: set[str]) -> None:
        """Move files that the service wrote but the catalogue does not list, as after a crash, to `set_aside`.

        Files of other names stay. A file that was set aside under another catalogue comes back with the one that
        lists it.
        """
        clear_torn(self.added)
        for file in list(self.set_aside.glob("*")):
            if file.name in listed and is_added_name(file.name) and not (self.added / file.name).exists():
                file.rename(self.added / file.name)
        unlisted = [file for file in self.added.iterdir() if file.name not in listed]
        ours = [file for file in unlisted if is_added_name(file.name) and file.is_file() and not file.is_symlink()]
        for file in ours:
            self.set_aside.mkdir(exist_ok=True)
            names = (f"{file.stem}{'-' * bool(n)}{n or ''}{file.suffix}" for n in count())
            file.rename(next(free for name in names if not (free := self.set_aside / name).exists()))
        if ours:
            log.warning(
                "%s files in %s are not in the catalogue and were moved to %s", len(ours), self.added, self.set_aside
            )
        if len(unlisted) > len(ours):
            other = next(file for file in unlisted if file not in ours)
            n = len(unlisted) - len(ours)
            log.warning("%s files in %s are not of this service and are left, such as %s", n, self.added, other.name)
