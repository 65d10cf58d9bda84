"""One training from its settings to the finished run folder."""

import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dmuh.config import Config
from dmuh.datasets import Dataset, load_dataset
from dmuh.encoder.known_texts import KNOWN
from dmuh.images import Reading
from dmuh.methods import METHODS, Objective
from dmuh.network import TEXTS, UNCERTAINTY_SOURCES, Examples, HashNetwork, MomentumCopy, Trained
from dmuh.progress import Counting, counting_bar, uncounted
from dmuh.protocols import Split
from dmuh.runs import Run
from dmuh.trainer.bar import Report, reporting
from dmuh.trainer.calibrating import calibrate_bits
from dmuh.trainer.checkpoint import model_arrays
from dmuh.trainer.choosing import as_begun, choose_head, left_open
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.distributed import begun, check_split, joined, refuse_many
from dmuh.trainer.fitting import fit_shallow
from dmuh.trainer.inputs import Inputs
from dmuh.trainer.leaving_out import without_wrong_labels
from dmuh.trainer.loop import train_deep
from dmuh.trainer.measuring import examples_of, spread
from dmuh.trainer.pairs import TextSide, train_pairs
from dmuh.trainer.setup import check_texts, draw_split, fresh_network, model_card, training_inputs
from dmuh.trainer.text_calibrating import calibrate_texts, known_texts

if TYPE_CHECKING:
    from dmuh.methods import ShallowMethod

log = logging.getLogger(__name__)

_EXAMPLES = 10_000  # training images at most that a source of uncertainty learns from: their features are in memory


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
    with joined(config.training.device) as group, ExitStack() as until_done:
        report = until_done.enter_context(reporting(progress, group.first))
        reading = Reading.by(config, count or (counting_bar if progress is True and group.first else uncounted))
        with group.agreeing():
            refuse_many(group, config)
            data = dataset or load_dataset(config.data)
            check_texts(config, data)
            split = draw_split(config, data) if split is None else split
            if group.first and not (resume and run.started):
                run.refuse_if_taken()
        goes_on = resume and run.started
        given = TrainingContext(config, run, data, split, group, reading, report)
        context, judged = without_wrong_labels(given.with_label_noise(), goes_on=goes_on)
        if left_open(config):
            config = as_begun(config, run) if goes_on else choose_head(context)
            context = replace(context, config=config)
        with group.agreeing():
            network = fresh_network(config, data, group.device)
            if group.first:
                until_done.enter_context(begun(run, config, data, split, resume))
                if judged is not None and judged.absence is not None:
                    run.save_left_out(judged.left_out, judged.absence)
        with group.agreeing():
            check_split(run, data, split)
        _train_and_save(context, network)
    return run


def _train_and_save(context: TrainingContext, network: HashNetwork) -> None:
    """Train the fresh network and write the model file, which is what makes the run a finished one."""
    of = UNCERTAINTY_SOURCES[context.settings.uncertainty]
    with training_inputs(context, network) as inputs:
        texts = TextSide.fresh(context) if METHODS[context.config.method].takes_texts else None
        copy, text_copy = _train_by_kind(context, network, inputs, texts)
        if context.group.first:
            examples = (lambda: _examples(context, network, inputs)) if context.data.classes and texts is None else None
            source = of.after_training(Trained(network, copy, examples))
            card, arrays = model_card(context, network, source), model_arrays(network, source)
            images = None if source is None else calibrate_bits(context, network, source, inputs)
            if images is not None:
                card["calibration"] = images.calibration.to_dict()
            if texts is not None:
                text_source = of.after_training(Trained(texts.network, text_copy))
                arrays |= model_arrays(texts.network, text_source, TEXTS)
                card["texts"] = texts.card(text_source)
                known = known_texts(context, texts)
                if known is not None:
                    arrays[KNOWN] = known.vectors
                    card["texts"]["least_likeness"] = known.least
                if images is not None and text_source is not None:
                    card["texts"] |= calibrate_texts(context, images, texts, text_source)
            context.run.save_model(arrays, card)
    if len(context.reading.bad):
        log.warning(context.reading.bad.summary())


def _examples(context: TrainingContext, network: HashNetwork, inputs: Inputs) -> tuple[Examples, Examples]:
    """Return some of the training images and of the validation images, as a source of uncertainty learns from them."""
    train, validation = (
        examples_of(network, inputs, spread(part, _EXAMPLES), context.data.labels)
        for part in (context.split.train, context.split.validation)
    )
    return train, validation


def _train_by_kind(
    context: TrainingContext, network: HashNetwork, inputs: Inputs, texts: TextSide | None
) -> tuple[MomentumCopy | None, MomentumCopy | None]:
    """Train by a deep method or fit by a shallow one; return the copies, of images and of texts, that were averaged."""
    method = METHODS[context.config.method]
    if texts is not None:
        return train_pairs(context, network, inputs, texts)
    if not issubclass(method, Objective):
        fit_shallow(cast("type[ShallowMethod]", method), context, network, inputs)
        return None, None
    return train_deep(method, context, network, inputs), None
