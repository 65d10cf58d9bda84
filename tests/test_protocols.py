import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmuh.config import ProtocolSettings
from dmuh.datasets import DATASETS, Dataset, one_hot
from dmuh.errors import ConfigError, DataError, FormatError
from dmuh.methods import configure
from dmuh.metrics import evaluate
from dmuh.protocols import PROTOCOLS, Protocol, Split, noisy_labels, protocol_of
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run


def protocol(query, train, **options):
    return Protocol(query, train, "a test", **options)


def classes_of(*sizes):
    """Single-label images, classes of these sizes, shuffled."""
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    return one_hot(np.random.default_rng(9).permutation(numbers), len(sizes))


def sizes(split):
    return {name: len(part) for name, part in vars(split).items()}


def positions(*numbers):
    return np.array(numbers, np.int64)


def per_class(labels, part):
    return labels[part].sum(axis=0, dtype=int).tolist()


amounts = st.sampled_from([1, 2, 3]) | st.floats(0.05, 0.95)
label_matrices = hnp.arrays(np.uint8, st.tuples(st.integers(2, 60), st.integers(2, 5)), elements=st.integers(0, 1))


@given(
    labels=label_matrices,
    query=amounts,
    train=amounts,
    validation=st.sampled_from([0.0, 0.2, 0.5]),
    database=st.sampled_from(["rest", "rest+train"]),
    seed=st.integers(0, 2**63 - 1),
)
@settings(deadline=None, max_examples=150)
def test_parts_are_apart_and_together_hold_every_labelled_image(labels, query, train, validation, database, seed):
    drawn = protocol(query, train, validation=validation, database=database)
    try:
        split = drawn.split(labels, seed)
    except DataError:
        assume(False)
    for part in vars(split).values():
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    trained = {*split.train.tolist(), *split.validation.tolist()}
    query_set, searched = set(split.query.tolist()), set(split.database.tolist())
    assert len(trained) == len(split.train) + len(split.validation)
    assert not query_set & trained
    assert not query_set & searched
    assert (trained <= searched) if database == "rest+train" else not trained & searched
    assert query_set | trained | searched == set(np.flatnonzero(labels.any(axis=1)).tolist())


def test_a_count_is_drawn_of_every_class():
    labels = classes_of(30, 50, 20)
    split = protocol(3, 10, validation=0.2).split(labels, 0)
    assert per_class(labels, split.query) == [3, 3, 3]
    assert per_class(labels, split.train) == [8, 8, 8]
    assert per_class(labels, split.validation) == [2, 2, 2]
    assert per_class(labels, split.database) == [17, 37, 7]


def test_a_fraction_is_of_all_images_of_the_class():
    labels = classes_of(100, 40, 20)
    split = protocol(0.1, 0.5).split(labels, 0)
    assert per_class(labels, split.query) == [10, 4, 2]
    assert per_class(labels, split.train) == [50, 20, 10]
    assert per_class(labels, split.database) == [40, 16, 8]
    assert len(split.validation) == 0


def test_a_fraction_takes_at_least_one_image_of_a_class_of_two():
    labels = classes_of(2, 100)
    assert per_class(labels, protocol(0.01, 0.1).split(labels, 0).query) == [1, 1]


def test_the_database_may_hold_the_training_images_too():
    labels = classes_of(30, 30)
    apart = protocol(5, 10, validation=0.2).split(labels, 0)
    joint = protocol(5, 10, validation=0.2, database="rest+train").split(labels, 0)
    np.testing.assert_array_equal(joint.train, apart.train)
    wanted = np.sort(np.concatenate([apart.database, apart.train, apart.validation]))
    np.testing.assert_array_equal(joint.database, wanted)


def test_validation_is_taken_out_of_the_training_images():
    labels = classes_of(50, 50)
    without = protocol(5, 20).split(labels, 0)
    split = protocol(5, 20, validation=0.25).split(labels, 0)
    np.testing.assert_array_equal(np.union1d(split.train, split.validation), without.train)
    assert per_class(labels, split.validation) == [5, 5]
    np.testing.assert_array_equal(split.query, without.query)
    np.testing.assert_array_equal(split.database, without.database)


def test_a_seed_names_one_split():
    labels = classes_of(40, 40)
    one, same, other = (protocol(0.1, 0.5, validation=0.1).split(labels, seed) for seed in (1, 1, 2))
    assert one.digest() == same.digest() != other.digest()
    for name, part in vars(one).items():
        np.testing.assert_array_equal(part, getattr(same, name))
        assert part.tolist() != getattr(other, name).tolist()


