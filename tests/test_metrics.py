import itertools
import json
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.codes import Codes
from dmuh.errors import DtypeError, InputError
from dmuh.metrics import evaluate
from routes import route  # noqa: F401

DENOMINATORS = ("retrieved", "relevant", "all")
TIES = ("expected", "index-order")


def of_numbers(numbers, n_bits=3):
    return Codes(np.array(numbers, np.uint8).reshape(-1, 1), n_bits)


def average_precision(ranked, cut, denominator):
    hits, total = 0, 0.0
    for rank, good in enumerate(ranked[:cut], start=1):
        hits += good
        total += good * hits / rank
    by = {"retrieved": hits, "relevant": min(sum(ranked), len(ranked[:cut])), "all": sum(ranked)}[denominator]
    return total / by if by else 0.0


def orders(distances, ties):
    """Every order of the database that the rule allows; all are equally likely."""
    places = range(len(distances))
    groups = [[i for i in places if distances[i] == d] for d in sorted(set(distances))]
    if ties == "index-order":
        return [list(itertools.chain(*groups))]
    return [list(itertools.chain(*parts)) for parts in itertools.product(*map(itertools.permutations, groups))]


def plain(query, database, query_labels, database_labels, *, topk, ties, denominator, ks, radius):
    """Everything that `evaluate` measures, by loops over queries, orders and ranks."""
    bits = [row.tolist() for row in query.unpack()], [row.tolist() for row in database.unpack()]
    n = len(database)
    ranks = sorted({*ks, *range(1, n + 1)})
    measured = []
    for q, own in zip(bits[0], np.asarray(query_labels).tolist(), strict=True):
        distances = [sum(a != b for a, b in zip(q, d, strict=True)) for d in bits[1]]
        good = [any(a and b for a, b in zip(own, other, strict=True)) for other in np.asarray(database_labels).tolist()]
        ranked = [[good[i] for i in order] for order in orders(distances, ties)]
        near = [g for g, d in zip(good, distances, strict=True) if d <= radius]
        hits = {k: fmean(sum(r[:k]) for r in ranked) for k in ranks}
        measured.append(
            {
                "ap": fmean(average_precision(r, n if topk is None else topk, denominator) for r in ranked),
                "precision": {k: hits[k] / max(min(k, n), 1) for k in ranks},
                "recall": {k: hits[k] / max(sum(good), 1) for k in ranks},
                "radius": sum(near) / max(len(near), 1),
                "no match": not near,
                "no relevant": not any(good),
            }
        )
    return measured


def assert_equals_plain(query, database, query_labels, database_labels, **options):
    got = evaluate(query, database, query_labels, database_labels, **options)
    wanted = plain(query, database, query_labels, database_labels, **options)
    ks = options["ks"]
    assert got.average_precision == pytest.approx([one["ap"] for one in wanted], abs=1e-12)
    assert got.map == pytest.approx(fmean(one["ap"] for one in wanted), abs=1e-12)
    assert -1e-12 <= got.map <= 1 + 1e-12
    recall, precision, ranks = got.precision_recall
    for name, at, curve in (("precision", got.precision_at, precision), ("recall", got.recall_at, recall)):
        assert at == pytest.approx({k: fmean(one[name][k] for one in wanted) for k in ks}, abs=1e-12)
        if len(database):
            assert curve == pytest.approx([fmean(one[name][k] for one in wanted) for k in ranks.tolist()], abs=1e-12)
    assert got.precision_within_radius == pytest.approx(fmean(one["radius"] for one in wanted), abs=1e-12)
    assert got.queries_without_match == sum(one["no match"] for one in wanted)
    assert got.queries_without_relevant == sum(one["no relevant"] for one in wanted)
    return got


