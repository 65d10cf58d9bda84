"""The compiled passes against slow oracles, over lengths, sizes, ties and label sets of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, evaluate
from dmuh.index.grouping import group, in_key_order
from rankings import slow_expected_ap
from routes import route  # noqa: F401

DENOMINATORS = ["retrieved", "relevant", "all"]


def slow(query, database, query_labels, database_labels, topk, ties, denominator):
    """Average precision of each query from unpacked bits, one query at a time."""
    n = len(database)
    cut = n if topk is None else min(topk, n)
    result = []
    for q, wanted in zip(query.unpack(), query_labels, strict=True):
        distances = (database.unpack() != q).sum(axis=1).astype(int)
        relevant = (database_labels & wanted).any(axis=1)
        if ties == "expected":
            total = np.bincount(distances, minlength=query.n_bits + 1).tolist()
            good = np.bincount(distances[relevant], minlength=query.n_bits + 1).tolist()
            result.append(slow_expected_ap(total, good, cut, denominator))
        else:
            top = relevant[np.argsort(distances, kind="stable")][:cut]
            places = np.flatnonzero(top) + 1
            n_relevant = int(relevant.sum())
            among = {"retrieved": len(places), "relevant": min(n_relevant, cut), "all": n_relevant}[denominator]
            result.append((np.arange(1, len(places) + 1) / places).sum() / max(among, 1))
    return result


@st.composite
def cases(draw):
    n_bits = draw(st.sampled_from([1, 2, 12, 31, 32, 33, 48, 63, 64, 65, 127, 128, 200, 256]))
    n = draw(st.sampled_from([0, 1, 2, 3, 17, 300, 2000]))
    n_queries = draw(st.integers(0, 4))
    n_labels = draw(st.sampled_from([0, 1, 3, 64, 65, 130]))
    n_codes = draw(st.sampled_from([1, 3, 50, 10_000]))  # few codes: duplicates and ties
    n_sets = draw(st.sampled_from([1, 2, 20, 10_000]))  # many label sets: relevance pair by pair
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = rng.integers(0, 2, (n_codes, n_bits))
    sets = (rng.random((n_sets, n_labels)) < draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))).astype(np.uint8)
    codes = Codes.from_outputs(pool[rng.integers(0, n_codes, n + n_queries)] - 0.5)
    labels = sets[rng.integers(0, n_sets, n + n_queries)]
    topk = draw(st.sampled_from([None, 1, 2, 10, 150, 1999, 5000]))
    return codes[:n_queries], codes[n_queries:], labels[:n_queries], labels[n_queries:], topk


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(["expected", "index-order"]), st.sampled_from(DENOMINATORS))
def test_average_precision_equals_the_oracle(case, ties, denominator):
    *data, topk = case
    got = evaluate(*data, topk=topk, ties=ties, denominator=denominator)
    assert got.average_precision == pytest.approx(slow(*data, topk, ties, denominator), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_counts_are_the_same_whatever_pass_is_taken(case):
    """Precision and recall over all ranks, and the lookup, from both tie rules, where no tie is divided."""
    query, database, query_labels, database_labels, _ = case
    options = {"ks": (max(len(database), 1),), "radius": query.n_bits // 2}
    data = query, database, query_labels, database_labels
    a, b = (evaluate(*data, ties=ties, **options) for ties in ("expected", "index-order"))
    assert a.precision_at == pytest.approx(b.precision_at)
    assert a.recall_at == pytest.approx(b.recall_at)
    assert a.precision_within_radius == pytest.approx(b.precision_within_radius)
    assert a.queries_without_match == b.queries_without_match
    assert a.queries_without_relevant == b.queries_without_relevant


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 300),
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from([np.uint32, np.uint64]),
)
def test_groups_are_those_of_a_dictionary(n, width, values, seed, kind):
    words = np.random.default_rng(seed).integers(0, values, (width, n)).astype(kind)
    groups = group(words)
    known: dict[tuple[int, ...], list[int]] = {}
    for j, row in enumerate(words.T.tolist()):
        known.setdefault(tuple(row), []).append(j)
    assert [groups.rows[a:b].tolist() for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)] == list(
        known.values()
    )
    assert groups.first.tolist() == [rows[0] for rows in known.values()]
    assert all(groups.of[j] == g for g, rows in enumerate(known.values()) for j in rows)


def test_in_key_order_is_a_stable_sort():
    keys = np.random.default_rng(0).integers(0, 7, 100)
    starts, order = in_key_order(keys, 9)
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()
    assert starts.tolist() == [int((keys < k).sum()) for k in range(10)]
