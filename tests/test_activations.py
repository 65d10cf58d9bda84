"""Activations of frozen parts: computed once, kept, and the same as if they were computed on the way."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dmuh.backbones import create_backbone
from dmuh.datasets import Dataset, one_hot
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.errors import ImageError, InputError
from dmuh.images import BadImages, ImageReader, Reading, read_pixels
from dmuh.network import HashNetwork, MomentumCopy
from dmuh.trainer import activation_cache
from dmuh.trainer.activation_cache import ActivationCache, cache_folder, uncounted
from dmuh.trainer.inputs import open_inputs
from dmuh.trainer.measuring import compute_outputs
from tiny import noise, noise_set, tiny

PLAIN, MIRRORED = "computing features", "computing features of mirrored images"


class Count:
    """Notes what is computed, and holds it to its promise."""

    def __init__(self):
        self.told = []

    @contextmanager
    def __call__(self, what, total):
        self.told.append((what, total))
        done = []
        yield done.append
        assert sum(done) == total


class Computing(BaseException):
    pass


@contextmanager
def refuse(what, total):
    """Let nothing be computed."""
    raise Computing(total)
    yield


def kept(network, data, positions, *, mirror=False, count=uncounted, **options):
    """Rows of all images, and which of these positions could not be read."""
    with ImageReader(data.images, network.backbone.preprocess, Reading(**options)) as reader:
        return ActivationCache(network, data).rows(np.asarray(positions), reader, mirror=mirror, count=count)


def n_computed(network, data, positions, **options) -> int:
    """How many rows would be computed."""
    try:
        kept(network, data, positions, count=refuse, **options)
    except Computing as told:
        return told.args[0]
    return 0


@torch.inference_mode()
def lower(network, data, positions, mirror=False) -> np.ndarray:
    pixels = np.stack([read_pixels(data.images[p], network.backbone.preprocess) for p in positions])
    return network.lower(torch.from_numpy(pixels[:, :, ::-1].copy() if mirror else pixels)).numpy()


NETWORK, DATA = tiny(freeze="conv"), noise_set(200)
PART = np.arange(0, 160)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory) -> Path:
    """A cache with the rows of most images, plain and mirrored."""
    folder = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMUH_CACHE", str(folder))
        with ImageReader(DATA.images, NETWORK.backbone.preprocess) as reader:
            cache = ActivationCache(NETWORK, DATA)
            for mirror in (False, True):
                cache.rows(PART, reader, mirror=mirror)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def filled(filled_once, own_cache) -> Path:
    """A copy of that cache."""
    shutil.copytree(filled_once, own_cache)
    return own_cache


@pytest.mark.parametrize("mirror", [False, True])
def test_rows_are_what_the_frozen_part_gives_also_of_mirrored_images(filled, mirror):
    rows, unread = kept(NETWORK, DATA, PART, mirror=mirror, count=refuse)
    assert len(unread) == 0
    assert rows.shape == (200, 6, 6, 6)
    np.testing.assert_allclose(rows[PART], lower(NETWORK, DATA, PART, mirror), atol=1e-4)
    assert np.abs(rows[PART] - lower(NETWORK, DATA, PART, not mirror)).max() > 0.1
    assert not rows[160:].any()


def test_rows_of_a_network_with_its_own_layers_are_what_torch_gives(digits):
    network = HashNetwork(create_backbone("cnnf"), 8, "conv2")
    rows, _ = kept(network, digits, [5, 200])
    np.testing.assert_allclose(rows[[5, 200]], lower(network, digits, [5, 200]), atol=1e-4, rtol=1e-4)


def test_rows_are_computed_once_and_only_those_that_are_missing(filled):
    assert n_computed(NETWORK, DATA, PART) == n_computed(NETWORK, DATA, [5, 3]) == 0
    before, _ = kept(NETWORK, DATA, PART, count=refuse)
    before = before.copy()
    count = Count()
    after, _ = kept(NETWORK, DATA, np.arange(100, 190), count=count)
    assert count.told == [(PLAIN, 30)]
    np.testing.assert_array_equal(after[:160], before[:160])
    np.testing.assert_allclose(after[:190], lower(NETWORK, DATA, range(190)), atol=1e-4)
    assert n_computed(NETWORK, DATA, np.arange(200)) == 10
    assert n_computed(NETWORK, DATA, np.arange(200), mirror=True) == 40


def test_what_is_above_the_frozen_part_does_not_matter(filled):
    other = tiny(n_bits=20, freeze="conv")
    with torch.no_grad():
        other.backbone.full.weight.add_(1)
        other.feature_mean.add_(1)
    assert n_computed(other, DATA, PART) == 0
    relabelled = Dataset("other", DATA.images, one_hot(np.zeros(200, int), 1), ("all",))
    assert n_computed(NETWORK, relabelled, PART) == 0


def test_whatever_changes_the_activations_is_computed_again(filled):
    filters, statistics = tiny(freeze="conv"), tiny(freeze="conv")
    with torch.no_grad():
        filters.backbone.conv.weight[0, 0, 0, 0] += 1e-6
        statistics.backbone.norm.running_mean[0] += 1e-6
    for other in (filters, statistics, tiny(freeze="full"), tiny(freeze="conv", image_size=10)):
        assert n_computed(other, DATA, PART) == 160
    altered = DATA.images.copy()
    altered[3, 0, 0, 0] ^= 1
    for images in (altered, DATA.images[:199]):
        changed = Dataset("noise", images, DATA.labels[: len(images)], DATA.classes)
        assert n_computed(NETWORK, changed, PART) == 160
    assert n_computed(NETWORK, DATA, PART) == 0


def files(folder: Path, n: int) -> Dataset:
    for number, image in enumerate(noise(n, 12)):
        Image.fromarray(image).save(folder / f"{number}.png")
    return Dataset("folder", sorted(folder.glob("*.png")), one_hot(np.arange(n) % 2, 2), ("even", "odd"))


def test_a_file_that_changed_is_computed_again(tmp_path):
    network, data = NETWORK, files(tmp_path, 6)
    rows, _ = kept(network, data, range(6))
    np.testing.assert_allclose(rows, lower(network, data, range(6)), atol=1e-4)
    assert n_computed(network, data, range(6)) == 0
    before = data.images[2].stat()
    os.utime(data.images[2], ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert n_computed(network, data, range(6)) == 6
    os.utime(data.images[2], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert n_computed(network, data, range(6)) == 0
    data.images[2].write_bytes(data.images[3].read_bytes() + b"more")
    os.utime(data.images[2], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert n_computed(network, data, range(6)) == 6


@pytest.mark.parametrize("marks", [b"\1" * 200, b"\1" * 1599, b"\1" * 1600, b"", None])
def test_marks_that_do_not_fit_are_ignored(filled, marks):
    (file,) = filled.rglob("plain/done.bin")
    assert marked(file).tolist() == [True] * 160 + [False] * 40
    file.unlink() if marks is None else file.write_bytes(marks)
    assert n_computed(NETWORK, DATA, PART) == 160


def marked(file: Path) -> np.ndarray:
    """Which rows have a checksum."""
    return np.fromfile(file, np.uint64) != 0


def test_rows_that_were_altered_are_computed_again_and_no_others(filled, caplog):
    (file,) = filled.rglob("plain/rows.bin")
    before, _ = kept(NETWORK, DATA, PART)
    rows = np.fromfile(file, np.float32).reshape(200, -1)
    rows[7, 3] += 1e-3
    rows[9] = rows[8]  # of another image
    rows[[20, 21]] = rows[[21, 20]]
    rows.tofile(file)
    assert n_computed(NETWORK, DATA, PART) == 4
    assert "4 kept features" in caplog.text
    np.testing.assert_array_equal(kept(NETWORK, DATA, PART)[0], before)


def test_rows_of_another_cache_are_computed_again(filled):
    mirrored, plain = (next(filled.rglob(f"{name}/rows.bin")).parent for name in ("mirrored", "plain"))
    for name in ("rows.bin", "done.bin"):
        (plain / name).write_bytes((mirrored / name).read_bytes())
    assert n_computed(NETWORK, DATA, PART) == 160


def test_a_frozen_part_is_exported_once_whatever_the_images(monkeypatch):
    exported = []

    def export(part: FrozenPart) -> bytes:
        exported.append(part.network)
        return to_onnx(part)

    monkeypatch.setattr(activation_cache, "to_onnx", export)
    monkeypatch.setattr(activation_cache, "_exported", {})
    other = tiny(freeze="conv", seed=1)
    for network, n in ((NETWORK, 3), (NETWORK, 4), (other, 3)):
        rows, _ = kept(network, noise_set(n), range(n))
        np.testing.assert_allclose(rows, lower(network, noise_set(n), range(n)), atol=1e-5)
    assert [id(network) for network in exported] == [id(NETWORK), id(other)]


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_rows_that_were_lost_are_computed_again(filled, damage):
    (rows,) = filled.rglob("plain/rows.bin")
    rows.write_bytes(rows.read_bytes()[:1000]) if damage == "cut" else rows.unlink()
    assert n_computed(NETWORK, DATA, PART) > 0


PROGRAM = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
import numpy as np
from dmuh.trainer import activation_cache
from test_activations import DATA, NETWORK, kept

activation_cache._SECONDS = 0.0  # rows are marked after every batch

@contextmanager
def count(what, total):
    def progress(n):
        nonlocal total
        total -= n
        if total <= 72:
            print("two batches are computed", flush=True)
            time.sleep(600)
    yield progress

kept(NETWORK, DATA, np.arange(200), count=count)
"""


