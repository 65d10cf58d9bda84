"""FastH, fast supervised hashing with decision trees (Lin et al., CVPR 2014)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.config import setting
from dmuh.index.compiled import compiled
from dmuh.methods.shallow import ShallowMethod
from dmuh.network.heads import TreesHead

_LEARNING_RATE = 0.1
_SUBSAMPLE = 0.5  # of the images that a tree is fitted to


@dataclass(frozen=True)
class FastHOptions:
    """Options of FastH."""

    trees: int = setting(200, "boosted trees per bit", low=1)
    depth: int = setting(4, "depth of a tree", low=1, high=8)
    sweeps: int = setting(2, "passes over the images to infer a bit", low=1)
    pairs: int = setting(100, "other images that each is compared with, half of them similar", low=2)


class FastH(ShallowMethod):
    """Bit by bit: infer the bit of all training images, fit boosted trees to it, go on with what they predict.

    A pair's loss (Eq. 8, hinge) is d² if it is similar and max(r/2 - d, 0)² if not, d its Hamming distance over the r
    bits so far. For one bit the sum over pairs is quadratic in the bits, a_ij·z_i·z_j; it is lowered image by image,
    given all others, in `sweeps` passes (the paper moves blocks by graph cuts). Each image has a fixed random sample of
    pairs, so that memory grows with their number, not with that of all. Trees are gradient boosted (the paper:
    AdaBoost), each on half of the images, its nodes on a random subset of the features.
    """

    Options = FastHOptions
    title = "bits inferred one by one and predicted by boosted decision trees"
    paper = "Lin, Shen, Shi, van den Hengel and Suter, Fast Supervised Hashing with Decision Trees"
    year = 2014

    def __init__(
        self, n_bits: int = 32, trees: int = 200, depth: int = 4, sweeps: int = 2, pairs: int = 100, seed: int = 0
    ) -> None:
        self.n_bits = n_bits
        self.trees = trees
        self.depth = depth
        self.sweeps = sweeps
        self.pairs = pairs
        self.seed = seed

    def _fit(self, features: Tensor, labels: Tensor | None) -> None:
        assert labels is not None
        rng = np.random.default_rng(self.seed)
        x, n = features.numpy(), len(features)
        partner, similar = sample_pairs(labels.numpy(), self.pairs, rng)
        distance = np.zeros(partner.shape, np.float32)
        head = TreesHead(self.n_bits, self.trees, self.depth)
        for k in range(self.n_bits):
            margin = (k + 1) / 2
            weight = pair_loss(distance, similar, margin) - pair_loss(distance + 1, similar, margin)  # a_ij
            bit = rng.integers(0, 2, n).astype(np.float32) * 2 - 1
            pairs = symmetric_pairs(partner, weight)
            for _ in range(self.sweeps):
                lower_pairs(bit, pairs.indptr, pairs.indices, pairs.data)
            predicted = self._fit_trees(head, k, x, bit)
            distance += predicted[:, None] != predicted[partner]
            self.losses_.append(float(pair_loss(distance, similar, margin).mean()))
        self.head_ = head

    def _fit_trees(self, head: TreesHead, k: int, x: NDArray[np.float32], bit: NDArray[np.float32]) -> Any:
        """Fit the trees of bit k, put them into the head and return the bits (N,) that they predict."""
        rows = slice(k * self.trees, (k + 1) * self.trees)
        if len(np.unique(bit)) < 2:  # one bit for all: nothing to fit
            head.offset[k] = float(bit[0])
            head.threshold[rows] = np.inf
            return bit
        from sklearn.ensemble import GradientBoostingClassifier  # which every command would wait for otherwise

        model = GradientBoostingClassifier(
            n_estimators=self.trees,
            max_depth=self.depth,
            learning_rate=_LEARNING_RATE,
            subsample=_SUBSAMPLE,
            max_features="sqrt",
            random_state=(self.seed + k) % 2**32,
        ).fit(x, bit)
        positive = float((bit > 0).mean())
        head.offset[k] = float(np.log(positive / (1 - positive)))  # where the boosting starts
        for number, (tree,) in enumerate(model.estimators_):
            feature, threshold, leaf = complete_tree(tree.tree_, self.depth)
            row = k * self.trees + number
            head.feature[row] = torch.from_numpy(feature)
            head.threshold[row] = torch.from_numpy(threshold)
            head.leaf[row] = torch.from_numpy((_LEARNING_RATE * leaf).astype(np.float32))
        return np.where(model.decision_function(x) >= 0, 1.0, -1.0).astype(np.float32)


def sample_pairs(
    labels: NDArray[np.float32], n_pairs: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return partners (N, n_pairs) of each image, and whether each shares a label with it.

    The first half are drawn from the images of one of its classes, the others from all; drawn with replacement.
    """
    n, half = len(labels), n_pairs // 2
    partner = rng.integers(0, n, (n, n_pairs))
    members = [np.flatnonzero(column) for column in labels.T]
    for row in range(n):
        classes = np.flatnonzero(labels[row])
        if len(classes):
            pool = members[int(rng.choice(classes))]
            partner[row, :half] = pool[rng.integers(0, len(pool), half)]
    similar = np.stack([labels[others] @ labels[row] > 0 for row, others in enumerate(partner)])
    return partner, similar


