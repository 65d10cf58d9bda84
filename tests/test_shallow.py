"""What all shallow methods share: scikit-learn's conventions, labels, the linear map, and memory."""

import dataclasses
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmuh.errors import InputError
from dmuh.methods import METHODS, ShallowMethod
from dmuh.methods.shallow import fit_linear_head, label_matrix

SHALLOW = {name: method for name, method in METHODS.items() if issubclass(method, ShallowMethod)}
FAST = {"fasth": {"trees": 3, "depth": 2, "pairs": 6}, "sdh": {"anchors": 15}}


def make(name: str, **settings: object) -> ShallowMethod:
    return SHALLOW[name](**{"n_bits": 5, **FAST.get(name, {}), **settings})


def vectors(n: int = 60, width: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters, and which one each is of."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    return (2 * rng.normal(size=(3, width))[y] + rng.normal(size=(n, width))).astype(np.float32), y


X, Y = vectors()


# One bit: check_fit2d_1feature gives one feature, and of these ITQ makes one bit at most.
@parametrize_with_checks([make(name, n_bits=1) for name in SHALLOW])
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", SHALLOW)
def test_settings_are_the_constructors_arguments_with_the_options_defaults(name):
    method = SHALLOW[name]
    options = dataclasses.asdict(method.Options())
    assert method().get_params() == {"n_bits": 32, "seed": 0, **options}
    assert list(inspect.signature(method).parameters) == ["n_bits", *options, "seed"]
    assert method.of(method.Options(), 7, 3).get_params() == {"n_bits": 7, "seed": 3, **options}


@pytest.mark.parametrize("name", SHALLOW)
def test_a_clone_has_the_settings_and_nothing_learned(name):
    method = make(name, seed=4).fit(X, Y)
    copy = clone(method)
    assert copy.get_params() == method.get_params()
    with pytest.raises(NotFittedError):
        copy.project(X)
    copy.set_params(n_bits=3)
    assert copy.fit(X, Y).project(X).shape == (60, 3)
    np.testing.assert_array_equal(clone(method).fit(X, Y).project(X), method.project(X))


@pytest.mark.parametrize("name", SHALLOW)
def test_fit_returns_the_method_itself_with_a_head_and_its_losses(name):
    method = make(name)
    assert method.fit(X, Y) is method
    assert method.n_features_in_ == 12
    assert len(method.losses_) > 0
    assert np.isfinite(method.losses_).all()
    outputs = method.project(X)
    assert (outputs.dtype, outputs.shape) == (np.float32, (60, 5))
    np.testing.assert_array_equal(method.head_(torch.from_numpy(X)).detach().numpy(), outputs)
    assert not any(parameter.requires_grad for parameter in method.head_.parameters())


@pytest.mark.parametrize("name", SHALLOW)
def test_a_second_fit_forgets_the_first(name):
    method = make(name).fit(X[::2, :9], Y[::2])
    method.fit(X, Y)
    fresh = make(name).fit(X, Y)
    assert method.losses_ == fresh.losses_
    np.testing.assert_array_equal(method.project(X), fresh.project(X))


@pytest.mark.parametrize("name", SHALLOW)
def test_chance_is_its_own(name):
    """It neither depends on what was drawn before nor changes what is drawn after."""
    torch.manual_seed(1)
    first = make(name).fit(X, Y).project(X)
    after = torch.rand(3)
    torch.manual_seed(1)
    torch.testing.assert_close(torch.rand(3), after, rtol=0, atol=0)
    np.testing.assert_array_equal(make(name).fit(X, Y).project(X), first)


@pytest.mark.parametrize("name", SHALLOW)
def test_what_does_not_fit_is_refused(name):
    method = make(name)
    with pytest.raises(NotFittedError):
        method.project(X)
    with pytest.raises(InputError, match="X has 60 rows but y has 59: inconsistent numbers of samples"):
        method.fit(X, Y[:59])
    with pytest.raises(ValueError, match="minimum of 2"):
        method.fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="NaN"):
        method.fit(np.full_like(X, np.nan), Y)
    method.fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 11 features, but .* is expecting 12 features"):
        method.project(X[:, :11])


@pytest.mark.parametrize("name", SHALLOW)
def test_labels_are_needed_but_for_itq(name):
    if name == "itq":
        assert make(name).fit(X).project(X).shape == (60, 5)
        return
    with pytest.raises(InputError, match="learns from labels"):
        make(name).fit(X)


@pytest.mark.parametrize("name", SHALLOW)
def test_classes_may_be_numbers_names_or_zeros_and_ones(name):
    wanted = make(name).fit(X, Y).project(X)
    for labels in (Y.tolist(), np.array(["ant", "bee", "cow"])[Y], Y * 10 - 3, np.eye(3)[Y], np.eye(3, dtype=bool)[Y]):
        np.testing.assert_array_equal(make(name).fit(X, labels).project(X), wanted)


@pytest.mark.parametrize("labels", [
    np.zeros(60, int), np.arange(60), np.zeros((60, 2), int), np.ones((60, 4), int),
    np.random.default_rng(0).integers(0, 2, (60, 4)),
], ids=["one class", "all different", "no labels", "all labels", "several"])  # fmt: skip
@pytest.mark.parametrize("name", SHALLOW)
def test_any_labels_give_finite_outputs(name, labels):
    assert np.isfinite(make(name).fit(X, labels).project(X)).all()