@pytest.mark.long
def test_killed_in_the_middle_another_process_that_waits_goes_on_to_the_same_rows(own_cache, filled_once, monkeypatch):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout.readline() == "two batches are computed\n"
        (marks,) = own_cache.rglob("done.bin")
        assert marked(marks).tolist() == [True] * 64 + [False] * 136  # the rows of the second batch are not marked yet
        (rows,) = own_cache.rglob("rows.bin")
        written = np.fromfile(rows, np.float32).reshape(200, 6, 6, 6)
        np.testing.assert_allclose(written[:64], lower(NETWORK, DATA, range(64)), atol=1e-4)
        count = Count()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kept, NETWORK, DATA, PART, count=count)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)  # the other one fills the cache
            assert count.told == []
            process.send_signal(signal.SIGKILL)
            resumed, _ = waiting.result()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert count.told == [(PLAIN, 96)]
    monkeypatch.setenv("DMUH_CACHE", str(filled_once))
    whole, _ = kept(NETWORK, DATA, PART, count=refuse)
    np.testing.assert_array_equal(resumed[PART], whole[PART])


def test_asked_for_by_two_at_once_every_row_is_computed_once():
    count = Count()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: kept(NETWORK, DATA, np.arange(80), count=count)[0], range(2))
    assert count.told == [(PLAIN, 80)]
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one[:80], lower(NETWORK, DATA, range(80)), atol=1e-4)


