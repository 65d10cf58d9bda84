"""How images are read, in one object that every stage hands on."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from dmuh.config import Config
from dmuh.errors import ConfigError
from dmuh.progress import Counting, uncounted

OnBadImage = Literal["skip", "fail"]


@dataclass
class BadImages:
    """The images that could not be read so far, by name, each with the reason."""

    reasons: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reasons)

    def summary(self, most: int = 5) -> str:
        """Return one sentence that counts and names them."""
        shown = "; ".join(list(self.reasons.values())[:most])
        more = f"; and {len(self) - most} more" if len(self) > most else ""
        noun = "image was" if len(self) == 1 else "images were"
        return f"{len(self)} unreadable {noun} skipped: {shown}{more}"


@dataclass(frozen=True)
class Reading:
    """How images are read.

    workers       processes that read image files, or threads where images are in memory; 0 reads in the calling
                  thread, None chooses by the number of images and cores
    on_bad_image  what an unreadable image does: end the reading (`fail`), or be left out and noted in `bad` (`skip`)
    bad           the images that were left out so far
    progress      what opens a progress bar: `dmuh.progress.counting_bar`, or nothing by default
    """

    workers: int | None = None
    on_bad_image: OnBadImage = "fail"
    bad: BadImages = field(default_factory=BadImages)
    progress: Counting = uncounted

    def __post_init__(self) -> None:
        if self.on_bad_image not in get_args(OnBadImage):
            raise ConfigError(f"on_bad_image must be fail or skip, got {self.on_bad_image!r}")
        if self.workers is not None and self.workers < 0:
            raise ConfigError(f"workers must be at least 0, got {self.workers}")

    @classmethod
    def by(cls, config: Config, progress: Counting = uncounted) -> "Reading":
        """Return how the settings of a run say that its images are read."""
        on_bad_image = cast(OnBadImage, config.data.on_bad_image)
        return cls(config.training.workers, on_bad_image, progress=progress)

    @contextmanager
    def under_one_bar(self, what: str, total: int | None) -> Iterator["Reading"]:
        """Yield the same reading for a job of several parts, which are counted on one bar together."""
        with self.progress(what, total) as advance:
            yield replace(self, progress=lambda *_: nullcontext(advance))
