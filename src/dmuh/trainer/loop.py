"""The training loop of deep methods: epochs of steps, each step over one batch of images."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dmuh.backbones import Masks
from dmuh.images import Augment
from dmuh.machine import keep_freed_memory
from dmuh.methods import Objective, TrainBatch
from dmuh.network import HashNetwork, MomentumCopy, calibrate
from dmuh.trainer.bar import Progress
from dmuh.trainer.checkpoint import restore, state_of
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.head import FrozenNetwork
from dmuh.trainer.inputs import CachedInputs, InputBatch, Inputs
from dmuh.trainer.measuring import spread, trace, train_outputs, watched_maps
from dmuh.trainer.optimisation import (
    autocast,
    batches_of,
    dropout_seed,
    epoch_generator,
    learning_rate,
    make_optimizer,
)
from dmuh.trainer.watch import Watch

_CALIBRATED = 1024  # training images at most that the fresh network is fitted to


def train_deep(
    method: type[Objective], context: TrainingContext, network: HashNetwork, inputs: Inputs
) -> MomentumCopy | None:
    """Train a fresh network; return the copy that was averaged beside it, if any.

    A network whose backbone is frozen as a whole trains as its head alone.
    """
    standardize = context.config.network.standardize
    if standardize:
        calibrate(network, next(iter(inputs.batches([spread(context.split.train, _CALIBRATED)]))).activations)
    if context.config.network.freeze != "all" or not isinstance(inputs, CachedInputs):
        return Loop(method, context, network, inputs).run()
    kernel = context.config.network.kernel or 0
    frozen = FrozenNetwork(network, inputs, context.split, kernel, standardize)
    if context.group.first:
        frozen.warn_of_fewer(kernel, "training images")
    return frozen.finish(Loop(method, context, frozen.head, frozen.inputs).run())


class Loop:
    """The training of a fresh network by a deep method: begin, epochs of steps, end."""

    def __init__(self, method: type[Objective], context: TrainingContext, network: HashNetwork, inputs: Inputs) -> None:
        """Make all that a step changes, as a fresh run begins or as the last checkpoint left it."""
        keep_freed_memory()
        config, settings, device = context.config, context.settings, network.device
        labels = torch.from_numpy(context.data.labels[context.split.train]).float()  # (N, classes)
        self.context, self.settings = context, settings
        self.network, self.inputs = network, inputs
        self.objective = method(config.options, config.network.bits, labels).to(device)
        self.labels = labels.to(device)
        alphas = {"momentum": self.objective.alpha, "slow": settings.uncertainty_alpha}
        self.copies = {name: MomentumCopy(network, a).to(device) for name, a in alphas.items() if a is not None}
        self.momentum = self.copies.get("momentum")  # the copy that the method learns with
        self.copy = self.copies.get("slow", self.momentum)  # the copy that codes get their uncertainty from
        self.encoder = network if self.copy is None or settings.encoder != "copy" else self.copy.network
        self.optimizer = make_optimizer(network, settings)
        self.weights = [weight for rates in self.optimizer.param_groups for weight in rates["params"]]
        self.absence = None if context.absence is None else context.absence[context.split.train]
        self.steps_per_epoch = len(list(batches_of(len(labels), settings, 0, self.absence)))
        self.watch = Watch(self.objective, settings)
        self.validation_map: float | None = None
        self.done = restore(context.run, network, self.copies, self.objective, self.optimizer, self.watch)
        context.group.start_alike(context.run, self.done, [network, self.objective, *self.copies.values()])

    def run(self) -> MomentumCopy | None:
        """Train to the end; return the copy that codes can get their uncertainty from, if there is one."""
        for epoch in range(self.done, self.settings.epochs):
            self.epoch(epoch)
        return self.end()

    def epoch(self, epoch: int) -> None:
        """Make one pass over the training images, measure and write down what it gave, and save a checkpoint."""
        began = time.perf_counter()
        totals = Totals()
        self.objective.begin_epoch(self._train_outputs, epoch_generator(self.settings.seed, epoch))
        for step, batch in enumerate(self._batches(epoch)):
            self.step(epoch, step, batch, totals)
        if self.momentum is not None and self.objective.copy_update == "epoch":
            self.momentum.update(self.network)
        self.watch.epoch(epoch, self.settings.epochs)

        line: dict[str, Any] = {"epoch": epoch + 1, "lr": learning_rate(self.settings, epoch, self.steps_per_epoch)}
        line |= totals.means()
        line["seconds"] = time.perf_counter() - began
        line["images_per_second"] = totals.n_images / line["seconds"]
        if (epoch + 1) % self.settings.evaluate_every == 0 or epoch + 1 == self.settings.epochs:
            maps = self.watched_maps()
            self.validation_map = maps.get("validation_map")
            line |= maps
        if self.context.group.first:
            self._save(epoch + 1, line)

    def watched_maps(self) -> dict[str, float]:
        """Return what is measured of the network between epochs, by name."""
        return watched_maps(self.context, self.encoder, self.inputs)

    def step(self, epoch: int, step: int, batch: InputBatch, totals: "Totals") -> None:
        """Take one step down the gradient of the objective over a batch, of which this process has a part."""
        group = self.context.group
        own_index = self._index(batch)  # (n,)
        index = group.gather(own_index)  # (B,) of the whole batch, as all that follows but the activations
        if len(index) < 2:
            return
        self._set_learning_rate(epoch + step / self.steps_per_epoch)
        masks, copied_masks = self._masks(epoch, step, own_index, index)
        outputs = group.gather(self._outputs(self.network, batch.activations, masks))  # (B, n_bits)
        copied = None
        if self.momentum is not None:
            with torch.no_grad():
                copied = group.gather(self._outputs(self.momentum.network, batch.activations, copied_masks))
        train_batch = TrainBatch(self.labels[index], index, copied)
        terms = self.objective(outputs, train_batch)
        loss = cast(Tensor, sum(terms.values()))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        group.average_gradients(self.weights)
        self.watch.step(epoch, loss.item(), outputs)
        if self.settings.clip:
            torch.nn.utils.clip_grad_norm_(self.weights, self.settings.clip)
        self.optimizer.step()
        for copy in self.copies.values():
            if copy is not self.momentum or self.objective.copy_update == "step":
                copy.update(self.network)

        values = {name: term.item() for name, term in terms.items()}
        uncertainty = None if copied is None else (outputs.detach() - copied).abs().mean().item()
        notes = self.objective.notes(outputs.detach(), train_batch)
        totals.add(len(index), values | {"loss": loss.item()} | notes, uncertainty)
        self._report(epoch, len(index), values, uncertainty)

    def end(self) -> MomentumCopy | None:
        """Let the copy's weights be the network's where the copy is to encode; return the copy."""
        if self.copy is not None and self.encoder is self.copy.network:
            self.copy.exchange(self.network)
        return self.copy

    def _batches(self, epoch: int) -> Iterator[InputBatch]:
        """Yield this process's part of each batch of the epoch."""
        group, train = self.context.group, self.context.split.train
        batches = [train[rows] for rows in batches_of(len(train), self.settings, epoch, self.absence)]
        augment, seed = cast(Augment, self.settings.augment), (self.settings.seed, 2, epoch)
        return self.inputs.batches(batches, augment=augment, seed=seed, part=(group.rank, group.size))

    def _masks(self, epoch: int, step: int, own_index: Tensor, index: Tensor) -> tuple[Masks | None, Masks | None]:
        """Return what the network and its copy drop in a step, of whose images `index` (B,) this process has a part."""
        if not self.network.dropout:
            return None, None
        begin = int(torch.nonzero(index == own_index[0])[0]) if len(own_index) else 0  # an image is in a batch once
        numbers = (0, 0 if self.objective.shared_mask else 1)
        seeds = [dropout_seed(self.settings.seed, epoch, step, number) for number in numbers]
        masks, copied_masks = (Masks(seed, len(index), begin) for seed in seeds)
        return masks, copied_masks

    def _outputs(self, network: HashNetwork, activations: Tensor, masks: Masks | None) -> Tensor:
        """Compute the outputs float32 (n, n_bits) of a step from the activations (n, …).

        The hash layer computes in float32 whatever the rest does: of outputs that are rounded to bfloat16, the network
        and its copy, which hardly differ, have many alike, and an uncertainty of 0 where it was small.
        """
        with network.dropping(masks):
            with autocast(self.settings, network.device):
                inputs = network.head_inputs(activations)
            outputs: Tensor = network.hash_layer(inputs.float())
        return outputs

    def _index(self, batch: InputBatch) -> Tensor:
        """Return where the images of a batch stand in the training set (n,)."""
        rows = np.searchsorted(self.context.split.train, batch.positions)
        return torch.from_numpy(rows).to(self.network.device)

    def _train_outputs(self) -> Tensor:
        """Return the outputs (N, n_bits) of all training images, for the discrete steps of a method."""
        outputs = train_outputs(self.network, self.inputs, self.context.split, self.context.group)
        return outputs.to(self.network.device)

    def _set_learning_rate(self, epoch: float) -> None:
        """Set the rate at a point of the training, in epochs from its start."""
        for rates in self.optimizer.param_groups:
            rates["lr"] = rates["scale"] * learning_rate(self.settings, epoch, self.steps_per_epoch)

    def _report(self, epoch: int, images: int, terms: dict[str, float], uncertainty: float | None) -> None:
        """Tell the caller about a step."""
        epochs, images_per_epoch = self.settings.epochs, len(self.context.split.train)
        self.context.report(
            Progress(epoch + 1, epochs, images, images_per_epoch, terms, uncertainty, self.validation_map)
        )

    def _save(self, done: int, line: Mapping[str, Any]) -> None:
        """Write down what an epoch gave, then all that the next one depends on."""
        run = self.context.run
        run.log_epoch(line, trace(self.network, self.momentum, self.inputs, self.context.split, done))
        state = state_of(self.network, self.copies, self.objective, self.optimizer)
        run.save_checkpoint(state, {"epoch": done, "watch": self.watch.state()})


class Totals:
    """What the steps of an epoch gave, summed over their images."""

    def __init__(self) -> None:
        self.n_images = 0
        self._sums: dict[str, float] = {}

    def add(self, n_images: int, values: Mapping[str, float], uncertainty: float | None) -> None:
        """Add the means over the images of one step."""
        self.n_images += n_images
        named = {**values, **({} if uncertainty is None else {"mean_uncertainty": uncertainty})}
        for name, value in named.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * n_images

    def means(self) -> dict[str, float]:
        """Return the means over the images of all steps."""
        return {name: value / max(self.n_images, 1) for name, value in self._sums.items()}