@st.composite
def tiny_cases(draw):
    """At most 6 database codes of 3 bits, so that all orders of their ties can be gone through."""
    n, n_queries = draw(st.integers(0, 6)), draw(st.integers(1, 3))
    numbers = draw(st.lists(st.integers(0, 7), min_size=n, max_size=n))
    queries = draw(st.lists(st.integers(0, 7), min_size=n_queries, max_size=n_queries))
    cells = draw(st.lists(st.integers(0, 1), min_size=3 * (n + n_queries), max_size=3 * (n + n_queries)))
    labels = np.array(cells, np.uint8).reshape(-1, 3)
    return of_numbers(queries), of_numbers(numbers), labels[:n_queries], labels[n_queries:]


@given(
    case=tiny_cases(),
    topk=st.none() | st.integers(1, 8),
    ties=st.sampled_from(TIES),
    denominator=st.sampled_from(DENOMINATORS),
    radius=st.integers(0, 4),
)
@settings(deadline=None, max_examples=150)
def test_all_figures_equal_the_mean_over_all_orders_of_the_ties(case, topk, ties, denominator, radius):
    assert_equals_plain(*case, topk=topk, ties=ties, denominator=denominator, ks=(1, 2, 3, 9), radius=radius)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("topk", range(1, 7))
@pytest.mark.parametrize("n_relevant", range(7))
def test_a_cut_off_inside_one_group_of_ties_is_exact(n_relevant, topk, denominator):
    labels = np.array([[1]] * n_relevant + [[0]] * (6 - n_relevant))
    case = of_numbers([0]), of_numbers([1] * 6), [[1]], labels
    assert_equals_plain(*case, topk=topk, ties="expected", denominator=denominator, ks=(topk,), radius=0)


def random_case(n_queries, n, n_bits, n_classes, seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random((n_queries + n, n_classes)) < 0.4).astype(np.uint8)
    outputs = rng.standard_normal((n_queries + n, n_bits))
    made = Codes.from_outputs(outputs)
    # ids in another order than the rows: order in the database is the order of rows
    database = Codes(made.bits[n_queries:], n_bits, None, rng.permutation(n))
    return made[:n_queries], database, labels[:n_queries], labels[n_queries:]


@pytest.mark.parametrize("ranking", ["hamming", "soft"])
@pytest.mark.parametrize("ties", ["expected", "index-order", "as-searched"])
def test_each_denominator_of_a_cut_off_is_what_its_name_says(ties, ranking):
    """Five relevant images, at the first, third and last three of six places; the first four count."""
    query = Codes.from_outputs([[1.0] * 6], uncertainty=[[0.1] * 6])
    database = Codes.from_outputs([[1.0] * (6 - k) + [-1.0] * k for k in range(1, 7)])
    labels = np.ones((1, 1), np.uint8), np.array([[1], [0], [1], [1], [1], [1]], np.uint8)
    summed = 1 + 2 / 3 + 3 / 4
    found = [evaluate(query, database, *labels, 4, ties, by, ranking=ranking).map for by in DENOMINATORS]
    assert found == pytest.approx([summed / 3, summed / 4, summed / 5])


@pytest.mark.parametrize("topk", [None, 7, 90, 500])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_index_order_is_a_stable_sort(denominator, topk):
    case = random_case(7, 90, 6, 3, seed=1)
    assert_equals_plain(*case, topk=topk, ties="index-order", denominator=denominator, ks=(1, 10, 64, 200), radius=2)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("topk", [None, 10])
def test_expected_is_the_mean_over_shuffled_databases(denominator, topk):
    query, database, query_labels, labels = random_case(4, 60, 4, 4, seed=2)
    options = {"topk": topk, "denominator": denominator, "ks": (3, 20), "radius": 1}
    expected = evaluate(query, database, query_labels, labels, ties="expected", **options)
    shuffles = [np.random.default_rng(seed).permutation(60) for seed in range(600)]
    runs = [evaluate(query, database[s], query_labels, labels[s], ties="index-order", **options) for s in shuffles]
    for figure in (lambda m: m.map, lambda m: m.precision_at[3], lambda m: m.recall_at[20]):
        seen = np.array([figure(run) for run in runs])
        assert abs(seen.mean() - figure(expected)) < 5 * seen.std() / len(runs) ** 0.5


