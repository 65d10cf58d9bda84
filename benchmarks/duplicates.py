"""Near duplicates: recall by edit at a precision of 0.999, beside perceptual hashes and the cosine of features.

    python benchmarks/duplicates.py FOLDER WORK [PHOTOGRAPHS]   recall; FOLDER has at least 2,330 photographs
    python benchmarks/duplicates.py [IMAGES]                    seconds for 100,000 images whose features are there

Photographs are the first of a fixed shuffle, without the first 300, on which the rule was chosen, and without those of
EXCLUDED. Each is written into WORK with its 13 edits (see edits.py), where the features are kept as well. A pair is
right if both images come from one photograph. Each method's threshold is the loosest at which 99.9% of all pairs that
it finds among all images are right; recall is the share of photographs that are found with their edit at it.

pHash and dHash are those of the package `imagehash` at 64 bits. imagededup's CNN needs weights of torchvision's hub; in
its place stands its rule, the cosine of pooled features of a network trained on ImageNet, on EfficientNet-Lite0's.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from edits import EDITS, write_edits
from measuring import megabytes_beyond, report, table
from numpy.typing import NDArray
from PIL import Image

from dmuh.duplicates import AT_LEAST, Looks, compare
from dmuh.features import folder_features
from dmuh.images import Reading
from dmuh.progress import counting_bar

DEVELOPMENT = 300  # photographs at the start of the shuffle, on which the rule was chosen
SPARE = 30
# Another photograph of coco18 among the 2,030 shows the same scene a moment later: looked at, among all pairs of
# photographs that dmuh finds at its threshold.
EXCLUDED = {"1752"}
PRECISION = 0.999
SIZE = len(EDITS) + 1

Pairs = NDArray[np.int64]
Scores = NDArray[Any]


def write_all(folder: Path, work: Path, n: int) -> list[str]:
    """Write n photographs and their edits, each into a folder of its own below WORK; return those folders' names."""
    names = sorted(path.name for path in folder.iterdir())
    shuffled = np.random.default_rng(0).permutation(len(names))[: DEVELOPMENT + n + SPARE]
    numbers = [number for number in range(DEVELOPMENT, len(shuffled)) if f"{number:04}" not in EXCLUDED][:n]
    missing = [number for number in numbers if not (work / f"{number:04}" / f"{len(EDITS):02}.jpg").exists()]
    with ProcessPoolExecutor() as pool:
        tasks = [(folder / names[shuffled[number]], work / f"{number:04}", number) for number in missing]
        list(pool.map(write_edits, *zip(*tasks, strict=True), chunksize=20)) if tasks else None
    return [f"{number:04}" for number in numbers]


def hashes(paths: list[Path], name: str) -> NDArray[np.uint64]:
    """Return a hash of the package imagehash of each image, as words."""
    with ProcessPoolExecutor() as pool:
        return np.array(list(pool.map(_hash, paths, [name] * len(paths), chunksize=200)), np.uint64)


def _hash(path: Path, name: str) -> int:
    import imagehash

    with Image.open(path) as image:
        bits = getattr(imagehash, name)(image).hash.reshape(-1)
    return int(np.packbits(bits).view(">u8")[0])


def all_pairs(n: int, score: Callable[[int, int], Scores], least: float) -> tuple[Pairs, Scores]:
    """Return all pairs of n images whose score is at least so much; `score` gives that of rows with all images."""
    pairs, scores = [], []
    for first in range(0, n, 500):
        last = min(first + 500, n)
        found = score(first, last)
        found[np.arange(n) <= np.arange(first, last)[:, None]] = -np.inf
        rows, columns = np.nonzero(found >= least)
        pairs.append(np.column_stack([rows + first, columns]))
        scores.append(found[rows, columns])
    return np.concatenate(pairs), np.concatenate(scores)


def by_hash(words: NDArray[np.uint64]) -> tuple[Pairs, Scores]:
    """Return the pairs within 20 of 64 bits, scored by their distance."""
    return all_pairs(
        len(words),
        lambda first, last: -np.bitwise_count(words[first:last, None] ^ words).astype(np.float32),
        -20,
    )


def measured(pairs: Pairs, scores: Scores, n: int, at: float | None = None) -> dict[str, Any]:
    """Return recall by edit at the loosest threshold that is precise enough, or at a given one."""
    right = pairs[:, 0] // SIZE == pairs[:, 1] // SIZE
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # pairs of one score are found together
    precision = (np.cumsum(right[order]) / np.arange(1, len(order) + 1))[last]
    if at is None:
        fits = np.flatnonzero(precision >= PRECISION)
        at = float(ranked[last[fits[-1]]]) if len(fits) else np.inf
    found = scores >= at
    own = found & right & (pairs[:, 0] % SIZE == 0)
    recall = np.bincount(pairs[own, 1] % SIZE, minlength=SIZE)[1:] / n
    return {"recall": recall, "threshold": at, "precision": right[found].mean(), "wrong": int((~right[found]).sum())}


