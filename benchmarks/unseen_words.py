"""Words that a model never saw: how often a text query is answered with "nothing close enough", as it should be.

    python benchmarks/unseen_words.py LIST.csv PATH_FORMAT TEXTS [SETTING=VALUE …]

For each of three seeds a third of the classes is left out: images with one of them neither train nor are searched. Then
texts about images that have none but classes left out are queries, beside texts about test images of the classes that
were trained. What a text is told of its best answer, the probability that it shares a label, is to be low for the first
and high for the others: the table has the share of queries that get no answer by --at-least 0.5, and the area under the
curve by which the probability tells one kind of query from the other.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from measuring import report, table
from sklearn.metrics import roc_auc_score

from dmuh import Codes, Dataset, HammingIndex, Hasher, configure, load_dataset
from dmuh.config import parse_override
from dmuh.encoder.matching import match_of
from dmuh.runs import Run
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run

SEEDS = (0, 1, 2)
LEFT_OUT = 1 / 3
AT_LEAST = 0.5
SURE = 1


def best_probability(hasher: Hasher, index: HammingIndex, texts: list[str]) -> np.ndarray:
    """Return what each text is told of its best answer."""
    codes = hasher.encode_texts(texts)
    nearest = index.search(codes, k=1, ranking="soft").distances[:, 0]
    found = match_of(hasher.texts.calibration, "soft", nearest, SURE)
    assert found is not None, "it was trained with labels"
    return found


def taken(data: Dataset, rows: np.ndarray, classes: np.ndarray) -> Dataset:
    """Return the images of some rows, with some of the classes."""
    names = tuple(data.classes[k] for k in classes)
    texts = tuple(data.texts[n] for n in rows)
    return replace(data, images=data.take(rows), labels=data.labels[np.ix_(rows, classes)], classes=names, texts=texts,
                   metadata={})  # fmt: skip


def measured(data: Dataset, settings: dict[str, object], seed: int) -> dict[str, float]:
    """Train without some classes; return what texts about these, and about the others, are told."""
    order = np.random.default_rng(seed).permutation(len(data.classes))
    unseen, seen = np.sort(order[: round(LEFT_OUT * len(order))]), np.sort(order[round(LEFT_OUT * len(order)) :])
    is_unseen, is_seen = data.labels[:, unseen].any(axis=1), data.labels[:, seen].any(axis=1)
    known = taken(data, np.flatnonzero(is_seen & ~is_unseen), seen)
    with tempfile.TemporaryDirectory() as folder:
        run: Run = train(configure(settings, {"seed": seed}), Path(folder) / "run", dataset=known, progress=False)
        found = evaluate_run(run, known)
        hasher = Hasher.load(run.path)
        database: Codes = hasher.calibration.kept(found.database, SURE)
        index = HammingIndex().add(database)
        asked = [known.texts[n][0] for n in found.query.ids.tolist()]
        other = [data.texts[n][0] for n in np.flatnonzero(is_unseen & ~is_seen).tolist()]
        trained, unknown = (best_probability(hasher, index, texts) for texts in (asked, other))
    truth = np.concatenate([np.zeros(len(unknown)), np.ones(len(trained))])
    return {
        "trained": float((trained < AT_LEAST).mean()),
        "unknown": float((unknown < AT_LEAST).mean()),
        "area": float(roc_auc_score(truth, np.concatenate([unknown, trained]))),
        "map": found.texts["text_to_image"]["map"],
        "n": len(unknown),
    }


def main() -> None:
    """Measure and print the table."""
    file, path_format, texts, *overrides = sys.argv[1:]
    data = load_dataset("csv", file, path_format=path_format, texts=texts)
    settings = {"dataset": "csv", "path_format": path_format, "texts": texts, "method": "dmuh-x", "epochs": 20,
                "kernel": 3000, "weight_decay": 0.03, "evaluate_every": 20, "similar_weight": 2.0}  # fmt: skip
    settings |= dict(map(parse_override, overrides))
    found = [measured(data, settings, seed) for seed in SEEDS]
    rows = [
        {
            "queries": name,
            "told nothing close enough": f"{100 * np.mean([one[key] for one in found]):.0f}%",
        }
        for key, name in (
            ("trained", "texts about test images of trained classes"),
            ("unknown", "texts about classes left out"),
        )
    ]
    area, maps = (np.mean([one[key] for one in found]) for key in ("area", "map"))
    note = f"Area under the curve {area:.3f}; MAP of texts of trained classes among images {maps:.3f}."
    report("unseen-words", table(rows) + f"\n\n{note} Means over {len(SEEDS)} seeds.")


if __name__ == "__main__":
    main()
