"""What `dmuh export` writes, and what loads it."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from commands import dmuh, refused
from dmuh import Hasher, configure, train
from dmuh.encoder import export_run
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import ConfigError, FormatError, InputError
from test_architecture import without_torch
from test_encoder import by_torch


@pytest.fixture(scope="module")
def bundle(digit_run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    assert export_run(digit_run.path, folder) is None
    return folder


@pytest.fixture
def copied(bundle, tmp_path) -> Path:
    return shutil.copytree(bundle, tmp_path / "model")


def card(folder: Path) -> dict:
    return json.loads((folder / "model.json").read_text())


def test_two_files_hold_both_networks_and_all_that_is_needed_to_use_them(bundle, digit_run):
    assert sorted(path.name for path in bundle.iterdir()) == ["model.json", "model.onnx"]
    about = card(bundle)
    assert about["input"]["name"] == "pixels"
    assert about["input"]["shape"] == [1, 16, 16, 3]
    assert about["input"]["dtype"] == "uint8"
    assert "upright" in about["input"]["prepared"]
    assert about["outputs"] == ["outputs", "uncertainty"]
    model = about["model"]
    assert (model["method"], model["n_bits"], model["classes"]) == ("dmuh", 20, ["0", "1", "4", "7"])
    assert model["preprocess"] == digit_run.load_model().metadata["preprocess"]


@pytest.mark.parametrize("kind", ["digit", "shape"])
def test_bits_are_torchs(kind, request, tmp_path):
    run, images = request.getfixturevalue(f"{kind}_run"), request.getfixturevalue(f"{kind}s").images
    export_run(run.path, tmp_path / "model")
    hasher = Hasher.load(tmp_path / "model")
    codes = hasher.encode(images)
    outputs, unsure = by_torch(run, images)
    clear = np.abs(outputs) > 1e-4
    assert clear.mean() > 0.99
    np.testing.assert_array_equal((codes.unpack() == 1)[clear], (outputs > 0)[clear])
    apart = hasher._network.run(hasher.rows(images))["uncertainty"]
    np.testing.assert_allclose(apart, unsure, atol=1e-5 * np.abs(outputs).max())


def test_another_runtime_can_run_it_by_the_card_alone(bundle, digits):
    """Prepared by hand, as the card says: these digits need no turning, and are stretched to the size they have."""
    from PIL import Image

    about = card(bundle)
    side = about["model"]["preprocess"]["resize"]
    size = about["model"]["preprocess"]["size"]
    image = Image.fromarray(digits.images[5]).convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    edge = (side - size) // 2
    pixels = np.asarray(image)[edge : edge + size, edge : edge + size]
    found = OnnxNetwork(bundle / "model.onnx").run(pixels[None])["outputs"][0] >= 0
    expected = Hasher.load(bundle).encode(digits.images[5]).unpack()[0] == 1
    assert (found == expected).mean() > 0.9


def test_an_index_of_the_run_serves_the_export_too(bundle, digit_run):
    assert Hasher.load(bundle).digest == Hasher.load(digit_run.path).digest


def test_it_encodes_indexes_and_searches_without_torch(bundle, photos, tmp_path):
    program = """
from dmuh.cli import main
model, photos, image, index = sys.argv[1:]
for command in (["encode", model, photos, "--out", index], ["index", index], ["search", index, image, "--json"]):
    sys.argv = ["dmuh", *command]
    try: main()
    except SystemExit as stopped: assert not stopped.code
