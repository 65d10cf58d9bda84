import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import dmuh, refused
from dmuh.collection import Collection
from dmuh.datasets import load_images
from dmuh.datasets.folder import load_folder
from dmuh.errors import ConfigError, DataError, FormatError, MissingExtraError, RunError
from dmuh.files.documents import digest_of, file_digest, read_document, write_document
from dmuh.images import Reading
from dmuh.index import HammingIndex
from dmuh.shards import Shards, assigned_shards, encode_shard, parse_shard
from dmuh.shards.sources import DatasetSource, ListSource, TarSource, open_source
from extras import needs
from sharded import begun, noisy_images, projecting_hasher

pa = needs("pyarrow", "scale")
parquet = needs("pyarrow", "scale", "pyarrow.parquet")

PROGRAM = [sys.executable, str(Path(__file__).with_name("sharded.py"))]


def encode_all(folder, source, shards, reading=None, sure=1):
    made = begun(folder, source, shards, sure)
    for shard in made.missing():
        encode_shard(projecting_hasher(), source, made, shard, reading or Reading(0))
    return made.merge().load_codes()


def same(codes, others):
    """What shards keep is what a collection keeps of codes that one process made."""
    assert codes == others.stored()
    assert codes.sure == 1
    assert codes.contents is not None


@pytest.mark.parametrize("shards", [1, 3, 8, 60])
def test_shards_together_are_what_one_process_makes(shards, tmp_path):
    data = noisy_images(50)
    same(encode_all(tmp_path, DatasetSource(data), shards), projecting_hasher().encode(data.images))
    assert len(Collection(tmp_path).items()) == 50


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_shards_keep_levels_contents_and_how_sure_each_image_is(sure, tmp_path):
    data = noisy_images(50)
    encode_all(tmp_path / "shards", DatasetSource(data), 3, sure=sure)
    wanted = projecting_hasher().encode(data.images, sure=sure)
    merged, whole = Collection(tmp_path / "shards"), Collection(tmp_path / "whole")
    whole.write(wanted, data, Path("model"), "d1e5")
    assert merged.load_codes() == whole.load_codes()
    assert merged.load_codes().sure == sure
    assert merged.uncertainty_percentiles() == whole.uncertainty_percentiles()
    uncertainties = [[items[i].uncertainty for i in range(50)] for items in (merged.items(), whole.items())]
    assert uncertainties[0] == uncertainties[1] == pytest.approx(wanted.image_uncertainty.tolist(), abs=1e-6)
    index = HammingIndex()
    Shards(tmp_path / "shards").fill(index)
    found, exact = (one.search(wanted, 10) for one in (index, HammingIndex().add(whole.load_codes())))
    np.testing.assert_array_equal(found.ids, exact.ids)
    np.testing.assert_array_equal(found.distances, exact.distances)


def test_a_bit_of_sureness_takes_a_bit(tmp_path):
    """A row has 3 bytes of bits, and 3 bytes more for each bit of sureness, in place of 80 bytes of numbers."""
    for sure in (0, 1, 2):
        made = begun(tmp_path / str(sure), DatasetSource(noisy_images(5)), 1, sure)
        encode_shard(projecting_hasher(), DatasetSource(noisy_images(5)), made, 0, Reading(0))
        table = parquet.read_table(made.file(0, 1))
        assert {len(levels) for levels in table["levels"].to_pylist()} == {3 * sure}
        assert table.schema.field("uncertainty").type == pa.float32()


def as_an_earlier_version_wrote(shards, numbers, n):
    """Rewrite shards without levels in the first layout, with an uncertainty per bit, and their manifest too."""
    for number in numbers:
        file = shards.file(number, n)
        table = parquet.read_table(file).drop_columns(["levels", "contents", "uncertainty"])
        unsure = pa.array([[7.5] * 20] * len(table), pa.list_(pa.float32()))
        parquet.write_table(table.append_column("uncertainty", unsure), file)
        info = read_document(file.with_suffix(".json"), "dmuh shard")
        write_document(file.with_suffix(".json"), "dmuh shard", info | {"sha256": file_digest(file)})
    manifest = read_document(shards.path / "shards.json", "dmuh shards")
    assert manifest.pop("worth") is None
    write_document(shards.path / "shards.json", "dmuh shards", manifest)


