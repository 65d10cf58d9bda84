"""The one training loop."""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dmuh.backbones import create_backbone
from dmuh.config import Config
from dmuh.datasets import Dataset, load_dataset
from dmuh.errors import ConfigError, DataError
from dmuh.images import Augment, Reading
from dmuh.machine import keep_freed_memory
from dmuh.methods import METHODS, Objective, ShallowMethod, TrainBatch
from dmuh.network import Doubt, HashNetwork, Margin, MomentumCopy, calibrate
from dmuh.progress import Counting, counting_bar, uncounted
from dmuh.protocols import Split, noisy_labels, protocol_of
from dmuh.runs import Run
from dmuh.trainer.activations import CACHED, ImageInputs, Inputs, open_inputs
from dmuh.trainer.bar import Progress, Report, reporting
from dmuh.trainer.checkpoint import model_arrays, restore, state_of
from dmuh.trainer.distributed import Group, begun, check_split, joined, refuse_many
from dmuh.trainer.head import FrozenNetwork
from dmuh.trainer.measuring import spread, trace, train_outputs, watched_maps
from dmuh.trainer.optimisation import autocast, batches_of, epoch_generator, learning_rate, make_optimizer
from dmuh.trainer.watch import Watch

log = logging.getLogger(__name__)

_FITTED = 4096  # images whose features are taken together
_CALIBRATED = 1024  # training images at most that the fresh network is fitted to


def train(
    config: Config,
    out: str | Path,
    *,
    dataset: Dataset | None = None,
    split: Split | None = None,
    resume: bool = False,
    progress: Report | bool = True,
    count: Counting | None = None,
) -> Run:
    """Train a hashing network as `config` says and leave it in the run folder `out`.

    `dataset` replaces the one that the settings name, `split` the one that its protocol draws. With `resume` a run that
    was interrupted goes on from its last epoch, to the same weights as without the interruption.

    Bars show how far it is, on a terminal and in a notebook; `progress=False` shows none. A function as `progress` is
    told of each step instead, and `count` opens the bar of the features that are computed first. Started by torchrun,
    all processes train one network and the first one writes it.

    >>> config = dmuh.configure({"dataset": "folder", "data": str(photos), "backbone": "smallconv", "epochs": 2})
    >>> trained = dmuh.train(config, folder / "run")  # dmuh.Hasher.load(folder / "run") encodes by it
    >>> trained.finished, len(trained.metrics())
    (True, 2)
    """
    run = Run(Path(out))
    if resume and run.finished:
        return run
    settings = config.training
    method = METHODS[config.method]
    with joined(settings.device) as group, ExitStack() as held:
        shown = progress is True and group.first
        report = held.enter_context(reporting(shown if progress is True else progress))
        with group.agreeing():
            refuse_many(group, config)
            data = dataset or load_dataset(config.data)
            if split is None:
                split = _split(config, data)
            torch.manual_seed(settings.seed)
            network = _fresh_network(config, data).to(group.device)
            if group.first:
                held.enter_context(begun(run, config, data, split, resume))
        with group.agreeing():
            check_split(run, data, split)
        if config.protocol.label_noise:
            labels = noisy_labels(data.labels, split.train, config.protocol.label_noise, settings.seed)
            data = replace(data, labels=labels)
        reading = Reading.by(config, count or (counting_bar if shown else uncounted))
        with open_inputs(
            network,
            data,
            np.union1d(split.train, split.validation),
            keep=config.network.freeze != "none" and settings.augment in CACHED,
            mirrored=split.train if settings.augment == "flip" else split.train[:0],
            reading=reading,
        ) as inputs:
            if issubclass(method, ShallowMethod):
                kept = None
                fitted = method.of(config.options, config.network.bits, settings.seed)
                _fit(fitted, run, data, split, network, inputs, group)
            else:
                kept = _train_all_or_head(config, method, run, data, split, network, inputs, report, group)
        doubt = Margin() if settings.uncertainty == "margin" else kept
        if group.first:
            run.save_model(model_arrays(network, doubt), _model_card(config, data, split, network, doubt))
        if len(reading.bad):
            log.warning(reading.bad.summary())
    return run


