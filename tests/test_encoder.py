import numpy as np
import pytest
from PIL import Image

from dmuh import Codes, Hasher, configure, train
from dmuh.encoder import evaluate_run
from dmuh.errors import DtypeError, FormatError, ImageError, InputError, RunError
from dmuh.images import BadImages
from dmuh.runs import Run


@pytest.fixture(scope="module")
def run(digits, tmp_path_factory) -> Run:
    settings = {"epochs": 2, "bits": 20, "query": 5, "train": 16, "image_size": 16, "batch_size": 24}
    return train(configure(settings), tmp_path_factory.mktemp("encoder") / "run", dataset=digits)


@pytest.fixture(scope="module")
def hasher(run) -> Hasher:
    return Hasher.load(run.path)


def test_paths_arrays_pillow_images_and_bytes_give_the_same_code(hasher, digits, tmp_path):
    array = digits.images[7]
    path = tmp_path / "seven.png"
    Image.fromarray(array).save(path)
    forms = [array, path, str(path), path.read_bytes(), Image.fromarray(array), np.stack([array] * 3, axis=-1)]
    together = hasher.encode(forms)
    assert len(together) == len(forms)
    for row, form in enumerate(forms):
        alone = hasher.encode(form)
        assert len(alone) == 1
        assert np.array_equal(alone.bits[0], together.bits[row])
        assert np.array_equal(alone.bits[0], together.bits[0])


def test_codes_have_ids_and_uncertainty(hasher, digits):
    codes = hasher.encode(digits.images[:9], ids=range(100, 109), batch_size=4)
    assert codes.n_bits == hasher.n_bits == 20
    assert codes.ids.tolist() == list(range(100, 109))
    assert codes.uncertainty.shape == (9, 20)
    assert (codes.uncertainty > 0).any()
    assert len(hasher.encode([])) == 0


def test_bad_images_are_fatal_or_left_out(hasher, digits):
    images = [digits.images[0], b"no image", digits.images[1]]
    with pytest.raises(ImageError, match="image 1: not an image"):
        hasher.encode(images)
    bad = BadImages()
    assert hasher.encode(images, on_bad_image="skip", bad=bad).ids.tolist() == [0, 2]
    assert list(bad.reasons) == ["image 1"]
    with pytest.raises(DtypeError, match="must be uint8, got float64"):
        hasher.encode([np.zeros((8, 8))])
    with pytest.raises(InputError, match="shape"):
        hasher.encode([np.zeros((8, 8, 2), np.uint8)])


def test_unfinished_and_foreign_folders_are_refused(run, tmp_path):
    with pytest.raises(RunError, match="does not exist"):
        Hasher.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match="holds no run"):
        Hasher.load(tmp_path)
    (tmp_path / "config.toml").write_text(run.config_file.read_text())
    with pytest.raises(RunError, match="is not finished: go on by dmuh train --resume"):
        Hasher.load(tmp_path)
    weights = (run.path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(FormatError, match="cut short"):
        Hasher.load(tmp_path)


def test_a_run_is_measured_on_its_own_split(run, digits):
    evaluation = evaluate_run(run, digits)
    again = evaluate_run(run, digits, topk=5)  # from the codes that were kept
    assert Codes.load(run.query_codes).ids.tolist() == evaluation.query.ids.tolist()
    assert evaluation.metrics.n_queries == 20
    assert set(evaluation.query.ids.tolist()).isdisjoint(evaluation.database.ids.tolist())
    assert again.metrics.topk == 5
    assert run.evaluation()["topk"] is None  # the run keeps what the default rules give
    assert run.evaluation()["map"] == evaluation.metrics.map