def test_shards_of_an_earlier_version_open_and_can_be_finished(tmp_path):
    source = DatasetSource(noisy_images(30))
    made = begun(tmp_path, source, 3, sure=0)
    for shard in (0, 1):
        encode_shard(projecting_hasher(), source, made, shard, Reading(0))
    as_an_earlier_version_wrote(made, (0, 1), 3)
    names = ("model_digest", "n_bits", "source", "shards")  # that version knew, and said in each shard's .json
    assert made.manifest().digest() == digest_of({name: getattr(made.manifest(), name) for name in names})
    with pytest.raises(RunError, match=r"another number of sure bits \(--sure\)"):
        begun(tmp_path, source, 3, sure=1)
    encode_all(tmp_path, source, 3, sure=0)
    codes = Collection(tmp_path).load_codes()
    np.testing.assert_array_equal(codes.bits, projecting_hasher().encode(noisy_images(30).images).bits)
    assert (codes.knows_uncertainty, codes.contents) == (False, None)
    items = made.items(range(30))
    assert [items[n].uncertainty is None for n in range(30)] == [True] * 20 + [False] * 10


def killed_again_and_again(folder, shards, n, seconds, most):
    """Encode in a process that is killed at random times until it comes to its end; return how often it was."""
    rng = np.random.default_rng(3)
    for kills in range(most):
        torn = set(folder.glob(".shard-*"))
        process = subprocess.Popen([*PROGRAM, folder, str(shards), str(n), str(seconds)])
        while process.poll() is None and set(folder.glob(".shard-*")) <= torn:  # it has not begun to encode
            time.sleep(0.01)
        try:
            if process.wait(timeout=float(rng.uniform(0.3, 1.5))) == 0:
                return kills
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    subprocess.run([*PROGRAM, folder, str(shards), str(n), "0"], check=True)
    return most


@pytest.mark.parametrize(
    ("n", "shards", "seconds", "kills"),
    [
        pytest.param(1000, 8, 0.1, 4, marks=pytest.mark.long),
        pytest.param(100_000, 8, 0.0, 10, marks=pytest.mark.slow),
        pytest.param(12_000, 60, 0.4, 50, marks=pytest.mark.slow, id="50 kills"),
    ],
)
def test_killed_at_random_nothing_is_twice_and_nothing_missing(n, shards, seconds, kills, tmp_path):
    done = killed_again_and_again(tmp_path, shards, n, seconds, most=kills)
    assert done == kills if kills == 50 else done > 0
    same(Shards(tmp_path).merge().load_codes(), projecting_hasher().encode(noisy_images(n).images))
    assert not list(tmp_path.glob(".shard-*"))


def test_what_is_there_is_left_alone_and_what_is_missing_is_named(tmp_path):
    source = DatasetSource(noisy_images(30))
    made = begun(tmp_path, source, 4)
    encode_shard(projecting_hasher(), source, made, 2, Reading(0))
    before = made.file(2, 4).stat().st_mtime_ns
    assert made.missing() == [0, 1, 3]
    with pytest.raises(DataError, match="misses 3 of 4 shards, the first is 1"):
        made.merge().load_codes()
    encode_all(tmp_path, source, 4)
    assert made.file(2, 4).stat().st_mtime_ns == before


def test_other_shards_are_refused(tmp_path):
    begun(tmp_path, DatasetSource(noisy_images(30)), 4)
    with pytest.raises(RunError, match="another list of images:"):
        begun(tmp_path, DatasetSource(noisy_images(31)), 4)
    with pytest.raises(RunError, match="another number of shards:"):
        begun(tmp_path, DatasetSource(noisy_images(30)), 5)


