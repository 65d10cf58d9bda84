"""Small work is done by numpy at once, large work by compiled kernels, and both give the same to the last bit."""

import functools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import dmuh
from dmuh import Codes, HammingIndex, evaluate
from dmuh.index import kernel_use
from dmuh.index.bits import distances_to
from dmuh.index.compiled import NotKeptError
from dmuh.index.grouping import group, in_key_order
from dmuh.index.kernel_use import KernelUse, only
from dmuh.machine import may_have_gpu
from processes import started_by_dmuh
from rankings import graded

TIES = ["expected", "index-order", "as-searched"]
LENGTHS = [1, 12, 32, 33, 63, 64, 65, 128]
WORDS = np.dtype(np.uint32)
rehearsed: list[str] = []
going_on = threading.Event()


def rehearsals():
    """Stand-ins for kernels that are kept, which take as long as a test wants; no process has to compile them."""
    assert multiprocessing.parent_process() is None
    return {"first": lambda: rehearsed.append("first"), "second": lambda: (going_on.wait(), rehearsed.append("second"))}


def rehearse_new() -> None:
    """Stand for a kernel that is kept, as a file says, once another process has compiled it."""
    kept = Path(os.environ["KEPT"])
    if multiprocessing.parent_process() is not None:
        kept.touch()
    elif not kept.exists():
        raise NotKeptError
    rehearsed.append("loaded")


def new_rehearsals():
    return {"new": rehearse_new}


def rehearse_endlessly() -> None:
    """Stand for a kernel that the process which compiles never ends."""
    if multiprocessing.parent_process() is None:
        raise NotKeptError
    time.sleep(3600)


def endless_rehearsals():
    return {"endless": rehearse_endlessly}


@pytest.fixture
def use():
    rehearsed.clear()
    going_on.clear()
    yield KernelUse("test_kernel_use:rehearsals")
    going_on.set()


