"""Discrete steps that several methods share: bits found by coordinate descent instead of rounding.

Codes here are ±1 float tensors. Every step is exact in what it changes, so none raises the objective it works on.
"""

import torch
from torch import Tensor


def cyclic_descent(codes: Tensor, target: Tensor, classifier: Tensor, sweeps: int) -> Tensor:
    """Return codes B (N, n_bits) of lower ‖Y - B·W‖² - 2·tr(B·Qᵀ), bit by bit (Shen et al. 2015, Eq. 10).

    `target` is P = Y·Wᵀ + Q (N, n_bits), `classifier` W (n_bits, classes). With all other bits fixed, the best bit k is
    sign(p_k - B'·W'·w_k); a bit that makes no difference is kept. It ends when a sweep changes nothing.
    """
    codes = codes.clone()
    gram = classifier @ classifier.T  # (n_bits, n_bits)
    for _ in range(sweeps):
        changed = False
        for k in range(codes.shape[1]):
            others = codes @ gram[:, k] - codes[:, k] * gram[k, k]
            preferred = target[:, k] - others
            bit = torch.where(preferred == 0, codes[:, k], preferred.sign())
            changed = changed or not torch.equal(bit, codes[:, k])
            codes[:, k] = bit
        if not changed:
            break
    return codes


def sampled_columns(codes: Tensor, similarity: Tensor, chosen: Tensor) -> Tensor:
    """Return codes (|Ω|, n_bits) of the chosen images Ω that fit the similarity better, all others fixed.

    Of min ‖n_bits·S - B·B_Ωᵀ‖² over the columns Ω (Kang, Li and Zhou 2016, Eq. 5), `codes` is B (N, n_bits),
    `similarity` S (N, |Ω|), `chosen` Ω (|Ω|,). Each bit is a binary quadratic problem, min bᵀQb + pᵀb. Its candidates
    are the bit as it is and the two clusters that the leading eigenvector tells apart, both improved by single flips;
    the better one is taken, so no bit's problem worsens. (The authors' 2-approximation clusters evenly.)
    """
    n_bits = codes.shape[1]
    inside = codes[chosen].clone()  # (m, n_bits)
    outside = torch.ones(len(codes), dtype=torch.bool, device=codes.device)
    outside[chosen] = False
    rest, wanted = codes[outside], n_bits * similarity[outside]  # (N - m, n_bits), (N - m, m)
    among = n_bits * similarity[chosen]  # (m, m)
    for k in range(n_bits):
        bit = inside[:, k]
        # what the other bits leave to be explained, among the chosen and between them and the rest
        left = among - (inside @ inside.T - torch.outer(bit, bit))
        quadratic = -(left + left.T)
        quadratic.fill_diagonal_(0)
        to_rest = rest[:, k] @ wanted - (rest[:, k] @ rest) @ inside.T + (rest[:, k] @ rest[:, k]) * bit
        linear = -2 * to_rest
        inside[:, k] = binary_quadratic(quadratic, linear, bit)
    return inside


def binary_quadratic(quadratic: Tensor, linear: Tensor, start: Tensor) -> Tensor:
    """Return b in ±1 (m,) with a low bᵀQb + pᵀb, never higher than the start's; Q (m, m) symmetric, zero diagonal."""
    m = len(start)
    # p becomes the edges to one more point, which keeps its sign: bᵀQb + pᵀb = xᵀAx for x = (b, 1)
    augmented = torch.zeros(m + 1, m + 1, dtype=quadratic.dtype, device=quadratic.device)
    augmented[:m, :m] = quadratic
    augmented[:m, m] = augmented[m, :m] = linear / 2
    vector = torch.linalg.eigh(augmented).eigenvectors[:, 0]
    spectral = torch.where(vector[:m] * (1.0 if vector[m] >= 0 else -1.0) >= 0, 1.0, -1.0).to(start.dtype)
    candidates = [_flip_while_better(quadratic, linear, b) for b in (start, spectral)]
    values = [b @ quadratic @ b + linear @ b for b in candidates]
    return candidates[0] if values[0] <= values[1] else candidates[1]


def _flip_while_better(quadratic: Tensor, linear: Tensor, bits: Tensor) -> Tensor:
    """Flip the bit that lowers bᵀQb + pᵀb most, again and again, until none does."""
    bits = bits.clone()
    field = 2 * quadratic @ bits + linear  # the change of flipping bit i is -2·b_i·field_i
    for _ in range(20 * len(bits)):
        gain = bits * field
        best = int(gain.argmax())
        if gain[best] <= 1e-6 * (1 + field.abs().max()):
            break
        field -= 4 * bits[best] * quadratic[:, best]
        bits[best] = -bits[best]
    return bits
