"""Feature extraction and codes on a CPU: ONNX Runtime, as dmuh encodes, against torch in eager mode.

    python benchmarks/encoding.py [IMAGES_FOLDER]

EfficientNet-Lite0 at 224 pixels. The peer is timed with batches of several sizes, and its best counts. Without a folder
of images the images are noise. The bits of a network trained for a moment are compared between the two, and with those
of the same network in 8-bit numbers.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from measuring import report, seconds, table

from dmuh.backbones import create_backbone
from dmuh.encoder.onnx_export import FrozenPart, WholeNetwork, to_int8, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.images import ImageReader, find_images
from dmuh.network import HashNetwork, calibrate

N_TIMED = 128
N_COMPARED = 2_000
N_FITTED = 256  # images that 8-bit numbers are fitted to


def read(folder: Path | None, n: int) -> np.ndarray:
    """Return pixels (n, 224, 224, 3) of the folder's images, or noise."""
    if folder is None:
        return np.random.default_rng(0).integers(0, 256, (n, 224, 224, 3), np.uint8)
    images = find_images(folder)
    chosen = np.linspace(0, len(images) - 1, min(n, len(images))).astype(np.int64)
    with ImageReader(images, create_backbone("efficientnet-lite0").preprocess) as reader:
        return np.concatenate([batch.pixels for batch in reader.batches(np.array_split(chosen, 20))])


def main(folder: Path | None = None) -> None:
    """Measure and print the tables."""
    torch.manual_seed(0)
    backbone = create_backbone("efficientnet-lite0")
    backbone.load_pretrained()
    network = HashNetwork(backbone, 32, "all")
    pixels = read(folder, N_COMPARED)
    timed = pixels[:N_TIMED]
    rows = torch.from_numpy(timed)
    lower = OnnxNetwork(to_onnx(FrozenPart(network)))

    rates: dict[int, float] = {}
    with torch.inference_mode():
        for size in (1, 8, 32, 128):
            parts = rows.split(size)
            rates[size] = len(timed) / seconds(lambda parts=parts: [network.lower(part) for part in parts], 2)
    best = max(rates, key=lambda size: rates[size])
    ours = len(timed) / seconds(lambda: lower.run(timed), 3)
    what = {"features of EfficientNet-Lite0, 224 pixels": f"{len(timed)} images"}
    peer = {"torch eager, best batch": f"{rates[best]:.0f}/s (batches of {best})"}
    features_table = table([{**what, **peer, "dmuh": f"{ours:.0f}/s", "ratio": f"{ours / rates[best]:.1f}×"}])
    by_size = ", ".join(f"{rate:.0f}/s by batches of {size}" for size, rate in rates.items())

    with torch.inference_mode():
        features = torch.cat([network.lower(part) for part in torch.from_numpy(pixels).split(32)])
        calibrate(network, features)
        theirs = network.upper(features).numpy()
    content = to_onnx(WholeNetwork(network, None))
    whole = OnnxNetwork(content)
    mine = whole.run(pixels)["outputs"]
    differ = (theirs >= 0) != (mine >= 0)
    sure = np.abs(theirs) > 1e-4
    exactness = (
        f"Of {differ.size:,} bits {int(differ.sum())} differ from torch's, {int((differ & sure).sum())} of them where "
        f"the output is beyond ±1e-4 ({int((~sure).sum())} outputs are nearer to 0); the largest difference of outputs "
        f"is {np.abs(theirs - mine).max():.1e}."
    )
    small = to_int8(content, pixels[:N_FITTED])
    quick = OnnxNetwork(small)
    flipped = (quick.run(pixels[N_FITTED:])["outputs"] >= 0) != (mine[N_FITTED:] >= 0)
    faster = seconds(lambda: whole.run(timed), 3) / seconds(lambda: quick.run(timed), 3)
    int8 = (
        f"int8: {len(small) / len(content):.0%} of the size, {faster:.1f}× the speed, {flipped.mean():.1%} of the bits "
        f"of {len(flipped):,} other images changed."
    )
    report("encoding", features_table, f"torch eager: {by_size}.", exactness, int8)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
