"""The training of two networks, of images and of texts, as one: their heads stand side by side in the loop.

Both networks stand above features that do not change, so that only their heads train: the images' above a frozen
backbone, the texts' above what a text encoder gives. A row of the loop's inputs is the vector of an image, then that of
one of its texts, and a row of its outputs the image's, then the text's. Copies, masks, checkpoints and processes know
nothing of it.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmuh.backbones import Dropout, create_backbone
from dmuh.codes import Codes
from dmuh.images import Augment
from dmuh.methods import METHODS, Objective
from dmuh.metrics import evaluate
from dmuh.network import HashNetwork, MomentumCopy, UncertaintySource, calibrate
from dmuh.protocols import Positions
from dmuh.texts import create_text_encoder
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.head import FrozenNetwork
from dmuh.trainer.inputs import WHOLE, CachedInputs, InputBatch, Inputs
from dmuh.trainer.loop import Loop
from dmuh.trainer.measuring import compute_outputs, spread, train_outputs
from dmuh.trainer.text_rows import TextRows, text_rows, training_texts

if TYPE_CHECKING:
    from dmuh.methods.images_and_texts import ShallowCrossModal
    from dmuh.texts import TextEncoder

_CALIBRATED = 1024  # training images, and texts, at most that the fresh networks are fitted to


@dataclass(frozen=True, eq=False)
class TextSide:
    """What a training has beside its images: the texts and their network.

    encoder  from sentences to features; None where the data set has these already
    rows     the features of all texts
    network  from features to outputs
    """

    encoder: "TextEncoder | None"
    rows: TextRows
    network: HashNetwork

    @classmethod
    def fresh(cls, context: TrainingContext) -> "TextSide":
        """Read the texts of a data set and make their network, with random weights by the seed."""
        data, settings = context.data, context.config.network
        texts = training_texts(data, context.split)
        encoder = create_text_encoder(settings.text_encoder, texts) if texts else None
        rows = text_rows(data, encoder, context.reading.progress)
        backbone = create_backbone(f"features:{rows.features.shape[1]}")
        network = HashNetwork(backbone, settings.bits, "all", hidden=settings.hidden, dropout=settings.dropout)
        return cls(encoder, rows, network.to(context.group.device))

    def card(self, source: UncertaintySource | None) -> dict[str, Any]:
        """Return what the model's card says of texts: all that is needed to encode others."""
        return {
            "encoder": None if self.encoder is None else self.encoder.card(),
            "n_features": self.rows.features.shape[1],
            "uncertainty": None if source is None else source.name,
        }

    @property
    def inputs(self) -> CachedInputs:
        """The features as what goes into the network; positions are rows."""
        return CachedInputs(self.rows.features, None, self.network.device, np.empty(0, np.int64))


