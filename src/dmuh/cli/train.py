"""dmuh train."""

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.cli.evaluate import measure_run, say_soft, say_texts
from dmuh.cli.options import SET_HELP, DatasetOptions, Json, OptionGroup, flag, with_groups
from dmuh.cli.stopping import AGAIN, stoppable
from dmuh.errors import ConfigError, StoppedError, needs_torch
from dmuh.machine import place_in_group

if TYPE_CHECKING:
    from dmuh.config import Config
    from dmuh.datasets import Dataset
    from dmuh.runs import Run

_TRAINING = "Network and training"
_DEFAULTS = {"method": "dmuh-plus", "head": "auto"}  # where neither a file nor a preset says what to do


@dataclass(frozen=True)
class TrainingOptions(OptionGroup):
    """The settings that have an option of their own."""

    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_TRAINING,
            help="The method, dmuh-plus if not given; see `dmuh list --methods`.",
        ),
    ] = None
    bits: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=_TRAINING, help="Length of the codes, 32 if not given.")
    ] = None
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_TRAINING, help="Network below the hash layer; see `dmuh list --backbones`."
        ),
    ] = None
    freeze: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            rich_help_panel=_TRAINING,
            help="What of the backbone does not train: all, none, or everything up to the part of this name.",
        ),
    ] = None
    epochs: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=_TRAINING, help="Passes over the training images.")
    ] = None
    query: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=_TRAINING, help="Query images per class, or their fraction if below 1."
        ),
    ] = None
    train: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=_TRAINING, help="Training images per class, or their fraction if below 1."
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=_TRAINING, help="Seed of the split, the weights and the order of images."
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(metavar="NAME", rich_help_panel=_TRAINING, help="auto, cpu, cuda or cuda:N.")
    ] = None


def _how_to_go_on(**options: Any) -> str:
    from dmuh.runs import Run

    out = options["out"]
    return f"go on by: dmuh train --out {shlex.quote(str(out))} --resume" if Run(out).started else AGAIN


@with_groups
@stoppable(_how_to_go_on)
def train(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the run.")],
    data: Annotated[Path | None, typer.Option(metavar="PATH", help="Folder or file the data set is read from.")] = None,
    source: DatasetOptions = DatasetOptions(),  # noqa: B008 (never used: each option has its default)
    download: Annotated[bool, flag("--download", help="Fetch the data set into --data first: cifar10.")] = False,
    resume: Annotated[bool, flag("--resume", help="Go on with the run in --out, if there is one.")] = False,
    measure: Annotated[
        bool, flag("--evaluate/--no-evaluate", help="Measure the trained network on the test queries.")
    ] = True,
    as_json: Json = False,
    settings: TrainingOptions = TrainingOptions(),  # noqa: B008
    preset: Annotated[
        str,
        typer.Option(metavar="NAME", rich_help_panel=_TRAINING, help="A method's named settings, such as paper."),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", rich_help_panel=_TRAINING, help="TOML file with settings."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", rich_help_panel=_TRAINING, help=SET_HELP),
    ] = None,
) -> None:
    """Train a network that gives images their codes, and measure it.

    Example: dmuh train --dataset folder --data photos --bits 48 --out runs/photos

    photos has one folder per class with images of that class. Next: dmuh index.

    Without --config and --preset the method is dmuh-plus, or dmuh-x with --texts, and above a frozen backbone held-out
    images choose the head: kernel and weight_decay, unless they are given. What was chosen is said and written to the
    run's config.toml.

    With --texts, images and texts get codes in one space, and dmuh search --text finds images by words: dmuh train
    --dataset csv --data photos.csv --texts caption --out runs/photos

    On many GPUs: torchrun --nproc-per-node 8 -m dmuh.cli train … with the same options.
    """
    from dmuh.config import parse_override

    flags = source.given() | settings.given() | ({} if data is None else {"data": str(data)})
    flags |= dict(parse_override(text) for text in set_ or [])
    with needs_torch("training"):
        from dmuh.datasets import load_dataset
        from dmuh.runs import Run
        from dmuh.trainer import train as run_training
    run = Run(out)
    going_on = resume and run.started
    method = "dmuh-x" if flags.get("texts") else "dmuh-plus"
    layer = flags if going_on or config or preset else {**_DEFAULTS, "method": method, **flags}
    chosen = settings_of(run, layer, config, preset, resume)
    if download:
        _download(chosen)
    images = run.load_dataset(flags.get("data")) if resume and run.started else load_dataset(chosen.data)
    began = time.perf_counter()
    run_training(chosen, out, dataset=images, resume=resume)
    if place_in_group()[0] == 0:
        _finish(chosen, run, images, time.perf_counter() - began, measure, as_json)


def _finish(settings: "Config", run: "Run", images: "Dataset", seconds: float, measure: bool, as_json: bool) -> None:
    """Measure a trained run, if that is wanted and there are labels, and say what came of it."""
    from dmuh.trainer.leaks import find_near_leak

    last = run.metrics()[-1]
    result: dict[str, Any] = {"run": str(run.path), "seconds": round(seconds, 1)}
    result |= {key: last[key] for key in ("loss", "train_map", "validation_map") if key in last}
    if measure and images.classes:
        measured = measure_run(run, images)
        result |= {"map": measured.metrics.map, "soft": measured.soft}
        result |= {"texts": measured.texts} if measured.texts else {}
        leak = find_near_leak(run, images)
        if leak is not None:
            result["near_leaks"] = leak.n
            warn(leak.sentence(settings.data.data))
    if as_json:
        say_json(result)
        return
    say(f"trained {settings.method} with {settings.network.bits} bits in {result['seconds']:.0f} s: {run.path}")
    if "validation_map" in result:
        say(f"MAP of held-out training images {result['validation_map']:.4f}")
    if "map" in result:
        say_soft(result["soft"])
        say(f"MAP {result['map']:.4f}")
    if "texts" in result:
        say_texts(result["texts"])


def settings_of(run: "Run", flags: dict[str, Any], config: Path | None, preset: str, resume: bool) -> "Config":
    """Return the settings of a new run; one that is resumed keeps its own."""
    with needs_torch("training"):
        from dmuh.config import read_toml
        from dmuh.methods import configure

    if not (resume and run.started):
        return configure(read_toml(config) if config else {}, flags, preset=preset)
    if preset or config:
        raise ConfigError("a run that is resumed keeps its settings: leave out --preset and --config")
    begun_with = run.settings()
    asked = configure(begun_with, flags)
    if not asked.same_training(configure(begun_with)):
        raise ConfigError(f"{run.path} was begun with other settings than {', '.join(flags)} say: leave these out")
    return asked  # where its data lie, and what computes it, may be others by now


def _download(settings: "Config") -> None:
    from dmuh.datasets import download_dataset

    if place_in_group()[1] > 1:
        raise ConfigError("--download is for one process: fetch the data set before many train on it")
    try:
        with console.download_bar() as progress:
            download_dataset(settings.data, progress)
    except KeyboardInterrupt:
        raise StoppedError("stopped; what came is kept, and the same command goes on from there") from None
