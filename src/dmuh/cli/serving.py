"""dmuh export and serve."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dmuh.cli import console
from dmuh.cli.console import say, say_json, warn
from dmuh.errors import ConfigError, MissingExtraError, RunError, needs_torch

if TYPE_CHECKING:
    from dmuh.images import Images
    from dmuh.server.limits import Limits
    from dmuh.server.metrics import ServiceMetrics
    from dmuh.server.service import Service

_CALIBRATED = 512  # training images that 8-bit numbers are fitted to and measured on
_TOKEN = 16  # characters that a token must have
_RATE = 100  # requests a second of one client, where other machines reach the service


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


def serve(
    model: Annotated[Path, typer.Argument(help="Folder of a finished run, or of `dmuh export`.")],
    images: Annotated[Path | None, typer.Option(help="Folder of images; the folders in it are their labels.")] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(help="Instead: folder made by `dmuh index`. With milvus:FILE.db or milvus:URL, Milvus searches."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Where the catalogue is kept; else in the index, or in IMAGES/.dmuh.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="DMUH_TOKEN", help="What clients must show, 16 characters or more.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that browsers reach it by, such as a proxy's.")
    ] = None,
    megabytes: Annotated[float, typer.Option(min=0.0001, help="Size of an upload at most.")] = 16,
    megapixels: Annotated[float, typer.Option(min=0.0001, help="Pixels of an uploaded image at most.")] = 50,
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Requests a second of one client, 0 for any number; else 100, and any on loopback."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.001, help="Time that a request may take.")] = 30,
) -> None:
    """Serve a search page and an API over images.

    Example: dmuh serve runs/photos --images photos, then open http://127.0.0.1:8000
    """
    folders = [Path(text) for text in index or [] if not text.startswith("milvus:")]
    engines = [text for text in index or [] if text.startswith("milvus:")]
    if (images is not None) + len(folders) != 1:
        raise ConfigError("give the images to serve: a folder by --images, or what dmuh index made by --index")
    if len(engines) > 1:
        raise ConfigError(f"one Milvus searches, got {' and '.join(engines)}")
    folder, engine = next(iter(folders), None), next(iter(engines), None)
    try:
        from dmuh.server.api.app import create_app
        from dmuh.server.http.guard import is_loopback
        from dmuh.server.http.server import address_of, bind, run
        from dmuh.server.limits import Limits
        from dmuh.server.metrics import ServiceMetrics
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
            raise
        raise MissingExtraError("serving", "serve") from error
    if token is not None and len(token) < _TOKEN:
        raise ConfigError(f"--token must have at least {_TOKEN} characters, got {len(token)}")
    if token is None and not is_loopback(host):
        raise ConfigError(f"other machines reach {host}: give the --token that they must show, or listen on 127.0.0.1")
    limits = Limits(
        host, tuple(allow_host or ()), token, int(megabytes * 1e6), int(megapixels * 1e6),
        (0 if is_loopback(host) else _RATE) if rate is None else rate, seconds,
    )  # fmt: skip
    metrics = ServiceMetrics()
    with (
        _closing_when_told_to_end(),
        bind(host, port) as opened,
        _service(model, images, folder, state, engine, limits, metrics) as service,
    ):
        ready = f"serving {len(service):,} images at {address_of(opened)} (Ctrl-C ends it)"
        run(create_app(service, limits, metrics), opened, seconds, lambda: say(ready))


@contextmanager
def _closing_when_told_to_end() -> Iterator[None]:
    """Have SIGTERM end the command as its own end does, which closes the catalogue: else the process dies on the spot.

    A catalogue that was not closed has to be looked through at the next start.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may set this
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _service(
    model: Path,
    images: Path | None,
    index: Path | None,
    state: Path | None,
    engine: str | None,
    limits: "Limits",
    metrics: "ServiceMetrics",
) -> "Iterator[Service]":
    """Yield the service over a folder of images, or over an index, that is searched in memory or by an engine."""
    from dmuh.catalogue import StateFolder, add_images, check_folder, import_collection, remove_outdated
    from dmuh.collection import Collection
    from dmuh.encoder import Hasher
    from dmuh.files import locked
    from dmuh.images import Reading
    from dmuh.server.milvus_mirror import MilvusMirror
    from dmuh.server.service import Service

    if index is not None:
        Collection(index).model()  # says what is wrong with the folder, if anything is
    else:
        check_folder(cast(Path, images))
    hasher = Hasher.load(model)
    if not hasher.takes_images:
        raise ConfigError(f"{model} takes feature vectors, and only images can be served")
    folder = StateFolder(state or index or cast(Path, images) / ".dmuh")
    if images is not None:
        folder.check_apart(images)

    def busy() -> None:
        raise RunError(f"another process serves {folder.path}")

    with locked(folder.lock, busy), folder.open(hasher) as catalogue:
        if index is not None:
            root = import_collection(catalogue, Collection(index), hasher)
        else:
            root, reading = cast(Path, images), Reading(on_bad_image="skip", progress=console.counting_bar)
            add_images(catalogue, root, remove_outdated(catalogue, root), hasher, reading)
            if len(reading.bad):
                warn(reading.bad.summary())
        with ExitStack() as opened:
            whole = None if engine is None else opened.enter_context(closing(MilvusMirror(engine, catalogue)))
            service = Service(
                hasher, catalogue, root, folder.added, most_pixels=limits.pixels, metrics=metrics, whole=whole
            )
            opened.enter_context(closing(service))
            yield service


def _training_images(path: Path, data: Path | None) -> "Images":
    """Return some of the images that a run was trained on."""
    with needs_torch("exporting 8-bit numbers"):
        from dmuh.runs import Run, open_run
        from dmuh.trainer.measuring import spread

    Run(path).load_model()  # says what is wrong with the folder, if anything is
    _, _, images, split = open_run(path, data)
    return images.take(spread(split.train, _CALIBRATED))
