"""The one training loop."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmuh.backbones import create_backbone
from dmuh.codes import Codes
from dmuh.config import Config, TrainingSettings, read_toml
from dmuh.datasets import Dataset, load_dataset
from dmuh.errors import CollapseError, DivergenceError, RunError
from dmuh.files import Array
from dmuh.images import BadImages, OnBadImage, read_batches
from dmuh.methods import METHODS, Objective, TrainBatch, configure
from dmuh.metrics import evaluate
from dmuh.network import (
    HashNetwork,
    MomentumCopy,
    calibrate,
    choose_device,
    compute_outputs,
    state_by_part,
    to_device,
)
from dmuh.protocols import Split, check_split, protocol_of
from dmuh.runs import Run

log = logging.getLogger(__name__)

_TRACED = 16  # training images whose outputs are written down every epoch
_CALIBRATED = 512  # training images at most that the fresh network is fitted to
_TRAIN_QUERIES = 1000  # training images at most that ask for the training MAP
_RUNAWAY = 10.0  # times its first value that the loss may reach
_WINDOW = 10  # steps over which the loss is averaged to tell
_COLLAPSED_EPOCHS = 5  # epochs in a row with one and the same code before the training stops


@dataclass(frozen=True)
class Progress:
    """What the loop reports after each step."""

    epoch: int
    epochs: int
    images: int  # in this step
    images_per_epoch: int
    terms: dict[str, float]
    uncertainty: float | None
    validation_map: float | None  # of the last epoch that was measured


def train(
    config: Config,
    out: str | Path,
    *,
    dataset: Dataset | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Run:
    """Train a hashing network as `config` says and leave it in the run folder `out`.

    `dataset` replaces the one that the settings name. With `resume` a run that was interrupted goes on from its last
    epoch, to the same weights as without the interruption.
    """
    run = Run(Path(out))
    if resume and run.finished:
        return run
    settings = config.training
    device = choose_device(settings.device)
    data = dataset or load_dataset(config.data)
    split = protocol_of(config.protocol, config.data.dataset).split(data.labels, settings.seed, data.test)
    for note in [*data.notes, *check_split(split, data)]:
        log.warning(note)
    torch.manual_seed(settings.seed)
    backbone = create_backbone(config.network.backbone, config.network.image_size)
    backbone.load_pretrained(Path(config.network.weights) if config.network.weights else None)
    network = HashNetwork(backbone, config.network.bits).to(device)
    with run.locked():
        if not (resume and run.started):
            run.begin(config)
        fingerprint = data.fingerprint()
        if not run.split_file.is_file():
            split.save(run.split_file, fingerprint)
        elif Split.load(run.split_file, fingerprint).digest() != split.digest():
            raise RunError(f"{run.path} was begun with another split: the data or the settings changed")
        _train(config, run, data, split, network, progress)
    return run


def _train(
    config: Config, run: Run, data: Dataset, split: Split, network: HashNetwork, progress: Callable[[Progress], None]
) -> None:
    settings, device, preprocess = config.training, network.mean.device, network.backbone.preprocess
    bad = BadImages()
    on_bad_image = cast(OnBadImage, config.data.on_bad_image)
    labels = torch.from_numpy(data.labels[split.train]).float()

    first = read_batches(
        data.images,
        [_spread(split.train, _CALIBRATED)],
        preprocess,
        on_bad_image=on_bad_image,
        bad=bad,
    )
    calibrate(network, to_device(next(first).pixels, device))
    objective = METHODS[config.method](config.options, config.network.bits, labels).to(device)
    momentum = None if objective.alpha is None else MomentumCopy(network, objective.alpha).to(device)
    optimizer = _optimizer(network, settings)
    watch = _Watch(objective, settings)
    done = _restore(run, network, momentum, objective, optimizer, watch)
    labels = labels.to(device)

    steps_per_epoch = len(list(_batches(len(split.train), settings, 0)))
    validation_map: float | None = None
    for epoch in range(done, settings.epochs):
        began = time.perf_counter()
        sums: dict[str, float] = {}
        n_images = 0
        batches = list(_batches(len(split.train), settings, epoch))
        reader = read_batches(
            data.images,
            [split.train[rows] for rows in batches],
            preprocess,
            augment=cast(Literal["none", "crop", "crop+flip"], settings.augment),
            seed=(settings.seed, 2, epoch),
            on_bad_image=on_bad_image,
            bad=bad,
            workers=settings.workers,
        )
        for step, batch in enumerate(reader):
            if len(batch.positions) < 2:
                continue
            for group in optimizer.param_groups:
                group["lr"] = group["scale"] * learning_rate(settings, epoch + step / steps_per_epoch, steps_per_epoch)
            index = torch.from_numpy(np.searchsorted(split.train, batch.positions)).to(device)
            pixels = to_device(batch.pixels, device)
            with _autocast(settings, device):
                outputs = network(pixels)
                copied = None if momentum is None else momentum(pixels)
            outputs = outputs.float()  # (B, n_bits)
            seen = TrainBatch(labels[index], index, None if copied is None else copied.float())
            terms = objective(outputs, seen)
            loss = cast(Tensor, sum(terms.values()))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            watch.step(epoch, loss.item(), outputs)
            if settings.clip:
                torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
            optimizer.step()
            if momentum is not None:
                momentum.update(network)

            values = {name: term.item() for name, term in terms.items()}
            unsure = None if seen.momentum_outputs is None else _mean_gap(outputs, seen.momentum_outputs)
            progress(Progress(epoch + 1, settings.epochs, len(index), len(split.train), values, unsure, validation_map))
            n_images += len(index)
            logged = values | {"loss": loss.item()} | ({} if unsure is None else {"mean_uncertainty": unsure})
            for name, value in logged.items():
                sums[name] = sums.get(name, 0.0) + value * len(index)
        watch.epoch(epoch, settings.epochs)

        line: dict[str, Any] = {"epoch": epoch + 1, "lr": learning_rate(settings, epoch, steps_per_epoch)}
        line |= {name: value / max(n_images, 1) for name, value in sums.items()}
        line["images_per_second"] = n_images / (time.perf_counter() - began)
        if (epoch + 1) % settings.evaluate_every == 0 or epoch + 1 == settings.epochs:
            maps = _watch_maps(network, data, split, on_bad_image, settings.workers)
            validation_map = maps.get("validation_map")
            line |= maps
        run.log_epoch(line, _trace(network, momentum, data, split, epoch + 1))
        state = _state(network, momentum, objective, optimizer)
        run.save_checkpoint(state, {"epoch": epoch + 1, "watch": watch.state()})
    if len(bad):
        log.warning(bad.summary())
    networks = {"network": network} | ({} if momentum is None else {"momentum": momentum.network})
    arrays = {f"{part}.{key}": _array(v) for part, net in networks.items() for key, v in net.state_dict().items()}
    run.save_model(arrays, model_card(config, data, split))


def config_of(run: Run) -> Config:
    """Return the settings that a run was begun with."""
    if not run.started:
        raise RunError(f"{run.path} holds no run")
    return configure(read_toml(run.config_file))


def model_card(config: Config, data: Dataset, split: Split) -> dict[str, Any]:
    """Return what is written beside the weights: all that is needed to use them, and where they come from."""
    return {
        "method": config.method,
        "alpha": getattr(config.options, "alpha", None),
        "backbone": config.network.backbone,
        "image_size": config.network.image_size,
        "n_bits": config.network.bits,
        "classes": list(data.classes),
        "dataset": config.data.dataset,
        "split": split.digest(),
        "seed": config.training.seed,
    }


def learning_rate(settings: TrainingSettings, epoch: float, steps_per_epoch: int) -> float:
    """Return the learning rate at a point of the training, in epochs from its start."""
    part = min(epoch / settings.epochs, 1.0)
    high, low = settings.lr, settings.lr_final
    rate: float
    if settings.schedule == "log":
        rate = high * (low / high) ** part
    elif settings.schedule == "cosine":
        rate = low + (high - low) * (1 + math.cos(math.pi * part)) / 2
    else:  # as many equal steps as there are tenfold drops, and one more
        drops = max(round(math.log10(high / low)), 0)
        rate = high / 10 ** min(int(part * (drops + 1)), drops)
    if settings.warmup_epochs:
        rate *= min(1.0, (epoch + 1 / steps_per_epoch) / settings.warmup_epochs)
    return rate


class _Watch:
    """Notices a loss that runs away and codes that all become alike, and stops the training with what to change."""

    def __init__(self, objective: Objective, settings: TrainingSettings) -> None:
        self.advice = objective.advice
        self.settings = settings
        self.options = objective.options
        self.first: list[float] = []  # the loss of the first steps
        self.recent: list[float] = []  # and of the last ones
        self.codes: set[bytes] = set()  # different codes seen in this epoch, two at most
        self.alike = 0  # epochs in a row that saw one code only

    def step(self, epoch: int, loss: float, outputs: Tensor) -> None:
        """Look at one step."""
        if not math.isfinite(loss):
            raise DivergenceError(f"the loss is {loss} in epoch {epoch + 1}: lower lr (now {self.settings.lr:g})")
        if len(self.first) < _WINDOW:
            self.first.append(loss)
        self.recent = [*self.recent[-_WINDOW + 1 :], loss]
        start, now = sum(self.first) / len(self.first), sum(self.recent) / len(self.recent)
        if len(self.recent) == _WINDOW and now > _RUNAWAY * max(start, 1e-6):
            raise DivergenceError(
                f"the loss ran away from {start:.3g} to {now:.3g} in epoch {epoch + 1}: "
                f"lower lr (now {self.settings.lr:g}) or raise warmup_epochs (now {self.settings.warmup_epochs:g})"
            )
        if len(self.codes) < 2:
            bits = (outputs.detach() >= 0).cpu().numpy()
            self.codes.update(row.tobytes() for row in np.unique(bits, axis=0)[:2])

    def epoch(self, epoch: int, epochs: int) -> None:
        """Look at one epoch."""
        self.alike = self.alike + 1 if len(self.codes) == 1 else 0
        self.codes.clear()
        if self.alike >= _COLLAPSED_EPOCHS or (self.alike and epoch + 1 == epochs):
            values = {**vars(self.settings), **vars(self.options)}
            now = ", ".join(f"{name} {values[name]:g}" for name in ("beta", "lr") if name in values)
            raise CollapseError(
                f"all training images have had the same code for {self.alike} epochs (epoch {epoch + 1}): "
                f"{self.advice} (now {now})"
            )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"first": self.first, "recent": self.recent, "alike": self.alike}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what a checkpoint kept."""
        self.first, self.recent, self.alike = state["first"], state["recent"], state["alike"]


