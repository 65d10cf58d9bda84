"""Figures, drawn with matplotlib and returned as SVG text, in a light and a dark version."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_REST = "#8C8C8C"  # what is only compared with
_LINES = (  # a dash of its own for each, so that no line depends on its colour
    (BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PURPLE, ":"), ("#D55E00", (0, (5, 1))), ("#56B4E9", (0, (3, 1, 1, 1))),
    (_REST, (0, (1, 1))), (BLUE, ":"), (ORANGE, ":"), (GREEN, ":"),
)  # fmt: skip
_INK = {"light": "#24292f", "dark": "#d7dde4"}
_GRID = {"light": "#d8dee4", "dark": "#343b44"}

_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")

Metrics = Sequence[dict[str, Any]]  # lines of metrics.jsonl
Curve = Mapping[str, Sequence[float]]  # rank, recall and precision of an evaluation


@dataclass(frozen=True)
class Drawing:
    """One figure as SVG, for light and for dark pages, and as PNG, with the sentence that says what it shows."""

    light: str
    dark: str
    png: bytes
    alt: str


def draw(plot: Callable[[Figure], None], alt: str, width: float = 5.2, height: float = 3.2) -> Drawing:
    """Draw a figure in both versions."""
    versions = {}
    picture = io.BytesIO()
    for theme in ("light", "dark"):
        with _themed(theme):
            figure = Figure(figsize=(width, height), layout="constrained")
            plot(figure)
            text = io.StringIO()
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
            versions[theme] = text.getvalue()[text.getvalue().index("<svg") :]
            if theme == "light":
                figure.savefig(picture, format="png", dpi=160, metadata={"Software": None})
    return Drawing(versions["light"], versions["dark"], picture.getvalue(), alt)


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
            maps = _column(measured, "validation_map")
            axes.plot(_column(measured, "epoch"), maps, color=BLUE, label="held-out images")
        if test_map is not None:
            axes.axhline(test_map, color=ORANGE, linestyle=":", label=f"test queries, at the end: {test_map:.4f}")
        axes.set_ylim(0, 1.02)
        axes.legend(loc="lower right")

    return draw(plot, "MAP of training and held-out images over the epochs")


def precision_at_k(curves: Mapping[str, Curve], most: int | None = None) -> Drawing:
    """Draw precision over the number of images looked at, up to `most`, a line for each name."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "images returned (k)", "precision@k", "Precision of the first k")
        lowest = 1.0
        for (name, curve), (colour, style) in zip(curves.items(), _LINES, strict=False):
            points = [(k, p) for k, p in zip(curve["rank"], curve["precision"], strict=True) if not most or k <= most]
            axes.semilogx(*zip(*points, strict=True), linestyle=style, color=colour, label=name)
            lowest = min(lowest, *(p for _, p in points))
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(0 if len(curves) == 1 else max(0.0, lowest - 0.05), 1.02 if len(curves) == 1 else None)
        if len(curves) > 1:
            axes.legend()

    return draw(plot, "Precision of the first k images returned, over k" + _named(curves))


def precision_recall(curves: Mapping[str, Curve]) -> Drawing:
    """Draw precision over recall, a line for each name."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "recall", "precision", "Precision and recall")
        for (name, curve), (colour, style) in zip(curves.items(), _LINES, strict=False):
            axes.plot(curve["recall"], curve["precision"], linestyle=style, color=colour, label=name)
        axes.set_xlim(0, 1.0)
        axes.set_ylim(0, 1.02)
        if len(curves) > 1:
            figure.legend(loc="outside lower center", ncols=4)

    return draw(plot, "Precision over recall" + _named(curves))


def training_compared(runs: Mapping[str, Metrics], test_maps: Mapping[str, float]) -> Drawing:
    """Draw the loss and the training images' MAP over the epochs of several runs; the legend has their test MAP."""

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _dress(left, "epoch", "loss", "Loss")
        _dress(right, "epoch", "MAP", "MAP of training images")
        for (name, metrics), (colour, style) in zip(runs.items(), _LINES, strict=False):
            measured = [line for line in metrics if "train_map" in line]
            label = f"{name}: test MAP {test_maps[name]:.3f}"
            left.plot(_column(metrics, "epoch"), _column(metrics, "loss"), linestyle=style, color=colour, label=label)
            maps = _column(measured, "train_map")
            right.plot(_column(measured, "epoch"), maps, linestyle=style, color=colour)
        left.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=2)

    return draw(plot, "Loss and MAP of the training images over the epochs" + _named(runs), width=7.2)


