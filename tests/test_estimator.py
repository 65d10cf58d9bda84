"""Hashing: every method behind scikit-learn's interface."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmuh import Codes, CrossModalHashing, Hashing
from dmuh.config import SECTIONS, keys_of
from dmuh.errors import ConfigError, InputError
from dmuh.estimator import OPTIONS, options_of
from dmuh.methods import METHODS, ShallowMethod, methods_for
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


def is_deep(method: str) -> bool:
    return not issubclass(METHODS[method], ShallowMethod)


def make(method: str = "itq", n_bits: int = 10, seed: int = 0, epochs: int = 3, **options: object) -> Hashing:
    fast = {"epochs": epochs, "batch_size": 40} if is_deep(method) else FAST.get(method, {})
    return Hashing(method, n_bits, seed, **(fast | options))


@parametrize_with_checks([Hashing("itq", 1), Hashing("dmuh", 2, epochs=1), Hashing("sdh", 2, anchors=20)])
def test_it_is_a_scikit_learn_transformer(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", methods_for(texts=False))
def test_every_method_fits_and_gives_codes(method):
    hashing = make(method)
    assert hashing.fit(X, CLASS) is hashing
    codes, bits = hashing.codes(X), hashing.transform(X)
    assert isinstance(codes, Codes)
    assert (len(codes), codes.n_bits) == (120, 10)
    assert (bits.dtype, bits.shape) == (np.uint8, (120, 10))
    np.testing.assert_array_equal(bits, hashing.project(X) >= 0)
    np.testing.assert_array_equal(bits, codes.unpack())
    assert codes.uncertainty.max() <= 0.5
    assert codes.sure == 1
    assert evaluate(codes, codes, LABELS, LABELS).map > 0.6  # chance is a third


@pytest.mark.parametrize("method", methods_for(texts=False))
def test_labels_are_needed_but_for_itq(method):
    if method == "itq":
        alone = make(method).fit(X).transform(X)
        np.testing.assert_array_equal(alone, make(method).fit(X, CLASS).transform(X))
        return
    with pytest.raises(InputError, match=f"{method} learns from labels"):
        make(method).fit(X)


@pytest.mark.parametrize("method", ["dmuh", "ddsh", "lfh", "itq"])
def test_same_seed_same_codes(method):
    first, same, other = (make(method, seed=seed, epochs=1).fit(X, CLASS).project(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


NAMES = np.array(["ant", "bee", "cow"])
ONE_CLASS = {
    "numbers": CLASS,
    "floats": CLASS.astype(float),
    "names": NAMES[CLASS],
    "objects": NAMES[CLASS].astype(object),
    "a column": CLASS[:, None],
    "a column of names": NAMES[CLASS][:, None],
    "a series": pd.Series(NAMES[CLASS]),
    "0 and 1": LABELS,
    "truths": LABELS.astype(bool).tolist(),
    "a frame": pd.DataFrame(LABELS, columns=NAMES),
    "a sparse matrix": scipy.sparse.csr_array(LABELS),
    "lists of names": [[name] for name in NAMES[CLASS]],
    "sets": [{name} for name in NAMES[CLASS]],
}


@pytest.mark.parametrize("method", ["dpsh", "sdh"])
def test_labels_may_have_any_usual_form(method):
    wanted = make(method, epochs=1).fit(X, CLASS)
    for form, labels in ONE_CLASS.items():
        hashing = make(method, epochs=1).fit(X, labels)
        np.testing.assert_array_equal(hashing.project(X), wanted.project(X), err_msg=form)
        np.testing.assert_array_equal(hashing.train_labels_, LABELS, err_msg=form)
        assert hashing.score(X, labels) == wanted.score(X, CLASS), form


SEVERAL = LABELS.copy()
SEVERAL[:, 0] |= SEVERAL[:, 1]
SEVERAL[4] = 0
LISTED = [[str(name) for name in NAMES[row > 0]] for row in SEVERAL]
NUMBERED = [np.flatnonzero(row) + 5 for row in SEVERAL]


@pytest.mark.parametrize("method", ["dpsh", "sdh"])
def test_a_row_may_have_several_labels_or_none(method):
    wanted = make(method, epochs=1).fit(X, SEVERAL)
    np.testing.assert_array_equal(wanted.classes_, [0, 1, 2])
    for labels, classes in ((LISTED, NAMES), (pd.Series(LISTED), NAMES), (NUMBERED, [5, 6, 7])):
        hashing = make(method, epochs=1).fit(X, labels)
        np.testing.assert_array_equal(hashing.project(X), wanted.project(X))
        np.testing.assert_array_equal(hashing.classes_, classes)
        assert hashing.score(X, labels) == wanted.score(X, SEVERAL)
    # rows of one length are lists of classes still, not 0 and 1
    assert hashing.score(X[:4], [[5, 6], [6, 7], [5, 7], [5, 6]]) > 0


@pytest.mark.parametrize(("labels", "words"), [
    (X[:, :3], "numbers that are not whole"),
    (LABELS * 2, r"got an array of shape \(120, 3\)"),
    (LABELS[:, None], r"got an array of shape \(120, 1, 3\)"),
    (LABELS[:119], "X has 120 rows but y has 119"),
])  # fmt: skip
def test_labels_that_are_none_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        make("sdh").fit(X, labels)


def test_parameters_are_scikit_learns():
    hashing = Hashing("sdh", 12, anchors=7)
    given = {name: value for name, value in hashing.get_params().items() if value is not None}
    assert given == {"method": "sdh", "n_bits": 12, "seed": 0, "anchors": 7}
    assert set(hashing.get_params()) == {"method", "n_bits", "seed", *OPTIONS}
    assert repr(hashing) == "Hashing(anchors=7, method='sdh', n_bits=12)"
    hashing.fit(X, CLASS)
    copy = clone(hashing).set_params(n_bits=5)
    assert copy.anchors == 7
    with pytest.raises(NotFittedError):
        copy.transform(X)
    assert copy.fit(X, CLASS).transform(X).shape == (120, 5)
    assert hashing.transform(X).shape == (120, 12)


CHANGED = {
    "dmuh": {
        "alpha": 0.1, "beta": 2.0, "gamma": 3.0, "normalization": "pairs", "similar_weight": 5.0, "detach": False,
        "epochs": 2, "batch_size": 20, "optimizer": "adamw", "lr": 0.01, "lr_final": 0.1, "schedule": "cosine",
        "warmup_epochs": 1.0, "sgd_momentum": 0.1, "weight_decay": 0.9, "clip": 0.01, "kernel": 9,
        "hidden": 9, "dropout": 0.5, "shared_mask": True, "copy_update": "epoch", "quantization_weights": "norm",
        "uncertainty": "copy", "uncertainty_alpha": 0.99, "encoder": "copy",
    },
    "regu": {"likelihood_weight": 3.0},
    "sdh": {"anchors": 9, "classifier": 99.0, "penalty": 99.0, "rounds": 1, "sweeps": 1},
}  # fmt: skip


@pytest.mark.parametrize(("method", "option"), [(m, o) for m in CHANGED for o in options_of(m) if o in CHANGED[m]])
def test_every_option_changes_something(method, option):
    needed = {"uncertainty_alpha": {"uncertainty": "copy"}, "dropout": {"hidden": 9},
              "shared_mask": {"hidden": 9, "dropout": 0.5}}.get(option, {})  # fmt: skip
    usual, other = make(method, **needed), make(method, **needed, **{option: CHANGED[method][option]})
    hard = np.random.default_rng(0).integers(0, 9, 120)  # what is easily learned is learned by all settings alike
    first, second = (hashing.fit(X, hard)._run(X) for hashing in (usual, other))
    assert any(not np.array_equal(first.get(key), second.get(key)) for key in first | second)


def test_the_device_is_taken():
    with pytest.raises(ConfigError, match="cuda:99"):
        make("dmuh", device="cuda:99").fit(X, CLASS)
    np.testing.assert_array_equal(make(device="cpu").fit(X).project(X), make().fit(X).project(X))


def test_all_methods_have_parameters_that_runs_have():
    sections = {key for section in SECTIONS.values() for key in keys_of(section)}
    for method in methods_for(texts=False):
        cls = METHODS[method]
        assert set(options_of(method)) <= sections | set(keys_of(cls.Options))
        assert set(keys_of(cls.Options)) <= set(options_of(method)) <= set(OPTIONS)


def test_fitting_leaves_the_callers_chance_alone():
    before = torch.random.get_rng_state()
    make("dmuh", epochs=1).fit(X, CLASS)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_pipeline_scales_and_hashes():
    pipeline = make_pipeline(StandardScaler(), Hashing("itq", 10))
    bits = pipeline.fit(X, CLASS).transform(X)
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(bits, Hashing("itq", 10).fit(scaled).transform(scaled))
    np.testing.assert_array_equal(bits, clone(pipeline).fit_transform(X))
    assert (bits != Hashing("itq", 10).fit(X).transform(X)).any()
    assert pipeline.score(X, CLASS) == pipeline[-1].score(scaled, CLASS)


def test_bits_are_features_for_a_classifier():
    pipeline = make_pipeline(make("sdh"), KNeighborsClassifier(3, metric="hamming"))
    assert pipeline.fit(X[:90], CLASS[:90]).score(X[90:], CLASS[90:]) > 0.8


def test_a_pipeline_gives_frames_if_it_is_told_to():
    pipeline = make_pipeline(StandardScaler(), Hashing("itq", 3)).set_output(transform="pandas")
    frame = pipeline.fit_transform(pd.DataFrame(X, index=np.arange(120) + 1000))
    assert list(frame.columns) == ["hashing0", "hashing1", "hashing2"] == list(pipeline.get_feature_names_out())
    assert list(frame.index) == list(range(1000, 1120))
    assert set(frame.dtypes) == {np.dtype(np.uint8)}
    bits = pipeline.set_output(transform="default").fit_transform(pd.DataFrame(X))
    assert isinstance(bits, np.ndarray)
    np.testing.assert_array_equal(frame, bits)


def test_a_search_over_parameters_finds_the_better_ones():
    grid = [{"hashing__method": ["sdh"], "hashing__anchors": [1, 20], "hashing__n_bits": np.array([8])},
            {"hashing__method": ["dmuh"], "hashing__epochs": [1], "hashing__lr": np.logspace(-9, -8, 2)}]  # fmt: skip
    search = GridSearchCV(make_pipeline(StandardScaler(), Hashing()), grid, cv=StratifiedKFold(3), error_score="raise")
    search.fit(X, CLASS)
    assert search.best_params_ == {"hashing__method": "sdh", "hashing__anchors": 20, "hashing__n_bits": 8}
    assert search.best_score_ > 0.9
    assert len(set(search.cv_results_["mean_test_score"])) > 2


# The score ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [CLASS, SEVERAL])
def test_the_score_is_the_map_of_other_rows_against_the_training_rows(labels):
    matrix = LABELS if labels is CLASS else SEVERAL
    hashing = make("sdh").fit(X[:80], labels[:80])
    query, database = hashing.codes(X[80:]), hashing.codes(X[:80])
    wanted = evaluate(query, database, matrix[80:], matrix[:80], ranking="hamming").map
    assert hashing.score(X[80:], labels[80:]) == pytest.approx(wanted, abs=1e-12)
    np.testing.assert_array_equal(hashing.train_codes_.bits, database.bits)


@pytest.mark.parametrize("labels", [CLASS, SEVERAL])
def test_training_rows_do_not_find_themselves(labels):
    matrix = LABELS if labels is CLASS else SEVERAL
    hashing = make("itq", 6).fit(X, labels)
    codes = hashing.codes(X)
    alone = [
        evaluate(codes[[row]], codes[others], matrix[[row]], matrix[others], ranking="hamming").map
        for row in range(120)
        for others in [np.delete(np.arange(120), row)]
    ]
    assert hashing.score(X, labels) == pytest.approx(np.mean(alone), abs=1e-12)
    with_themselves = evaluate(codes, codes, matrix, matrix, ranking="hamming").map
    assert hashing.score(X, labels) < with_themselves
    shuffled = np.random.default_rng(1).permutation(120)
    assert hashing.score(X[shuffled], labels[shuffled]) == pytest.approx(with_themselves)


def test_a_class_that_was_not_learned_finds_nothing():
    hashing = make("sdh").fit(X, NAMES[CLASS])
    known, other = hashing.score(X[:6], NAMES[CLASS][:6]), ["dog"] * 6
    assert hashing.score(np.repeat(X[:6], 2, axis=0), np.ravel([NAMES[CLASS][:6], other], "F")) == pytest.approx(
        known / 2
    )
    with pytest.raises(InputError, match="none of the classes in y was there when fitting, got 'dog'"):
        hashing.score(X[:6], other)
    with pytest.raises(InputError, match="none of the classes in y was there when fitting"):
        hashing.score(X[:6], CLASS[:6])


def test_a_score_that_cannot_be_had_is_refused():
    with pytest.raises(NotFittedError):
        make().score(X, CLASS)
    with pytest.raises(InputError, match=r"fit was called without y: call fit\(X, y\)"):
        make().fit(X).score(X, CLASS)
    hashing = make().fit(X, LABELS)
    with pytest.raises(InputError, match=r"y must be 0 and 1 \(n, 3\), as for fit, got shape \(120,\)"):
        hashing.score(X, CLASS)
    with pytest.raises(InputError, match="X has 120 rows but y has 119"):
        hashing.score(X, LABELS[:119])


@pytest.mark.parametrize("method", ["dmuh", "itq", "sdh", "fasth"])
def test_a_fitted_one_is_pickled_and_unpickled(method):
    hashing = make(method).fit(X, CLASS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(hashing)).project(X), hashing.project(X))


@pytest.mark.parametrize("method", ["dmuh", "itq"])
def test_what_does_not_fit_is_refused(method):
    hashing = make(method, epochs=1)
    for call in (hashing.transform, hashing.project, hashing.codes):
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
    ({"method": ["itq"]}, "unknown method"),
    ({"n_bits": 0}, "bits must be a whole number at least 1"),
    ({"n_bits": 8.5}, "bits must be a whole number at least 1"),
    ({"lr": -1}, "lr must be a number above 0"),
    ({"anchors": 5}, "dmuh has no parameter anchors, which is for sdh"),
    ({"method": "itq", "epochs": 3}, "itq has no parameter epochs, which is for dmuh, dmuh-no-u, "),
])  # fmt: skip
def test_parameters_that_do_not_fit_are_refused_when_fitting(arguments, words):
    with pytest.raises(ConfigError, match=words):
        Hashing(**arguments).fit(X, CLASS)


def test_parameters_that_no_method_has_are_refused_at_once():
    sentence = "unknown parameter 'anchor': did you mean anchors"
    with pytest.raises(InputError, match=sentence):
        Hashing("sdh", anchor=3)
    with pytest.raises(InputError, match=sentence):
        Hashing("sdh").set_params(anchor=3)
    with pytest.raises(InputError, match="unknown parameter 'dataset'"):  # a setting of runs, but not for features
        Hashing(dataset="mnist5k")


def test_features_may_lie_in_memory_as_they_like():
    locked = X.copy()
    locked.flags.writeable = False
    wanted = make().fit(X).project(X)
    for given in (X.astype(np.float64), np.asfortranarray(X), X.tolist(), np.repeat(X, 2, axis=0)[::2], locked):
        np.testing.assert_allclose(make().fit(given).project(given), wanted, atol=1e-5)
    np.testing.assert_allclose(make().fit(X).project(X[::-1]), wanted[::-1], atol=1e-5)


@pytest.mark.parametrize("number", ["n_bits", "seed", "iterations"])
def test_numbers_may_be_numpys(number):
    """As they are in a grid made by np.arange."""
    first, second = (make().set_params(**{number: value}).fit(X).project(X) for value in (np.int64(8), 8))
    np.testing.assert_array_equal(first, second)


def test_vectors_without_labels_are_not_said_to_be_left_out(caplog):
    make("itq").fit(X)
    assert "take no part" not in caplog.text


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make("itq").fit(X)
    assert list(tmp_path.iterdir()) == []


class TestTwoMatrices:
    """CrossModalHashing: images and texts."""

    Z = vectors(width=9)[:, ::-1].copy() + 1

    @pytest.mark.parametrize("method", methods_for(texts=True))
    def test_every_method_fits_and_finds_the_other_side(self, method):
        options = {"epochs": 20, "batch_size": 30} if METHODS[method].kind == "deep" else {}
        hashing = CrossModalHashing(method, 6, **options).fit(X[:60], self.Z[:60], CLASS[:60])
        assert hashing.transform(X).shape == hashing.transform_texts(self.Z).shape == (120, 6)
        np.testing.assert_array_equal(hashing.codes_of_texts(self.Z).unpack(), hashing.transform_texts(self.Z))
        assert hashing.score(X[60:], self.Z[60:], CLASS[60:]) > 0.5

    def test_it_is_cloned_with_its_parameters(self):
        hashing = CrossModalHashing("scm", 8, ridge=0.5)
        assert clone(hashing).get_params() == hashing.get_params()
        assert repr(hashing) == "CrossModalHashing(method='scm', n_bits=8, ridge=0.5)"

    @pytest.mark.parametrize(("call", "message"), [
        (lambda z: CrossModalHashing("dmuh").fit(X, z, CLASS), "unknown method 'dmuh'"),
        (lambda z: CrossModalHashing("scm", epochs=3).fit(X, z, CLASS), "scm has no parameter epochs"),
        (lambda _: CrossModalHashing("scm", rigde=3), "unknown parameter 'rigde': did you mean ridge"),
        (lambda z: CrossModalHashing("scm", 4).fit(X, z), "scm learns from labels"),
        (lambda z: CrossModalHashing("scm", 4).fit(X, z[:7], CLASS), "vectors of texts must be float32"),
        (lambda z: CrossModalHashing("cca-itq", 4).fit(X, z).score(X, z, CLASS), r"call fit\(X, Z, y\)"),
        (lambda z: CrossModalHashing("cca-itq", 4).fit(X, z).transform(z), "X has 9 features, but 14 were there"),
    ])  # fmt: skip
    def test_what_does_not_fit_is_refused(self, call, message):
        with pytest.raises((ConfigError, InputError), match=message):
            call(self.Z)
