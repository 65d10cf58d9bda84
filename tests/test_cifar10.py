"""CIFAR-10 in every layout in which it is distributed, made small here, and files that only pretend to be it."""

import gzip
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dmuh.config import DataSettings, ProtocolSettings
from dmuh.datasets import cifar10, load_dataset
from dmuh.errors import ConfigError, DataError
from dmuh.protocols import PROTOCOLS, protocol_of
from dmuh.protocols.checks import summarise

BATCH = 20
NAMES = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]


@pytest.fixture
def rows(monkeypatch):
    """Labels and pixels (channel after channel) of six batches, as the files hold them."""
    monkeypatch.setattr(cifar10, "_BATCH", BATCH)
    rng = np.random.default_rng(0)
    return {name: (np.arange(BATCH) % 10, rng.integers(0, 256, (BATCH, 3072), np.uint8)) for name in NAMES}


def write_python(folder: Path, rows, python2: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, (labels, pixels) in rows.items():
        batch = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": pixels, b"filenames": [b"a.png"]}
        content = pickle.dumps(batch, protocol=2)
        if python2:  # as the makers' NumPy called it
            content = content.replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")
        (folder / name).write_bytes(content)
    (folder / "batches.meta").write_bytes(b"not read")
    return folder


def write_binary(folder: Path, rows) -> Path:
    folder.mkdir(parents=True)
    for name, (labels, pixels) in rows.items():
        records = np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("airplane\n")
    return folder


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def layouts(root: Path, rows) -> list[Path]:
    python = write_python(root / "a" / "cifar-10-batches-py", rows)
    binary = write_binary(root / "b" / "cifar-10-batches-bin", rows)
    newer = write_python(root / "c", rows, python2=False)
    archives = [pack(python, root / "cifar-10-python.tar.gz"), pack(binary, root / "cifar-10-binary.tar.gz")]
    return [python, python.parent, binary, binary.parent, newer, *archives]


def test_every_layout_gives_the_same_images(rows, tmp_path):
    for source in layouts(tmp_path, rows):
        data = load_dataset(DataSettings(dataset="cifar10", data=str(source)))
        assert data.images.shape == (6 * BATCH, 32, 32, 3)
        assert data.classes[3] == "cat"
        assert data.labels.argmax(axis=1).tolist() == list(range(10)) * 12
        assert data.test.tolist() == [False] * 5 * BATCH + [True] * BATCH
        pixel = rows["data_batch_2"][1][7].reshape(3, 32, 32)[:, 4, 5]
        assert data.images[BATCH + 7, 4, 5].tolist() == pixel.tolist()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-here",)


@pytest.mark.parametrize("content", [
    pickle.dumps(Evil(), protocol=2),
    pickle.dumps({b"data": Evil(), b"labels": [1]}, protocol=4),
    b"cbuiltins\neval\n(S'1'\ntR.",
    b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
    b"no pickle",
    b"",
    pickle.dumps({b"data": [1, 2], b"labels": [1]}, protocol=2),
    pickle.dumps({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2, 3]}, protocol=2),
])  # fmt: skip
def test_a_file_that_is_no_batch_is_refused_and_runs_nothing(rows, tmp_path, monkeypatch, content):
    folder = write_python(tmp_path / "data", rows)
    (folder / "data_batch_3").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="data_batch_3"):
        cifar10.load_cifar10(folder)
    assert not (tmp_path / "was-here").exists()


