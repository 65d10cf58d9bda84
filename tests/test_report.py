import re

import numpy as np
import pytest

from dmuh import configure, train
from dmuh.report import figures
from dmuh.report.page import write_run_page
from dmuh.report.thumbnails import Tile, contact_sheet, thumbnail
from dmuh.trainer.evaluation import evaluate_run


@pytest.mark.long
@pytest.mark.parametrize("method", ["dmuh", "regu"])
def test_page_of_a_run(method, digits, tmp_path):
    settings = {"method": method, "epochs": 2, "query": 5, "train": 16, "image_size": 16, "batch_size": 24}
    run = train(configure(settings), tmp_path / "run", dataset=digits)
    evaluation = evaluate_run(run, digits)
    write_run_page(run, digits, evaluation.query, evaluation.database, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"{evaluation.metrics.map:.4f}" in page
    assert "Least sure" in page
    assert page.count("✓") + page.count("✗") >= 100
    assert not re.search(r'(src|href|srcset)="(?!data:)', page)


@pytest.mark.long
def test_marks_on_the_page_are_right(digits, tmp_path):
    run = train(configure({"epochs": 1, "query": 5, "train": 16, "image_size": 16}), tmp_path / "run", dataset=digits)
    evaluation = evaluate_run(run, digits)
    write_run_page(run, digits, evaluation.query, evaluation.database, tmp_path / "page.html")
    rows = re.findall(r'<div class="row">(.*?)</div>', (tmp_path / "page.html").read_text(), flags=re.S)
    assert len(rows) == 10
    for row in rows:
        labels = re.findall(r'title="(\d)"', row)
        marks = re.findall(r"<figcaption>(.) [\d.]+<", row)
        assert marks == ["✓" if label == labels[0] else "✗" for label in labels[1:]]


def test_figures_are_drawn_for_light_and_dark():
    metrics = [
        {"epoch": e, "loss": 1 / e, "similarity": 1 / e, "quantization": 0.1, "train_map": 0.5} for e in (1, 2, 3)
    ]
    drawing = figures.loss_curves(metrics)
    assert drawing.light.startswith("<svg")
    assert "#24292f" in drawing.light
    assert "#d7dde4" in drawing.dark
    assert figures.loss_curves(metrics) == drawing  # nothing in it depends on when it was drawn


def test_two_bits_are_the_most_and_the_least_uncertain():
    rng = np.random.default_rng(0)
    unsure = np.full((6, 2, 3), 0.5)
    unsure[:, 1, 2], unsure[:, 0, 1] = 0.9, 0.1
    trace = [
        {"epoch": e + 1, "outputs": rng.normal(size=(2, 3)).tolist(), "uncertainty": unsure[e].tolist()}
        for e in range(6)
    ]
    svg = figures.two_bits(trace).light
    assert "uncertain: bit 3, mean uncertainty 0.9000" in svg
    assert "certain: bit 2, mean uncertainty 0.1000" in svg


def test_contact_sheet_shows_images_and_frames(tmp_path):
    red = np.zeros((20, 20, 3), np.uint8)
    red[..., 0] = 255
    sheet = contact_sheet(
        [[Tile(red, "query"), Tile(red, "near", right=True), Tile(red, "far", "x" * 99, right=False)]]
    )
    pixels = np.asarray(sheet)
    colours = {tuple(colour) for colour in pixels.reshape(-1, 3).tolist()}
    assert {(255, 0, 0), (0, 114, 178), (213, 94, 0)} <= colours
    assert np.asarray(thumbnail(tmp_path / "missing.jpg", 10)).tolist() == [[[128] * 3] * 10] * 10
