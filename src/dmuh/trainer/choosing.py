"""The head that suits the data: what of `kernel` and `weight_decay` is not given is chosen by images that are held out.

With `head = "auto"` short trainings of the head, one for each candidate, are judged by the MAP of the validation
images, or of a tenth of the training images where there are none, among themselves: those that a head trained on look
better the more it learned them by heart. On features that are kept this takes seconds.
"""

import itertools
import logging
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from dmuh.codes import Codes
from dmuh.config import Config
from dmuh.datasets import Labels
from dmuh.errors import ConfigError, TrainingError
from dmuh.methods import METHODS, Objective, configure
from dmuh.methods.rules import head_weight_decay
from dmuh.metrics import evaluate
from dmuh.network import HashNetwork
from dmuh.protocols import Positions, Split
from dmuh.runs import Run
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.inputs import Inputs
from dmuh.trainer.loop import train_deep
from dmuh.trainer.measuring import compute_outputs
from dmuh.trainer.pairs import TextSide, both_ways, pair_outputs, train_pairs
from dmuh.trainer.setup import fresh_network, training_inputs

log = logging.getLogger(__name__)

CHOSEN = ("kernel", "weight_decay")
_ANCHORS = 3000  # the more the better, as far as it was tried; the time for each image grows with them
_DECAYS = (1.0, 0.1, 1 / 3, 10 / 3)  # times the default
_STEPS = 400  # of a short training, about
_FEWEST = 16  # held-out images below which chance would choose


@dataclass(frozen=True)
class Candidate:
    """Settings, and the MAP that a short training with them gave; minus infinity for one that went wrong."""

    config: Config
    score: float


def left_open(config: Config) -> list[str]:
    """Return the settings that are still to be chosen."""
    values = {"kernel": config.network.kernel, "weight_decay": config.training.weight_decay}
    return [key for key in CHOSEN if values[key] is None]


def as_begun(config: Config, run: Run) -> Config:
    """Return the settings with what was chosen when the run was begun."""
    begun = run.settings()
    return _with(config, {key: begun[key] for key in left_open(config)})


def choose_head(context: TrainingContext) -> Config:
    """Return the settings with the best candidate in place of what was left open, and log what was chosen and why."""
    context = replace(context, split=_held_out(context.split), report=lambda _: None)
    candidates = _candidates(context)
    if len(context.split.validation) < _FEWEST or not context.data.classes:
        config = candidates[0]
        log.info("head: %s, as too few images are held out to choose by", _said(config, context.config))
        return config
    with training_inputs(context, fresh_network(context.config, context.data, context.group.device)):
        pass  # features that are missing are computed, with a bar of their own
    tried = []
    with context.reading.progress("choosing the head", len(candidates)) as advance:
        for config in candidates:
            tried.append(Candidate(config, _score(replace(context, config=config))))
            advance(1)
    scores = torch.tensor([one.score for one in tried], device=context.group.device)
    best = tried[int(context.group.gather(scores[None])[0].argmax())]  # processes may differ in a last digit
    others = sorted({f"{one.score:.3f}" for one in tried if one is not best and math.isfinite(one.score)})
    log.info(
        "head: %s, which of %d has the best MAP of held-out images, %.3f (the others have %s)",
        _said(best.config, context.config),
        len(tried),
        best.score,
        f"{others[0]} to {others[-1]}" if others else "none",
    )
    return best.config


def _candidates(context: TrainingContext) -> list[Config]:
    """Return the settings that can be chosen, the simplest first."""
    config, given = context.config, left_open(context.config)
    default = head_weight_decay(config.network.hidden)
    kernels = [0, min(_ANCHORS, len(context.split.train))] if "kernel" in given else [config.network.kernel]
    decays = [float(f"{factor * default:.1g}") for factor in _DECAYS]
    decays = decays if "weight_decay" in given else [config.training.weight_decay or 0.0]
    found = []
    for kernel, decay in itertools.product(kernels, decays):
        try:
            found.append(_with(config, {"kernel": kernel, "weight_decay": decay}))
        except ConfigError:  # a hidden layer or dropout leaves no room for a kernel
            continue
    return found


def _score(context: TrainingContext) -> float:
    """Return the MAP of the held-out images after a short training."""
    method = METHODS[context.config.method]
    assert issubclass(method, Objective), "shallow methods leave nothing open"
    settings = context.settings
    train = context.split.train
    n_images = len(train) if context.absence is None else float((1 - context.absence[train]).sum())
    steps = max(math.ceil(n_images / settings.batch_size), 1)
    epochs = min(max(round(_STEPS / steps), 1), settings.epochs)
    short = replace(context.config, training=replace(settings, epochs=epochs, evaluate_every=epochs))
    network = fresh_network(short, context.data, context.group.device)
    with tempfile.TemporaryDirectory() as folder:
        trial = replace(context, config=short, run=Run(Path(folder)))
        try:
            with training_inputs(trial, network) as inputs:
                if method.takes_texts:
                    return _score_of_pairs(trial, network, inputs)
                train_deep(method, trial, network, inputs)
                found = compute_outputs(network, None, inputs, context.split.validation)
        except TrainingError:
            return -math.inf
    return _map_among(Codes.from_outputs(found.outputs), context.data.labels[found.positions])


def _score_of_pairs(context: TrainingContext, network: HashNetwork, inputs: Inputs) -> float:
    """Return the MAP of the held-out texts among images and images among texts, after a training of both networks."""
    texts = TextSide.fresh(context)
    train_pairs(context, network, inputs, texts)
    positions, outputs = pair_outputs(network, inputs, texts, context.split.validation)
    labels = context.data.labels[positions]
    maps = [
        both_ways(outputs[query], outputs[database], labels[query], labels[database])
        for query, database in _halves(len(labels))
    ]
    return float(np.mean(maps))


def _map_among(codes: Codes, labels: Labels) -> float:
    """Return the MAP of images of which every other one searches the rest, and the rest these."""
    maps = [
        evaluate(codes[query], codes[database], labels[query], labels[database], ks=(), ranking="hamming").map
        for query, database in _halves(len(codes))
    ]
    return sum(maps) / 2


def _halves(n: int) -> tuple[tuple[Positions, Positions], ...]:
    """Return every other one of n as queries and the rest as database, and the other way round."""
    even, odd = np.arange(0, n, 2), np.arange(1, n, 2)
    return (even, odd), (odd, even)


def _held_out(split: Split) -> Split:
    """Return the split with a tenth of the training images held out, where it holds none out itself."""
    if len(split.validation):
        return split
    held = np.arange(len(split.train)) % 10 == 9
    return replace(split, train=split.train[~held], validation=split.train[held])


def _with(config: Config, chosen: dict[str, float | None]) -> Config:
    layers = [{key: value for section in config.to_dict().values() for key, value in section.items()}, chosen]
    return configure(*layers)


def _said(config: Config, asked: Config) -> str:
    """Return in words what was chosen of what was left open."""
    kernel = config.network.kernel
    words = {
        "kernel": f"similarities to {kernel:,} training images (kernel)" if kernel else "a linear one (kernel 0)",
        "weight_decay": f"weight decay {config.training.weight_decay:g}",
    }
    return " and ".join(words[key] for key in left_open(asked))
