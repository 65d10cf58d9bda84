"""Soft rankings measured, against plain loops over the definition."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, evaluate
from dmuh.errors import InputError
from dmuh.index.planes import plane_masks, planes_of, soft_distances_to
from dmuh.index.soft import UNITS
from dmuh.metrics import soft
from rankings import graded, slow_expected_ap, soft_distances
from routes import route  # noqa: F401
from ties import turned

LENGTHS = [1, 12, 32, 33, 63, 64, 65, 128]
TIES = ["expected", "index-order", "as-searched"]
DENOMINATORS = ["retrieved", "relevant", "all"]


def slow(query, database, query_labels, database_labels, topk, ties, denominator, ks, radius):
    """Average precision, hits among the first k, and (items, relevant ones) within the radius, query by query."""
    n = len(database)
    cut = n if topk is None else min(topk, n)
    for i in range(len(query)):
        shown = turned(database.ids.tolist(), query[i], "soft")
        position = {"index-order": range(n), "as-searched": shown}
        away = soft_distances(query[i], database)
        good = [bool((query_labels[i] & other).any()) for other in database_labels]
        levels = sorted(set(away))
        total = [away.count(d) for d in levels]
        right = [sum(g for g, a in zip(good, away, strict=True) if a == d) for d in levels]
        if ties == "expected":
            average = slow_expected_ap(total, right, cut, denominator)
            hits = [slow_hits(total, right, k) for k in ks]
        else:
            ranked = [good[j] for j in sorted(range(n), key=lambda j: (away[j], position[ties][j]))]
            precisions = [sum(ranked[:place]) / place for place in range(1, cut + 1) if ranked[place - 1]]
            among = {"retrieved": len(precisions), "relevant": min(sum(good), cut), "all": sum(good)}[denominator]
            average = sum(precisions) / max(among, 1)
            hits = [sum(ranked[:k]) for k in ks]
        near = [g for g, a in zip(good, away, strict=True) if a / (2 * UNITS) <= radius]
        yield average, hits, (len(near), sum(near)), sum(good)


def slow_hits(total, right, k):
    found = 0.0
    for t, r in zip(total, right, strict=True):
        taken = min(t, k)
        found += r * taken / t
        k -= taken
    return found


@st.composite
def cases(draw):
    """Queries that know how sure they are, exactly or by levels or not at all; a database with 0 to 2 planes."""
    n_bits, sure = draw(st.sampled_from(LENGTHS)), draw(st.integers(0, 2))
    n, n_queries = draw(st.sampled_from([0, 1, 2, 9, 40])), draw(st.integers(0, 3))
    n_codes = draw(st.sampled_from([1, 3, 1000]))  # few codes: ties
    n_labels, share = draw(st.sampled_from([1, 3, 70])), draw(st.sampled_from([0.0, 0.05, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = rng.integers(0, 2, (n_codes, n_bits)) - 0.5
    database = Codes.from_outputs(pool[rng.integers(0, n_codes, n)], ids=rng.permutation(3 * n)[:n] - n)
    of_queries = pool[rng.integers(0, n_codes, n_queries)]
    knows = draw(st.sampled_from(["exactly", "coarsely", "by levels", "not"]))
    unsure = rng.random(of_queries.shape) / 2 if knows == "exactly" else rng.integers(0, 2, of_queries.shape) / 2
    query = Codes.from_outputs(of_queries, unsure if knows in ("exactly", "coarsely") else None)
    if knows == "by levels":
        query = graded(query, draw(st.integers(1, 2)), rng)
    labels = (rng.random((n + n_queries, n_labels)) < share).astype(np.uint8)
    return query, graded(database, sure, rng), labels[n:], labels[:n]


options = {
    "topk": st.sampled_from([None, 1, 2, 7, 39, 100]),
    "ties": st.sampled_from(TIES),
    "denominator": st.sampled_from(DENOMINATORS),
}


@given(cases(), st.fixed_dictionaries(options | {"radius": st.sampled_from([0, 1, 5, 30, 200])}))
@settings(max_examples=150, deadline=None)
def test_all_figures_equal_the_oracle(case, rules):
    rules["ks"] = (1, 5, 3)
    got = evaluate(*case, ranking="soft", **rules)
    n = len(case[1])
    wanted = list(slow(*case, **rules))
    assert (got.ranking, got.ties) == ("soft", rules["ties"])
    assert got.average_precision == pytest.approx([average for average, *_ in wanted], abs=1e-9)
    if not wanted:
        return
    for at, k in enumerate(rules["ks"]):
        assert got.precision_at[k] == pytest.approx(fmean(hits[at] / max(min(k, n), 1) for _, hits, *_ in wanted))
        assert got.recall_at[k] == pytest.approx(fmean(hits[at] / max(good, 1) for _, hits, _, good in wanted))
    assert got.precision_within_radius == pytest.approx(fmean(right / max(near, 1) for *_, (near, right), _ in wanted))
    assert got.queries_without_match == sum(not near for *_, (near, _), _ in wanted)
    assert got.queries_without_relevant == sum(not good for *_, good in wanted)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_distances_by_planes_are_those_of_the_definition(case):
    query, database = case[:2]
    masks, base = plane_masks(query, database.worth)
    planes = planes_of(database)
    for i in range(len(query)):
        assert soft_distances_to(masks[i], base[i], planes).tolist() == soft_distances(query[i], database)
    assert not masks[:, :, 0, 1::2].any()  # as the compiled passes take for granted
    assert database.sure or not masks[:, :, 0].any()


def figures(metrics):
    """All that was measured, to be compared to the last bit."""
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in vars(metrics).values()
            if not isinstance(value, tuple)] + [part.tolist() for part in metrics.precision_recall]  # fmt: skip


@given(cases(), st.fixed_dictionaries(options), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_how_many_queries_are_counted_together_changes_nothing(case, rules, together):
    whole = evaluate(*case, ranking="soft", **rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soft, "_TOGETHER", together)
        assert figures(evaluate(*case, ranking="soft", **rules)) == figures(whole)


def small():
    rng = np.random.default_rng(5)
    query = Codes.from_outputs(rng.standard_normal((4, 8)), (rng.random((4, 8)) / 2).astype(np.float32))
    database = graded(Codes.from_outputs(rng.standard_normal((60, 8)), ids=rng.permutation(60)), 1, rng)
    labels = (rng.random((64, 3)) < 0.4).astype(np.uint8)
    return query, database, labels[:4], labels[4:]


def test_ranking_is_soft_where_queries_know_how_sure_they_are():
    query, database, *labels = small()
    assert evaluate(query, database, *labels).ranking == "soft"
    assert evaluate(query.plain(), database, *labels).ranking == "hamming"
    assert evaluate(query, database, *labels, ranking="hamming").ranking == "hamming"
    with pytest.raises(InputError, match="ranking must be hamming or soft, got 'hard'"):
        evaluate(query, database, *labels, ranking="hard")


@pytest.mark.parametrize("ties", TIES)
def test_hamming_ranking_looks_at_the_bits_alone(ties):
    query, database, *labels = small()
    by_bits = evaluate(query.plain(), database.plain(), *labels, ties=ties)
    assert figures(evaluate(query, database, *labels, ties=ties, ranking="hamming")) == figures(by_bits)
    assert figures(evaluate(query, database, *labels, ties=ties)) != figures(by_bits)


@pytest.mark.parametrize("ties", TIES)
def test_bits_that_are_all_sure_rank_as_hamming_does(ties):
    query, database, *labels = small()
    sure = Codes(query.bits, 8, np.zeros((4, 8), np.float32))
    one, other = (evaluate(sure, database.plain(), *labels, ties=ties, ranking=name) for name in ("soft", "hamming"))
    assert one.average_precision == pytest.approx(other.average_precision, abs=1e-12)
    assert one.precision_at == pytest.approx(other.precision_at)
    assert one.precision_within_radius == other.precision_within_radius


def test_the_exact_uncertainty_of_a_database_without_levels_does_not_count():
    query, database, *labels = small()
    unsure = Codes(database.bits, 8, np.full((60, 8), 0.3, np.float32), database.ids)
    assert figures(evaluate(query, unsure, *labels)) == figures(evaluate(query, database.plain(), *labels))


@pytest.mark.parametrize("ranking", ["soft", "hamming"])
def test_ties_as_searched_do_not_depend_on_the_order_of_the_database(ranking):
    query, database, query_labels, labels = small()
    shuffle = np.random.default_rng(0).permutation(60)
    one = evaluate(query, database, query_labels, labels, ties="as-searched", ranking=ranking)
    other = evaluate(query, database[shuffle], query_labels, labels[shuffle], ties="as-searched", ranking=ranking)
    assert figures(one) == figures(other)
    for row in range(len(query)):
        shown = np.argsort(turned(database.ids.tolist(), query[row], ranking))
        asked = query[row], database[shown], query_labels[row : row + 1], labels[shown]
        in_order = evaluate(*asked, ties="index-order", ranking=ranking)
        assert one.average_precision[row] == in_order.map


def test_a_radius_is_in_bits_that_are_expected_to_differ():
    query = Codes.from_outputs([[1.0, 1.0, 1.0]], [[0.5, 0.0, 0.0]])  # the first bit adds half a bit to all
    database = Codes.from_outputs([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]])  # 0.5, 1.5 and 2.5 bits
    labels = [[1, 0], [0, 1], [1, 0]]
    found = [evaluate(query, database, [[1, 0]], labels, radius=radius) for radius in range(4)]
    assert [one.queries_without_match for one in found] == [1, 0, 0, 0]
    assert [one.precision_within_radius for one in found] == pytest.approx([0, 1, 1 / 2, 2 / 3])
    half = Codes.from_outputs([[1.0, 1.0, 1.0]], [[0.5, 0.5, 0.0]])  # 1, 2 and 2 bits
    found = [evaluate(half, database, [[1, 0]], labels, radius=radius) for radius in (1, 2)]
    assert [one.precision_within_radius for one in found] == pytest.approx([1, 2 / 3])