"""
    image = photos / "ones" / "03.png"
    _, second, *answer = without_torch(program, bundle, photos, image, tmp_path / "index").splitlines()
    assert second == f"20 images indexed: {tmp_path / 'index'}"
    first = json.loads("\n".join(answer))[0]["matches"][0]
    assert (first["hamming"], first["identical"], first["path"]) == (0, True, str(image))


def test_exporting_again_replaces_it(copied, shape_run):
    export_run(shape_run.path, copied)
    assert Hasher.load(copied).n_bits == 16


def test_the_command(digit_run, tmp_path):
    result = json.loads(dmuh("export", digit_run.path, "--out", tmp_path / "model", "--json").stdout)
    assert result["int8"] is None
    assert result["bytes"] == (tmp_path / "model" / "model.onnx").stat().st_size
    assert "exported, " in dmuh("export", digit_run.path, "--out", tmp_path / "model").stdout
    assert "is the run itself" in refused("export", digit_run.path, "--out", digit_run.path)
    assert "holds no run" in refused("export", tmp_path, "--out", tmp_path / "other")
    assert "holds no run" in refused("export", tmp_path, "--out", tmp_path / "other", "--int8")


@pytest.mark.long
def test_int8_says_how_many_bits_it_changes(shape_run, shapes, bundle, tmp_path):
    whole, small = tmp_path / "whole", tmp_path / "int8"
    export_run(shape_run.path, whole)
    changes = export_run(shape_run.path, small, shapes.images)
    sizes = [(folder / "model.onnx").stat().st_size for folder in (small, whole)]
    assert sizes[0] < 0.4 * sizes[1]
    ours, theirs = Hasher.load(small), Hasher.load(whole)
    differ = ours.encode(shapes.images[1::2]).unpack() != theirs.encode(shapes.images[1::2]).unpack()
    assert changes.images == 12
    assert changes.flip_rate == pytest.approx(differ.mean(), abs=1e-6)
    assert changes.flip_rate < 0.2
    assert -1 <= changes.uncertainty_correlation <= 1
    assert ours.digest != theirs.digest  # codes of the one are not searched by the other
    assert card(small)["model"]["int8"] == vars(changes)


@pytest.mark.long
def test_int8_by_command_is_fitted_to_the_images_of_the_run(photos, tmp_path):
    config = configure({"dataset": "folder", "data": str(photos), "method": "regu", "backbone": "smallconv",
                        "image_size": 16, "epochs": 1, "bits": 12})  # fmt: skip
    run = train(config, tmp_path / "run").path
    lines = dmuh("export", run, "--out", tmp_path / "int8", "--int8").stdout.splitlines()
    assert "% of the bits of 5 images it was not fitted to" in lines[1]
    assert len(lines) == 3
    assert "rank correlation of the images' uncertainty" in lines[2]
    moved = shutil.copytree(photos, tmp_path / "moved")
    dmuh("export", run, "--out", tmp_path / "again", "--int8", "--data", moved)
    assert "does not exist" in refused("export", run, "--out", tmp_path / "x", "--int8", "--data", tmp_path / "nowhere")


def test_int8_needs_images_and_layers(digit_run, digits, tmp_path):
    with pytest.raises(InputError, match="two or more, got 1"):
        export_run(digit_run.path, tmp_path / "int8", digits.images[:1])
    from dmuh.datasets import Dataset

    vectors = digits.images.reshape(len(digits), -1).astype(np.float32) / 255
    data = Dataset("features", vectors, digits.labels, digits.classes)
    run = train(configure({"dataset": "features", "method": "itq", "bits": 8}), tmp_path / "run", dataset=data)
    with pytest.raises(ConfigError, match="no layer below its hash layer"):
        export_run(run.path, tmp_path / "int8", vectors[:8])
    assert not (tmp_path / "int8").exists()


@pytest.mark.parametrize("damage", [
    lambda folder: (folder / "model.onnx").unlink(),
    lambda folder: (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-9]),
    lambda folder: (folder / "model.json").write_text((folder / "model.json").read_text().replace("dmuh", "csq")),
    lambda folder: (folder / "model.json").write_text("{"),
    lambda folder: (folder / "model.json").write_text("[]"),
    lambda folder: (folder / "model.json").write_text(json.dumps(card(folder) | {"version": 99})),
    lambda folder: (folder / "model.json").write_text(json.dumps(card(folder) | {"model": {}})),
], ids=["no network", "cut", "renamed", "no JSON", "list", "version", "other model"])  # fmt: skip
def test_a_damaged_export_is_refused(copied, damage):
    damage(copied)
    with pytest.raises(FormatError):
        Hasher.load(copied)


def test_an_altered_network_is_refused(copied):
    proto = onnx.load(copied / "model.onnx")
    largest = max(proto.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    largest.raw_data = bytes(len(largest.raw_data))
    (copied / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(FormatError, match="missing, cut short or altered"):
        Hasher.load(copied)


def test_an_export_runs_on_the_cpu_alone(bundle):
    assert Bundle(bundle).exists
    Hasher.load(bundle, "cpu")
    with pytest.raises(ConfigError, match="exported for the CPU, got device 'cuda'"):
        Hasher.load(bundle, "cuda")


@pytest.mark.parametrize("name", ["model.json", "model.onnx"])
def test_files_that_dmuh_did_not_write_are_not_replaced(digit_run, bundle, tmp_path, name):
    (tmp_path / name).write_text('{"years": "of work"}')
    assert f"has {name}, but not as this dmuh writes" in refused("export", digit_run.path, "--out", tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ['{"years": "of work"}']
    other = shutil.copytree(bundle, tmp_path / "again")
    dmuh("export", digit_run.path, "--out", other)  # its own are
    assert Hasher.load(other).n_bits == 20