def test_the_digest_tells_parts_apart():
    none, some = positions(), positions(1, 2)
    digests = {Split(*parts).digest() for parts in itertools.permutations([some, none, none, none])}
    assert {len(digest) for digest in digests} == {12}
    assert len(digests) == 4


def nested_classes(n, n_rare):
    """All images are of class 0, the first few of class 1 too."""
    labels = np.zeros((n, 2), np.uint8)
    labels[:, 0] = 1
    labels[:n_rare, 1] = 1
    return labels


def test_of_a_multi_label_set_a_count_draws_the_rarest_class_first_and_no_image_twice():
    labels = nested_classes(30, 4)
    for seed in range(20):  # the common class would now and then take one that the rare class cannot spare
        assert per_class(labels, protocol(4, 0.5).split(labels, seed).query) == [8, 4]


def test_of_a_fraction_images_that_came_with_a_rarer_class_count_already():
    labels = nested_classes(100, 40)
    for seed in range(5):
        common, rare = per_class(labels, protocol(0.2, 0.5).split(labels, seed).query)
        assert common == 20  # not 20 more than the 8 of the rare class
        assert rare >= 8


def test_images_without_a_label_take_no_part():
    labels = np.vstack([classes_of(10, 10), np.zeros((7, 2), np.uint8)])
    split = protocol(1, 3, database="rest+train").split(labels, 0)
    assert len(split.query) + len(split.database) == 20
    assert max(split.query.max(), split.database.max()) < 20


def test_twenty_images_of_two_classes_are_enough():
    labels = classes_of(10, 10)
    split = protocol_of(ProtocolSettings(), "folder").split(labels, 0)
    for part in (split.train, split.query, split.database):
        assert min(per_class(labels, part)) >= 1


def test_mnist5k_has_its_own_counts():
    drawn = protocol_of(ProtocolSettings(), "mnist5k")
    assert sizes(drawn.split(classes_of(*[500] * 10), 0)) == {
        "train": 1800, "validation": 200, "query": 500, "database": 2500
    }  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "query", "train", "words"),
    [
        (classes_of(20), 1, 1, "two or more, got 1"),
        (classes_of(20, 0), 1, 1, "two or more, got 1"),
        (np.zeros((5, 3), np.uint8), 1, 1, "two or more, got 0"),
        (np.zeros((0, 2), np.uint8), 0.1, 0.5, "two or more, got 0"),
        (classes_of(20, 3), 4, 1, "class number 1 has 3 images left, but query=4"),
        (classes_of(20, 3), 2, 2, "class number 1 has 1 images left, but train=2"),
        (classes_of(20, 20), 5, 15, "40 labelled images in 2 classes leave none for the database part"),
        (classes_of(1, 1), 0.1, 0.5, "2 labelled images in 2 classes leave none for the"),
    ],
)
def test_too_few_classes_or_images_are_refused(labels, query, train, words):
    with pytest.raises(DataError, match=words):
        protocol(query, train).split(labels, 0)


def test_a_count_must_be_whole():
    with pytest.raises((ConfigError, DataError), match="query"):
        protocol(2.5, 5).split(classes_of(20, 20), 0)


def test_settings_choose_and_change_the_protocol():
    assert protocol_of(ProtocolSettings(validation=0), "csv") == PROTOCOLS["stratified"]
    assert protocol_of(ProtocolSettings(protocol="stratified"), "mnist5k").query == 0.1
    changed = protocol_of(ProtocolSettings(query=7, train=0.25, database="rest+train", validation=0.3), "mnist5k")
    assert (changed.query, changed.train, changed.database, changed.validation) == (7, 0.25, "rest+train", 0.3)
    assert changed.topk == PROTOCOLS["mnist5k"].topk


@pytest.mark.parametrize(
    ("name", "dataset", "words"),
    [
        ("stratifed", "mnist5k", "unknown protocol 'stratifed': did you mean stratified"),
        ("", "images", "images has no labels"),
    ],
)
def test_settings_without_a_protocol_are_refused(name, dataset, words):
    with pytest.raises(ConfigError, match=words):
        protocol_of(ProtocolSettings(protocol=name), dataset)


def test_the_protocol_of_every_data_set_is_known():
    assert {source.protocol for source in DATASETS.values()} <= {*PROTOCOLS, ""}
    assert all(known.about for known in PROTOCOLS.values())


def test_a_split_comes_back_from_its_file_for_the_same_data_only(tmp_path):
    split = protocol(2, 5).split(classes_of(20, 20), 0)
    split.save(tmp_path / "split.safetensors", "one")
    back = Split.load(tmp_path / "split.safetensors", "one")
    for name, part in vars(split).items():
        np.testing.assert_array_equal(getattr(back, name), part)
    assert back.digest() == split.digest()
    with pytest.raises(FormatError, match="other images or labels"):
        Split.load(tmp_path / "split.safetensors", "another")


