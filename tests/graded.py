"""Codes whose bits have levels of sureness, as a calibrated network gives them."""

import numpy as np

from dmuh.codes import Codes


def calibration_card(n_bits: int) -> dict:
    """The calibration in a model's card: bits turn over by the source's number, from 0 (½) to 0.2 (never)."""
    at = [0.0, 2.0, 4.0, 6.0, 8.0, n_bits + 1.0]
    match = {"at": at, "probability": [0.95, 0.85, 0.6, 0.4, 0.2, 0.05]}
    return {
        "turnover": {"at": [0.0, 0.2], "probability": [0.5, 0.0]},
        "grades": {
            "1": {"thresholds": [[0.36]] * n_bits, "worth": [[0.1, 0.6]] * n_bits},
            "2": {"thresholds": [[0.45, 0.36, 0.25]] * n_bits, "worth": [[0.05, 0.2, 0.4, 0.7]] * n_bits},
        },
        "match": dict.fromkeys(("hamming", "soft-0", "soft-1", "soft-2"), match),
        "images": 100,
        "part": "validation",
    }


def graded_codes(outputs, sure=1, ids=None) -> Codes:
    """Fresh codes of real outputs (n, n_bits), with contents, graded into levels that part at fixed probabilities."""
    real = np.asarray(outputs, np.float32)
    unsure = (0.5 - 0.5 * np.tanh(np.abs(real))).astype(np.float32)
    codes = Codes.from_outputs(real, unsure, ids).with_contents(real)
    if not sure:
        return codes
    edges = np.array([0.2] if sure == 1 else [0.4, 0.2, 0.05], np.float32)
    worth = np.array([0.3, 0.9] if sure == 1 else [0.1, 0.4, 0.7, 0.95], np.float32)
    drift = np.linspace(0, 0.05, real.shape[1], dtype=np.float32)[:, None]  # so that no two bits are worth the same
    return codes.graded(np.tile(edges, (real.shape[1], 1)), worth + drift)
