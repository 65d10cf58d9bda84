"""Regu: the traditional method that DMUH is measured against (paper, Eq. 2)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import (
    Objective,
    TrainBatch,
    beta_setting,
    negative_log_likelihood,
    normalization_setting,
    scales,
    similar_weight_setting,
)


@dataclass(frozen=True)
class ReguOptions:
    """Options of regu."""

    beta: float = beta_setting(0.3)
    normalization: str = normalization_setting()
    similar_weight: float = similar_weight_setting()
    likelihood_weight: float = setting(
        1.0, "weight of the likelihood term, as beta is of the quantisation term", above=0
    )


# The paper states neither epochs nor SGD's momentum. `standardize` is named because it is ours, not the paper's:
# without it a fresh hash layer gives all images nearly the same outputs, from where the likelihood goes to zero.
PAPER_TRAINING: dict[str, Any] = {
    "normalization": "train", "beta": 50.0, "similar_weight": 1.0, "optimizer": "sgd", "sgd_momentum": 0.0, "lr": 0.05,
    "lr_final": 0.0005, "schedule": "log", "warmup_epochs": 0.0, "weight_decay": 1e-4, "batch_size": 128, "epochs": 150,
    "clip": 0.0, "validation": 0.0, "standardize": True, "dropout": "own",
}  # fmt: skip


class Regu(Objective):
    """Pairwise likelihood and quantisation, all bits and images alike (Eq. 2).

    L = Σ_ij (softplus Θ_ij - S_ij·Θ_ij) + β·Σ_i ‖h_i - b_i‖², over all B² pairs of the batch, i = j included.
    The paper does not say how the sums are normalised: see `normalization`. It weighs all pairs alike; `similar_weight`
    is ours. So is `likelihood_weight`: with the mean of DMUH's weights e^(ū_i+ū_j) there, and β times that of e^(u_ik),
    Regu shows what they do as constants. DMUH logs them as mean_pair_weight and mean_bit_weight.
    """

    Options = ReguOptions
    title = "pairwise likelihood with a quantisation term: DMUH without uncertainty"
    paper = "Fu et al., Deep Momentum Uncertainty Hashing, Eq. 2"
    year = 2022
    presets = {"paper": PAPER_TRAINING}
    advice = "lower beta or lr"

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity` and `quantization`."""
        pair, element = scales(self.options.normalization, len(outputs), self.n_bits, self.n_train)
        likelihood = negative_log_likelihood(outputs, batch.similarity)
        likelihood = likelihood * self.pair_weights(batch.similarity)
        error = (outputs - self.target_codes(outputs)) ** 2
        return {
            "similarity": pair * self.options.likelihood_weight * likelihood.sum(),
            "quantization": element * self.options.beta * error.sum(),
        }
