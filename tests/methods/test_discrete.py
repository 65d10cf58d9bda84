"""The discrete steps: none raises what it works on, and none beats the best of all codes."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dmuh.methods.discrete import binary_quadratic, cyclic_descent, sampled_columns

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


@settings(deadline=None, max_examples=60)
@given(m=st.integers(1, 7), seed=seeds, whole=st.booleans())
def test_a_binary_quadratic_problem_ends_between_the_best_and_the_start(m, seed, whole):
    torch.manual_seed(seed)
    quadratic = torch.randn(m, m).double() * 3
    quadratic = quadratic + quadratic.T
    linear, start = torch.randn(m).double() * 3, random_signs(m)
    if whole:  # ties
        quadratic, linear = quadratic.round(), linear.round()
    quadratic.fill_diagonal_(0)

    def value(b: Tensor) -> float:
        return (b @ quadratic @ b + linear @ b).item()

    best = min(value(torch.tensor(b).double()) for b in itertools.product((-1, 1), repeat=m))
    before, found = start.clone(), binary_quadratic(quadratic, linear, start)
    assert torch.equal(start, before)
    assert torch.equal(found.abs(), torch.ones(m).double())
    assert best - 1e-9 <= value(found) <= value(start) + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_a_binary_quadratic_problem_ends_where_no_single_flip_helps(seed):
    torch.manual_seed(seed)
    m = 30
    quadratic = torch.randn(m, m).double()
    quadratic = (quadratic + quadratic.T).fill_diagonal_(0)
    linear = 5 * torch.randn(m).double()
    found = binary_quadratic(quadratic, linear, random_signs(m))
    change = -2 * found * (2 * quadratic @ found + linear)  # of the value, by flipping each bit
    assert change.min() > -1e-3


def column_loss(codes: Tensor, inside: Tensor, similarity: Tensor, chosen: Tensor) -> float:
    """‖n_bits·S - B·B_Ωᵀ‖² with the rows Ω of B those given."""
    codes = codes.clone()
    codes[chosen] = inside
    return ((codes.shape[1] * similarity - codes @ inside.T) ** 2).sum().item()


def column_problem(n: int, m: int, n_bits: int, apart: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    classes = torch.randint(0, 3, (n,))
    chosen = torch.randperm(n)[:m]
    similarity = torch.where(classes[:, None] == classes[chosen][None, :], 1.0, apart).double()
    return random_signs(n, n_bits), similarity, chosen


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(2, 14),
    m=st.integers(1, 14),
    n_bits=st.sampled_from([1, 2, 5, 12]),
    apart=st.sampled_from([-1.0, 0.0, -0.3]),
    seed=seeds,
)
def test_sampled_columns_never_fit_the_similarity_worse(n, m, n_bits, apart, seed):
    codes, similarity, chosen = column_problem(n, min(m, n), n_bits, apart, seed)
    before = codes.clone()
    inside = sampled_columns(codes, similarity, chosen)
    assert torch.equal(codes, before)
    assert torch.equal(inside.abs(), torch.ones_like(inside))
    start = column_loss(codes, codes[chosen], similarity, chosen)
    assert column_loss(codes, inside, similarity, chosen) <= start + 1e-9 * (1 + start)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 9), m=st.integers(1, 4), n_bits=st.integers(1, 2), apart=st.sampled_from([-1.0, 0.0]), seed=seeds
)
def test_sampled_columns_end_between_the_best_codes_and_the_start(n, m, n_bits, apart, seed):
    codes, similarity, chosen = column_problem(n, min(m, n), n_bits, apart, seed)
    shape = (len(chosen), n_bits)
    every = itertools.product((-1.0, 1.0), repeat=shape[0] * shape[1])
    best = min(column_loss(codes, torch.tensor(b).double().view(shape), similarity, chosen) for b in every)
    found = column_loss(codes, sampled_columns(codes, similarity, chosen), similarity, chosen)
    assert best - 1e-9 <= found <= column_loss(codes, codes[chosen], similarity, chosen) + 1e-9


@pytest.mark.parametrize("n_bits", [1, 6])
@pytest.mark.parametrize("seed", range(8))
def test_sampled_columns_end_where_no_flip_in_the_last_bit_helps(seed, n_bits):
    """The last bit's problem is the last that was solved: both its parts, among Ω and with the rest, are in it.

    The similarities are random numbers, so that the two parts disagree.
    """
    codes, similarity, chosen = column_problem(40, 20, n_bits, -1.0, seed)
    similarity = torch.randn(similarity.shape).double()
    inside = sampled_columns(codes, similarity, chosen)
    lowest = column_loss(codes, inside, similarity, chosen)
    for i in range(20):
        flipped = inside.clone()
        flipped[i, -1] *= -1
        assert column_loss(codes, flipped, similarity, chosen) >= lowest - 1e-2


def test_sampled_columns_find_codes_of_two_classes():
    """Against others whose codes are right, one pass over the bits is enough."""
    classes = torch.arange(30) % 2
    codes = (classes * 2 - 1)[:, None].expand(30, 8).double().clone()
    chosen = torch.arange(10)
    right = codes[chosen].clone()
    torch.manual_seed(0)
    codes[chosen] = random_signs(10, 8)
    similarity = torch.where(classes[:, None] == classes[chosen][None, :], 1.0, -1.0).double()
    assert torch.equal(sampled_columns(codes, similarity, chosen), right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_keep_their_precision(dtype):
    codes, similarity, chosen = column_problem(12, 5, 4, -1.0, 0)
    assert sampled_columns(codes.to(dtype), similarity.to(dtype), chosen).dtype == dtype
    assert cyclic_descent(codes.to(dtype), codes.to(dtype), torch.zeros(4, 2, dtype=dtype), 2).dtype == dtype
