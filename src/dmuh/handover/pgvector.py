"""An SQL script for PostgreSQL with pgvector, as psql runs it: a table, its rows (COPY), and its index.

A code is a bit(n), its first bit the first of the code. Its levels of sureness, where it has them, are the bits of one
plane or two, one behind the other. The table's comment says in JSON which model made the codes and what levels are
worth.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.paths import displayed
from dmuh.collection import Item
from dmuh.errors import ConfigError
from dmuh.handover.sources import CodeSource

MAGIC = b"-- dmuh "
_LONGEST = 63  # bytes of a name in PostgreSQL
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\0": "\ufffd"})
_BIT_TEXT = [f"{byte:08b}"[::-1] for byte in range(256)]  # bit 0 first, as in Codes


def write_pgvector(source: CodeSource, file: Path, name: str) -> None:
    """Write the script that makes a table of this name."""
    table = _quoted(_table_name(name), '"')
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(_head(source, table))
        for codes, items in source.parts():
            out.writelines(_rows(codes.bits, codes.levels, source.n_bits, items))
        out.write(_foot(table, source.n_bits))


def _head(source: CodeSource, table: str) -> str:
    columns = {"id": "bigint PRIMARY KEY", "path": "text", "labels": "text[] NOT NULL"}
    columns["code"] = f"bit({source.n_bits}) NOT NULL"
    if source.sure:
        columns["levels"] = f"bit({source.n_bits * source.sure}) NOT NULL"
    about = {
        "n_bits": source.n_bits, "sure": source.sure, "model_digest": source.model_digest,
        "worth": None if source.worth is None else source.worth.tolist(),
    }  # fmt: skip
    return (
        f"{MAGIC.decode()}{source.n:,} codes of {source.n_bits} bits, for pgvector 0.7 or newer: psql -f THIS-FILE\n"
        "\\set ON_ERROR_STOP on\n"
        "SET client_encoding = 'UTF8';\n"
        "SET standard_conforming_strings = on;\n"
        "BEGIN;\n"
        "CREATE EXTENSION IF NOT EXISTS vector;\n"
        f"CREATE TABLE {table} ({', '.join(f'{key} {kind}' for key, kind in columns.items())});\n"
        f"COMMENT ON TABLE {table} IS {_quoted(json.dumps(about), chr(39))};\n"
        f"COPY {table} ({', '.join(columns)}) FROM stdin;\n"
    )


def _foot(table: str, n_bits: int) -> str:
    return (
        "\\.\n"
        f"CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);\n"
        f"CREATE INDEX ON {table} USING gin (labels);\n"
        "COMMIT;\n"
        f"ANALYZE {table};\n"
        f"-- nearest: SELECT id, path, code <~> B'…' AS distance FROM {table} ORDER BY code <~> B'…' LIMIT 10;\n"
        f"-- with {n_bits} digits 0 and 1. HNSW may miss some; SET enable_indexscan = off finds all.\n"
    )


def _rows(bits: NDArray[np.uint8], levels: NDArray[np.uint8] | None, n_bits: int, items: list[Item]) -> Iterator[str]:
    """Yield lines of PostgreSQL's text format, one per image."""
    codes = _bit_texts(bits, n_bits)
    planes = [] if levels is None else [_bit_texts(levels[:, plane], n_bits) for plane in range(levels.shape[1])]
    for item, code, *own in zip(items, codes, *planes, strict=True):
        path = displayed(item.path).translate(_ESCAPES) if item.path else r"\N"
        sure = f"\t{''.join(own)}" if own else ""
        yield f"{item.id}\t{path}\t{_array(item.labels)}\t{code}{sure}\n"


def _bit_texts(packed: NDArray[np.uint8], n_bits: int) -> list[str]:
    """Return each row of packed bits (n, width) as digits 0 and 1."""
    return ["".join([_BIT_TEXT[byte] for byte in row])[:n_bits] for row in packed.tolist()]


def _array(texts: list[str]) -> str:
    """Return texts as an array of PostgreSQL's, in its text format."""
    members = (displayed(text).replace("\\", r"\\").replace('"', r"\"") for text in texts)
    return f"{{{','.join(f'{chr(34)}{member}{chr(34)}' for member in members)}}}".translate(_ESCAPES)


def _quoted(text: str, quote: str) -> str:
    return f"{quote}{text.replace(quote, 2 * quote)}{quote}"


def _table_name(name: str) -> str:
    if not name or len(name.encode(errors="replace")) > _LONGEST or re.search("[\\0-\\x1f\\ud800-\\udfff]", name):
        raise ConfigError(
            f"the table is called as its file, in at most {_LONGEST} bytes without control characters, got "
            f"{displayed(name)!r}: give another --out"
        )
    return name