def opened(network, data, positions, *, keep=True, mirrored=(), on_bad_image="fail", bad=None, count=uncounted):
    return open_inputs(
        network, data, np.asarray(positions), keep=keep, mirrored=np.array(mirrored, np.int64),
        reading=Reading(0, on_bad_image, BadImages() if bad is None else bad, count),
    )  # fmt: skip


def test_an_unreadable_image_is_left_out_and_noted_every_time(tmp_path):
    network, data = NETWORK, files(tmp_path, 5)
    data.images[3].write_bytes(b"no image")
    for told in ([(PLAIN, 5), (MIRRORED, 4)], [(PLAIN, 1), (MIRRORED, 1)]):
        bad, count = BadImages(), Count()
        skipping = {"on_bad_image": "skip", "bad": bad, "count": count}
        with opened(network, data, range(5), mirrored=[0, 1, 3, 4], **skipping) as inputs:
            batches = list(inputs.batches([np.array([4, 3]), np.array([3]), np.array([0, 1])], augment="flip"))
        assert [batch.positions.tolist() for batch in batches] == [[4], [], [0, 1]]
        assert [len(batch.activations) for batch in batches] == [1, 0, 2]
        assert list(bad.reasons) == [str(data.images[3])]
        assert count.told == told
    with pytest.raises(ImageError, match=r"3\.png: not an image"), opened(network, data, range(5)):
        pass


