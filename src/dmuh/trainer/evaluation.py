"""The test of a run: its query images search its database."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmuh.codes import Codes
from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.encoder.calibration import Calibration
from dmuh.errors import DataError, FormatError
from dmuh.images import Reading
from dmuh.metrics import Metrics, evaluate
from dmuh.network import choose_device, load_networks
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions, Split, protocol_of
from dmuh.runs import Run, open_run
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.measuring import compute_outputs

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a run's test gave: the figures, and the codes that they come from, whose ids are positions in the data."""

    metrics: Metrics
    query: Codes
    database: Codes


def evaluate_run(
    run: Run,
    dataset: Dataset,
    *,
    count: Counting = uncounted,
    **rules: Any,
) -> Evaluation:
    """Measure a finished run on its test queries.

    The codes are computed once and kept in the run folder, and so are the figures by the rules of its protocol. `rules`
    are those of `evaluate`. `count` shows how far the computing is.
    """
    if not dataset.classes:
        raise DataError("these images have no labels, so there is nothing to measure")
    _, config, _, split = open_run(run.path, dataset)
    custom = bool(rules)
    rules.setdefault("topk", protocol_of(config.protocol, config.data.dataset).topk)
    codes = _saved_codes(run)
    if codes is None:
        if not run.same_images(dataset, split):
            log.warning("%s was trained on other image files of these names", run.path)
        encode = _encode_features if config.network.freeze == "all" else _encode_images
        reading = Reading.by(config, count)
        codes = encode(run, config, dataset, split, reading)
        run.save_codes(*codes)
        if len(reading.bad):
            log.warning(reading.bad.summary())
    query, database = codes
    metrics = evaluate(query, database, dataset.labels[query.ids], dataset.labels[database.ids], **rules)
    if not custom:  # what other rules give is the caller's
        run.save_evaluation({**metrics.to_dict(), "split": split.digest()})
    return Evaluation(metrics, query, database)


def _saved_codes(run: Run) -> tuple[Codes, Codes] | None:
    """Return the codes that were computed before; None where there are none, or none of this model."""
    if not (run.query_codes.is_file() and run.database_codes.is_file()):
        return None
    try:
        return run.load_codes()
    except FormatError as error:
        log.warning("%s; the images are encoded again", error)
        return None


def _encode_images(run: Run, config: Config, dataset: Dataset, split: Split, reading: Reading) -> tuple[Codes, Codes]:
    """Encode the test images."""
    hasher = Hasher.load(run.path, config.training.device)

    def encode(positions: Positions) -> Codes:
        return hasher.encode(dataset.take(positions), ids=positions, reading=reading)

    return encode(split.query), encode(split.database)


def _encode_features(run: Run, config: Config, dataset: Dataset, split: Split, reading: Reading) -> tuple[Codes, Codes]:
    """Encode the test images by the features of their frozen backbone, which are cached for the next run."""
    model = run.load_model()
    network, source = load_networks(model, choose_device(config.training.device))
    with open_inputs(
        network,
        dataset,
        np.union1d(split.query, split.database),
        keep=True,
        mirrored=split.query[:0],
        reading=reading,
    ) as inputs:
        query, database = (compute_outputs(network, source, inputs, part) for part in (split.query, split.database))
    calibration = Calibration.of_card(model.metadata)
    return query.codes(calibration), database.codes(calibration)
