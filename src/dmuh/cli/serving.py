"""What serve and open share: who reaches a service, what it may cost, and how it runs until it is told to end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dmuh.cli.console import say
from dmuh.cli.options import OptionGroup
from dmuh.errors import ConfigError, MissingExtraError

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


def run_service(
    opened_service: "Callable[[Limits, ServiceMetrics], AbstractContextManager[Service]]",
    network: NetworkOptions,
    limits: LimitOptions,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Open a service and run it until the process is told to end; `ready` is told its address then."""
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
        opened_service(checked, metrics) as service,
    ):
        address = address_of(opened)

        def say_ready() -> None:
            say(f"serving {len(service):,} images at {address} (Ctrl-C ends it)")
            ready(address)

        run(create_app(service, checked, metrics), opened, limits.seconds, say_ready)


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
