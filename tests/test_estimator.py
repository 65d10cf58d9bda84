"""Hashing: every method behind scikit-learn's interface."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmuh import Codes, Hashing
from dmuh.errors import ConfigError, InputError
from dmuh.methods import METHODS, ShallowMethod, configure
from dmuh.metrics import evaluate

FAST = {"fasth": {"trees": 3, "depth": 2, "pairs": 6}, "sdh": {"anchors": 20}}
CLASS = np.arange(120) % 3
LABELS = np.eye(3, dtype=np.uint8)[CLASS]


def vectors(n: int = 120, width: int = 14) -> np.ndarray:
    """Three clusters in turn, in features of different scales."""
    rng = np.random.default_rng(0)
    rows = 2 * rng.normal(size=(3, width))[np.arange(n) % 3] + rng.normal(size=(n, width))
    return (rows * np.logspace(-0.5, 0.5, width)).astype(np.float32)


X = vectors()


def make(method: str = "itq", n_bits: int = 10, seed: int = 0, epochs: int = 3) -> Hashing:
    deep = not issubclass(METHODS[method], ShallowMethod)
    return Hashing(method, n_bits, seed, {"epochs": epochs, "batch_size": 40} if deep else FAST.get(method))


# What scikit-learn's checks do with the output of `transform`: it is Codes, packed, and no array.
PACKED = "transform gives Codes, packed, where the check does arithmetic with an array"
EXPECTED = dict.fromkeys(
    (
        "check_pipeline_consistency",
        "check_estimators_pickle",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit_idempotent",
    ),
    PACKED,
)


@parametrize_with_checks(
    [Hashing("itq", 1), Hashing("dmuh", 2, settings={"epochs": 1})], expected_failed_checks=lambda _: EXPECTED
)
def test_it_is_a_scikit_learn_transformer(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fits_and_gives_codes(method):
    hashing = make(method)
    assert hashing.fit(X, CLASS) is hashing
    codes = hashing.transform(X)
    assert isinstance(codes, Codes)
    assert (len(codes), codes.n_bits) == (120, 10)
    np.testing.assert_array_equal(codes.unpack(), hashing.project(X) >= 0)
    with_copy = getattr(configure({"method": method}).options, "alpha", None) is not None
    assert (codes.uncertainty is not None) == with_copy
    assert evaluate(codes, codes, LABELS, LABELS).map > 0.6  # chance is a third


@pytest.mark.parametrize("method", METHODS)
def test_labels_are_needed_but_for_itq(method):
    if method == "itq":
        alone = make(method).fit(X).transform(X)
        np.testing.assert_array_equal(alone.bits, make(method).fit(X, CLASS).transform(X).bits)
        return
    with pytest.raises(InputError, match=f"{method} learns from labels"):
        make(method).fit(X)


@pytest.mark.parametrize("method", ["dmuh", "ddsh", "lfh", "itq"])
def test_same_seed_same_codes(method):
    first, same, other = (make(method, seed=seed, epochs=1).fit(X, CLASS).project(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("method", ["dpsh", "sdh"])
def test_classes_may_be_names_and_labels_several(method):
    wanted = make(method, epochs=1).fit(X, CLASS).project(X)
    for labels in (np.array(["ant", "bee", "cow"])[CLASS], LABELS, LABELS.astype(bool).tolist()):
        np.testing.assert_array_equal(make(method, epochs=1).fit(X, labels).project(X), wanted)
    several = LABELS.copy()
    several[:, 0] |= several[:, 1]
    several[4] = 0
    assert make(method, epochs=1).fit(X, several).transform(X).n_bits == 10


def test_settings_are_scikit_learns():
    hashing = Hashing("sdh", 12, settings={"anchors": 7})
    assert hashing.get_params() == {"method": "sdh", "n_bits": 12, "seed": 0, "settings": {"anchors": 7}}
    assert Hashing().get_params() == {"method": "dmuh", "n_bits": 32, "seed": 0, "settings": None}
    hashing.fit(X, CLASS)
    copy = clone(hashing).set_params(n_bits=5)
    with pytest.raises(NotFittedError):
        copy.transform(X)
    assert copy.fit(X, CLASS).transform(X).n_bits == 5
    assert hashing.transform(X).n_bits == 12
    assert hashing.settings == {"anchors": 7}


def test_a_pipeline_scales_and_hashes():
    pipeline = make_pipeline(StandardScaler(), Hashing("itq", 10))
    codes = pipeline.fit(X).transform(X)
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(codes.bits, Hashing("itq", 10).fit(scaled).transform(scaled).bits)
    np.testing.assert_array_equal(codes.bits, clone(pipeline).fit_transform(X).bits)
    assert (codes.bits != Hashing("itq", 10).fit(X).transform(X).bits).any()


@pytest.mark.parametrize("method", ["dmuh", "itq", "sdh", "fasth"])
def test_a_fitted_one_is_pickled_and_unpickled(method):
    hashing = make(method).fit(X, CLASS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(hashing)).project(X), hashing.project(X))


@pytest.mark.parametrize("method", ["dmuh", "itq"])
def test_what_does_not_fit_is_refused(method):
    hashing = make(method, epochs=1)
    for call in (hashing.transform, hashing.project):
        with pytest.raises(NotFittedError):
            call(X)
    with pytest.raises(InputError, match="X has 120 rows but y has 119"):
        hashing.fit(X, CLASS[:119])
    with pytest.raises(ValueError, match="NaN"):
        hashing.fit(np.full_like(X, np.nan), CLASS)
    hashing.fit(X, CLASS)
    with pytest.raises(ValueError, match="X has 13 features, but Hashing is expecting 14 features"):
        hashing.transform(X[:, :13])


@pytest.mark.parametrize(("arguments", "words"), [
    ({"method": "nope"}, "unknown method 'nope'"),
    ({"n_bits": 0}, "bits must be a whole number at least 1"),
    ({"settings": {"betta": 1}}, "unknown setting 'betta': did you mean beta"),
    ({"settings": {"lr": -1}}, "lr must be a number above 0"),
    ({"method": "itq", "settings": {"freeze": "none"}}, "freeze must be all"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused_when_fitting(arguments, words):
    with pytest.raises(ConfigError, match=words):
        Hashing(**arguments).fit(X, CLASS)


def test_settings_do_not_replace_the_arguments():
    hashing = Hashing("itq", 6, settings={"bits": 9, "method": "sdh", "dataset": "mnist5k"}).fit(X)
    assert hashing.transform(X).n_bits == 6


def test_features_may_lie_in_memory_as_they_like():
    locked = X.copy()
    locked.flags.writeable = False
    wanted = make().fit(X).project(X)
    for given in (X.astype(np.float64), np.asfortranarray(X), X.tolist(), np.repeat(X, 2, axis=0)[::2], locked):
        np.testing.assert_allclose(make().fit(given).project(given), wanted, atol=1e-5)
    np.testing.assert_allclose(make().fit(X).project(X[::-1]), wanted[::-1], atol=1e-5)


@pytest.mark.parametrize("number", ["n_bits", "seed"])
def test_numbers_may_be_numpys(number):
    """As they are in a grid made by np.arange."""
    hashing = make().set_params(**{number: np.int64(8)})
    assert len(hashing.fit(X).transform(X)) == 120


def test_vectors_without_labels_are_not_said_to_be_left_out(caplog):
    make("itq").fit(X)
    assert "take no part" not in caplog.text


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make("itq").fit(X)
    assert list(tmp_path.iterdir()) == []
