"""dmuh evaluate."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json
from dmuh.cli.options import Data, Json, OptionGroup, with_groups
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, DataError, needs_torch

if TYPE_CHECKING:
    from dmuh.datasets import Dataset
    from dmuh.metrics import Metrics
    from dmuh.runs import Run
    from dmuh.trainer.evaluation import Evaluation


@dataclass(frozen=True)
class RuleOptions(OptionGroup):
    """By which rules a ranking is measured."""

    topk: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Measure the first N answers; else the whole ranking.")
    ] = None
    ties: Annotated[
        str | None,
        typer.Option(
            metavar="RULE", help="Order of equal distances: expected (the default), index-order, as-searched."
        ),
    ] = None
    denominator: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="What AP at N is divided by: retrieved (the default), relevant, all."),
    ] = None
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Radius of the hash lookup, 2 if not given.")
    ] = None
    ranking: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="hamming or soft; not given, a run is measured by both."),
    ] = None


@stoppable()
@with_groups
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of a finished run: its own test is measured.")
    ] = None,
    query: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Instead: labelled query codes, made by `dmuh encode`,")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(metavar="DIR", help="and the labelled codes that they are searched in.")
    ] = None,
    rules: RuleOptions = RuleOptions(),  # noqa: B008 (never used: each option has its default)
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Measure codes: MAP, precision and recall, with named rules for ties and cut-offs.

    Example: dmuh evaluate runs/photos --topk 100

    Codes of your own: dmuh evaluate --query query-codes --database database-codes
    """
    soft: list[dict[str, float]] = []
    if run is not None and query is None and database is None:
        metrics, soft = _measure_again(run, data, rules.given())
    elif run is None and query is not None and database is not None:
        metrics = _measure_codes(query, database, rules.given())
    else:
        raise ConfigError("give a run, or both --query and --database")
    if as_json:
        say_json(metrics.to_dict() | {"soft": soft})
    else:
        say_metrics(metrics)
        say_soft(soft)
        say(f"MAP {metrics.map:.4f}")


def measure_run(run: "Run", images: "Dataset", **rules: Any) -> "Evaluation":
    """Measure a finished run on its own test."""
    from dmuh.trainer.evaluation import evaluate_run

    return evaluate_run(run, images, count=console.counting_bar, **rules)


def _measure_again(path: Path, data: Path | None, rules: dict[str, Any]) -> "tuple[Metrics, list[dict[str, float]]]":
    with needs_torch("measuring a run"):
        from dmuh.runs import Run, open_run

    Run(path).load_model()  # says what is wrong with the folder, if anything is
    run, _, images, _ = open_run(path, data)
    measured = measure_run(run, images, **rules)
    return measured.metrics, measured.soft


def _measure_codes(query: Path, database: Path, rules: dict[str, Any]) -> "Metrics":
    from dmuh.collection import Collection
    from dmuh.datasets import multi_hot
    from dmuh.metrics import evaluate as measure

    codes, names = [], []
    for collection in (Collection(query), Collection(database)):
        items = collection.items()
        codes.append(collection.load_codes())
        names.append([items[i].labels for i in codes[-1].ids.tolist()])
    classes = sorted({name for part in names for labels in part for name in labels})
    if not classes:
        raise DataError("these codes have no labels: encode the images with --dataset folder or csv")
    labels = [multi_hot(part, classes) for part in names]
    return measure(codes[0], codes[1], labels[0], labels[1], **rules)


def say_metrics(metrics: "Metrics") -> None:
    """Print what was measured, all but the MAP."""
    cut = "" if metrics.topk is None else f", cut at {metrics.topk:,} ({metrics.denominator})"
    say(
        f"{metrics.n_queries:,} queries, {metrics.n_database:,} database codes of {metrics.n_bits} bits, "
        f"ranking {metrics.ranking}, ties {metrics.ties}{cut}"
    )
    for k, precision in metrics.precision_at.items():
        if k <= metrics.n_database:
            say(f"  precision@{k:<6,} {precision:.4f}   recall@{k:<6,} {metrics.recall_at[k]:.4f}")
    say(
        f"  precision within radius {metrics.radius}: {metrics.precision_within_radius:.4f} "
        f"({metrics.queries_without_match:,} queries found nothing)"
    )
    if metrics.queries_without_relevant:
        say(f"  {metrics.queries_without_relevant:,} queries have no relevant image and count as 0")


def say_soft(soft: list[dict[str, float]]) -> None:
    """Print what soft ranking gives, by how many bits of sureness are kept."""
    for found in soft:
        kept = f"--sure {found['sure']:.0f} ({found['bits_stored']:.0f} bits per image)"
        say(f"  soft ranking, {kept}: MAP {found['map']:.4f}, precision@1 {found['precision_at_1']:.4f}")


def say_texts(texts: dict[str, dict[str, Any]]) -> None:
    """Print what texts find among images, and images among texts."""
    from dmuh.encoder.calibration import DEFAULT_SURE

    for name, found in texts.items():
        soft = next(one["map"] for one in found["soft"] if one["sure"] == DEFAULT_SURE)
        recall = ", ".join(f"R@{k} {value:.3f}" for k, value in found["recall"]["soft"].items())
        say(f"{name.replace('_', ' ')}: MAP {found['map']:.4f}, by soft ranking {soft:.4f}; its own pair: {recall}")
