"""MilvusOptions: where a Milvus is and how it is asked, from an address such as milvus:http://host:19530?probes=64."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from dmuh.errors import ConfigError

KINDS = ("BIN_FLAT", "BIN_IVF_FLAT")
CONSISTENCIES = ("session", "bounded", "strong")
_AT_LEAST = {"lists": 1, "probes": 1, "shortlist": 1, "timeout": 0.001}


@dataclass(frozen=True, kw_only=True)
class MilvusOptions:
    """What `MilvusIndex` is opened by; each but `where` can stand in an address too.

    where        the file or the URL
    collection   name of the collection
    kind         one of KINDS; None: what the collection has, BIN_FLAT for a new one
    lists        cells of a new BIN_IVF_FLAT
    probes       cells that a search compares, of a BIN_IVF_FLAT
    shortlist    codes that a soft search weighs at least
    consistency  one of CONSISTENCIES
    timeout      seconds that a call may take

    >>> from dmuh.index.milvus_options import MilvusOptions
    >>> options = MilvusOptions.of("milvus:http://host:19530?kind=BIN_IVF_FLAT&probes=64", timeout=10)
    >>> options.where, options.kind, options.probes, options.timeout
    ('http://host:19530', 'BIN_IVF_FLAT', 64, 10)
    """

    where: str
    collection: str = "dmuh"
    kind: str | None = None
    lists: int = 1024
    probes: int = 32
    shortlist: int = 4_000
    consistency: str = "session"
    timeout: float = 30.0

    @classmethod
    def of(cls, address: str, **given: Any) -> "MilvusOptions":
        """Return the options of an address, which come before those given beside it."""
        where = address.removeprefix("milvus:").partition("?")[0]
        found = replace(cls(where=where), **{**given, **cls.named_in(address)})
        found._check(address)
        return found

    @classmethod
    def named_in(cls, address: str) -> dict[str, Any]:
        """Return the options that are written in an address, by name."""
        pairs = parse_qsl(address.partition("?")[2], keep_blank_values=True)
        types = {field.name: field.type for field in fields(cls) if field.name != "where"}
        found: dict[str, Any] = {}
        for name, text in pairs:
            if name not in types:
                raise ConfigError(f"an address of Milvus has the options {', '.join(types)}, got {name!r} in {address}")
            if name in found:
                raise ConfigError(f"an address of Milvus has each option once, got {name} twice in {address}")
            try:
                found[name] = int(text) if types[name] is int else float(text) if types[name] is float else text
            except ValueError:
                raise ConfigError(f"{name} must be a number, got {text!r} in {address}") from None
        return found

    @property
    def served(self) -> bool:
        """Whether a server is meant, not a file."""
        return re.match(r"https?://", self.where) is not None

    def _check(self, address: str) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ConfigError(f"the kind of a Milvus index must be {' or '.join(KINDS)}, got {self.kind}")
        if self.consistency not in CONSISTENCIES:
            raise ConfigError(f"consistency must be one of {', '.join(CONSISTENCIES)}, got {self.consistency}")
        if not re.fullmatch(r"[A-Za-z_]\w{0,254}", self.collection, re.ASCII):
            raise ConfigError(
                f"the name of a collection must be letters, digits and _, no digit first, got {self.collection!r}"
            )
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.served:
            if Path(self.where).suffix != ".db":
                raise ConfigError(f"a Milvus index is milvus:FILE.db or milvus:http://HOST:PORT, got {address}")
            if self.kind not in (None, "BIN_FLAT"):
                raise ConfigError(f"the Milvus of one file has BIN_FLAT alone: {self.kind} needs a server")
