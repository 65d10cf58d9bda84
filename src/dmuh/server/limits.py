"""Limits: what a service allows, as options of `dmuh serve`.

Limits that are no options stand where they are enforced: of connections in http/connections.py, of a request's head and
headers in http/protocol.py, of all uploads together in http/uploads.py, of an uploaded file's parts in
images/upload_check.py, of decoding in images/decoders.py and images/decode.py, of a search in api/schemas.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a service allows.

    host      address it listens on
    names     further host names that requests may use
    token     that requests must show, or None
    bytes     of an upload at most
    pixels    of an uploaded image at most
    rate      requests per second of one client, 0 for any number; twice as many may come at once
    seconds   that a request may take
    """

    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    token: str | None = None
    bytes: int = 16_000_000
    pixels: int = 50_000_000
    rate: float = 0
    seconds: float = 30
