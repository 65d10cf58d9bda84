"""The discrete steps: descent never raises what it works on, and halves of sampled images are as good as can be."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dmuh.methods.csq import hadamard
from dmuh.methods.discrete import balanced_clusters, cyclic_descent, dissimilarity, sampled_columns

seeds = st.integers(0, 2**16)


def random_signs(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape).double() * 2 - 1


def regression_loss(codes: Tensor, labels: Tensor, weight: Tensor, outputs: Tensor, mu: float, eta: float) -> float:
    return (mu * ((labels - codes @ weight) ** 2).sum() + eta * ((codes - outputs) ** 2).sum()).item()


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 12),
    n_bits=st.sampled_from([1, 2, 5, 12]),
    n_classes=st.integers(1, 5),
    ratio=st.sampled_from([0.0, 1e-5, 1.0, 10.0]),
    sweeps=st.integers(1, 5),
    seed=seeds,
)
def test_cyclic_descent_never_raises_the_loss(n, n_bits, n_classes, ratio, sweeps, seed):
    torch.manual_seed(seed)
    codes, labels = random_signs(n, n_bits), (torch.rand(n, n_classes) < 0.4).double()
    weight, outputs = torch.randn(n_bits, n_classes).double(), torch.randn(n, n_bits).double()
    before = codes.clone()
    found = cyclic_descent(codes, labels @ weight.T + ratio * outputs, weight, sweeps)
    assert torch.equal(codes, before)  # the caller's are its own
    assert torch.equal(found.abs(), torch.ones_like(found))
    loss = [regression_loss(b, labels, weight, outputs, 1.0, ratio) for b in (codes, found)]
    assert loss[1] <= loss[0] + 1e-9 * (1 + loss[0])


@settings(deadline=None, max_examples=30)
@given(n_bits=st.integers(1, 6), ratio=st.sampled_from([0.0, 1.0]), seed=seeds)
def test_cyclic_descent_ends_where_no_single_bit_helps(n_bits, ratio, seed):
    torch.manual_seed(seed)
    codes, labels = random_signs(4, n_bits), (torch.rand(4, 3) < 0.4).double()
    weight, outputs = torch.randn(n_bits, 3).double(), torch.randn(4, n_bits).double()
    found = cyclic_descent(codes, labels @ weight.T + ratio * outputs, weight, 1000)
    lowest = regression_loss(found, labels, weight, outputs, 1.0, ratio)
    for i, k in itertools.product(range(4), range(n_bits)):
        flipped = found.clone()
        flipped[i, k] *= -1
        assert regression_loss(flipped, labels, weight, outputs, 1.0, ratio) >= lowest - 1e-9


def test_a_bit_that_makes_no_difference_is_kept():
    codes = random_signs(5, 3)
    assert torch.equal(cyclic_descent(codes, torch.zeros(5, 3).double(), torch.zeros(3, 2).double(), 4), codes)


def quadratic_problem(m: int, seed: int, whole: bool = False) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    quadratic = torch.randn(m, m).double() * 3
    quadratic, linear = quadratic + quadratic.T, torch.randn(m).double() * 3
    return (quadratic.round(), linear.round()) if whole else (quadratic, linear)  # rounded ones have ties


def value(quadratic: Tensor, linear: Tensor, bits: Tensor) -> float:
    return (bits @ quadratic @ bits + linear @ bits).item()


@settings(deadline=None, max_examples=60)
@given(m=st.integers(1, 8), seed=seeds, whole=st.booleans())
def test_two_halves_are_between_the_best_ones_and_those_of_the_linear_part(m, seed, whole):
    quadratic, linear = quadratic_problem(m, seed, whole)
    found = balanced_clusters(quadratic, linear)
    assert torch.equal(found.abs(), torch.ones(m).double())
    assert abs(found.sum().item()) == m % 2
    halves = [torch.tensor(b).double() for b in itertools.product((-1, 1), repeat=m) if sum(b) == found.sum()]
    best = min(value(quadratic, linear, b) for b in halves)
    by_linear_part = min(halves, key=lambda b: (linear @ b).item())
    assert best - 1e-9 <= value(quadratic, linear, found)
    if not whole:  # of ties, either may be where the exchanges begin
        assert value(quadratic, linear, found) <= value(quadratic, linear, by_linear_part) + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_two_halves_are_such_that_no_exchange_helps(seed):
    quadratic, linear = quadratic_problem(21, seed)
    found = balanced_clusters(quadratic, linear)
    lowest = value(quadratic, linear, found)
    for i, j in itertools.product(range(21), repeat=2):
        if found[i] > 0 > found[j]:
            exchanged = found.clone()
            exchanged[i], exchanged[j] = -1, 1
            assert value(quadratic, linear, exchanged) >= lowest - 1e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_odd_one_has_the_sign_that_the_linear_part_prefers(sign):
    linear = torch.tensor([sign, 5.0, -5.0]).double()
    found = balanced_clusters(torch.zeros(3, 3).double(), linear)
    assert found.tolist() == [-sign, -1.0, 1.0]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_halves_of_clusters_are_whole_clusters(n_classes):
    classes = torch.arange(40) % n_classes
    alike = (classes[:, None] == classes[None, :]).double()
    found = balanced_clusters(-alike, torch.zeros(40).double())
    for k in range(n_classes):
        assert len(found[classes == k].unique()) == 1


def test_both_kinds_of_pairs_weigh_alike():
    shared = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 1]])
    assert dissimilarity(shared).item() == pytest.approx(3 / 5)
    weighed = torch.where(shared > 0, 1.0, -dissimilarity(shared))
    assert weighed.sum().item() == pytest.approx(0, abs=1e-6)
    assert dissimilarity(torch.ones(2, 2)).isfinite()


def column_problem(n: int, m: int, n_bits: int, apart: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    classes = torch.randint(0, 3, (n,))
    chosen = torch.randperm(n)[:m]
    similarity = torch.where(classes[:, None] == classes[chosen][None, :], 1.0, apart).double()
    return random_signs(n, n_bits), similarity, chosen


def residual_loss(codes: Tensor, inside: Tensor, similarity: Tensor, chosen: Tensor, k: int) -> float:
    """‖n_bits·S - Σ_{j<=k} b_j·b_jᵀ‖², by a plain loop over the bits up to the k-th, the rows Ω of B as given."""
    codes = codes.clone()
    codes[chosen] = inside
    left = codes.shape[1] * similarity
    for j in range(k + 1):
        left = left - torch.outer(codes[:, j], inside[:, j])
    return (left**2).sum().item()


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 14),
    m=st.integers(1, 14),
    n_bits=st.sampled_from([1, 2, 5]),
    apart=st.sampled_from([-1.0, 0.0, -0.3]),
    seed=seeds,
)
def test_each_bit_of_sampled_columns_halves_them_and_no_exchange_explains_more_of_the_residual(
    n, m, n_bits, apart, seed
):
    """Both parts of a bit's problem are in it, those among Ω and those with the rest, and only the bits before it."""
    codes, similarity, chosen = column_problem(n, min(m, n), n_bits, apart, seed)
    similarity = similarity + 0.1 * torch.randn(similarity.shape).double()  # so that the two parts disagree
    before = codes.clone()
    inside = sampled_columns(codes, similarity, chosen)
    assert torch.equal(codes, before)
    assert torch.equal(inside.abs(), torch.ones_like(inside))
    for k in range(n_bits):
        assert abs(inside[:, k].sum().item()) == len(chosen) % 2
        lowest = residual_loss(codes, inside, similarity, chosen, k)
        for i, j in itertools.product(range(len(chosen)), repeat=2):
            if inside[i, k] > 0 > inside[j, k]:
                exchanged = inside.clone()
                exchanged[i, k], exchanged[j, k] = -1, 1
                assert residual_loss(codes, exchanged, similarity, chosen, k) >= lowest - 1e-2


def test_sampled_columns_do_not_look_at_the_codes_they_replace():
    codes, similarity, chosen = column_problem(30, 8, 6, -0.3, 0)
    others = codes.clone()
    others[chosen] = random_signs(8, 6)
    assert torch.equal(sampled_columns(codes, similarity, chosen), sampled_columns(others, similarity, chosen))


def test_sampled_columns_find_the_codes_that_the_similarity_was_made_of():
    """Twelve bits, rows of a Hadamard matrix: each has as many ones as minus ones, and none tells of another."""
    right = torch.from_numpy(hadamard(24)[1:13].T.astype("float64")).repeat(4, 1)  # (96, 12)
    codes, chosen = right.clone(), torch.arange(24)
    codes[chosen] = random_signs(24, 12)
    assert torch.equal(sampled_columns(codes, right @ right[chosen].T / 12, chosen), right[chosen])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_keep_their_precision(dtype):
    codes, similarity, chosen = column_problem(12, 5, 4, -1.0, 0)
    assert sampled_columns(codes.to(dtype), similarity.to(dtype), chosen).dtype == dtype
    assert cyclic_descent(codes.to(dtype), codes.to(dtype), torch.zeros(4, 2, dtype=dtype), 2).dtype == dtype
