"""dmuh serve."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dmuh.cli import console
from dmuh.cli.console import warn
from dmuh.cli.options import with_groups
from dmuh.cli.serving import LimitOptions, NetworkOptions, run_service
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, RunError

if TYPE_CHECKING:
    from dmuh.encoder import Hasher
    from dmuh.server.limits import Limits
    from dmuh.server.metrics import ServiceMetrics
    from dmuh.server.service import Service


@with_groups
@stoppable("what was encoded is kept: the same command goes on from there")
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="Folder of a finished run, or one written by `dmuh export`; with --index, if not given, the one that "
            "made it.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of images to search; the folders in it are their labels."),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="Instead: folder made by `dmuh index`. A second --index milvus:FILE.db or milvus:URL lets Milvus "
            "search.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the service keeps its catalogue and added images; if not given, in a folder .dmuh inside "
            "--images, or in the --index folder.",
        ),
    ] = None,
    sure: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2,
            metavar="N",
            help="Bits that are kept beside each bit of a code to say how sure it is, 0, 1 or 2; if not given, as many "
            "as the codes that are there have, at first 1.",
        ),
    ] = None,
    network: NetworkOptions = NetworkOptions(),  # noqa: B008 (never used: each option has its default)
    limits: LimitOptions = LimitOptions(),  # noqa: B008
) -> None:
    """Serve a search page and an API over images; Ctrl-C ends it.

    Example: dmuh serve runs/photos --images photos, then open http://127.0.0.1:8000

    The first start encodes all images, later ones only what is new. What the service knows of them is kept in
    photos/.dmuh, a hidden folder among your images, or where --state says:

    dmuh serve runs/photos --images photos --state photos.state
    """
    folder, engine = _sources(images, index)
    run_service(
        lambda checked, metrics: _service(model, images, folder, state, sure, engine, checked, metrics), network, limits
    )


def _sources(images: Path | None, index: list[str] | None) -> tuple[Path | None, str | None]:
    """Return the folder of the index that is to be served, and the address of the Milvus that searches it, if any."""
    folders = [Path(text) for text in index or [] if not text.startswith("milvus:")]
    engines = [text for text in index or [] if text.startswith("milvus:")]
    if (images is not None) + len(folders) != 1:
        raise ConfigError("give the images to serve: a folder by --images, or what dmuh index made by --index")
    if len(engines) > 1:
        raise ConfigError(f"one Milvus searches, got {' and '.join(engines)}")
    return next(iter(folders), None), next(iter(engines), None)


def _model(model: Path | None, index: Path | None, sure: int | None) -> "Hasher":
    """Return the model that is named, or that of the index, or what stands in for that of hashes."""
    from dmuh.collection import Collection
    from dmuh.encoder import Hasher
    from dmuh.hashes import HashModel

    made_by = None if index is None else Collection(index).model()  # says what is wrong with the folder, if anything is
    hashes = None if index is None else HashModel.of(Collection(index))
    if hashes is not None:
        if model is not None or sure:
            raise ConfigError(f"{index} holds hashes of another program, without a model: leave out RUN and --sure")
        return hashes
    if model is None:
        if made_by is None:
            raise ConfigError("give the model: dmuh serve RUN --images DIR; or see dmuh open, which needs none")
        model = made_by[0]
        if not model.exists():
            raise RunError(f"{model}, the model of {index}, does not exist: give it, as in dmuh serve RUN --index DIR")
    hasher = Hasher.load(model)
    if not hasher.takes_images:
        raise ConfigError(f"{model} takes feature vectors, and only images can be served")
    if sure and sure not in hasher.calibration.grades:
        raise ConfigError(
            f"{model} has no sure bits, as earlier versions trained it, got --sure {sure}: train it again"
        )
    return hasher


@contextmanager
def _service(
    model: Path | None,
    images: Path | None,
    index: Path | None,
    state: Path | None,
    sure: int | None,
    engine: str | None,
    limits: "Limits",
    metrics: "ServiceMetrics",
) -> "Iterator[Service]":
    """Yield the service over a folder of images, or over an index, that is searched in memory or by an engine."""
    from dmuh.catalogue import StateFolder, remove_outdated
    from dmuh.collection import Collection
    from dmuh.collection.paths import elsewhere
    from dmuh.collection.serving import serve_collection
    from dmuh.encoder.adding import add_images
    from dmuh.files import locked
    from dmuh.images import Reading, check_folder
    from dmuh.server.milvus_mirror import MilvusMirror
    from dmuh.server.service import Service

    if images is not None:
        check_folder(images)
    hasher = _model(model, index, sure)
    folder = StateFolder(state or index or cast(Path, images) / ".dmuh")
    if images is not None:
        folder.check_apart(images)

    def busy() -> None:
        raise RunError(f"another process serves {folder.path}, or changes it by dmuh index")

    with locked(folder.lock, busy), folder.open(hasher) as catalogue:
        if index is not None:
            root = serve_collection(catalogue, Collection(index), hasher, sure)
        else:
            root, reading = cast(Path, images), Reading(on_bad_image="skip", progress=console.counting_bar)
            add_images(catalogue, root, remove_outdated(catalogue, root), hasher, reading, sure)
            if len(reading.bad):
                warn(reading.bad.summary())
        with ExitStack() as opened:
            whole = None if engine is None else opened.enter_context(closing(MilvusMirror(engine, catalogue)))
            service = Service(
                hasher, catalogue, root, folder.added, most_pixels=limits.pixels, metrics=metrics, whole=whole,
                elsewhere=elsewhere(catalogue),
            )  # fmt: skip
            opened.enter_context(closing(service))
            yield service