def test_of_two_that_begin_a_folder_at_once_the_later_is_refused(tmp_path, monkeypatch):
    looks = iter([False, True, False, True])  # the second looks before the first has written, and writes after it
    monkeypatch.setattr(Shards, "exists", property(lambda _: next(looks, True)))
    made = begun(tmp_path, DatasetSource(noisy_images(30)), 4)
    with pytest.raises(RunError, match="another list of images"):
        begun(tmp_path, DatasetSource(noisy_images(31)), 4)
    assert made.manifest().source == DatasetSource(noisy_images(30)).digest()


def test_names_that_are_not_unicode_come_back(tmp_path):
    photos = tmp_path / os.fsdecode(b"caf\xe9")
    photos.mkdir()
    for n, pixels in enumerate(noisy_images(3).images):
        Image.fromarray(pixels).save(photos / os.fsdecode(b"%d\xe8.png" % n))
    encode_all(tmp_path / "out", DatasetSource(load_folder(tmp_path)), 2)
    items = Collection(tmp_path / "out").items()
    assert [items[n].path for n in range(3)] == [str(path) for path in sorted(photos.iterdir())]
    assert [items[n].labels for n in range(3)] == [[r"caf\xe9"]] * 3


def test_a_replaced_image_makes_another_source(tmp_path):
    for n, pixels in enumerate(noisy_images(3).images):
        Image.fromarray(pixels).save(tmp_path / f"{n}.png")
    before = DatasetSource(load_images([tmp_path])).digest()
    assert DatasetSource(load_images([tmp_path])).digest() == before
    Image.new("RGB", (8, 8)).save(tmp_path / "1.png")
    assert DatasetSource(load_images([tmp_path])).digest() != before


def test_swapped_shards_are_refused(tmp_path):
    encode_all(tmp_path / "one", DatasetSource(noisy_images(30)), 2)
    encode_all(tmp_path / "other", DatasetSource(noisy_images(32)), 2)
    one, other = Shards(tmp_path / "one"), Shards(tmp_path / "other")
    kept = {file: file.read_bytes() for file in one.path.iterdir()}

    def take(source: Path, target: Path) -> None:
        for suffix in (".parquet", ".json"):
            target.with_suffix(suffix).write_bytes(source.with_suffix(suffix).read_bytes())

    for source in (other.file(1, 2), one.file(0, 2)):
        take(source, one.file(1, 2))
        with pytest.raises(FormatError, match="another shard, or one of another model or of other images"):
            one.merge().load_codes()
        with pytest.raises(FormatError, match="another shard"):
            one.items(range(30))
        for file, content in kept.items():
            file.write_bytes(content)
    one.file(1, 2).write_bytes(other.file(1, 2).read_bytes())
    with pytest.raises(FormatError, match="altered or cut short"):
        one.items([20])
    assert one.items([0])[0].id == 0  # of the other shard


def test_a_shard_without_its_checksum_is_made_again(tmp_path):
    source = DatasetSource(noisy_images(30))
    encode_all(tmp_path, source, 2)
    made = Shards(tmp_path)
    made.file(1, 2).with_suffix(".json").unlink()
    assert made.missing() == [1]
    encode_all(tmp_path, source, 2)
    same(made.merge().load_codes(), projecting_hasher().encode(noisy_images(30).images))


def test_a_shard_that_was_cut_short_is_refused(tmp_path):
    encode_all(tmp_path, DatasetSource(noisy_images(30)), 2)
    file = Shards(tmp_path).file(1, 2)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FormatError, match="altered or cut short"):
        Shards(tmp_path).merge().load_codes()
    parquet.write_table(pa.table({"id": [1]}), file)
    with pytest.raises(FormatError, match="altered or cut short"):
        Shards(tmp_path).merge().load_codes()
    with pytest.raises(DataError, match="holds no shards"):
        Shards(tmp_path / "none").merge().load_codes()


