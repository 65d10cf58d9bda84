import copy
import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from dmuh import Hasher, load_dataset
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import ConfigError, DataError, DtypeError, FormatError, ImageError, InputError, RunError
from dmuh.files import save_arrays
from dmuh.images import Reading, read_pixels
from dmuh.machine.workers import process_pool
from dmuh.network import load_networks
from dmuh.runs import Run
from dmuh.trainer.evaluation import evaluate_run
from sharded import noisy_images, projecting_hasher

KINDS = ["digit", "shape"]  # trained from scratch, and frozen as learned elsewhere


@pytest.fixture
def run(digit_run) -> Run:
    return digit_run


@pytest.fixture
def hasher(digit_hasher) -> Hasher:
    return digit_hasher


@pytest.fixture(params=KINDS)
def both(request) -> tuple[Run, Hasher, np.ndarray]:
    """A run, its hasher, and images of its kind."""
    run, hasher = (request.getfixturevalue(f"{request.param}_{what}") for what in ("run", "hasher"))
    return run, hasher, request.getfixturevalue(f"{request.param}s").images


@torch.inference_mode()
def by_torch(run: Run, images) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of the networks that were trained, and what their source of uncertainty says of them."""
    network, source = load_networks(run.load_model())
    pixels = np.stack([read_pixels(image, network.backbone.preprocess) for image in images])
    activations = network.lower(torch.from_numpy(pixels))
    outputs, unsure = source.outputs_and_uncertainty(network, activations)
    return outputs.numpy(), unsure.numpy()


def test_codes_and_uncertainty_are_those_of_the_networks_that_were_trained(both):
    run, hasher, images = both
    codes = hasher.encode(images)
    outputs, unsure = by_torch(run, images)
    clear = np.abs(outputs) > 1e-4
    assert clear.mean() > 0.99
    bits = np.unpackbits(codes.bits, axis=1, count=codes.n_bits, bitorder="little")
    assert ((bits == 1) == (outputs > 0))[clear].all()
    found = hasher._network.run(hasher.rows(images))
    apart = found["uncertainty"]
    rounding = 1e-5 * np.abs(outputs).max()  # it is the difference of two outputs
    np.testing.assert_allclose(apart, unsure, atol=rounding)
    assert unsure.max() > 100 * rounding
    np.testing.assert_array_equal(codes.uncertainty, hasher.calibration.uncertainty(found))


def test_what_an_image_gets_does_not_depend_on_the_images_beside_it(both):
    _, hasher, images = both
    images = images[np.arange(70) % len(images)]
    whole = hasher.encode(images)
    for first, last in ((0, 1), (69, 70), (8, 11), (61, 67)):  # alone, few, and across the batches that it works in
        part = hasher.encode(images[first:last])
        np.testing.assert_array_equal(part.bits, whole.bits[first:last])
        np.testing.assert_array_equal(part.uncertainty, whole.uncertainty[first:last])
    turned = hasher.encode(images[::-1])
    np.testing.assert_array_equal(turned.bits, whole.bits[::-1])
    np.testing.assert_array_equal(turned.uncertainty, whole.uncertainty[::-1])


@pytest.fixture
def copied(run, hasher, tmp_path) -> Run:
    """The run in another folder, as it was used."""
    return Run(shutil.copytree(run.path, tmp_path / "run"))


def identity(run: Run) -> tuple[int, int]:
    about = run.onnx_file.stat()
    return about.st_ino, about.st_mtime_ns


def test_the_onnx_file_is_made_once(copied, hasher, digits):
    before = identity(copied)
    again = Hasher.load(copied.path)
    assert identity(copied) == before
    np.testing.assert_array_equal(again.encode(digits.images).bits, hasher.encode(digits.images).bits)


def test_the_onnx_file_of_other_weights_is_made_again(copied, run, digits):
    arrays, about = copied.load_model().arrays, copied.load_model().metadata
    arrays["network.hash_layer.bias"] = -arrays["network.hash_layer.bias"] + 0.1
    copied.save_model(arrays, about)
    before = copied.onnx_file.read_bytes()
    hasher = Hasher.load(copied.path)
    assert copied.onnx_file.read_bytes() != before
    apart = hasher._network.run(hasher.rows(digits.images[:20]))["uncertainty"]
    np.testing.assert_allclose(apart, by_torch(copied, digits.images[:20])[1], atol=1e-5)
    after = identity(copied)
    Hasher.load(copied.path)
    assert identity(copied) == after


@pytest.mark.long
@pytest.mark.parametrize("damage", [lambda _: b"garbage", lambda _: b"", lambda c: c[: len(c) // 2]],
                         ids=["garbage", "empty", "cut"])  # fmt: skip
def test_a_damaged_onnx_file_is_made_again(copied, damage):
    copied.onnx_file.write_bytes(damage(copied.onnx_file.read_bytes()))
    Hasher.load(copied.path)
    assert OnnxNetwork(copied.onnx_file).outputs == ["outputs", "uncertainty"]


def test_an_altered_onnx_file_is_made_again(copied, hasher, digits):
    proto = onnx.load(copied.onnx_file)
    largest = max(proto.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    largest.raw_data = bytes(len(largest.raw_data))
    copied.onnx_file.write_bytes(proto.SerializeToString())
    again = Hasher.load(copied.path)
    np.testing.assert_array_equal(again.encode(digits.images).bits, hasher.encode(digits.images).bits)


@pytest.mark.parametrize(("device", "words"), [("cuda:99", "not there"), ("gpu", "must be auto, cpu, cuda")])
def test_a_device_that_is_not_there_is_refused(run, device, words):
    with pytest.raises(ConfigError, match=words):
        Hasher.load(run.path, device)


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
    codes = hasher.encode(digits.images[:9], ids=range(100, 109))
    assert codes.n_bits == hasher.n_bits == 20
    assert codes.ids.tolist() == list(range(100, 109))
    assert codes.uncertainty.shape == (9, 20)
    assert (codes.uncertainty > 0).any()
    assert len(hasher.encode([])) == 0


def test_progress_is_told_of_every_image_also_of_those_that_cannot_be_read(hasher, digits):
    told = []
    reading = Reading(on_bad_image="skip", progress=lambda *_: nullcontext(told.append))
    hasher.encode([*digits.images[:99], b"no image"], reading=reading)
    assert len(told) > 1
    assert sum(told) == 100


def test_bad_images_are_fatal_or_left_out(hasher, digits):
    images = [digits.images[0], b"no image", digits.images[1]]
    with pytest.raises(ImageError, match="image 1: not an image"):
        hasher.encode(images)
    assert hasher.encode(images, on_bad_image="skip").ids.tolist() == [0, 2]
    reading = Reading()
    assert hasher.encode(images, on_bad_image="skip", reading=reading).ids.tolist() == [0, 2]
    assert list(reading.bad.reasons) == ["image 1"]
    with pytest.raises(DtypeError, match="must be uint8, got float64"):
        hasher.encode([np.zeros((8, 8))])
    with pytest.raises(InputError, match="shape"):
        hasher.encode([np.zeros((8, 8, 2), np.uint8)])


def test_skipped_images_are_said_aloud_unless_the_caller_keeps_count(hasher, digits, caplog):
    images = [digits.images[0], b"no image"]
    hasher.encode(images, on_bad_image="skip", reading=Reading())
    assert not caplog.messages
    hasher.encode(images, on_bad_image="skip")
    assert caplog.messages == ["1 unreadable image was skipped: image 1: not an image of a known format"]


def test_a_folder_and_a_data_set_are_encoded_in_the_order_of_their_paths(hasher, photos, tmp_path, caplog):
    folder = Path(shutil.copytree(photos, tmp_path / "photos"))
    (folder / "ones" / "note.txt").touch()
    data = load_dataset("images", folder)
    wanted = hasher.encode(data.images)
    assert len(wanted) == 20
    assert not caplog.messages
    assert hasher.encode(str(folder)) == wanted
    assert caplog.messages == [f"{folder}: 1 file ignored: .txt"]
    assert hasher.encode(folder, ids=range(20, 40)).ids.tolist() == list(range(20, 40))
    assert hasher.encode(data) == wanted
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images below"):
        hasher.encode(tmp_path / "empty")


def test_a_generator_is_encoded_without_holding_all_images():
    hasher, data = projecting_hasher(), noisy_images(2000)
    wanted = hasher.encode(data.images)

    class Picture(np.ndarray):
        """An array that counts how many of its kind there are."""

        alive = most = 0

        def __array_finalize__(self, _):
            Picture.alive += 1
            Picture.most = max(Picture.most, Picture.alive)

        def __del__(self):
            Picture.alive -= 1

    assert hasher.encode(image.view(Picture) for image in data.images) == wanted
    assert 100 < Picture.most < 1500
    assert hasher.encode(iter([])) == wanted[:0]


def test_iterables_of_any_kind_are_encoded(hasher, photos):
    paths = sorted(photos.rglob("*.png"))
    wanted = hasher.encode(paths)
    for images in (iter(paths), map(str, paths), tuple(paths), dict.fromkeys(paths)):
        assert hasher.encode(images) == wanted
    assert hasher.encode(iter(paths), ids=range(1, 21)).ids.tolist() == list(range(1, 21))
    for n in (19, 21):
        with pytest.raises(InputError, match=f"as many as the images, 20, got {n}"):
            hasher.encode(iter(paths), ids=range(n))


def test_an_unreadable_image_of_a_generator_is_known_by_its_place():
    pixels = noisy_images(600).images
    reading = Reading(on_bad_image="skip")
    images = (b"no image" if n in (5, 517) else image for n, image in enumerate(pixels))
    codes = projecting_hasher().encode(images, reading=reading)
    assert list(reading.bad.reasons) == ["image 5", "image 517"]
    assert codes.ids.tolist() == [n for n in range(600) if n not in (5, 517)]


def test_the_repr_says_what_it_is(hasher):
    assert repr(hasher) == "Hasher(dmuh, 20 bits, smallconv on the CPU, takes images)"
    vectors = Hasher(SimpleNamespace(shape=(16,)), None, {"n_bits": 8, "method": "itq", "backbone": "features:16"}, "")
    assert repr(vectors) == "Hasher(itq, 8 bits, features:16 on the CPU, takes feature vectors of 16 numbers)"


def test_a_hasher_is_pickled_and_works_in_another_process(hasher, digits, tmp_path):
    wanted = hasher.encode(digits.images[:5])
    for made in (pickle.loads(pickle.dumps(hasher)), copy.copy(hasher), copy.deepcopy(hasher)):
        assert made.encode(digits.images[:5]) == wanted
        assert (made.digest, made.about) == (hasher.digest, hasher.about)
    with process_pool(1) as pool:
        assert pool.submit(hasher.encode, digits.images[:5]).result() == wanted


def test_a_hasher_on_a_gpu_is_loaded_again_where_it_is_unpickled(run, hasher, digits):
    on_gpu = Hasher(object(), hasher.preprocess, hasher.about, hasher.digest, (str(run.path), "auto"))
    assert repr(on_gpu) == "Hasher(dmuh, 20 bits, smallconv on a GPU, takes images)"
    assert pickle.loads(pickle.dumps(on_gpu)).encode(digits.images[:5]) == hasher.encode(digits.images[:5])


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


def test_a_model_of_an_older_layout_is_refused(run, tmp_path):
    """Before parts could be frozen: without the geometry of the images and the scales of the features."""
    model = run.load_model()
    weights = {name: array for name, array in model.arrays.items() if ".feature_" not in name}
    about = {key: value for key, value in model.metadata.items() if key not in ("freeze", "preprocess")}
    save_arrays(tmp_path / "model.safetensors", "dmuh model", 1, weights, about)
    with pytest.raises(FormatError, match="is version 1 of dmuh model"):
        Hasher.load(tmp_path)


def test_a_run_is_measured_on_its_own_split(copied, digits):
    run = copied
    evaluation = evaluate_run(run, digits)
    again = evaluate_run(run, digits, topk=5)  # from the codes that were kept
    assert run.load_codes()[0].ids.tolist() == evaluation.query.ids.tolist()
    assert evaluation.metrics.n_queries == 20
    assert set(evaluation.query.ids.tolist()).isdisjoint(evaluation.database.ids.tolist())
    assert again.metrics.topk == 5
    assert run.evaluation()["topk"] is None  # the run keeps what the default rules give
    assert run.evaluation()["map"] == evaluation.metrics.map