def map_by_row(figures: Mapping[str, tuple[float, float | None]], title: str) -> Drawing:
    """Draw MAP with its deviation over seeds, one line per row, the best at the top."""
    ordered = sorted(figures.items(), key=lambda item: item[1][0])

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "MAP", "", title)
        for place, (name, (mean, deviation)) in enumerate(ordered):
            is_dmuh = name.split(",")[0].startswith("dmuh")
            colour, marker = (ORANGE, "D") if is_dmuh else (BLUE, "o")
            axes.errorbar(mean, place, xerr=deviation, color=colour, marker=marker, capsize=3)
        axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])

    return draw(plot, f"{title}: from {ordered[-1][0]} to {ordered[0][0]}", height=0.9 + 0.26 * len(ordered))


def precision_by_uncertainty(uncertainty: Sequence[float], precision: Sequence[float]) -> Drawing:
    """Draw each query's average precision over the rank of its uncertainty, and the mean of every tenth."""
    order = np.argsort(np.asarray(uncertainty), kind="stable")
    values = np.asarray(precision)[order]
    tenths = np.array_split(np.arange(len(values)), min(10, len(values)))
    share = 100 * (np.arange(len(values)) + 0.5) / len(values)

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "percentile of the image's uncertainty", "average precision", "Uncertainty and errors")
        axes.plot(share, values, ".", color="#8C8C8C", markersize=2, alpha=0.5, label="a query")
        means = [float(values[tenth].mean()) for tenth in tenths]
        axes.plot([float(share[tenth].mean()) for tenth in tenths], means, "o-", color=BLUE, label="mean of a tenth")
        axes.set_ylim(0, 1.02)
        figure.legend(loc="outside lower center", ncols=2)

    return draw(plot, "Average precision of queries by the percentile of their uncertainty")


def flips_by_tenth(rates: Mapping[str, Sequence[float]]) -> Drawing:
    """Draw the share of bits that flip when the image shifts, by tenths of the bits in the order of each predictor."""

    def plot(figure: Figure) -> None:
        axes = _axes(
            figure, "tenth of the bits, the least certain last", "bits that flip", "A small shift of the image"
        )
        for (name, values), (colour, style) in zip(rates.items(), _LINES, strict=False):
            axes.plot(range(1, len(values) + 1), values, marker="o", linestyle=style, color=colour, label=name)
        axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
        axes.set_ylim(bottom=0)
        axes.legend()

    return draw(plot, "Share of bits that flip under a small shift of the image" + _named(rates))


def reliability(said: Sequence[float], seen: Sequence[float]) -> Drawing:
    """Draw how often bits turned over against the probability that was given for it, tenth by tenth."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "probability that a bit turns over", "bits that did", "What the probability is worth")
        axes.plot([0, 0.5], [0, 0.5], color=_REST, linestyle=":", label="as said")
        axes.plot(said, seen, marker="o", color=BLUE, label="tenths of the bits")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
        axes.set_xlim(0, 0.5)
        axes.set_ylim(0, 0.5)
        axes.legend()

    return draw(plot, "Share of bits that turned over by the probability that was given for it")


def map_by_storage(lines: Mapping[str, Mapping[int, float]], title: str) -> Drawing:
    """Draw MAP over the bits that are stored per image, a line for each way to rank: MAP by number of bits."""

    def plot(figure: Figure) -> None:
        axes = _axes(figure, "bits stored per image", "MAP", title)
        for (name, points), (colour, style) in zip(lines.items(), _LINES, strict=False):
            axes.plot(list(points), list(points.values()), marker="o", linestyle=style, color=colour, label=name)
        stored = sorted({bits for points in lines.values() for bits in points})
        apart = stored[-1] / 25  # numbers that are nearer would stand in one another
        axes.set_xticks([bits for n, bits in enumerate(stored) if n == 0 or bits - stored[n - 1] >= apart])
        axes.legend()

    return draw(plot, f"{title}, by bits stored per image{_named(lines)}")


def two_bits(trace: Sequence[dict[str, Any]]) -> Drawing:
    """Draw the output of a bit that kept changing and of one that settled, over the epochs (the paper's Fig. 1, top).

    Both belong to traced training images; the bits are those with the most and the least uncertainty in the second half
    of the training, or, for a method without a momentum copy, with the largest and the smallest steps.
    """
    outputs = np.array([line["outputs"] for line in trace])  # (epochs, images, bits)
    steps = np.abs(np.diff(outputs, axis=0, prepend=outputs[:1]))
    uncertainty = np.array([line["uncertainty"] for line in trace]) if "uncertainty" in trace[0] else steps
    late = uncertainty[len(uncertainty) // 2 :].mean(axis=0)  # (images, bits)
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
    _dress(axes, x, y, title)
    return axes


def _dress(axes: Axes, x: str, y: str, title: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(visible=True, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _named(lines: Mapping[str, Any]) -> str:
    return f": {', '.join(lines)}" if len(lines) > 1 else ""


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