def _batches(n: int, settings: TrainingSettings, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of the training set in this epoch's order, batch by batch; a last single image is left out."""
    order = np.random.default_rng((settings.seed, 1, epoch)).permutation(n)
    for begin in range(0, n, settings.batch_size):
        rows = order[begin : begin + settings.batch_size]
        if len(rows) > 1:
            yield rows


def _optimizer(network: HashNetwork, settings: TrainingSettings) -> torch.optim.Optimizer:
    groups = [
        {"params": list(network.hash_layer.parameters()), "scale": 1.0},
        {"params": list(network.backbone.parameters()), "scale": settings.backbone_lr},
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.sgd_momentum, weight_decay=settings.weight_decay)


def _autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    capable = device.type == "cuda" and torch.cuda.is_bf16_supported()
    wanted = settings.precision == "bfloat16" or (settings.precision == "auto" and capable)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted)


def _mean_gap(outputs: Tensor, copied: Tensor) -> float:
    return (outputs.detach() - copied).abs().mean().item()


def _watch_maps(
    network: HashNetwork, data: Dataset, split: Split, on_bad_image: OnBadImage, workers: int
) -> dict[str, float]:
    """Return the MAP of held-out and of training images, both asking the training images."""

    def codes(positions: NDArray[np.int64]) -> Codes:
        result = compute_outputs(network, None, data.images, positions, on_bad_image=on_bad_image, workers=workers)
        return Codes.from_outputs(result.outputs, ids=result.positions)

    database = codes(split.train)
    asking = database[_spread(np.arange(len(database)), _TRAIN_QUERIES)]
    parts = {"train_map": asking} | ({"validation_map": codes(split.validation)} if len(split.validation) else {})
    return {
        name: evaluate(query, database, data.labels[query.ids], data.labels[database.ids], ks=()).map
        for name, query in parts.items()
    }