def compare_methods(folder: Path, work: Path, n: int = 2_000) -> None:
    """Measure all methods on the same images and print the table."""
    chosen = set(write_all(folder, work / "edits", n))
    reading = Reading(on_bad_image="fail", progress=counting_bar)
    features = folder_features(work / "edits", keep_in=work / "kept", reading=reading)
    rows = np.array([place for place, path in enumerate(features.paths) if path.parts[0] in chosen])
    paths = [features.root / features.paths[row] for row in rows]
    looks = Looks(features.vectors[rows], features.greys[rows])
    assert len(rows) == n * SIZE
    compared = compare(looks, count=counting_bar)
    likeness = compared.likeness
    results = {
        "dmuh": measured(compared.pairs, likeness, n),
        f"dmuh, at its default ({AT_LEAST})": measured(compared.pairs, likeness, n, AT_LEAST),
        "pHash (imagehash)": measured(*by_hash(hashes(paths, "phash")), n),
        "dHash (imagehash)": measured(*by_hash(hashes(paths, "dhash")), n),
        "cosine of features (imagededup's rule)": measured(
            *all_pairs(len(rows), lambda first, last: looks.vectors[first:last] @ looks.vectors.T, 0.6), n
        ),
    }
    edits = [
        {"edit": name} | {method: f"{100 * found['recall'][place]:.1f}" for method, found in results.items()}
        for place, name in enumerate(EDITS)
    ]
    means = {"edit": "**mean**"} | {name: f"**{100 * found['recall'].mean():.1f}**" for name, found in results.items()}
    precise = {"edit": "precision"} | {name: f"{found['precision']:.5f}" for name, found in results.items()}
    limits = {"edit": "threshold"} | {name: f"{found['threshold']:.3g}" for name, found in results.items()}
    wrong = {"edit": "wrong pairs"} | {name: f"{found['wrong']:,}" for name, found in results.items()}
    report("duplicates", f"Recall in %, {n:,} photographs, {len(EDITS)} edits of each:",
           table([*edits, means, precise, wrong, limits]))  # fmt: skip


def made_looks(n: int) -> Looks:
    """Return how n images may look, a tenth of them near duplicates of others.

    Features are positive and sparse, of one of 4,000 topics and some of another, so that about as many pairs are worth
    a closer look as among photographs.
    """
    rng = np.random.default_rng(0)
    n_new = n - n // 10
    topics = rng.gamma(0.25, 1.0, (4_000, 1280)).astype(np.float32)
    vectors = np.empty((n, 1280), np.float32)
    small = rng.normal(0, 60, (n, 8, 8)).astype(np.float32)
    origin = rng.integers(0, n_new, n - n_new)
    for first in range(0, n_new, 10_000):
        last = min(first + 10_000, n_new)
        mix = topics[rng.integers(0, 4_000, last - first)] + 0.5 * topics[rng.integers(0, 4_000, last - first)]
        vectors[first:last] = mix * rng.gamma(6.0, 1 / 6, mix.shape).astype(np.float32)
    vectors[n_new:] = vectors[origin] * rng.gamma(20.0, 1 / 20, (n - n_new, 1280)).astype(np.float32)
    small[n_new:] = small[origin] + rng.normal(0, 3, (n - n_new, 8, 8))
    greys = np.empty((n, 32, 32), np.uint8)
    for place, picture in enumerate(small):
        large = Image.fromarray(picture).resize((32, 32), Image.Resampling.BICUBIC)
        greys[place] = (np.asarray(large) + 128).clip(0, 255)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = rng.permutation(n)
    return Looks(vectors[order], greys[order])


def measure_speed(n: int = 100_000) -> None:
    """Print how long it takes to compare n images whose features are there."""
    looks = made_looks(n)
    compare(Looks(looks.vectors[:500], looks.greys[:500]), compiled=True)  # kernels are compiled once in a lifetime
    began, busy = time.perf_counter(), time.process_time()
    found: list[Any] = []
    memory = megabytes_beyond(lambda: found.append(compare(looks)))
    took, worked = time.perf_counter() - began, time.process_time() - busy
    near = int((found[0].likeness >= AT_LEAST).sum())
    row = {"images": f"{n:,}", "candidates": f"{len(found[0].pairs):,}", "near pairs": f"{near:,}",
           "seconds": f"{took:.1f}", "seconds of a core": f"{worked:.1f}", "memory": f"{memory:,.0f} MB"}  # fmt: skip
    report("duplicates-speed", table([row]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        compare_methods(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        measure_speed(*map(int, sys.argv[1:]))
