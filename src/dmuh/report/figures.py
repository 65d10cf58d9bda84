"""Figures, drawn with matplotlib and returned as SVG text, in a light and a dark version."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmuh.errors import MissingExtraError

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("drawing figures", "train") from error

# Okabe and Ito's palette: told apart with any colour vision, and on both backgrounds.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
_INK = {"light": "#24292f", "dark": "#d7dde4"}
_GRID = {"light": "#d8dee4", "dark": "#343b44"}

_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")

Metrics = Sequence[dict[str, Any]]  # lines of metrics.jsonl


@dataclass(frozen=True)
class Drawing:
    """One figure as SVG, for light and for dark pages, with the sentence that says what it shows."""

    light: str
    dark: str
    alt: str


def draw(plot: Callable[[Figure], None], alt: str, width: float = 5.2, height: float = 3.2) -> Drawing:
    """Draw a figure in both versions."""
    versions = {}
    for theme in ("light", "dark"):
        with _themed(theme):
            figure = Figure(figsize=(width, height), layout="constrained")
            plot(figure)
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
            versions[theme] = text.getvalue()[text.getvalue().index("<svg") :]
    return Drawing(versions["light"], versions["dark"], alt)


def loss_curves(metrics: Metrics) -> Drawing:
    """Draw the loss and its terms over the epochs."""
    names = [n for n in ("loss", "similarity", "quantization", "uncertainty") if n in metrics[0]]

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "epoch", "loss", "Loss and its terms")
        for name, colour, style in zip(names, (BLUE, GREEN, ORANGE, PURPLE), ("-", "--", "-.", ":"), strict=False):
            axes.plot(_column(metrics, "epoch"), _column(metrics, name), style, color=colour, label=name)
        axes.set_ylim(bottom=0)
        axes.legend()

    return draw(plot, f"Loss over {len(metrics)} epochs, from {metrics[0]['loss']:.3f} to {metrics[-1]['loss']:.3f}")


def map_curves(metrics: Metrics, test_map: float | None = None) -> Drawing:
    """Draw the MAP of training and held-out images over the epochs, and the test MAP as a line."""
    measured = [line for line in metrics if "train_map" in line]

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "epoch", "MAP", "MAP during training")
        axes.plot(
            _column(measured, "epoch"),
            _column(measured, "train_map"),
            "--",
            color=GREEN,
            label="training images",
        )
        if "validation_map" in measured[0]:
            held_out = _column(measured, "validation_map")
            axes.plot(_column(measured, "epoch"), held_out, color=BLUE, label="held-out images")
        if test_map is not None:
            axes.axhline(test_map, color=ORANGE, linestyle=":", label=f"test queries, at the end: {test_map:.4f}")
        axes.set_ylim(0, 1.02)
        axes.legend(loc="lower right")

    return draw(plot, "MAP of training and held-out images over the epochs")


def precision_at_k(curve: dict[str, list[float]]) -> Drawing:
    """Draw precision over the number of images looked at."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "images returned (k)", "precision@k", "Precision of the first k")
        axes.semilogx(curve["rank"], curve["precision"], color=BLUE)
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(0, 1.02)

    return draw(plot, "Precision of the first k images returned, over k")


def precision_recall(curve: dict[str, list[float]]) -> Drawing:
    """Draw precision over recall."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "recall", "precision", "Precision and recall")
        axes.plot(curve["recall"], curve["precision"], color=BLUE)
        axes.set_xlim(0, 1.0)
        axes.set_ylim(0, 1.02)

    return draw(plot, "Precision over recall")


def two_bits(trace: Sequence[dict[str, Any]]) -> Drawing:
    """Draw the output of a bit that kept changing and of one that settled, over the epochs (the paper's Fig. 1, top).

    Both belong to traced training images; the bits are those with the most and the least uncertainty in the second half
    of the training, or, for a method without a momentum copy, with the largest and the smallest steps.
    """
    outputs = np.array([line["outputs"] for line in trace])  # (epochs, images, bits)
    steps = np.abs(np.diff(outputs, axis=0, prepend=outputs[:1]))
    unsure = np.array([line["uncertainty"] for line in trace]) if "uncertainty" in trace[0] else steps
    late = unsure[len(unsure) // 2 :].mean(axis=0)  # (images, bits)
    chosen = {
        "uncertain": np.unravel_index(int(late.argmax()), late.shape),
        "certain": np.unravel_index(int(late.argmin()), late.shape),
    }
    epochs = [line["epoch"] for line in trace]

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "epoch", "output of the bit", "Two bits over the epochs")
        for (name, (image, bit)), colour, style in zip(chosen.items(), (ORANGE, BLUE), ("-", "--"), strict=True):
            label = f"{name}: bit {bit + 1}, mean uncertainty {late[image, bit]:.4f}"
            axes.plot(epochs, outputs[:, image, bit], style, color=colour, label=label)
        for level in (-1, 1):
            axes.axhline(level, color=mpl.rcParams["grid.color"], linewidth=1)
        axes.axhline(0, color=mpl.rcParams["text.color"], linewidth=0.6)
        figure.legend(loc="outside lower center")

    return draw(plot, "Outputs of an uncertain and of a certain bit over the epochs")


def _axes(figure: Figure, x: str, y: str, title: str) -> Axes:
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(visible=True, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _column(lines: Metrics, name: str) -> list[float]:
    return [line[name] for line in lines]


@contextmanager
def _themed(theme: str) -> Iterator[None]:
    ink, grid = _INK[theme], _GRID[theme]
    style: dict[str, Any] = dict.fromkeys(_INKED, ink)
    style |= {"grid.color": grid, "legend.frameon": False, "lines.linewidth": 1.8, "svg.hashsalt": "dmuh"}
    style |= {"font.size": 10, "axes.titlesize": 11, "legend.fontsize": 9}
    with mpl.rc_context(style):  # type: ignore[arg-type]
        yield