class TwoHeads(nn.Module):
    """The head of images on the first `width` inputs and that of texts on the rest; outputs stand side by side."""

    def __init__(self, image: nn.Module, text: nn.Module, width: int) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.width = width

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the outputs (B, 2·n_bits)."""
        return torch.cat([self.image(inputs[:, : self.width]), self.text(inputs[:, self.width :])], dim=1)


class PairInputs:
    """Vectors of images, each with that of one of its texts behind it; in training another text in every epoch."""

    def __init__(self, images: CachedInputs, texts: CachedInputs, rows: TextRows) -> None:
        self._images = images
        self._texts = texts
        self._rows = rows

    def batches(
        self,
        batches: Sequence[Positions],
        *,
        augment: Augment = "none",
        seed: tuple[int, ...] = (),
        part: tuple[int, int] = WHOLE,
    ) -> Iterator[InputBatch]:
        """Yield the vectors of each batch of images, or of a part of each; without a seed with their first texts."""
        rng = np.random.default_rng((*seed, 1))  # other random numbers than those of the augmentation
        for asked, images in zip(
            batches, self._images.batches(batches, augment=augment, seed=seed, part=part), strict=True
        ):
            chances = rng.random(len(asked))  # of the whole batch, whatever part of it this process has
            if seed:
                own = chances[np.argsort(asked)][np.searchsorted(np.sort(asked), images.positions)]
                rows = self._rows.drawn(images.positions, own)
            else:
                rows = self._rows.first(images.positions)
            texts = next(iter(self._texts.batches([rows])))
            yield InputBatch(images.positions, torch.cat([images.activations, texts.activations], dim=1))


class PairLoop(Loop):
    """The loop of two networks: it is watched by what images find among texts, and texts among images."""

    def watched_maps(self) -> dict[str, float]:
        """Return the MAP of validation pairs as queries of the training pairs: the mean of both directions."""
        split, labels, group = self.context.split, self.context.data.labels, self.context.group
        if not self.context.data.classes:
            return {}

        def outputs_of(positions: Positions) -> NDArray[np.float32]:
            part = replace(split, train=positions)
            found: NDArray[np.float32] = train_outputs(self.encoder, self.inputs, part, group).numpy()
            return found

        database = outputs_of(split.train)
        found = {"train_map": (database, split.train)}
        if len(split.validation):
            found["validation_map"] = outputs_of(split.validation), split.validation
        if not group.first:
            return {}
        maps = {}
        for name, (outputs, positions) in found.items():
            some = spread(np.arange(len(outputs)), 1000)
            both = both_ways(outputs[some], database, labels[positions[some]], labels[split.train])
            maps[name] = sum(both) / 2
        return maps


def both_ways(
    query: NDArray[np.float32], database: NDArray[np.float32], query_labels: NDArray[np.uint8],
    database_labels: NDArray[np.uint8]
) -> tuple[float, float]:  # fmt: skip
    """Return the MAP of texts among images and of images among texts, from outputs (n, 2·n_bits) of pairs."""
    (image, text), (images, texts) = (np.split(outputs, 2, axis=1) for outputs in (query, database))
    to_images, to_texts = (
        evaluate(
            Codes.from_outputs(own), Codes.from_outputs(others), query_labels, database_labels, ks=(), ranking="hamming"
        ).map
        for own, others in ((text, images), (image, texts))
    )
    return to_images, to_texts


def train_pairs(
    context: TrainingContext, network: HashNetwork, inputs: Inputs, texts: TextSide
) -> tuple[MomentumCopy | None, MomentumCopy | None]:
    """Train the networks of images and of texts; return the copies that were averaged beside them, if any."""
    assert isinstance(inputs, CachedInputs), "features that do not change are kept"
    method = METHODS[context.config.method]
    if not issubclass(method, Objective):
        fit_pairs(cast("type[ShallowCrossModal]", method), context, network, inputs, texts)
        return None, None
    standardize = context.config.network.standardize
    if standardize:
        for own, own_inputs, train in (
            (network, inputs, context.split.train),
            (texts.network, texts.inputs, texts.rows.of(context.split.train)),
        ):
            calibrate(own, next(iter(own_inputs.batches([spread(train, _CALIBRATED)]))).activations)
    kernel = context.config.network.kernel or 0
    image = FrozenNetwork(network, inputs, context.split, kernel, standardize)
    text = FrozenNetwork(texts.network, texts.inputs, texts.rows.split(context.split), kernel, standardize)
    if context.group.first:
        image.warn_of_fewer(kernel, "training images")
        text.warn_of_fewer(kernel, "training texts")
    width, n_bits = image.head.backbone.n_features, network.n_bits
    backbone = create_backbone(f"features:{width + text.head.backbone.n_features}")
    both = HashNetwork(backbone, 2 * n_bits, "all", dropout=network.dropout).to(network.device)
    both.hash_layer = TwoHeads(image.head.hash_layer, text.head.hash_layer, width)
    both.drop = Dropout(network.drop.rate)
    copy = PairLoop(method, context, both, PairInputs(image.inputs, text.inputs, texts.rows)).run()
    image_copy, text_copy = (_side_of(copy, head, name) for head, name in ((image.head, "image"), (text.head, "text")))
    return image.finish(image_copy), text.finish(text_copy)


def _side_of(copy: MomentumCopy | None, head: HashNetwork, side: str) -> MomentumCopy | None:
    """Return the copy of one head, from the copy of both."""
    if copy is None:
        return None
    own = MomentumCopy(head, copy.alpha)
    own.network.hash_layer = getattr(copy.network.hash_layer, side)
    return own


def fit_pairs(
    method: "type[ShallowCrossModal]", context: TrainingContext, network: HashNetwork, inputs: Inputs, texts: TextSide
) -> None:
    """Fit a shallow method to the features of training images and of the first text of each."""
    began = time.perf_counter()
    batch = next(iter(inputs.batches([context.split.train])))
    rows = next(iter(texts.inputs.batches([texts.rows.first(batch.positions)])))
    labels = torch.from_numpy(context.data.labels[batch.positions]).float() if context.data.classes else None
    fitted = method.of(context.config.options, context.config.network.bits, context.settings.seed)
    fitted.fit(batch.activations.cpu(), rows.activations.cpu(), labels)
    network.hash_layer = fitted.image_head_.to(network.device)
    texts.network.hash_layer = fitted.text_head_.to(network.device)
    seconds = time.perf_counter() - began
    line = {"epoch": 1, "seconds": seconds, "images_per_second": len(batch.positions) / seconds}
    context.run.cut_logs(0)  # the lines of a fit that was interrupted
    context.run.log_epoch(line, {"epoch": 1})


def pair_outputs(
    network: HashNetwork, inputs: Inputs, texts: TextSide, positions: Positions
) -> tuple[Positions, NDArray[np.float32]]:
    """Return outputs (n, 2·n_bits) of the images at `positions`, those that could be read, and of their first texts."""
    images = compute_outputs(network, None, inputs, positions)
    own = compute_outputs(texts.network, None, texts.inputs, texts.rows.first(images.positions))
    return images.positions, np.concatenate([images.outputs, own.outputs], axis=1)
