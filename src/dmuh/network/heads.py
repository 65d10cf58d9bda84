"""What comes after the backbone: from features (B, n_features) to outputs (B, n_bits), whose signs are the code.

Deep methods train a linear head, with `hidden` units one above a layer of these, or with `kernel` anchors one on
similarities to them. What shallow methods fit is one of these too, so that every method's network is run, saved and
exported in the same way.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dmuh.backbones import Dropout


class HiddenHead(nn.Module):
    """A hidden layer with ReLU and dropout, and a linear layer on it."""

    def __init__(self, n_features: int, n_hidden: int, n_bits: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, n_hidden)
        self.drop = Dropout(dropout)
        self.last = nn.Linear(n_hidden, n_bits)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the outputs."""
        outputs: Tensor = self.last(self.drop(nn.functional.relu(self.hidden(features))))
        return outputs


class KernelHead(nn.Module):
    """Outputs linear in the similarities exp(-‖x - a‖²/width) to anchors a, of features brought to length 1."""

    anchors: Tensor
    width: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, n_features: int, n_bits: int, n_anchors: int) -> None:
        super().__init__()
        self.register_buffer("anchors", torch.zeros(n_anchors, n_features))
        self.register_buffer("width", torch.ones(()))
        self.register_buffer("weight", torch.zeros(n_anchors, n_bits))
        self.register_buffer("bias", torch.zeros(n_bits))

    def place_anchors(self, features: Tensor) -> None:
        """Put the anchors at features (n_anchors, n_features), the width at their mean squared distance."""
        self.anchors.copy_(nn.functional.normalize(features, dim=1))
        self.width.copy_((2 - 2 * (self.anchors.mean(dim=0) ** 2).sum()).clamp_min(1e-6))

    def similarities(self, features: Tensor) -> Tensor:
        """Compute the similarities (B, n_anchors)."""
        x = nn.functional.normalize(features, dim=1)
        squares = (x**2).sum(dim=1, keepdim=True) - 2 * x @ self.anchors.T + (self.anchors**2).sum(dim=1)
        return torch.exp(-squares.clamp_min(0) / self.width)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the outputs."""
        return self.of_similarities(self.similarities(features))

    def of_similarities(self, similarities: Tensor) -> Tensor:
        """Compute the outputs from the similarities (B, n_anchors)."""
        return similarities @ self.weight + self.bias


class TreesHead(nn.Module):
    """For each bit the sum of decision trees of one depth; a tree is complete, node n has 2n+1 and 2n+2 below it."""

    feature: Tensor
    threshold: Tensor
    leaf: Tensor
    offset: Tensor

    def __init__(self, n_bits: int, n_trees: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        nodes = 2**depth - 1
        self.register_buffer("feature", torch.zeros(n_bits * n_trees, nodes, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(n_bits * n_trees, nodes))
        self.register_buffer("leaf", torch.zeros(n_bits * n_trees, nodes + 1))
        self.register_buffer("offset", torch.zeros(n_bits))

    def forward(self, features: Tensor) -> Tensor:
        """Compute the outputs: at each node features above the threshold go right."""
        n_trees, nodes = self.feature.shape
        tree = torch.arange(n_trees, device=features.device) * nodes  # where each tree begins
        node = torch.zeros(len(features), n_trees, dtype=torch.int64, device=features.device)
        flat_feature, flat_threshold = self.feature.reshape(-1), self.threshold.reshape(-1)
        for _ in range(self.depth):
            place = tree + node  # (B, trees)
            right = features.gather(1, flat_feature[place]) > flat_threshold[place]
            node = 2 * node + 1 + right.to(torch.int64)
        leaves = self.leaf.reshape(-1)[torch.arange(n_trees, device=features.device) * (nodes + 1) + node - nodes]
        return leaves.reshape(len(features), len(self.offset), -1).sum(dim=2) + self.offset


def head_of(state: Mapping[str, Tensor]) -> nn.Module:
    """Return an empty head of the kind and size that the state of one has."""
    if "anchors" in state:
        n_anchors, n_features = state["anchors"].shape
        return KernelHead(n_features, state["weight"].shape[1], n_anchors)
    if "leaf" in state:
        n_bits = len(state["offset"])
        trees, nodes = state["feature"].shape
        return TreesHead(n_bits, trees // n_bits, (nodes + 1).bit_length() - 1)
    if "hidden.weight" in state:
        n_hidden, n_features = state["hidden.weight"].shape
        return HiddenHead(n_features, n_hidden, len(state["last.weight"]))
    n_bits, n_features = state["weight"].shape
    return nn.Linear(n_features, n_bits)
