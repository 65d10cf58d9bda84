"""dmuh serve."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dmuh.cli import console
from dmuh.cli.console import say, warn
from dmuh.cli.options import OptionGroup, with_groups
from dmuh.cli.stopping import stoppable
from dmuh.errors import ConfigError, MissingExtraError, RunError

if TYPE_CHECKING:
    from dmuh.server.limits import Limits
    from dmuh.server.metrics import ServiceMetrics
    from dmuh.server.service import Service

_TOKEN = 16  # characters that a token must have
_RATE = 100  # requests per second of one client, where other machines reach the service
_NETWORK, _LIMITS = "Who reaches it", "Limits"


@dataclass(frozen=True)
class NetworkOptions(OptionGroup):
    """Where the service listens, and who may use it."""

    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            rich_help_panel=_NETWORK,
            help="Address to listen on; 0.0.0.0 for other machines, which needs a --token.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", rich_help_panel=_NETWORK, help="Port to listen on; 0 takes a free one."
        ),
    ] = 8000
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="DMUH_TOKEN",
            rich_help_panel=_NETWORK,
            help="Secret that clients must show, 16 characters or more.",
        ),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_NETWORK,
            help="A name that browsers reach it by, such as a proxy's; may be repeated.",
        ),
    ] = None


@dataclass(frozen=True)
class LimitOptions(OptionGroup):
    """What one request, and one client, may cost."""

    megabytes: Annotated[
        float, typer.Option(min=0.0001, metavar="N", rich_help_panel=_LIMITS, help="Largest upload.")
    ] = 16
    megapixels: Annotated[
        float, typer.Option(min=0.0001, metavar="N", rich_help_panel=_LIMITS, help="Largest uploaded image.")
    ] = 50
    rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="N",
            rich_help_panel=_LIMITS,
            help="Requests per second of one client, 0 for any number; if not given 100, or any on 127.0.0.1.",
        ),
    ] = None
    seconds: Annotated[
        float, typer.Option(min=0.001, metavar="N", rich_help_panel=_LIMITS, help="Longest time of a request.")
    ] = 30


@with_groups
@stoppable("what was encoded is kept: the same command goes on from there")
def serve(
    model: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or one written by `dmuh export`.")
    ],
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
    try:
        from dmuh.server.api.app import create_app
        from dmuh.server.http.server import address_of, bind, run
        from dmuh.server.metrics import ServiceMetrics
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
            raise
        raise MissingExtraError("serving", "serve") from error
    checked = _checked_limits(network, limits)
    metrics = ServiceMetrics()
    with (
        _closing_when_told_to_end(),
        bind(network.host, network.port) as opened,
        _service(model, images, folder, state, sure, engine, checked, metrics) as service,
    ):
        ready = f"serving {len(service):,} images at {address_of(opened)} (Ctrl-C ends it)"
        run(create_app(service, checked, metrics), opened, limits.seconds, lambda: say(ready))


def _sources(images: Path | None, index: list[str] | None) -> tuple[Path | None, str | None]:
    """Return the folder of the index that is to be served, and the address of the Milvus that searches it, if any."""
    folders = [Path(text) for text in index or [] if not text.startswith("milvus:")]
    engines = [text for text in index or [] if text.startswith("milvus:")]
    if (images is not None) + len(folders) != 1:
        raise ConfigError("give the images to serve: a folder by --images, or what dmuh index made by --index")
    if len(engines) > 1:
        raise ConfigError(f"one Milvus searches, got {' and '.join(engines)}")
    return next(iter(folders), None), next(iter(engines), None)


def _checked_limits(network: NetworkOptions, limits: LimitOptions) -> "Limits":
    """Return who may ask for how much; a service that other machines reach needs a token."""
    from dmuh.server.http.guard import is_loopback
    from dmuh.server.limits import Limits

    host, token = network.host, network.token
    if token is not None and len(token) < _TOKEN:
        raise ConfigError(f"--token must have at least {_TOKEN} characters, got {len(token)}")
    if token is None and not is_loopback(host):
        raise ConfigError(f"other machines reach {host}: give the --token that they must show, or listen on 127.0.0.1")
    rate = (0 if is_loopback(host) else _RATE) if limits.rate is None else limits.rate
    return Limits(
        host, tuple(network.allow_host or ()), token, int(limits.megabytes * 1e6), int(limits.megapixels * 1e6), rate,
        limits.seconds,
    )  # fmt: skip


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
    sure: int | None,
    engine: str | None,
    limits: "Limits",
    metrics: "ServiceMetrics",
) -> "Iterator[Service]":
    """Yield the service over a folder of images, or over an index, that is searched in memory or by an engine."""
    from dmuh.catalogue import StateFolder, add_images, import_collection, remove_outdated
    from dmuh.collection import Collection
    from dmuh.encoder import Hasher
    from dmuh.files import locked
    from dmuh.images import Reading, check_folder
    from dmuh.server.milvus_mirror import MilvusMirror
    from dmuh.server.service import Service

    if index is not None:
        Collection(index).model()  # says what is wrong with the folder, if anything is
    else:
        check_folder(cast(Path, images))
    hasher = Hasher.load(model)
    if not hasher.takes_images:
        raise ConfigError(f"{model} takes feature vectors, and only images can be served")
    if sure and sure not in hasher.calibration.grades:
        raise ConfigError(
            f"{model} has no sure bits, as earlier versions trained it, got --sure {sure}: train it again"
        )
    folder = StateFolder(state or index or cast(Path, images) / ".dmuh")
    if images is not None:
        folder.check_apart(images)

    def busy() -> None:
        raise RunError(f"another process serves {folder.path}")

    with locked(folder.lock, busy), folder.open(hasher) as catalogue:
        if index is not None:
            root = import_collection(catalogue, Collection(index), hasher, sure)
        else:
            root, reading = cast(Path, images), Reading(on_bad_image="skip", progress=console.counting_bar)
            add_images(catalogue, root, remove_outdated(catalogue, root), hasher, reading, sure)
            if len(reading.bad):
                warn(reading.bad.summary())
        with ExitStack() as opened:
            whole = None if engine is None else opened.enter_context(closing(MilvusMirror(engine, catalogue)))
            service = Service(
                hasher, catalogue, root, folder.added, most_pixels=limits.pixels, metrics=metrics, whole=whole
            )
            opened.enter_context(closing(service))
            yield service