def test_what_is_missing_is_said(rows, tmp_path):
    folder = write_binary(tmp_path / "data", rows)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"lacks data_batch_4\.bin"):
        cifar10.load_cifar10(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no CIFAR-10"):
        cifar10.load_cifar10(tmp_path / "empty")
    whole = pack(write_python(tmp_path / "whole", rows), tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="whole archive"):
        cifar10.load_cifar10(tmp_path / "cut.tar.gz")
    (folder / "test_batch.bin").write_bytes(b"\0" * 100)
    (folder / "data_batch_4.bin").write_bytes((folder / "data_batch_3.bin").read_bytes())
    with pytest.raises(DataError, match=r"test_batch\.bin does not hold"):
        cifar10.load_cifar10(folder)


@pytest.mark.parametrize("packed", [False, True], ids=["tar", "tar.gz"])
def test_a_broken_archive_is_read_or_refused(rows, tmp_path, packed):
    archive = pack(write_python(tmp_path / "data", rows), tmp_path / "whole.tar.gz")
    whole = archive.read_bytes() if packed else gzip.decompress(archive.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        content = bytearray(whole)
        content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        archive.write_bytes(content[: rng.integers(1, len(content) + 1)] if rng.integers(2) else content)
        try:
            cifar10.load_cifar10(archive)
        except DataError:
            refused += 1
    assert refused > 20


def test_no_more_is_read_of_a_batch_than_one_has(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "_LARGEST", 100_000)
    folder = write_binary(tmp_path / "data", rows)
    with (folder / "data_batch_1.bin").open("ab") as file:
        file.truncate(2**40)  # with nothing in it: a disk that holds it has room
    with pytest.raises(DataError, match=r"data_batch_1\.bin does not hold"):
        cifar10.load_cifar10(folder)


def test_protocols(rows, tmp_path):
    data = cifar10.load_cifar10(write_python(tmp_path / "data", rows))
    few = {"query": 2.0, "train": 4.0, "validation": 0.0}
    split = protocol_of(ProtocolSettings(**few), "cifar10").split(data.labels, 0, data.test)
    assert [len(part) for part in (split.query, split.train, split.database)] == [20, 40, 60]
    split = protocol_of(ProtocolSettings(protocol="cifar10-59k", **few), "cifar10").split(data.labels, 0, data.test)
    assert [len(part) for part in (split.query, split.train, split.database)] == [20, 40, 100]
    rest = protocol_of(ProtocolSettings(protocol="cifar10-59k", database="rest", **few), "cifar10")
    assert len(rest.split(data.labels, 0).database) == 60
    full = protocol_of(ProtocolSettings(protocol="cifar10-full", validation=0.0), "cifar10")
    split = full.split(data.labels, 0, data.test)
    assert split.query.tolist() == list(range(100, 120))
    assert split.train.tolist() == split.database.tolist() == list(range(100))
    assert summarise(data, split, "cifar10-full").problems == []
    with pytest.raises(DataError, match="sets none aside"):
        full.split(data.labels, 0)
    with pytest.raises(ConfigError, match="cifar10-full is fixed by the data set"):
        protocol_of(ProtocolSettings(protocol="cifar10-full", query=3.0), "cifar10")


def test_counts_are_the_papers():
    labels = np.eye(10, dtype=np.uint8)[np.arange(60_000) % 10]
    sizes = {
        name: [len(part) for part in (split.query, split.train, split.database)]
        for name in ("cifar10", "cifar10-59k", "cifar10-full")
        for split in [PROTOCOLS[name].split(labels, 0, np.arange(60_000) >= 50_000)]
    }
    assert sizes == {
        "cifar10": [1_000, 5_000, 54_000],
        "cifar10-59k": [1_000, 5_000, 59_000],
        "cifar10-full": [10_000, 50_000, 50_000],
    }


@pytest.mark.slow
def test_the_real_images():
    """Below DMUH_DATA, in the official layout."""
    root = os.environ.get("DMUH_DATA")
    if not root or not (Path(root) / "cifar-10-batches-py").is_dir():
        pytest.skip("DMUH_DATA names no folder with cifar-10-batches-py")
    data = cifar10.load_cifar10(Path(root))
    assert data.images.shape == (60_000, 32, 32, 3)
    assert data.labels.sum(axis=0).tolist() == [6_000] * 10
    assert 100 < data.images.mean() < 140