@pytest.mark.parametrize("topk", [None, 1, 700])
def test_one_relevant_item_among_thousands_of_ties_gives_the_harmonic_mean(topk):
    n = 5000
    labels = np.zeros((n, 1), np.uint8)
    labels[123] = 1
    got = evaluate(of_numbers([0]), of_numbers([5] * n), [[1]], labels, topk=topk)
    assert got.map == pytest.approx(sum(1 / rank for rank in range(1, (topk or n) + 1)) / n, rel=1e-9)


def test_both_rules_agree_where_nothing_ties():
    query, database = of_numbers([0]), of_numbers([0, 1, 3, 7])
    labels = [[1, 0], [0, 1], [1, 0], [0, 1]]
    found = [evaluate(query, database, [[1, 0]], labels, ties=ties) for ties in TIES]
    assert found[0].map == pytest.approx((1 + 2 / 3) / 2)
    assert found[1].map == pytest.approx(found[0].map)


def test_a_perfect_ranking_has_map_one_and_its_reverse_has_not():
    query, labels = of_numbers([0]), [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert evaluate(query, of_numbers([0, 0, 7, 7]), [[1, 0]], labels).map == pytest.approx(1)
    assert evaluate(query, of_numbers([7, 7, 0, 0]), [[1, 0]], labels).map == pytest.approx((1 / 3 + 2 / 4) / 2)


@pytest.mark.parametrize("n_classes", [64, 65, 130])
def test_sharing_any_of_many_labels_makes_images_relevant(n_classes):
    labels = np.eye(n_classes, dtype=np.uint8)
    got = evaluate(of_numbers([0] * n_classes), of_numbers([0] * n_classes), labels, labels, ks=(1, n_classes))
    assert got.precision_at == pytest.approx({1: 1 / n_classes, n_classes: 1 / n_classes})
    assert got.recall_at == pytest.approx({1: 1 / n_classes, n_classes: 1})
    assert got.queries_without_relevant == 0


def test_many_shared_labels_count_as_one_match():
    ones = np.ones((1, 300), np.uint8)
    got = evaluate(of_numbers([0]), of_numbers([0, 0]), ones, np.repeat(ones, 2, axis=0), ks=(1, 2))
    assert (got.map, got.precision_at, got.recall_at) == (1, {1: 1, 2: 1}, {1: 0.5, 2: 1})


@pytest.mark.parametrize("ties", TIES)
def test_a_query_without_relevant_items_counts_as_zero(ties):
    got = evaluate(of_numbers([0, 0]), of_numbers([0, 1]), [[1, 0], [0, 1]], [[1, 0], [1, 0]], ties=ties, ks=(1,))
    assert got.average_precision.tolist() == [1, 0]
    assert (got.map, got.precision_at[1], got.recall_at[1]) == (0.5, 0.5, 0.25)
    assert got.queries_without_relevant == 1


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize(("n_queries", "n"), [(0, 3), (2, 0), (0, 0)])
def test_no_queries_or_an_empty_database_give_zeros(n_queries, n, ties, denominator):
    one = np.ones((3, 2), np.uint8)
    query, database = of_numbers([0] * n_queries), of_numbers([0] * n)
    for topk in (None, 5):
        got = evaluate(
            query, database, one[:n_queries], one[:n], topk=topk, ties=ties, denominator=denominator, ks=(1, 9)
        )
        assert (got.map, got.precision_within_radius) == (0, 0)
        assert got.precision_at == got.recall_at == {1: 0, 9: 0}
        assert got.average_precision.tolist() == [0] * n_queries
        assert got.queries_without_match == got.queries_without_relevant == (0 if n else n_queries)
        assert (got.n_queries, got.n_database) == (n_queries, n)


@pytest.mark.parametrize("ties", TIES)
def test_a_cut_off_beyond_the_database_means_all_of_it(ties):
    case = random_case(3, 20, 4, 3, seed=3)
    whole = evaluate(*case, ties=ties, ks=(20,))
    beyond = evaluate(*case, ties=ties, ks=(21, 5000), topk=21)
    assert beyond.map == whole.map
    assert set(beyond.precision_at.values()) == {whole.precision_at[20]}
    assert set(beyond.recall_at.values()) == {1.0}


@pytest.mark.parametrize("n", [1, 2, 199, 1000])
def test_the_curve_runs_from_the_first_rank_to_the_last(n):
    recall, precision, ranks = evaluate(*random_case(2, n, 8, 2, seed=4)).precision_recall
    assert len(recall) == len(precision) == len(ranks) <= 200
    assert (ranks[0], ranks[-1]) == (1, n)
    assert (np.diff(ranks) > 0).all()
    assert (np.diff(recall) >= -1e-12).all()


def test_a_radius_counts_codes_up_to_and_including_it():
    query, database = of_numbers([0, 7]), of_numbers([0, 1, 3])
    labels = [[1, 0], [0, 1], [1, 0]]
    seen = [evaluate(query, database, [[1, 0], [1, 0]], labels, radius=radius) for radius in range(4)]
    assert [got.precision_within_radius for got in seen] == pytest.approx([1 / 2, 3 / 4, 7 / 12, 2 / 3])
    assert [got.queries_without_match for got in seen] == [1, 0, 0, 0]


def test_to_dict_is_plain_json_that_names_its_rules():
    got = evaluate(*random_case(3, 20, 4, 3, seed=5), topk=10, ties="index-order", denominator="relevant", radius=1)
    back = json.loads(json.dumps(got.to_dict()))
    assert back["map"] == got.map
    assert back["precision_recall"]["rank"] == got.precision_recall[2].tolist()
    assert [back[key] for key in ("ties", "denominator", "topk", "radius", "n_queries", "n_database", "n_bits")] == [
        *("index-order", "relevant", 10, 1, 3, 20, 4)
    ]


GOOD = {
    "query": of_numbers([0, 1]),
    "database": of_numbers([0, 1, 2]),
    "query_labels": np.ones((2, 2), int),
    "database_labels": np.ones((3, 2), int),
}


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, list])
def test_labels_may_be_any_whole_numbers(dtype):
    labels = {
        key: GOOD[key].tolist() if dtype is list else GOOD[key].astype(dtype)
        for key in ("query_labels", "database_labels")
    }
    assert evaluate(**GOOD | labels).map == 1


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"database": of_numbers([0, 1, 2], 4)}, InputError, "3 bits, database codes 4"),
        ({"query_labels": np.ones((3, 2), int)}, InputError, r"query_labels .* 2 rows .* got shape \(3, 2\)"),
        ({"database_labels": np.ones(3, int)}, InputError, r"database_labels .* 3 rows .* got shape \(3,\)"),
        ({"query_labels": np.ones((2, 3), int)}, InputError, "3 classes, database_labels 2"),
        (
            {"query_labels": np.ones((2, 2))},
            DtypeError,
            "query_labels must be whole numbers or booleans, got dtype float64",
        ),
        ({"query_labels": np.full((2, 2), 2)}, InputError, "0 and 1 only, got values from 2 to 2"),
        ({"database_labels": -np.ones((3, 2), int)}, InputError, "database_labels must hold 0 and 1 only"),
        ({"ties": "random"}, InputError, "ties must be 'expected', 'index-order' or 'as-searched', got 'random'"),
        ({"denominator": "k"}, InputError, "denominator must be 'retrieved', 'relevant' or 'all', got 'k'"),
        ({"topk": 0}, InputError, "topk must be at least 1, got 0"),
        ({"ks": (5, 0)}, InputError, "ks must be at least 1, got 0"),
        ({"radius": -1}, InputError, "radius must be at least 0, got -1"),
    ],
)
def test_wrong_input_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        evaluate(**GOOD | change)