def test_kept_and_computed_on_the_way_the_outputs_are_the_same(filled):
    copy = MomentumCopy(NETWORK, 0.5)
    with torch.no_grad():
        copy.network.hash_layer.weight.add_(0.1)
    found = []
    for keep in (True, False):
        with opened(NETWORK, DATA, PART, keep=keep, count=refuse) as inputs:
            found.append(compute_outputs(NETWORK, copy, inputs, np.array([7, 3, 29]), batch_size=2))
    one, other = found
    assert one.positions.tolist() == other.positions.tolist() == [7, 3, 29]
    np.testing.assert_allclose(one.outputs, other.outputs, atol=1e-4)
    np.testing.assert_allclose(one.uncertainty, other.uncertainty, atol=1e-4)
    assert one.uncertainty.min() > 0.001


def test_to_flip_is_to_take_the_mirrored_row_of_about_half_of_the_images(filled):
    plain, mirrored = lower(NETWORK, DATA, PART), lower(NETWORK, DATA, PART, mirror=True)
    order = np.random.default_rng(0).permutation(60)
    with opened(NETWORK, DATA, PART, mirrored=PART, count=refuse) as inputs:

        def flips(seed) -> list[bool]:
            found = []
            for batch in inputs.batches([order[:25], order[25:]], augment="flip", seed=seed):
                for position, row in zip(batch.positions, batch.activations.numpy(), strict=True):
                    same, turned = (np.abs(rows[position] - row).max() < 1e-4 for rows in (plain, mirrored))
                    assert same != turned
                    found.append(turned)
            return found

        assert flips((1, 2)) == flips((1, 2)) != flips((1, 3))
        assert 15 < sum(flips((1, 2))) < 45
        (unchanged,) = inputs.batches([order], augment="none", seed=(1, 2))
        np.testing.assert_allclose(unchanged.activations, plain[order], atol=1e-4)


def test_feature_vectors_are_kept_already(own_cache):
    vectors = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    data = Dataset("features", vectors, one_hot(np.arange(9) % 2), ("even", "odd"))
    network = HashNetwork(create_backbone("features:5"), 4, "all")
    with opened(network, data, range(9), count=refuse) as inputs:
        (batch,) = inputs.batches([np.array([8, 0])])
        np.testing.assert_array_equal(batch.activations, vectors[[8, 0]])
    assert not own_cache.exists()
    with pytest.raises(InputError, match="takes vectors of 6 numbers, the data have 5"):
        opened(HashNetwork(create_backbone("features:6"), 4, "all"), data, range(9)).__enter__()


def test_outputs_come_in_order_with_bad_images_left_out(tmp_path):
    network = HashNetwork(create_backbone("smallconv"), 8)
    copy = MomentumCopy(network, 0.5)
    (tmp_path / "no.jpg").write_text("not an image")
    good = list(noise(3, 32))
    data = Dataset("x", [good[0], tmp_path / "no.jpg", good[1], good[2]], np.ones((4, 1), np.uint8), ("all",))
    bad = BadImages()
    with opened(network, data, range(4), keep=False, on_bad_image="skip", bad=bad) as inputs:
        result = compute_outputs(network, copy, inputs, np.array([3, 1, 0]), batch_size=2)
    assert result.positions.tolist() == [3, 0]
    assert len(bad) == 1
    with opened(network, data, range(4), keep=False) as inputs:
        alone = compute_outputs(network, None, inputs, np.array([0]))
        assert np.allclose(result.outputs[1], alone.outputs[0], atol=1e-5)
        assert alone.uncertainty is None
        assert result.uncertainty.max() == 0
        with pytest.raises(ImageError, match=r"no\.jpg: not an image"):
            compute_outputs(network, None, inputs, np.array([1]))


def test_the_cache_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("DMUH_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "dmuh"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == tmp_path / "home" / ".cache" / "dmuh"