def png(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def tars(tmp_path) -> list[Path]:
    """Two tar files as WebDataset writes them: labels beside images, other parts, a folder; one image is broken."""
    files = []
    for number in range(2):
        files.append(tmp_path / f"part-{number}.tar")
        with tarfile.open(files[-1], "w") as archive:
            for n, pixels in enumerate(noisy_images(5).images):
                parts = {"png": png(pixels), "cls": b"cat\n", "json": b"{}"}
                if n == 3:
                    parts = {"png": b"broken"}
                for suffix, content in parts.items():
                    about = tarfile.TarInfo(f"train/{n:03}.{suffix}")
                    about.size = len(content)
                    archive.addfile(about, io.BytesIO(content))
    return files


def test_tar_files(tars, tmp_path):
    reading = Reading(0, "skip")
    codes = encode_all(tmp_path / "out", TarSource(tars), 2, reading)
    wanted = projecting_hasher().encode(noisy_images(5).images)[[0, 1, 2, 4]]
    assert codes.ids.tolist() == [0, 1, 2, 4, 2**32, 2**32 + 1, 2**32 + 2, 2**32 + 4]
    np.testing.assert_array_equal(codes.bits, np.concatenate([wanted.bits] * 2))
    item = Collection(tmp_path / "out").items()[2**32]
    assert (item.path, item.labels) == (f"{tars[1]}/train/000.png", ["cat"])
    assert len(reading.bad) == 1
    tars[0].write_bytes(b"no tar")
    with pytest.raises(DataError, match="not a tar file"):
        list(TarSource(tars).batches(0, 1))


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_parquet_lists_of_paths_and_of_contents(shards, tmp_path):
    images = noisy_images(12).images
    for n, pixels in enumerate(images):
        Image.fromarray(pixels).save(tmp_path / f"{n}.png")
    paths = pa.table({"path": [f"{n}.png" for n in range(7)], "label": [f"c{n % 2}" for n in range(7)]})
    contents = pa.table({"image": [png(pixels) for pixels in images[7:]]})
    files = [tmp_path / "paths.parquet", tmp_path / "contents.parquet"]
    parquet.write_table(paths, files[0], row_group_size=3)
    parquet.write_table(contents, files[1], row_group_size=2)
    source = open_source(files)
    assert isinstance(source, ListSource)
    same(encode_all(tmp_path / "out", source, shards), projecting_hasher().encode(images))
    items = Collection(tmp_path / "out").items()
    assert (items[1].path, items[1].labels) == (str(tmp_path / "1.png"), ["c1"])
    assert items[8].path.endswith("contents.parquet, row 8")


def test_sources_that_cannot_be_read(tmp_path):
    assert open_source([tmp_path]) is None
    with pytest.raises(DataError, match="cannot be encoded together"):
        open_source([tmp_path / "a.tar", tmp_path])
    with pytest.raises(DataError, match="does not exist"):
        open_source([tmp_path / "a.parquet"])
    parquet.write_table(pa.table({"url": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="has no column image, path"):
        list(ListSource([tmp_path / "a.parquet"]).batches(0, 1))
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match="not a Parquet file"):
        ListSource([tmp_path / "a.parquet"]).digest()


def test_shards_are_dealt_out(monkeypatch):
    assert assigned_shards(4) == [0, 1, 2, 3]
    assert parse_shard("3/64") == (2, 64)
    for wrong in ("0/4", "5/4", "3", "a/b"):
        with pytest.raises(ConfigError, match="K from 1 to N"):
            parse_shard(wrong)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    assert assigned_shards(4) == [2]
    monkeypatch.setenv("JOB_COMPLETIONS", "3")
    assert assigned_shards(7) == [2, 5]
    monkeypatch.delenv("JOB_COMPLETION_INDEX")
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert assigned_shards(4) == [1, 3]


def test_a_missing_pyarrow_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dmuh\[scale\]'"):
        encode_all(tmp_path, DatasetSource(noisy_images(3)), 1)


def test_rows_are_found_by_id(tmp_path):
    encode_all(tmp_path, DatasetSource(noisy_images(30)), 4)
    codes, shards = projecting_hasher().encode(noisy_images(30).images), Shards(tmp_path)
    found = shards.items([3, 29, 3])
    assert found == Collection(tmp_path).items([3, 29])
    assert found[29].uncertainty == pytest.approx(float(codes.image_uncertainty[29]), abs=1e-6)
    assert shards.items([]) == {}
    assert shards.model() == (Path("model"), "d1e5")


def test_an_index_is_filled_from_shards_one_by_one(tmp_path):
    data = noisy_images(30)
    encode_all(tmp_path, DatasetSource(data), 4)
    index = HammingIndex().add(projecting_hasher().encode(data.images)[[3, 20]])
    Shards(tmp_path).fill(index)
    np.testing.assert_array_equal(index.ids, np.arange(30))
    Shards(tmp_path).file(1, 4).unlink()
    with pytest.raises(DataError, match="misses 1 of 4 shards, the first is 2"):
        Shards(tmp_path).fill(HammingIndex())


def test_a_missing_ray_says_what_to_install_and_nothing_is_begun(digit_run, photos, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    sentence = refused("encode", digit_run.path, photos, "--ray", "--shards", 3, "--out", tmp_path / "shards")
    assert "encoding on a Ray cluster needs an optional part of dmuh: pip install 'dmuh[ray]'" in sentence
    assert not (tmp_path / "shards").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of ray
def test_the_actors_of_ray_make_the_same_shards(digit_run, digit_hasher, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    ray = needs("ray", "ray")
    command = ["encode", digit_run.path, photos.name, "--shards", 3, "--out", tmp_path / "shards"]
    assert "--workers is for this machine" in refused(*command, "--ray", "--workers", 2)
    try:
        dmuh("encode", digit_run.path, photos, "--shard", "2/3", "--out", tmp_path / "shards")
        before = Shards(tmp_path / "shards").file(1, 3).stat().st_mtime_ns
        assert "all are there" in dmuh(*command, "--ray").stdout
        assert Shards(tmp_path / "shards").file(1, 3).stat().st_mtime_ns == before
        same(Shards(tmp_path / "shards").merge().load_codes(), digit_hasher.encode(load_images([photos]).images))
        assert "all are there" in dmuh(*command, "--ray").stdout  # nothing is left to do

        (photos / "ones" / "broken.png").write_bytes(b"no image")
        command[-1] = tmp_path / "others"
        assert "broken.png" in refused(*command, "--ray")
        skipped = dmuh(*command, "--ray", "--on-bad-image", "skip")
        assert "1 unreadable image was skipped" in skipped.stderr
        assert len(Shards(tmp_path / "others").merge().load_codes()) == 20
    finally:
        ray.shutdown()
        (photos / "ones" / "broken.png").unlink(missing_ok=True)


def test_commands(digit_run, digit_hasher, photos, tmp_path):
    out = tmp_path / "shards"
    assert "2 of 3 are missing" in dmuh("encode", digit_run.path, photos, "--shard", "2/3", "--out", out).stdout
    assert "all are there" in dmuh("encode", digit_run.path, photos, "--shards", 3, "--out", out).stdout
    assert "another number of shards" in refused("encode", digit_run.path, photos, "--shards", 4, "--out", out)
    assert "do not agree" in refused("encode", digit_run.path, photos, "--shards", 4, "--shard", "1/3", "--out", out)
    assert "20 images indexed" in dmuh("index", out).stdout
    same(Collection(out).load_codes(), digit_hasher.encode(load_images([photos]).images))
    assert "another number of sure bits" in refused("encode", digit_run.path, photos, "--shards", 3, "--sure", 2,
                                                    "--out", out)  # fmt: skip
    dmuh("encode", digit_run.path, photos, "--shards", 2, "--sure", 2, "--out", tmp_path / "surer")
    assert (
        Shards(tmp_path / "surer").merge().load_codes()
        == digit_hasher.encode(load_images([photos]).images, sure=2).stored()
    )
