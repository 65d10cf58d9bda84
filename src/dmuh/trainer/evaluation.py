"""The test of a run: its query images search its database."""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher
from dmuh.encoder.calibration import DEFAULT_SURE, SURE, Calibration
from dmuh.errors import DataError, FormatError
from dmuh.images import Reading
from dmuh.metrics import Metrics, evaluate
from dmuh.network import choose_device, load_networks
from dmuh.progress import Counting, uncounted
from dmuh.protocols import Positions, Split, protocol_of
from dmuh.runs import Run, open_run
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.measuring import compute_outputs
from dmuh.trainer.similarities import Similarities
from dmuh.trainer.text_evaluation import TextCodes, evaluate_texts

log = logging.getLogger(__name__)

Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a run's test gave: the figures, and the codes that they come from, whose ids are positions in the data.

    metrics   by Hamming distance, unless the rules name another ranking
    soft      one dictionary per number of sure bits that the database keeps per bit: `sure`, `bits_stored` per image,
              `map`, `precision_at_1` and `precision_at_1_seen`, in the order that a search shows
    texts     what texts find among images and images among texts, see `evaluate_texts`; empty without texts
    """

    metrics: Metrics
    query: Codes
    database: Codes
    soft: list[dict[str, float]]
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)


def evaluate_run(
    run: Run,
    dataset: Dataset,
    *,
    count: Counting = uncounted,
    similarities: Similarities | None = None,
    **rules: Any,
) -> Evaluation:
    """Measure a finished run on its test queries.

    The codes are computed once and kept in the run folder, and so are the figures by the rules of its protocol. `rules`
    are those of `evaluate`. `count` shows how far the computing is. Who measures many runs gives `similarities`, which
    go from one to the next.
    """
    if not dataset.classes:
        raise DataError("these images have no labels, so there is nothing to measure")
    _, config, _, split = open_run(run.path, dataset)
    custom = bool(rules)
    protocol = protocol_of(config.protocol, config.data.dataset)
    rules = {"topk": protocol.topk, "ranking": "hamming", **rules}
    model = run.load_model()
    calibration, has_texts = Calibration.of_card(model.metadata), "texts" in model.metadata
    measured = run.has_evaluation and (not has_texts or "texts" in run.evaluation())
    saved = _saved_codes(run) if measured or not has_texts else None  # texts are measured by exact codes of images
    query, database = saved or _computed_codes(run, config, dataset, split, count, similarities or Similarities())
    if saved is None:
        kept = calibration.kept(database, DEFAULT_SURE)
        run.save_codes(query, kept.with_image_uncertainty(database.image_uncertainty))
    counted = protocol.counted(dataset.labels, split)
    labels = counted[query.ids], counted[database.ids]
    metrics = evaluate(query, database, *labels, **rules)
    if custom:  # what other rules give is the caller's
        return Evaluation(metrics, query, database, [])
    if saved is not None and run.has_evaluation:
        soft = run.evaluation()["soft"]
    else:  # of saved codes the other levels are not known any more
        stored = [database] if saved is not None else [calibration.kept(database, sure) for sure in SURE]
        soft = [_soft(query, part, *labels, topk=rules["topk"]) for part in stored]
    seen = evaluate(query, database, *labels, ties="as-searched", **(rules | {"ks": (1,)}))
    about = {"soft": soft, "precision_at_1_seen": seen.precision_at[1], "split": split.digest()}
    texts: dict[str, dict[str, Any]] = {}
    if saved is not None and has_texts:
        texts = run.evaluation()["texts"]
    elif has_texts:
        codes = TextCodes(model, config, dataset, count)
        texts = evaluate_texts(codes, (query, database), calibration, counted, split)
    if has_texts:
        about["texts"] = texts
    run.save_evaluation({**metrics.to_dict(), **about})
    return Evaluation(metrics, query, database, soft, texts)


def _soft(
    query: Codes, database: Codes, query_labels: Labels, database_labels: Labels, topk: int | None
) -> dict[str, float]:
    """Return what soft ranking gives with the levels that the database keeps."""
    labels = query_labels, database_labels
    metrics = evaluate(query, database, *labels, topk=topk, ks=(1,), ranking="soft")
    seen = evaluate(query, database, *labels, topk=topk, ks=(1,), ranking="soft", ties="as-searched")
    return {
        "sure": database.sure,
        "bits_stored": database.n_bits * (1 + database.sure),
        "map": metrics.map,
        "precision_at_1": metrics.precision_at[1],
        "precision_at_1_seen": seen.precision_at[1],
    }


def _computed_codes(
    run: Run, config: Config, dataset: Dataset, split: Split, count: Counting, similarities: Similarities
) -> tuple[Codes, Codes]:
    """Encode the test images: codes of the queries and of the database, with their exact uncertainty."""
    if not run.same_images(dataset, split):
        log.warning("%s was trained on other image files of these names", run.path)
    reading = Reading.by(config, count)
    if config.network.freeze == "all":
        codes = _encode_features(run, config, dataset, split, reading, similarities)
    else:
        codes = _encode_images(run, config, dataset, split, reading)
    if len(reading.bad):
        log.warning(reading.bad.summary())
    return codes


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


def _encode_features(
    run: Run, config: Config, dataset: Dataset, split: Split, reading: Reading, similarities: Similarities
) -> tuple[Codes, Codes]:
    """Encode the test images by the features of their frozen backbone, which are cached for the next run."""
    model = run.load_model()
    network, source = load_networks(model, choose_device(config.training.device))
    tested = np.union1d(split.query, split.database)
    with open_inputs(
        network,
        dataset,
        tested,
        keep=True,
        mirrored=split.query[:0],
        reading=reading,
    ) as inputs:
        last, below = similarities.below(network, source, inputs, tested)
        query, database = (compute_outputs(last, source, below, part) for part in (split.query, split.database))
    calibration = Calibration.of_card(model.metadata)
    return query.codes(calibration), database.codes(calibration)