def pair_loss(distance: NDArray[Any], similar: NDArray[np.bool_], margin: float) -> NDArray[Any]:
    """Return d² of similar pairs and max(margin - d, 0)² of others."""
    return np.where(similar, distance**2, np.maximum(margin - distance, 0) ** 2)


def symmetric_pairs(partner: NDArray[np.int64], weight: NDArray[Any]) -> Any:
    """Return the matrix (N, N), sparse, of the weights of pairs in both orders; no image is a pair with itself."""
    n, each = partner.shape
    rows = np.repeat(np.arange(n), each)
    one_way = scipy.sparse.coo_matrix(
        (weight.ravel().astype(np.float64), (rows, partner.ravel())), shape=(n, n)
    ).tocsr()
    both = one_way + one_way.T
    both.setdiag(0)
    return both.tocsr()


@compiled()
def lower_pairs(
    bit: NDArray[np.float32], start: NDArray[np.int32], other: NDArray[np.int32], weight: NDArray[np.float64]
) -> None:
    """Set each bit in turn to what lowers Σ_ij a_ij·z_i·z_j, in place; one that makes no difference is kept.

    Row i of the symmetric a has its columns and weights at start[i] … start[i + 1].
    """
    for i in range(len(bit)):
        field = 0.0
        for place in range(start[i], start[i + 1]):
            field += weight[place] * bit[other[place]]
        if field > 0:
            bit[i] = -1.0
        elif field < 0:
            bit[i] = 1.0


def complete_tree(tree: Any, depth: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """Return feature, threshold (2^depth - 1,) and leaf values (2^depth,) of scikit-learn's tree, made complete.

    It goes left where a feature is at most the threshold, which is a double; rounded down to a float it tells floats
    apart alike. Below a leaf everything goes left, to the leaf's value.
    """
    nodes = 2**depth - 1
    feature, threshold = np.zeros(nodes, np.int64), np.full(nodes, np.inf, np.float32)
    leaf = np.zeros(nodes + 1)
    places = {0: 0}
    for place in range(2 * nodes + 1):
        node = places[place]
        inner = tree.children_left[node] >= 0
        if place >= nodes:
            leaf[place - nodes] = tree.value[node, 0, 0]
            continue
        if inner:
            feature[place] = tree.feature[node]
            low = np.float32(tree.threshold[node])
            threshold[place] = low if float(low) <= tree.threshold[node] else np.nextafter(low, np.float32(-np.inf))
        places[2 * place + 1] = tree.children_left[node] if inner else node
        places[2 * place + 2] = tree.children_right[node] if inner else node
    return feature, threshold, leaf
