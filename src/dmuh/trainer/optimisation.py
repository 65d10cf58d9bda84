"""The order of the images, the optimiser, its learning rate and its arithmetic."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.config import TrainingSettings
from dmuh.network import HashNetwork
from dmuh.trainer.optimizers import SGD, AdamW, Optimizer

AnyOptimizer = Optimizer | torch.optim.Optimizer


def batches_of(
    n: int, settings: TrainingSettings, epoch: int, absence: NDArray[np.float32] | None = None
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of the training set in this epoch's order, batch by batch; a last single image is left out.

    absence  (n,): the probability with which each takes no part in this epoch
    """
    rng = np.random.default_rng((settings.seed, 1, epoch))
    order = rng.permutation(n)
    if absence is not None:
        order = order[rng.random(n) >= absence[order]]
    for begin in range(0, len(order), settings.batch_size):
        rows = order[begin : begin + settings.batch_size]
        if len(rows) > 1:
            yield rows


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """Return the random numbers of an epoch's discrete steps, which depend on nothing that came before it."""
    epoch_seed = np.random.SeedSequence((seed, 3, epoch)).generate_state(1)[0]
    return torch.Generator().manual_seed(int(epoch_seed))


def dropout_seed(seed: int, epoch: int, step: int, network: int) -> tuple[int, ...]:
    """Return what seeds the masks of a network in a step: 0 is the network that trains, 1 its copy."""
    return (seed, 4, epoch, step, network)


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


def make_optimizer(network: HashNetwork, settings: TrainingSettings) -> AnyOptimizer:
    """Return the optimiser of what trains; a group's rate is its scale times the schedule's."""
    decay = settings.weight_decay or 0.0
    groups = [
        {"params": list(network.hash_layer.parameters()), "scale": 1.0},
        {"params": [p for p in network.backbone.parameters() if p.requires_grad], "scale": settings.backbone_lr},
    ]
    on_cpu = network.device.type == "cpu"  # elsewhere torch changes all weights in one go
    if settings.optimizer == "adamw":
        adamw = AdamW if on_cpu else torch.optim.AdamW
        return adamw(groups, lr=settings.lr, weight_decay=decay)
    sgd = SGD if on_cpu else torch.optim.SGD
    return sgd(groups, lr=settings.lr, momentum=settings.sgd_momentum, weight_decay=decay)


def autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    """Return the arithmetic that the network runs in."""
    capable = device.type == "cuda" and torch.cuda.is_bf16_supported()
    wanted = settings.precision == "bfloat16" or (settings.precision == "auto" and capable)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted)
