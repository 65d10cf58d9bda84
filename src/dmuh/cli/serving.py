"""dmuh export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json
from dmuh.errors import needs_torch

if TYPE_CHECKING:
    from dmuh.images import Images

_CALIBRATED = 512  # training images that 8-bit numbers are fitted to and measured on


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="In 8-bit numbers: a quarter of the size, a few other bits.")] = (
        False
    ),
    data: Annotated[Path | None, typer.Option(help="For --int8: the run's images, if they moved.")] = None,
    as_json: console.Json = False,
) -> None:
    """Write a trained network for machines without torch: model.onnx, and model.json that says how to use it.

    What takes a run folder to encode, index, search or serve takes the folder written here too.
    """
    from dmuh.bundle import Bundle
    from dmuh.encoder import export as write

    changes = write(run, out, _training_images(run, data) if int8 else None)
    size = Bundle(out).onnx_file.stat().st_size
    result: dict[str, Any] = {"model": str(out), "bytes": size, "int8": None if changes is None else vars(changes)}
    if as_json:
        say_json(result)
        return
    say(f"exported, {size / 1e6:.1f} MB: {out}")
    if changes is not None:
        say(f"int8 changes {changes.flip_rate:.2%} of the bits of {changes.images} images it was not fitted to")
        if changes.uncertainty_correlation is not None:
            say(f"rank correlation of the images' uncertainty before and after: {changes.uncertainty_correlation:.2f}")


def _training_images(path: Path, data: Path | None) -> "Images":
    """Return some of the images that a run was trained on."""
    with needs_torch("exporting 8-bit numbers"):
        from dmuh.config import read_toml
        from dmuh.datasets import load_dataset
        from dmuh.methods import configure
        from dmuh.protocols import Split
        from dmuh.runs import Run
        from dmuh.trainer.measuring import spread

    run = Run(path)
    run.load_model()  # says what is wrong with the folder, if anything is
    images = load_dataset(configure(read_toml(run.config_file), console.given(data=data)).data)
    train = Split.load(run.split_file, images.fingerprint()).train
    return images.take(spread(train, _CALIBRATED))