# Tuning ---------------------------------------------------------------------------------------------------------------


@given(
    n=st.integers(40, 100),
    n_classes=st.integers(2, 4),
    query=st.sampled_from([1, 2, 0.1]),
    train=st.sampled_from([6, 0.4, 0.6]),
    tuning=st.sampled_from([0.1, 0.3, 0.6, 0.8]),
    validation=st.sampled_from([0.0, 0.2, 0.5]),
    database=st.sampled_from(["rest", "rest+train"]),
    per_class=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=100)
def test_tuning_divides_the_training_images_alone(
    n, n_classes, query, train, tuning, validation, database, per_class, seed
):
    labels = (np.random.default_rng(seed).random((n, n_classes)) < 0.5).astype(np.uint8)
    drawn = protocol(query, train, database=database, per_class=per_class)
    try:
        without = drawn.split(labels, seed)
        split = replace(drawn, tuning=tuning, validation=validation).split(labels, seed)
    except DataError:  # too few images for so many of each class
        assume(False)
    parts = {name: set(part.tolist()) for name, part in vars(split).items()}
    learned = parts["train"] | parts["validation"]
    assert len(learned) == len(split.train) + len(split.validation)
    assert not parts["query"] & (learned | parts["database"])
    assert (learned <= parts["database"]) if database == "rest+train" else not learned & parts["database"]
    assert parts["query"] | learned | parts["database"] == set(without.train.tolist())


@pytest.mark.parametrize("database", ["rest", "rest+train"])
def test_of_the_tuning_images_a_third_asks_and_the_rest_answers(database):
    labels = classes_of(50, 80)
    split = protocol(5, 30, tuning=0.3, validation=1 / 7, database=database).split(labels, 0)
    assert per_class(labels, split.query) == [3, 3]
    assert per_class(labels, split.train) == [18, 18]
    assert per_class(labels, split.validation) == [3, 3]  # of the 21 that are left
    assert per_class(labels, split.database) == ([27, 27] if database == "rest+train" else [6, 6])


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_tuning_leaves_the_makers_test_images_alone(validation):
    labels = classes_of(30, 30)
    test = np.arange(60) % 3 == 0
    split = protocol(0, 0, official=True, tuning=0.6, validation=validation).split(labels, 0, test)
    assert not any(test[part].any() for part in vars(split).values())
    assert sum(sizes(split).values()) == 40


def test_tuning_is_a_setting_and_changes_with_the_seed():
    labels = classes_of(50, 50)
    drawn = protocol_of(ProtocolSettings(query=5, train=20, tuning=0.3), "mnist5k")
    assert drawn.tuning == 0.3
    one, same, other = (drawn.split(labels, seed) for seed in (1, 1, 2))
    assert one.digest() == same.digest() != other.digest()


def test_tuning_that_leaves_none_to_train_is_named():
    with pytest.raises(DataError, match=r"none for the training part with .*tuning=0\.9"):
        protocol(1, 2, tuning=0.9).split(classes_of(20, 20), 0)


# Noisy labels ---------------------------------------------------------------------------------------------------------


@given(
    labels=label_matrices,
    fraction=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    every=st.integers(1, 3),
    seed=st.integers(0, 2**63 - 1),
)
@settings(deadline=None, max_examples=100)
def test_noise_gives_training_images_the_labels_of_others_unlike_them(labels, fraction, every, seed):
    clean, train = labels.copy(), np.flatnonzero(labels.any(axis=1))[::every]
    noisy = noisy_labels(labels, train, fraction, seed)
    np.testing.assert_array_equal(labels, clean)
    changed = np.flatnonzero((noisy != labels).any(axis=1))
    assert set(changed.tolist()) <= set(train.tolist())
    assert len(changed) <= round(fraction * len(train))
    for position in changed:
        assert not (noisy[position] & labels[position]).any()
        assert noisy[position].tolist() in labels[train].tolist()
    np.testing.assert_array_equal(noisy_labels(labels, train, fraction, seed), noisy)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.6, 1.0])
def test_as_many_labels_are_noisy_as_asked_for(fraction):
    labels = classes_of(40, 25, 15)
    train = np.arange(3, 63)
    changed = (noisy_labels(labels, train, fraction, 0) != labels).any(axis=1)
    assert changed.sum() == changed[train].sum() == round(fraction * 60)


def test_where_all_images_are_alike_labels_stay():
    labels = nested_classes(20, 5)
    np.testing.assert_array_equal(noisy_labels(labels, np.arange(20), 1.0, 0), labels)