@st.composite
def cases(draw):
    """Codes of which some are equal, queries near them, labels, and ids in any order."""
    n_bits = draw(st.sampled_from(LENGTHS))
    n, n_queries = draw(st.sampled_from([0, 1, 2, 7, 300])), draw(st.integers(0, 4))
    n_codes = draw(st.sampled_from([1, 3, 40, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = rng.integers(0, 2, (n_codes, n_bits))
    outputs = pool[rng.integers(0, n_codes, n + n_queries)] - 0.5
    labels = (rng.random((n + n_queries, 70)) < draw(st.sampled_from([0.0, 0.02, 0.5]))).astype(np.uint8)
    database = Codes.from_outputs(outputs[:n], ids=rng.permutation(3 * n)[:n] - n)
    return database, Codes.from_outputs(outputs[n:]), labels[:n], labels[n:], rng


def both(work):
    """What numpy gives, and what the kernels give."""
    results = []
    for compiled in (False, True):
        with only(compiled=compiled):
            results.append(work())
    return results


def same(one, other):
    """Whether two values are the same to the last bit, and of the same types."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(cases(), st.integers(1, 400), st.integers(0, 130), st.sampled_from([None, 0.0, 0.3, 1.0]))
@settings(max_examples=100)
def test_both_find_the_same(case, k, radius, share):
    database, queries, _, _, rng = case
    gone = rng.choice(database.ids, len(database) // 3, replace=False)
    among = None if share is None else rng.random(len(database) - len(gone)) < share

    def work():
        index = HammingIndex().add(database[: len(database) // 2]).add(database[len(database) // 2 :]).remove(gone)
        found, near = index.search(queries, k, among=among), index.within(queries, radius, among=among)
        return (*vars(found).values(), *vars(near).values(), index.ids)

    assert same(*both(work))


@given(cases(), st.sampled_from(TIES), st.sampled_from(["retrieved", "relevant", "all"]),
       st.sampled_from([None, 1, 20, 299]), st.sampled_from(["hamming", "soft"]), st.integers(0, 2))  # fmt: skip
@settings(max_examples=200)
def test_both_measure_the_same(case, ties, denominator, topk, ranking, sure):
    database, queries, labels, query_labels, rng = case
    unsure = (rng.random((len(queries), queries.n_bits)) / 2).astype(np.float32)
    data = Codes(queries.bits, queries.n_bits, unsure), graded(database, sure, rng), query_labels, labels

    def work():
        metrics = evaluate(*data, topk, ties, denominator, ks=(1, 50, 3), radius=1, ranking=ranking)
        return tuple(vars(metrics).values())

    assert same(*both(work))


@functools.lru_cache(maxsize=1)
def several_chunks(n_bits, sure, distinct, n_labels):
    """Queries and a database that is measured in several parts, with their labels."""
    n, rng = 70_000, np.random.default_rng(n_bits)
    pool = graded(Codes.from_outputs(rng.standard_normal((distinct, n_bits))), sure, rng)
    rows = rng.integers(0, distinct, n)
    levels = None if pool.levels is None else pool.levels[rows]
    database = Codes(pool.bits[rows], n_bits, None, rng.permutation(n), levels, pool.worth)
    labels = (rng.random((n, n_labels)) < 0.2).astype(np.uint8)
    query = Codes.from_outputs(rng.standard_normal((3, n_bits)), rng.random((3, n_bits)) / 2)
    return query, database, labels[:3], labels


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("n_labels", [3, 90])  # few label sets, or one for nearly each image
@pytest.mark.parametrize("distinct", [500, 70_000])
@pytest.mark.parametrize(("n_bits", "sure"), [(12, 1), (48, 0), (48, 1), (70, 2)])
def test_both_measure_the_same_in_databases_of_several_chunks(n_bits, sure, distinct, n_labels, ties):
    data = several_chunks(n_bits, sure, distinct, n_labels)
    assert same(*both(lambda: tuple(vars(evaluate(*data, topk=1000, ties=ties)).values())))


@given(st.integers(0, 200), st.integers(1, 3), st.integers(1, 60), st.integers(0, 2**32))
def test_both_group_the_same(n, width, values, seed):
    words = np.random.default_rng(seed).integers(0, values, (width, n)).astype(np.uint64)
    assert same(*both(lambda: tuple(vars(group(words)).values())))
    keys = np.random.default_rng(seed).integers(0, values, n)
    assert same(*both(lambda: tuple(in_key_order(keys, values + 2))))


@pytest.mark.parametrize("n_words", [1, 2, 5])
def test_distances_are_counted_bit_by_bit(n_words):
    rng = np.random.default_rng(n_words)
    words, query = rng.integers(0, 2**63, (n_words, 50), np.uint64), rng.integers(0, 2**63, n_words, np.uint64)
    expected = [sum((int(a) ^ int(b)).bit_count() for a, b in zip(column, query, strict=True)) for column in words.T]
    assert distances_to(query, words).tolist() == expected


def test_small_work_is_numpys_and_large_work_the_kernels(use):
    assert not use.worth(WORDS, kernel_use._AT_ONCE, "search")
    assert use.worth(WORDS, kernel_use._AT_ONCE + 1, "search")
    assert rehearsed == []


def test_kernels_that_are_ready_do_small_work_too(use):
    use.note_ready(WORDS, "one")
    assert use.worth(WORDS, 1, "one")
    assert not use.worth(WORDS, 1, "one", "other")
    assert not use.worth(np.dtype(np.uint64), 1, "one")
    use.note_ready(WORDS, "other")
    assert use.worth(WORDS, 1, "one", "other")


def test_much_small_work_compiles_the_kernels_beside_it(use, monkeypatch):
    monkeypatch.setattr(kernel_use, "_IN_ALL", 100)
    assert not use.worth(WORDS, 100, "search")
    assert use._thread is None
    assert not use.worth(WORDS, 1, "search")
    assert use._thread is not None
    assert not use.worth(WORDS, 1, "search")  # which does not wait for the second kernel
    going_on.set()
    use._thread.join()
    assert rehearsed == ["first", "second"]
    use.prepare()
    use._thread.join()
    assert rehearsed == ["first", "second"]


def test_what_is_not_kept_another_process_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("KEPT", str(tmp_path / "kept"))
    rehearsed.clear()
    use = KernelUse("test_kernel_use:new_rehearsals")
    use.prepare(then=lambda: rehearsed.append("then"))
    use._thread.join()
    assert (tmp_path / "kept").exists()
    assert rehearsed == ["loaded", "then"]


def test_a_process_that_ends_does_not_wait_for_the_other_kernels(use):
    use.prepare(then=lambda: rehearsed.append("then"))
    use._stopping.set()
    going_on.set()
    use._stop()
    assert not use._thread.is_alive()
    assert rehearsed in ([], ["first"], ["first", "second"])


def test_a_process_that_ends_does_not_wait_for_the_one_that_compiles():
    rehearsed.clear()
    before = set(started_by_dmuh())
    use = KernelUse("test_kernel_use:endless_rehearsals")
    use.prepare()
    while not set(started_by_dmuh()) - before:
        time.sleep(0.01)
    use._stop()
    assert not use._thread.is_alive()
    assert set(started_by_dmuh()) <= before
    assert rehearsed == []


def run(program: str, *arguments: object) -> str:
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_process_that_ends_while_kernels_are_compiled_ends_well():
    program = """
from dmuh import Codes, HammingIndex
from dmuh.index.kernel_use import KERNELS
KERNELS.prepare()
codes = Codes.from_outputs([[1.0, -1.0]])
print(HammingIndex().add(codes).search(codes, 1).ids.tolist())
"""
    assert run(program) == "[[0]]\n"


def test_small_work_does_not_even_import_the_compiler(tmp_path):
    program = """
import sys
import numpy as np
from dmuh import Codes, HammingIndex, evaluate
codes = Codes.from_outputs(np.random.default_rng(0).standard_normal((2000, 48)))
index = HammingIndex().add(codes[:1500]).add(codes[1500:]).remove([3, 1700])
index.save(sys.argv[1])
index = HammingIndex.load(sys.argv[1])
index.search(codes[:100], 10), index.within(codes[:100], 3)
labels = np.eye(10, dtype=np.uint8)[np.arange(2000) % 10]
for ties in ("expected", "index-order"):
    for ranking in ("hamming", "soft"):
        evaluate(codes[:100], codes, labels[:100], labels, ties=ties, ranking=ranking)
print("numba" in sys.modules)
"""
    assert run(program, tmp_path / "index") == "False\n"


def test_a_search_from_the_prompt_loads_neither_the_compiler_nor_torch(digit_run, photos, tmp_path):
    dmuh("index", digit_run.path, photos, "--out", tmp_path / "index")
    program = """
import sys
from dmuh.cli import main
sys.argv = ["dmuh", "search", *sys.argv[1:], "-k", "1", "--json"]
try: main()
except SystemExit as stopped: assert not stopped.code
print([name for name in ("numba", "torch") if name in sys.modules])
"""
    *answer, loaded = run(program, tmp_path / "index", photos / "ones" / "03.png").splitlines()
    first = json.loads("\n".join(answer))[0]["matches"][0]
    assert (first["hamming"], first["identical"]) == (0, True)
    assert loaded == ("['torch']" if may_have_gpu() else "[]")


@pytest.mark.long
def test_the_rehearsals_leave_nothing_to_be_compiled(tmp_path):
    """After `dmuh warm` whatever is searched and measured, in memory or in a file, has its machine code."""
    program = """
import sys
import numpy as np
from dmuh import Codes, HammingIndex, evaluate
from dmuh.index import cell_kernels, cells, hash_table, keeping, scan, shell_bounds, shell_search, within
from dmuh.index import soft_coarse, soft_nearest, soft_scan, soft_whole, soft_within
from dmuh.index.kernel_use import KERNELS, only
from dmuh.metrics import kernels, pairs, soft_kernels

def compiled():
    found = [value for module in (hash_table, cell_kernels, keeping, scan, within, kernels, soft_kernels, soft_scan,
             soft_coarse, soft_nearest, shell_bounds, shell_search, soft_whole, soft_within)
             for value in vars(module).values()]
    return {kernel.__name__: len(kernel.signatures) for kernel in found if hasattr(kernel, "signatures")}

for rehearse in (KERNELS.rehearsals() | pairs.KERNELS.rehearsals()).values():
    rehearse()
before, rng = compiled(), np.random.default_rng(0)
cells.FEWEST, cells._PAYS = 2, 2.0
with only(compiled=True):
    for n_bits in (12, 32, 48, 64, 128):
        codes = Codes.from_outputs(rng.standard_normal((60, n_bits)).repeat(2, axis=0), ids=rng.permutation(120))
        planes = np.packbits(rng.integers(0, 2, (120, 2, n_bits), np.uint8), axis=2, bitorder="little")
        worth = np.ones((n_bits, 4), np.float32)
        levelled = [Codes(codes.bits, n_bits, levels=planes[:, :k], worth=worth[:, : 2**k]) for k in (1, 2)]
        index = HammingIndex().add(codes[:50]).add(codes[50:]).remove([7])
        index.save(sys.argv[1])
        for searched in (index, HammingIndex.load(sys.argv[1])):
            searched.search(codes[:9], 10), searched.within(codes[:9], 3), searched.search(codes, 3, among=[1, 2])
        loaded = HammingIndex.load(sys.argv[1]).add(Codes.from_outputs(np.ones((3, n_bits)), ids=[200, 201, 202]))
        loaded.search(codes, 3)
        asked = Codes.from_outputs(rng.standard_normal((9, n_bits)), rng.random((9, n_bits), np.float32) / 2)
        for sure in (0, 1, 2):
            worth = np.tile(np.linspace(0.2, 1, 2**sure, dtype=np.float32), (n_bits, 1))
            planes = rng.permutation(np.repeat(codes.bits[:, None], max(1, sure), axis=1))
            for part in (slice(0, 120), slice(0, 120, 2)):
                own = Codes(codes.bits, n_bits, None, codes.ids, planes, worth) if sure else codes
                index = HammingIndex().add(own[part]).remove(own[part].ids[:3])
                index.save(sys.argv[1])
                for searched in (index, HammingIndex.load(sys.argv[1])):
                    searched.search(asked, 10), searched.search(asked[:1], 3, among=[1, 2]), searched.search(codes, 3)
                    searched.within(asked, 3.5, ranking="soft"), searched.within(asked, 3, among=[1], ranking="soft")
        for labels in (np.eye(2, dtype=np.uint8)[np.arange(120) % 2], np.eye(120, dtype=np.uint8)):
            for ties in ("expected", "index-order"):
                for database in (codes, *levelled):
                    for ranking in ("hamming", "soft"):
                        evaluate(codes[:20], database, labels[:20], labels, ties=ties, ranking=ranking)
entered = ("nearest", "count_within", "collect_within", "nearest_centre", "majority", "limits", "_hash",
           "order_by", "nearest_soft", "nearest_scanned", "visit_within",
           "count_pairs", "count_labelled_pairs", "rank_in_order",
           "count_soft_pairs", "count_soft_labelled_pairs", "rank_softly_in_order")
print(before == compiled(), all(before[name] for name in entered))
"""
    assert run(program, tmp_path / "index") == "True True\n"


def test_warm_says_what_it_did():
    said = json.loads(dmuh("warm", "--json").stdout)
    assert len(said["compiled"]) == 12
    assert all(step["seconds"] >= 0 for step in said["compiled"])
    assert said["folder"]
    lines = dmuh("warm").stdout.splitlines()
    assert [line.rsplit(": ", 1)[0] for line in lines[:-1]] == [step["name"] for step in said["compiled"]]
    assert lines[-1].startswith("machine code for 12 kinds of work is in ")
