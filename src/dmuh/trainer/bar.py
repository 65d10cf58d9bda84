"""What a training reports after each step, and the bar that shows it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from dmuh.progress import Bar


@dataclass(frozen=True)
class Progress:
    """What the loop reports after each step."""

    epoch: int
    epochs: int
    images: int  # in this step
    images_per_epoch: int
    terms: dict[str, float]
    uncertainty: float | None
    validation_map: float | None  # of the last epoch that was measured


Report = Callable[[Progress], None]


@contextmanager
def training_bar() -> Iterator[Report]:
    """Show the training's bar: images per second, the time left, the epoch and the validation MAP.

    Then, as far as the terminal is wide, the loss, the mean uncertainty and each term of the loss. Yields what is to be
    told of each step.
    """
    bar = Bar("training", in_percent=True)

    def report(step: Progress) -> None:
        bar.start()  # at the first step: what comes before it has a bar of its own
        notes = [f"epoch {step.epoch}/{step.epochs}"]
        if step.validation_map is not None:
            notes.append(f"val MAP {step.validation_map:.4f}")
        notes.append(f"loss {sum(step.terms.values()):.3f}")
        if step.uncertainty is not None:
            notes.append(f"u {step.uncertainty:.4f}")
        if len(step.terms) > 1:
            notes += [f"{name} {value:.3f}" for name, value in step.terms.items()]
        if bar.total is None:  # a resumed run has done some epochs already
            bar.set((step.epoch - 1) * step.images_per_epoch, step.epochs * step.images_per_epoch)
        bar.advance(step.images, *notes)

    try:
        yield report
    finally:
        bar.stop()


def reporting(progress: Report | bool, first: bool) -> AbstractContextManager[Report]:
    """Give what is told of each step: `progress` itself, or by True the bar (of the first process), by False none."""
    if progress is True and first:
        return training_bar()
    return nullcontext((lambda _: None) if isinstance(progress, bool) else progress)