def _trace(
    network: HashNetwork, momentum: MomentumCopy | None, data: Dataset, split: Split, epoch: int
) -> dict[str, Any]:
    traced = compute_outputs(network, momentum, data.images, _spread(split.train, _TRACED), on_bad_image="skip")
    line: dict[str, Any] = {"epoch": epoch, "positions": traced.positions.tolist()}
    line["outputs"] = np.round(traced.outputs.astype(float), 4).tolist()
    if traced.uncertainty is not None:
        line["uncertainty"] = np.round(traced.uncertainty.astype(float), 6).tolist()
    return line


def _spread(positions: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return up to `most` positions, evenly spread."""
    return positions[np.unique(np.linspace(0, len(positions) - 1, most).astype(np.int64))]


def _array(tensor: Tensor) -> Array:
    return cast(Array, tensor.detach().cpu().numpy())


def _state(
    network: HashNetwork,
    momentum: MomentumCopy | None,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
) -> dict[str, Array]:
    """Return everything that the next step depends on, by name."""
    modules: dict[str, torch.nn.Module | None] = {
        "network": network,
        "momentum": momentum,
        "objective": objective,
    }
    arrays = {
        f"{part}.{key}": _array(value)
        for part, module in modules.items()
        if module is not None
        for key, value in module.state_dict().items()
    }
    for number, moments in optimizer.state_dict()["state"].items():
        for key, value in moments.items():
            if isinstance(value, Tensor):
                arrays[f"optimizer.{number}.{key}"] = _array(value)
    arrays["rng.cpu"] = _array(torch.get_rng_state())
    if torch.cuda.is_available():
        arrays["rng.cuda"] = _array(torch.cuda.get_rng_state())
    return arrays


def _restore(
    run: Run,
    network: HashNetwork,
    momentum: MomentumCopy | None,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    watch: _Watch,
) -> int:
    """Take up the run's last checkpoint, if there is one; return how many epochs are done."""
    checkpoint = run.load_checkpoint()
    if checkpoint is None:
        return 0
    parts = state_by_part(checkpoint.arrays)
    network.load_state_dict(parts["network"])
    objective.load_state_dict(parts.get("objective", {}))
    if momentum is not None:
        momentum.load_state_dict(parts["momentum"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in parts.get("optimizer", {}).items():
        number, _, key = name.partition(".")
        moments.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(parts["rng"]["cpu"])
    if "cuda" in parts["rng"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(parts["rng"]["cuda"])
    watch.restore(checkpoint.metadata["watch"])
    return int(checkpoint.metadata["epoch"])