def _train_all_or_head(
    config: Config,
    method: type[Objective],
    run: Run,
    data: Dataset,
    split: Split,
    network: HashNetwork,
    inputs: Inputs,
    progress: Report,
    group: Group,
) -> MomentumCopy | None:
    """Train a network that was just made; one that is frozen trains as its head alone."""
    calibrate(network, next(iter(inputs.batches([spread(split.train, _CALIBRATED)]))).activations)
    if config.network.freeze != "all" or isinstance(inputs, ImageInputs):
        return _train(config, method, run, data, split, network, inputs, progress, group)
    frozen = FrozenNetwork(network, inputs, split, config.network.kernel)
    return frozen.finish(_train(config, method, run, data, split, frozen.head, frozen.inputs, progress, group))


def _train(
    config: Config,
    method: type[Objective],
    run: Run,
    data: Dataset,
    split: Split,
    network: HashNetwork,
    inputs: Inputs,
    progress: Report,
    group: Group,
) -> MomentumCopy | None:
    """Train a calibrated network by a deep method; return the copy that can tell the codes' uncertainty, if any."""
    settings, device = config.training, network.device
    keep_freed_memory()
    labels = torch.from_numpy(data.labels[split.train]).float()
    objective = method(config.options, config.network.bits, labels).to(device)
    alphas = {"momentum": objective.alpha, "slow": settings.uncertainty_alpha}
    copies = {name: MomentumCopy(network, alpha).to(device) for name, alpha in alphas.items() if alpha is not None}
    momentum = copies.get("momentum")
    kept = copies.get("slow", momentum)
    encoder = kept.network if kept is not None and settings.encoder == "copy" else network
    optimizer = make_optimizer(network, settings)
    trained = [parameter for rates in optimizer.param_groups for parameter in rates["params"]]
    watch = Watch(objective, settings)
    done = restore(run, network, copies, objective, optimizer, watch)
    group.start_alike(run, done, [network, objective, *copies.values()])
    labels = labels.to(device)

    steps_per_epoch = len(list(batches_of(len(split.train), settings, 0)))
    validation_map: float | None = None
    for epoch in range(done, settings.epochs):
        began = time.perf_counter()
        sums: dict[str, float] = {}
        n_images = 0
        chance = epoch_generator(settings.seed, epoch)
        objective.begin_epoch(lambda: train_outputs(network, inputs, split, group).to(device), chance)
        batches = [split.train[rows] for rows in batches_of(len(split.train), settings, epoch)]
        augment = cast(Augment, settings.augment)
        seed, part = (settings.seed, 2, epoch), (group.rank, group.size)
        for step, batch in enumerate(inputs.batches(batches, augment=augment, seed=seed, part=part)):
            own = torch.from_numpy(np.searchsorted(split.train, batch.positions)).to(device)
            index = group.gather(own)  # (B,) of the whole batch, as all that follows but the activations
            if len(index) < 2:
                continue
            for rates in optimizer.param_groups:
                rates["lr"] = rates["scale"] * learning_rate(settings, epoch + step / steps_per_epoch, steps_per_epoch)
            with autocast(settings, device):
                outputs = network.upper(batch.activations)
                copied = None if momentum is None else momentum.upper(batch.activations)
            outputs = group.gather(outputs.float())  # (B, n_bits)
            seen = TrainBatch(labels[index], index, None if copied is None else group.gather(copied.float()))
            terms = objective(outputs, seen)
            loss = cast(Tensor, sum(terms.values()))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            group.average_gradients(trained)
            watch.step(epoch, loss.item(), outputs)
            if settings.clip:
                torch.nn.utils.clip_grad_norm_(trained, settings.clip)
            optimizer.step()
            for copy in copies.values():
                copy.update(network)

            values = {name: term.item() for name, term in terms.items()}
            copied = seen.momentum_outputs
            unsure = None if copied is None else (outputs.detach() - copied).abs().mean().item()
            progress(Progress(epoch + 1, settings.epochs, len(index), len(split.train), values, unsure, validation_map))
            n_images += len(index)
            logged = values | {"loss": loss.item()} | ({} if unsure is None else {"mean_uncertainty": unsure})
            for name, value in logged.items():
                sums[name] = sums.get(name, 0.0) + value * len(index)
        watch.epoch(epoch, settings.epochs)

        line: dict[str, Any] = {"epoch": epoch + 1, "lr": learning_rate(settings, epoch, steps_per_epoch)}
        line |= {name: value / max(n_images, 1) for name, value in sums.items()}
        line["seconds"] = time.perf_counter() - began
        line["images_per_second"] = n_images / line["seconds"]
        if (epoch + 1) % settings.evaluate_every == 0 or epoch + 1 == settings.epochs:
            maps = watched_maps(encoder, inputs, data, split, group)
            validation_map = maps.get("validation_map")
            line |= maps
        if group.first:
            run.log_epoch(line, trace(network, momentum, inputs, split, epoch + 1))
            state = state_of(network, copies, objective, optimizer)
            run.save_checkpoint(state, {"epoch": epoch + 1, "watch": watch.state()})
    if kept is not None and encoder is kept.network:
        kept.exchange(network)
    return kept


