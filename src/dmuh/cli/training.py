"""dmuh train, evaluate and demo."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json
from dmuh.errors import ConfigError, DataError, DmuhError, needs_torch
from dmuh.machine import place_in_group

if TYPE_CHECKING:
    from dmuh.config import Config
    from dmuh.datasets import Dataset
    from dmuh.metrics import Metrics
    from dmuh.runs import Run
    from dmuh.trainer.evaluation import Evaluation


def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    dataset: console.DatasetName = None,
    data: Annotated[Path | None, typer.Option(help="Folder or file the data set is read from.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch it into --data if not there: cifar10.")] = False,
    method: Annotated[str | None, typer.Option(help="Name of the method, see `dmuh list`.")] = None,
    bits: Annotated[int | None, typer.Option(help="Length of the code.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Name of the backbone, see `dmuh list`.")] = None,
    freeze: Annotated[
        str | None, typer.Option(help="What of the backbone does not train: all, none, or its last part that does not.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the split, the weights and the order.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    query: Annotated[float | None, typer.Option(help="Query images a class, or their fraction if below 1.")] = None,
    train_: Annotated[float | None, typer.Option("--train", help="Training images a class, or their fraction.")] = None,
    path_format: console.PathFormat = None,
    path_column: console.PathColumn = None,
    label_column: console.LabelColumn = None,
    label_separator: console.LabelSeparator = None,
    on_bad_image: console.OnBadImage = None,
    preset: Annotated[str, typer.Option(help="A method's named settings, such as paper.")] = "",
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with settings.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting, see `dmuh list --settings`.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    measure: Annotated[bool, typer.Option("--evaluate/--no-evaluate", help="Measure the test queries too.")] = True,
    as_json: console.Json = False,
) -> None:
    """Train a hashing network and measure it.

    Example: dmuh train --dataset folder --data photos --bits 48 --out runs/photos

    On many GPUs: torchrun --nproc-per-node 8 -m dmuh.cli train … with the same options.
    """
    from dmuh.config import parse_override

    flags = console.given(
        dataset=dataset, data=data, method=method, bits=bits, backbone=backbone, freeze=freeze, epochs=epochs,
        seed=seed, device=device, query=query, train=train_, path_format=path_format, path_column=path_column,
        label_column=label_column, label_separator=label_separator, on_bad_image=on_bad_image,
    )  # fmt: skip
    flags |= dict(parse_override(text) for text in set_ or [])
    with needs_torch("training"):
        from dmuh.datasets import load_dataset
        from dmuh.runs import Run
    run = Run(out)
    settings = _settings(run, flags, config, preset, resume)
    rank, n_processes = place_in_group()
    if download:
        if n_processes > 1:
            raise ConfigError("--download is for one process: fetch the data set before many train on it")
        _download(settings)
    images = load_dataset(settings.data)
    began = time.perf_counter()
    _train(settings, run, images, resume)
    if rank:
        return
    last = run.metrics()[-1]
    result: dict[str, Any] = {
        "run": str(out),
        "seconds": round(time.perf_counter() - began, 1),
    }
    result |= {key: last[key] for key in ("loss", "train_map", "validation_map") if key in last}
    measure = measure and bool(images.classes)
    if measure:
        result["map"] = _evaluate(run, images).metrics.map
    if as_json:
        say_json(result)
        return
    say(f"trained {settings.method} with {settings.network.bits} bits in {result['seconds']:.0f} s: {out}")
    if "validation_map" in result:
        say(f"MAP of held-out training images {result['validation_map']:.4f}")
    if measure:
        say(f"MAP {result['map']:.4f}")


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="Folder of a finished run, to measure its own test.")] = None,
    query: Annotated[Path | None, typer.Option(help="Instead: codes of labelled queries, by `dmuh encode`.")] = None,
    database: Annotated[Path | None, typer.Option(help="… and of the labelled database.")] = None,
    topk: Annotated[int | None, typer.Option(min=1, help="Cut-off of MAP; without it the whole ranking.")] = None,
    ties: Annotated[str | None, typer.Option(help="Order of equal distances: expected (default), index-order.")] = None,
    denominator: Annotated[str | None, typer.Option(help="AP@k divided by: retrieved (default), relevant.")] = None,
    radius: Annotated[int | None, typer.Option(min=0, help="Radius of the hash lookup, 2 by default.")] = None,
    data: Annotated[Path | None, typer.Option(help="The run's images, if they moved.")] = None,
    as_json: console.Json = False,
) -> None:
    """Measure codes: MAP, precision and recall, with named rules for ties and cut-offs."""
    rules = console.given(topk=topk, ties=ties, denominator=denominator, radius=radius)
    if run is not None and query is None and database is None:
        metrics = _evaluate_run(run, data, rules)
    elif run is None and query is not None and database is not None:
        metrics = _evaluate_codes(query, database, rules)
    else:
        raise ConfigError("give a run, or both --query and --database")
    if as_json:
        say_json(metrics.to_dict())
    else:
        _say_metrics(metrics)
        say(f"MAP {metrics.map:.4f}")


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the demo.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 30,
    as_json: console.Json = False,
) -> None:
    """Train on embedded digits, index them, ask, measure, and write a page of figures."""
    with needs_torch("the demo"):
        from dmuh.collection import Collection
        from dmuh.datasets import load_dataset
        from dmuh.datasets.folder import write_folder
        from dmuh.report.markup import refuse_foreign_page
        from dmuh.report.page import write_run_page
        from dmuh.runs import Run

    tell = (lambda _: None) if as_json else say
    run, page = Run(out / "run"), out / "index.html"
    refuse_foreign_page(page)
    settings = _settings(run, {"epochs": epochs}, None, "", resume=True)
    images = load_dataset(settings.data)
    tell(f"1/4  training {settings.method} with {settings.network.bits} bits on digits, {epochs} epochs …")
    _train(settings, run, images, resume=True)
    tell("2/4  encoding the other digits and indexing their codes …")
    evaluation = _evaluate(run, images)
    collection = Collection(out / "index")
    files = write_folder(images, evaluation.database.ids, out / "images")
    collection.write(evaluation.database, files, run.path, run.load_model().checksum)
    index = collection.build_index()
    began = time.perf_counter()
    index.search(evaluation.query, 10)
    seconds = time.perf_counter() - began
    tell(f"3/4  {len(evaluation.query):,} queries asked {len(index):,} images for their 10 nearest in {seconds:.3f} s")
    write_run_page(run, images, evaluation.query, evaluation.database, page)
    tell(f"4/4  the page is at {page.absolute()}")
    if as_json:
        say_json({"page": str(page.absolute()), "run": str(run.path), "map": evaluation.metrics.map})
        return
    _say_metrics(evaluation.metrics)
    say(f"to search them in a browser: dmuh serve {run.path} --index {collection.path}")
    say(f"MAP {evaluation.metrics.map:.4f}")


def _settings(run: "Run", flags: dict[str, Any], config: Path | None, preset: str, resume: bool) -> "Config":
    """Return the settings of a new run; one that is resumed keeps its own."""
    with needs_torch("training"):
        from dmuh.config import read_toml
        from dmuh.methods import configure

    if not (resume and run.started):
        return configure(read_toml(config) if config else {}, flags, preset=preset)
    if preset or config:
        raise ConfigError("a run that is resumed keeps its settings: leave out --preset and --config")
    layer = run.settings()
    asked = configure(layer, flags)
    if not asked.same_training(configure(layer)):
        raise ConfigError(f"{run.path} was begun with other settings than {', '.join(flags)} say: leave these out")
    return asked  # where its data lie, and what computes it, may be others by now


def _download(settings: "Config") -> None:
    from dmuh.datasets import download_dataset

    try:
        with console.download_bar() as progress:
            download_dataset(settings.data, progress)
    except KeyboardInterrupt:
        raise DmuhError("stopped; what came is kept, and the same command goes on from there") from None


def _train(settings: "Config", run: "Run", images: "Dataset", resume: bool) -> None:
    from dmuh.trainer import train as run_training

    try:
        run_training(settings, run.path, dataset=images, resume=resume)
    except KeyboardInterrupt:
        raise DmuhError(f"stopped; go on by: dmuh train --out {run.path} --resume") from None


def _evaluate(run: "Run", images: "Dataset", **rules: Any) -> "Evaluation":
    from dmuh.trainer.evaluation import evaluate_run

    return evaluate_run(run, images, count=console.counting_bar, **rules)


def _evaluate_run(path: Path, data: Path | None, rules: dict[str, Any]) -> "Metrics":
    with needs_torch("measuring a run"):
        from dmuh.runs import Run, open_run

    Run(path).load_model()  # says what is wrong with the folder, if anything is
    run, _, images, _ = open_run(path, data)
    return _evaluate(run, images, **rules).metrics


def _evaluate_codes(query: Path, database: Path, rules: dict[str, Any]) -> "Metrics":
    from dmuh.collection import Collection
    from dmuh.datasets import multi_hot
    from dmuh.metrics import evaluate as measure

    codes, names = [], []
    for collection in (Collection(query), Collection(database)):
        items = collection.items()
        codes.append(collection.load_codes())
        names.append([items[i].labels for i in codes[-1].ids.tolist()])
    classes = sorted({name for part in names for own in part for name in own})
    if not classes:
        raise DataError("these codes have no labels: encode the images with --dataset folder or csv")
    labels = [multi_hot(part, classes) for part in names]
    return measure(codes[0], codes[1], labels[0], labels[1], **rules)


def _say_metrics(metrics: "Metrics") -> None:
    cut = "" if metrics.topk is None else f", cut at {metrics.topk:,} ({metrics.denominator})"
    say(
        f"{metrics.n_queries:,} queries, {metrics.n_database:,} database codes of {metrics.n_bits} bits, "
        f"ties {metrics.ties}{cut}"
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