def test_another_seed_makes_other_labels_noisy():
    labels = classes_of(40, 40)
    one, other = (noisy_labels(labels, np.arange(80), 0.5, seed) for seed in (0, 1))
    assert (one != other).any()


# Classes that never train ---------------------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(40, 90), st.integers(4, 9)),
    more=st.floats(0, 0.2),
    query=st.sampled_from([1, 2]) | st.floats(0.1, 0.5),
    train=st.sampled_from([1, 2]) | st.floats(0.1, 0.9),
    validation=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=100)
def test_no_image_of_an_unseen_class_trains_and_only_these_are_searched_and_count(
    shape, more, query, train, validation, seed
):
    labels = (np.random.default_rng(seed).random(shape) < more).astype(np.uint8)
    labels[np.arange(shape[0]), np.arange(shape[0]) % shape[1]] = 1
    drawn = protocol(query, train, validation=validation, unseen=0.25)
    try:
        split = drawn.split(labels, seed)
    except DataError:
        assume(False)
    training = np.union1d(split.train, split.validation)
    seen = labels[training].any(axis=0)
    tested = np.union1d(split.query, split.database)
    assert not np.intersect1d(training, tested).size
    assert not np.intersect1d(split.query, split.database).size
    assert (labels[tested][:, ~seen] == 1).any(axis=1).all()
    counted = drawn.counted(labels, split)
    assert not counted[:, seen].any()
    np.testing.assert_array_equal(counted[:, ~seen], labels[:, ~seen])


def test_the_unseen_classes_are_a_share_rounded_up_and_drawn_by_the_seed():
    labels, chosen = classes_of(*[20] * 10), set()
    for seed in range(12):
        split = PROTOCOLS["unseen"].split(labels, seed)
        tested = np.flatnonzero(labels[np.union1d(split.query, split.database)].any(axis=0))
        assert len(tested) == 3
        assert per_class(labels, split.query) == [2 if k in tested else 0 for k in range(10)]
        assert per_class(labels, split.database) == [18 if k in tested else 0 for k in range(10)]
        assert per_class(labels, split.train) == [0 if k in tested else 10 for k in range(10)]
        chosen.add(tuple(tested.tolist()))
        assert PROTOCOLS["unseen"].split(labels, seed).digest() == split.digest()
    assert len(chosen) > 3


def test_settings_are_tuned_on_classes_that_train():
    labels = classes_of(*[40] * 8)
    tuned = protocol_of(ProtocolSettings(protocol="unseen", tuning=0.3), "folder")
    split = tuned.split(labels, 0)
    final = protocol_of(ProtocolSettings(protocol="unseen"), "folder").split(labels, 0)
    tested = np.union1d(final.query, final.database)
    assert not np.isin(np.concatenate(list(vars(split).values())), tested).any()
    np.testing.assert_array_equal(tuned.counted(labels, split), labels)


def test_unseen_classes_need_four_and_a_database_of_their_own():
    with pytest.raises(DataError, match="two classes to train and two or more that are unseen"):
        PROTOCOLS["unseen"].split(classes_of(9, 9, 9), 0)
    with pytest.raises(ConfigError, match=r"searches classes that did not train: database must be rest"):
        protocol_of(ProtocolSettings(protocol="unseen", database="rest+train"), "folder")


def test_a_class_that_trained_makes_no_image_of_an_unseen_class_relevant(tmp_path):
    """Every other image has a common class beside its own."""
    rng = np.random.default_rng(0)
    labels = np.zeros((400, 11), np.uint8)
    labels[np.arange(400), np.arange(400) % 10] = 1
    labels[::2, 10] = 1
    data = Dataset("features", rng.normal(size=(400, 8)).astype(np.float32), labels, tuple("abcdefghijk"))
    settings = {"dataset": "features", "data": "x", "method": "itq", "bits": 8, "protocol": "unseen"}
    for seed in range(10):
        run = train(configure(settings, {"seed": seed}), tmp_path / str(seed), dataset=data)
        if labels[run.load_split(data).train][:, 10].any():
            break
    measured = evaluate_run(run, data)
    unseen = ~labels[run.load_split(data).train].any(axis=0)
    ours = evaluate(measured.query, measured.database, *(labels[part.ids][:, unseen] for part in
                    (measured.query, measured.database)), ranking="hamming")  # fmt: skip
    every = evaluate(measured.query, measured.database, *(labels[part.ids] for part in
                     (measured.query, measured.database)), ranking="hamming")  # fmt: skip
    assert measured.metrics.map == ours.map < every.map