def _fit(
    method: ShallowMethod,
    run: Run,
    data: Dataset,
    split: Split,
    network: HashNetwork,
    inputs: Inputs,
    group: Group,
) -> None:
    """Fit a shallow method to the training images' features, and make what it found the network's hash layer."""
    began = time.perf_counter()
    batches = [split.train[n : n + _FITTED] for n in range(0, len(split.train), _FITTED)]
    read = [(batch.positions, batch.activations.cpu().numpy()) for batch in inputs.batches(batches)]
    positions = np.concatenate([own for own, _ in read])
    method.fit(np.concatenate([rows for _, rows in read]), data.labels[positions] if data.classes else None)
    network.hash_layer = method.head_.to(network.device)
    seconds = time.perf_counter() - began
    line: dict[str, Any] = {"epoch": 1, "seconds": seconds, "images_per_second": len(positions) / seconds}
    line |= {"loss": method.losses_[-1]} if method.losses_ else {}
    line |= watched_maps(network, inputs, data, split, group)
    run.cut_logs(0)  # what an interrupted fit wrote down goes
    run.log_epoch(line, trace(network, None, inputs, split, 1))


def _split(config: Config, data: Dataset) -> Split:
    """Return the split by the protocol; images without labels all train, where the method needs none."""
    if data.classes:
        return protocol_of(config.protocol, config.data.dataset).split(data.labels, config.training.seed, data.test)
    if METHODS[config.method].needs_labels:
        raise DataError(f"the data set {data.name} has no labels, which {config.method} learns from; itq needs none")
    none = np.empty(0, np.int64)
    return Split(np.arange(len(data)), none, none, none)


def _fresh_network(config: Config, data: Dataset) -> HashNetwork:
    """Return the network that the settings name, with the weights its backbone learned elsewhere."""
    own = config.network
    if (own.backbone.partition(":")[0] == "features") != (data.vectors is not None):
        raise ConfigError(
            f"the backbone features is for the data set features and for that alone, got backbone {own.backbone} and "
            f"data set {data.name}"
        )
    settings = (own.backbone, own.freeze, own.image_size, config.training.augment)
    if data.vectors is not None and settings != ("features", "all", None, "none"):
        raise ConfigError(
            "feature vectors are taken as they are: leave out freeze, image_size and augment, and the backbone or name "
            f"it features, got {own.backbone}"
        )
    backbone = create_backbone(_backbone_name(config, data), own.image_size)
    backbone.load_pretrained(Path(own.weights) if own.weights else None)
    return HashNetwork(backbone, own.bits, own.freeze)


def _backbone_name(config: Config, data: Dataset) -> str:
    return config.network.backbone if data.vectors is None else f"features:{data.vectors.shape[1]}"


def _model_card(
    config: Config, data: Dataset, split: Split, network: HashNetwork, doubt: Doubt | None
) -> dict[str, Any]:
    """Return what is written beside the weights: all that is needed to use them, and where they come from."""
    return {
        "method": config.method,
        "uncertainty": None if doubt is None else config.training.uncertainty,
        "alpha": doubt.alpha if isinstance(doubt, MomentumCopy) else None,
        "backbone": _backbone_name(config, data),
        "freeze": config.network.freeze,
        "image_size": config.network.image_size,
        "preprocess": None if data.vectors is not None else vars(network.backbone.preprocess),
        "n_bits": config.network.bits,
        "classes": list(data.classes),
        "dataset": config.data.dataset,
        "split": split.digest(),
        "seed": config.training.seed,
    }
