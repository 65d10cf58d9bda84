"""dmuh export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmuh.cli.console import say, say_json
from dmuh.cli.options import Data, Json, flag
from dmuh.cli.stopping import stoppable
from dmuh.errors import needs_torch

if TYPE_CHECKING:
    from dmuh.images import Images

_CALIBRATED = 512  # training images that 8-bit numbers are fitted to and measured on


@stoppable()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")],
    int8: Annotated[
        bool, flag("--int8", help="In 8-bit numbers: a quarter of the size, and a few bits of the codes change.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write a trained network for machines without torch: model.onnx, and model.json that says how to use it.

    Example: dmuh export runs/photos --out photos.model

    Commands that take a run to encode, index, search or serve take the folder written here too. --int8 reads the run's
    images, see --data.
    """
    from dmuh.encoder import export_run
    from dmuh.encoder.bundle import Bundle

    changes = export_run(run, out, _training_images(run, data) if int8 else None)
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
        from dmuh.runs import Run, open_run
        from dmuh.trainer.measuring import spread

    Run(path).load_model()  # says what is wrong with the folder, if anything is
    _, _, images, split = open_run(path, data)
    return images.take(spread(split.train, _CALIBRATED))
