"""Hasher, the one public encoder from images to codes, and the test of a run with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmuh.backbones import create_backbone
from dmuh.codes import Codes
from dmuh.datasets import Dataset
from dmuh.images import BadImages, ImageLike, Images, OnBadImage
from dmuh.metrics import Metrics, evaluate
from dmuh.network import HashNetwork, MomentumCopy, choose_device, compute_outputs, state_by_part
from dmuh.protocols import Split, protocol_of
from dmuh.runs import Run
from dmuh.trainer import config_of


class Hasher:
    """A trained network that gives images their codes."""

    def __init__(self, network: HashNetwork, momentum: MomentumCopy | None, about: dict[str, Any], digest: str) -> None:
        self._network = network
        self._momentum = momentum
        self.about = about  # method, classes, backbone, where the weights come from
        self.digest = digest  # which weights these are

    @classmethod
    def load(cls, run: str | Path, device: str = "auto") -> "Hasher":
        """Load the network of a finished run folder."""
        model = Run(Path(run)).load_model()
        about = model.metadata
        network = HashNetwork(create_backbone(about["backbone"], about["image_size"]), about["n_bits"])
        parts = state_by_part(model.arrays)
        network.load_state_dict(parts["network"])
        momentum = None
        if "momentum" in parts:
            momentum = MomentumCopy(network, about["alpha"])
            momentum.network.load_state_dict(parts["momentum"])
        place = choose_device(device)
        return cls(network.to(place), None if momentum is None else momentum.to(place), about, model.checksum)

    @property
    def n_bits(self) -> int:
        """Length of the codes."""
        return self._network.hash_layer.out_features

    def encode(
        self,
        images: ImageLike | Images,
        *,
        ids: Sequence[int] | NDArray[np.int64] | None = None,
        batch_size: int = 128,
        on_bad_image: OnBadImage = "fail",
        bad: BadImages | None = None,
        workers: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Codes:
        """Return the codes of images: paths, Pillow images, file contents or uint8 arrays; one alone is fine too.

        Ids are `ids` or positions; with `on_bad_image="skip"` unreadable images are left out and noted in `bad`.
        """
        single = isinstance(images, str | Path | bytes | Image.Image)
        if single or (isinstance(images, np.ndarray) and (images.ndim == 2 or _one_colour_image(images))):
            images = [images]  # type: ignore[list-item]
        result = compute_outputs(
            self._network,
            self._momentum,
            images,  # type: ignore[arg-type]
            np.arange(len(images), dtype=np.int64),  # type: ignore[arg-type]
            batch_size=batch_size,
            on_bad_image=on_bad_image,
            bad=bad,
            workers=workers,
            progress=progress,
        )
        own = result.positions if ids is None else np.asarray(ids, np.int64)[result.positions]
        return Codes.from_outputs(result.outputs, result.uncertainty, own)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a run's test gave: the figures, and the codes they were taken from, whose ids are positions in the data."""

    metrics: Metrics
    query: Codes
    database: Codes


def evaluate_run(run: Run, dataset: Dataset, *, bad: BadImages | None = None, **options: Any) -> Evaluation:
    """Measure a finished run on its own test queries.

    The codes are computed once and kept in the run folder, and so are the figures by the protocol's own rules.
    `options` with the names of `evaluate`'s rules go there, the others to `Hasher.encode`.
    """
    rules = {name: options.pop(name) for name in ("topk", "ties", "denominator", "ks", "radius") if name in options}
    config = config_of(run)
    custom = bool(rules)
    rules.setdefault("topk", protocol_of(config.protocol, config.data.dataset).topk)
    split = Split.load(run.split_file, dataset.fingerprint())
    hasher: Hasher | None = None
    parts: list[Codes] = []
    for file, positions in ((run.query_codes, split.query), (run.database_codes, split.database)):
        if not file.is_file():
            hasher = hasher or Hasher.load(run.path)
            hasher.encode(dataset.take(positions), ids=positions, bad=bad, **options).save(file)
        parts.append(Codes.load(file))
    query, database = parts
    metrics = evaluate(query, database, dataset.labels[query.ids], dataset.labels[database.ids], **rules)
    if not custom:  # what other rules give is the caller's
        run.save_evaluation({**metrics.to_dict(), "split": split.digest()})
    return Evaluation(metrics, query, database)


def _one_colour_image(array: NDArray[np.uint8]) -> bool:
    """Whether a 3-dimensional array is one image (H, W, 3) rather than grey ones (N, H, W)."""
    return array.ndim == 3 and array.shape[2] in (3, 4)
