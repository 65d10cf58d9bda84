"""DMUH-plus: DMUH, and two terms by which the labels can be read from a code. Ours, not the paper's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import TrainBatch, signs
from dmuh.methods.csq import HashCentres
from dmuh.methods.dmuh import DMUH, DMUHOptions, uncertainty_of

_RIDGE = 1.0


# What held-out training images chose: of CIFAR-10 and apparel, where every image has one label, and of coco18.
_ONE_LABEL = {"beta": 0.1, "similar_weight": 2.0, "decoder": 3.0, "centres": 10.0}
_SEVERAL_LABELS = {"beta": 0.3, "similar_weight": 3.0, "decoder": 1.0, "centres": 1.0}
_OPPOSITE = 0.3  # of the centres' weight that is left where some of them are opposites and images have several labels


def _weight_setting(name: str, about: str) -> Any:
    """Declare a weight whose default depends on how many labels images have."""
    default = f"; not given, {_ONE_LABEL[name]:g}, or {_SEVERAL_LABELS[name]:g} where images have several labels"
    if name == "centres":
        default += f" ({_OPPOSITE * _SEVERAL_LABELS[name]:g} if there are more classes than bits)"
    bound: dict[str, Any] = {"above": 0} if name == "similar_weight" else {"low": 0}
    return setting(None, about + default, **bound)


@dataclass(frozen=True)
class DMUHPlusOptions(DMUHOptions):
    """Options of dmuh-plus."""

    beta: float | None = _weight_setting("beta", "weight of the quantisation term")  # type: ignore[assignment]
    similar_weight: float | None = _weight_setting(  # type: ignore[assignment]
        "similar_weight", "weight of a similar pair; a dissimilar one, of which there are more, has 1"
    )
    decoder: float | None = _weight_setting("decoder", "weight of reading the labels from the code by a linear map")
    centres: float | None = _weight_setting(
        "centres", "weight of the cross-entropy against the hash centres of classes"
    )

    def resolved(self, several: bool, opposite: bool) -> "DMUHPlusOptions":
        """Return the options with the weights that were not given.

        several   whether images have several labels, or one each
        opposite  whether there are more classes than bits, so that some hash centres are opposites: an image with two
                  such labels would have to be at both ends
        """
        defaults = dict(_SEVERAL_LABELS if several else _ONE_LABEL)
        if several and opposite:
            defaults["centres"] *= _OPPOSITE
        not_given: dict[str, Any] = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return replace(self, **not_given)


class DMUHPlus(DMUH):
    """DMUH's objective (Eq. 8), and two terms by which the labels can be read from a single code.

        L = Eq. 8 + decoder · mean_i e^(ū_i)·‖y_i - Wᵀ·[tanh h_i, 1]‖² + centres · mean_i e^(ū_i)·BCE(h_i, c_i)

    W is the ridge regression of the labels on the signs of all training images' outputs, solved anew before each epoch;
    c_i is the hash centre of the image's label, its cross-entropy the mean over bits. Pairs say which images belong
    together, these terms say where they belong. Centres are CSQ's, but however many classes there are, as many as can
    be are rows of the Hadamard matrix. An image with several labels belongs in several places: it has no centre, and
    its last term is 0. (CSQ takes a majority of the labels' centres, which is a place of its own
    for every set of labels, where Eq. 8 wants images that share one label to be near.)
    """

    Options = DMUHPlusOptions
    title = "dmuh, and terms by which the labels can be read from a code"
    paper = "ours, after Fu et al., Shen et al. (SDH) and Yuan et al. (CSQ)"
    year = 2026
    defaults = {"uncertainty": "classes"}
    presets = {}
    train_labels: Tensor
    weight: Tensor

    def __init__(self, options: object, n_bits: int, train_labels: Tensor) -> None:
        assert isinstance(options, DMUHPlusOptions)
        several = bool((train_labels.sum(dim=1) > 1).any())
        n_classes = train_labels.shape[1]
        super().__init__(options.resolved(several, opposite=n_classes > n_bits), n_bits, train_labels)
        self.register_buffer("train_labels", train_labels, persistent=False)
        self.register_buffer("weight", torch.zeros(n_bits + 1, n_classes))
        self.hash_centres = HashCentres(n_classes, n_bits, rows_first=True)

    def begin_epoch(self, outputs: Callable[[], Tensor], generator: torch.Generator) -> None:
        """Solve for the map W that reads the labels from the codes."""
        del generator
        if self.options.decoder:
            codes = with_one(signs(outputs()))
            gram = codes.T @ codes + _RIDGE * torch.eye(codes.shape[1], device=codes.device)
            self.weight.copy_(torch.linalg.solve(gram, codes.T @ self.train_labels))

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms of DMUH, and `decoder` and `centres` where they have a weight."""
        terms = super().forward(outputs, batch)
        u = uncertainty_of(outputs, batch).mean(dim=1)  # (B,)
        image = torch.exp(u.detach() if self.options.detach else u)
        if self.options.decoder:
            gap = batch.labels - with_one(torch.tanh(outputs)) @ self.weight  # (B, classes)
            terms["decoder"] = self.options.decoder * (image * (gap**2).sum(dim=1)).mean()
        if self.options.centres:
            entropy = self.hash_centres.entropy(outputs, batch.labels).mean(dim=1)
            one_label = batch.labels.sum(dim=1) == 1
            terms["centres"] = self.options.centres * (image * one_label * entropy).mean()
        return terms


def with_one(rows: Tensor) -> Tensor:
    """Return rows (n, m) with a one after each: (n, m + 1)."""
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
