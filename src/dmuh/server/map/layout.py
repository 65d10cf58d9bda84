"""From codes to places on a map, by t-SNE over codes in which an unsure bit counts less."""

import logging

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes

log = logging.getLogger(__name__)

SIDE = 1000.0  # of the map; places are 0 to this
MOST = 6000  # different codes that t-SNE places itself, in a minute; others come to their neighbours
_FEW = 8  # different codes for which there is nothing to arrange
_NEIGHBOURS = 3
_PART = 4096  # codes that are compared with all placed ones at a time
_STEP = 2.5  # distance between images with the same code, which lie around its place
_GOLDEN = np.pi * (3 - np.sqrt(5))


def layout(codes: Codes) -> tuple[NDArray[np.float32], str]:
    """Return the places of codes, float32 (N, 2), and how they were found: "tsne", or "pca" without scikit-learn."""
    values, of_image = np.unique(_soft_values(codes), axis=0, return_inverse=True)
    of_image = of_image.reshape(-1)
    rng = np.random.default_rng(0)
    some = np.sort(rng.permutation(len(values))[:MOST])
    placed, how = _placed(values[some])
    places = np.empty((len(values), 2))
    for first in range(0, len(values), _PART):
        part = values[first : first + _PART]
        likeness = part @ values[some].T - 0.5 * (values[some] ** 2).sum(axis=1)  # the larger the nearer
        n = min(_NEIGHBOURS, len(some))
        near = np.argpartition(-likeness, n - 1, axis=1)[:, :n]
        places[first : first + _PART] = placed[near].mean(axis=1)
    places[some] = placed
    return _scaled(places[of_image] + _around(of_image) * _extent(places) / SIDE), how


def _soft_values(codes: Codes) -> NDArray[np.float32]:
    """Return what the codes say of each bit, float32 (N, n_bits): −1 or 1, times how sure it is."""
    signs = 2.0 * codes.unpack().astype(np.float32) - 1.0
    if codes.worth is None:
        return signs
    worth: NDArray[np.float32] = codes.worth[np.arange(codes.n_bits), codes.level()]
    return signs * worth


def _placed(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], str]:
    """Return places of different codes: in their two main directions, from where t-SNE moves neighbours together."""
    centred = values - values.mean(axis=0) if len(values) else values
    _, directions = np.linalg.eigh(centred.T @ centred)
    flat = np.zeros((len(values), 2))
    flat[:, : min(2, values.shape[1])] = centred @ directions[:, ::-1][:, :2]
    if len(values) < _FEW:
        return flat, "pca"
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError:
        log.warning("the map shows main directions only: pip install 'dmuh[map]' moves neighbours together")
        return flat, "pca"
    spread = float(flat[:, 0].std()) or 1.0
    found = TSNE(
        perplexity=min(30.0, (len(values) - 1) / 3),
        init=(1e-4 * flat / spread).astype(np.float32),
        max_iter=600,
        random_state=0,
    ).fit_transform(values)
    return found.astype(np.float64), "tsne"


def _around(of_image: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return where images of the same code lie around its place, (N, 2): on a spiral, as seeds of a sunflower."""
    order = np.argsort(of_image, kind="stable")
    first = np.searchsorted(of_image[order], of_image[order])
    number = np.empty(len(of_image))
    number[order] = np.arange(len(of_image)) - first
    radius, angle = _STEP * np.sqrt(number), number * _GOLDEN
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _extent(places: NDArray[np.float64]) -> float:
    return (float(np.ptp(places, axis=0).max()) if len(places) else 0.0) or 1.0


def _scaled(places: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return places within 0 and SIDE, in the same proportions, in the middle."""
    if not len(places):
        return np.empty((0, 2), np.float32)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    scaled: NDArray[np.float32] = (SIDE / 2 + (places - middle) * SIDE / _extent(places)).astype(np.float32)
    return scaled