@pytest.mark.parametrize("features", [
    np.ones_like(X), np.zeros_like(X), X * 1e8, X * 1e-8, X + 1e5, X[:, :5] @ np.ones((5, 12), np.float32),
], ids=["constant", "zero", "huge", "tiny", "far from zero", "of rank one"])  # fmt: skip
@pytest.mark.parametrize("name", SHALLOW)
def test_any_features_give_finite_outputs(name, features):
    assert np.isfinite(make(name).fit(features, Y).project(features)).all()


@pytest.mark.parametrize("given", [
    X.astype(np.float64), np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.tolist(), X.astype(">f4"),
], ids=["double", "fortran", "strided", "list", "big-endian"])  # fmt: skip
@pytest.mark.parametrize("name", SHALLOW)
def test_features_may_lie_in_memory_as_they_like(name, given):
    kept = np.array(given)
    method = make(name).fit(given, Y)
    np.testing.assert_allclose(method.project(given), make(name).fit(X, Y).project(X), atol=1e-5)
    np.testing.assert_array_equal(np.array(given), kept)


@pytest.mark.parametrize("name", SHALLOW)
def test_features_may_be_in_reverse(name):
    method = make(name).fit(X[::-1], Y[::-1])
    np.testing.assert_allclose(method.project(X[::-1]), method.project(X)[::-1], atol=1e-5)


@pytest.mark.parametrize("name", SHALLOW)
def test_features_that_must_not_be_written_are_taken_without_a_warning(name):
    given = X.copy()
    given.flags.writeable = False
    torch.set_warn_always(True)  # else torch says it once, and only the first test sees it
    try:
        method = make(name).fit(given, Y)
        np.testing.assert_array_equal(method.project(given), make(name).fit(X, Y).project(X))
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("seed", [2**32 - 1, 2**40, 2**63 - 1])
@pytest.mark.parametrize("name", SHALLOW)
def test_any_seed_of_a_configuration_will_do(name, seed):
    assert make(name, seed=seed).fit(X, Y).project(X).shape == (60, 5)


@pytest.mark.parametrize("n_bits", [0, -1])
@pytest.mark.parametrize("name", SHALLOW)
def test_a_length_that_is_none_is_refused(name, n_bits):
    with pytest.raises(ValueError, match="n_bits"):
        make(name, n_bits=n_bits).fit(X, Y)


@pytest.mark.parametrize("name", SHALLOW)
def test_rows_are_projected_alone_as_among_others(name):
    method = make(name).fit(X, Y)
    many = np.tile(X, (80, 1))  # more than are taken at once
    np.testing.assert_allclose(method.project(many)[-60:], method.project(X), atol=1e-5)
    np.testing.assert_allclose(method.project(X[7:8])[0], method.project(X)[7], atol=1e-5)


@pytest.mark.parametrize(("given", "expected"), [
    ([2, 0, 2], [[0, 1], [1, 0], [0, 1]]),
    (["b", "a"], [[0, 1], [1, 0]]),
    ([[1, 0, 1], [0, 0, 0]], [[1, 0, 1], [0, 0, 0]]),
    ([[True], [False]], [[1], [0]]),
    ([-1.0, 1.0], [[1, 0], [0, 1]]),
])  # fmt: skip
def test_labels_become_a_matrix(given, expected):
    labels = label_matrix(given)
    assert labels.dtype == np.uint8
    assert labels.tolist() == expected


@pytest.mark.parametrize("given", [[[0, 2]], [[[0]]], 3, [0.5, 1.0], [0.0, float("nan")], [float("inf")], [[0.0, 0.5]]])
def test_what_is_no_label_is_refused(given):
    with pytest.raises(InputError, match="labels must be classes"):
        label_matrix(given)


@pytest.mark.parametrize("ridge", [1e-6, 1.0, 100.0])
def test_the_linear_head_is_the_ridge_regression_of_standardised_features(ridge):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 4)) * [1, 10, 0.1, 3] + [0, 5, -1, 100]).astype(np.float32)
    codes = rng.integers(0, 2, (40, 3)) * 2.0 - 1
    head = fit_linear_head(torch.from_numpy(x), torch.from_numpy(codes).float(), ridge)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    # min Σ_n ‖z_n·W + c - b_n‖² + ridge·N·‖W‖², as a problem of least squares
    rows = np.vstack([np.hstack([standard, np.ones((40, 1))]), np.sqrt(ridge * 40) * np.eye(4, 5)])
    solution = np.linalg.lstsq(rows, np.vstack([codes, np.zeros((4, 3))]), rcond=None)[0]
    expected = standard @ solution[:4] + solution[4]
    np.testing.assert_allclose(head(torch.from_numpy(x)).numpy(), expected, atol=2e-3)


PEAK = """
import json, resource, sys
import numpy as np, torch
torch.set_num_threads(1)
from dmuh.methods import METHODS
name, settings = sys.argv[1], json.loads(sys.argv[2])
rng = np.random.default_rng(0)
y = rng.integers(0, 100, 50_000)
x = rng.normal(size=(100, 256)).astype(np.float32)[y] + rng.normal(size=(50_000, 256)).astype(np.float32)
outputs = METHODS[name](n_bits=32, **settings).fit(x, y).project(x)
assert outputs.shape == (50_000, 32) and np.isfinite(outputs).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [
    *((name, {}) for name in SHALLOW if name != "fasth"),
    ("fasth", {"trees": 3}),
])  # fmt: skip
def test_fifty_thousand_vectors_take_no_more_than_three_gigabytes(name, settings):
    command = [sys.executable, "-c", PEAK, name, json.dumps(settings)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) <= 3e9
