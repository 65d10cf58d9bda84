"""dmuh open."""

import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmuh.cli import console
from dmuh.cli.console import warn
from dmuh.cli.options import Workers, flag, with_groups
from dmuh.cli.serving import LimitOptions, NetworkOptions, run_service
from dmuh.cli.stopping import stoppable

if TYPE_CHECKING:
    from dmuh.server.limits import Limits
    from dmuh.server.metrics import ServiceMetrics
    from dmuh.server.service import Service


@with_groups
@stoppable("what was computed is kept: the same command goes on from there")
def open_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of images, with folders in it or without.")],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Folder of a finished run, or one written by `dmuh export`, whose codes are used; with one that has "
            "texts the page searches by words too.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where features, codes and added images are kept; if not given, in a folder .dmuh inside FOLDER.",
        ),
    ] = None,
    workers: Workers = None,
    browser: Annotated[bool, flag("--browser", help="Show the page in a browser as soon as it is there.")] = False,
    network: NetworkOptions = NetworkOptions(),  # noqa: B008 (never used: each option has its default)
    limits: LimitOptions = LimitOptions(),  # noqa: B008
) -> None:
    """Open a folder of images: a page on which they are searched by their look; Ctrl-C ends it.

    Example: dmuh open photos, then open http://127.0.0.1:8000

    It needs no labels, no training and no settings. The first start computes the images' features and fits codes to
    them; an interrupted one goes on where it was. Later ones take up what was added, changed and removed since, and fit
    the codes again once more than half of the images are new. Folders in FOLDER are shown as labels; where two or more
    have five images each, codes are trained on them too, and the page searches by look or by class.

    With --model codes are those of a model that was trained before, on these images or on others, and an answer is
    called very likely, maybe or unlikely by what it learned: dmuh open photos --model runs/photos

    Your images are only read. What is computed is kept in photos/.dmuh, a hidden folder, or where --state says.
    """

    def ready(address: str) -> None:
        if browser:
            webbrowser.open(address)

    run_service(
        lambda checked, metrics: _service(folder, model, state, workers, checked, metrics), network, limits, ready
    )


@contextmanager
def _service(
    folder: Path,
    model: Path | None,
    state: Path | None,
    workers: int | None,
    limits: "Limits",
    metrics: "ServiceMetrics",
) -> "Iterator[Service]":
    """Yield the service over a folder, brought up to date, with codes of its own or of a model."""
    from dmuh.images import Reading
    from dmuh.opening import open_folder, open_with_model
    from dmuh.server.class_codes import ClassCodes
    from dmuh.server.service import Service

    reading = Reading(workers, "skip", progress=console.counting_bar)
    opening = open_folder(folder, state, reading) if model is None else open_with_model(folder, model, state, reading)
    with opening as opened:
        if len(reading.bad):
            warn(reading.bad.summary())
        service = Service(
            opened.hasher,
            opened.catalogue,
            opened.root,
            opened.added,
            most_pixels=limits.pixels,
            metrics=metrics,
            by_class=None if opened.by_class is None else ClassCodes(*opened.by_class),
            features=opened.features,
        )
        with closing(service):
            yield service
