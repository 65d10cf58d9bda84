import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dmuh.errors import FormatError
from dmuh.files import clear_torn, load_arrays, no_room, save_arrays, write_text, written_whole

DTYPES = (np.uint8, np.int32, np.int64, np.float32, np.float64, np.bool_)
SHAPES = ((3,), (2, 3), (0,), (0, 4), (2, 0), ())


def small_file(folder: Path) -> Path:
    """A file with everything in it that a file can have, of few bytes."""
    file = folder / "a.safetensors"
    arrays = {"b": np.arange(5, dtype=np.uint8), "a": np.arange(3.0)}
    save_arrays(file, "dmuh codes", 1, arrays, {"n": 12, "é": 'say "x"'})
    return file


def fail_halfway(file: Path) -> None:
    with written_whole(file) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError("disk full")


def test_written_whole_replaces_the_file(tmp_path):
    file = tmp_path / "deep" / "file.txt"
    write_text(file, "old")
    write_text(file, "new é")
    assert file.read_text(encoding="utf-8") == "new é"
    assert [path.name for path in file.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("before", ["old", None])
def test_an_exception_while_writing_leaves_what_was_there(tmp_path, before):
    file = tmp_path / "file.txt"
    if before:
        file.write_text(before)
    with pytest.raises(RuntimeError, match="disk full"):
        fail_halfway(file)
    assert [path.name for path in tmp_path.iterdir()] == (["file.txt"] if before else [])
    assert not before or file.read_text() == before


def test_a_name_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path):
    (tmp_path / "name").mkdir()
    with pytest.raises(OSError, match="name"):
        write_text(tmp_path / "name", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path):
    usual, file = tmp_path / "usual", tmp_path / "file"
    usual.touch()
    write_text(file, "new")
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    file.chmod(0o640)
    write_text(file, "newer")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_arrays_come_back_as_they_were(tmp_path, dtype, shape, memory_map):
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2 + 0.0).astype(dtype)
    save_arrays(tmp_path / "a", "kind", 1, {"x": array})
    back = load_arrays(tmp_path / "a", "kind", 1, memory_map=memory_map).arrays["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3).T,
        np.arange(9)[::2],
        np.arange(3, dtype=">i8"),
        np.array([-0.0, np.nan, np.inf]),
    ],
    ids=["transposed", "strided", "big-endian", "odd floats"],
)
def test_the_layout_in_memory_does_not_matter(tmp_path, array, memory_map):
    save_arrays(tmp_path / "a", "kind", 1, {"x": array})
    back = load_arrays(tmp_path / "a", "kind", 1, memory_map=memory_map).arrays["x"]
    np.testing.assert_array_equal(back, array)


def test_arrays_of_several_sizes_and_metadata_come_back_together(tmp_path):
    arrays = {"z": np.ones(3, bool), "a": np.arange(4.0), "é": np.arange(7, dtype=np.uint8)}
    metadata = {"n": 3, "none": None, "text": 'é "\\\n', "list": [1, {"a": 0.1}]}
    save_arrays(tmp_path / "a", "kind", 1, arrays, metadata)
    for memory_map in (False, True):
        file = load_arrays(tmp_path / "a", "kind", 1, memory_map=memory_map)
        assert file.metadata == metadata
        assert sorted(file.arrays) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(file.arrays[name], array)


def test_memory_mapped_arrays_are_read_only(tmp_path):
    array = load_arrays(small_file(tmp_path), "dmuh codes", 1, memory_map=True).arrays["a"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_the_checksum_tells_contents_apart(tmp_path):
    def checksum(arrays, metadata):
        save_arrays(tmp_path / "a", "kind", 1, arrays, metadata)
        return load_arrays(tmp_path / "a", "kind", 1).checksum

    base = checksum({"x": np.arange(4)}, {"n": 1})
    assert base == checksum({"x": np.arange(4)}, {"n": 1})
    others = [
        checksum({"x": np.arange(4)}, {"n": 2}),
        checksum({"x": np.arange(4).reshape(2, 2)}, {"n": 1}),
        checksum({"x": np.arange(4).view(np.float64)}, {"n": 1}),
        checksum({"y": np.arange(4)}, {"n": 1}),
        checksum({"x": np.arange(1, 5)}, {"n": 1}),
    ]
    assert len({base, *others}) == 6


def test_the_safetensors_library_reads_the_file(tmp_path):
    arrays = load_file(small_file(tmp_path))
    assert arrays["a"].tolist() == [0, 1, 2]
    assert arrays["b"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("memory_map", [False, True])
def test_a_file_cut_at_any_length_is_refused(tmp_path, memory_map):
    file = small_file(tmp_path)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="cut short"):
            load_arrays(file, "dmuh codes", 1, memory_map=memory_map)


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_is_refused(tmp_path, mask, memory_map):
    file = small_file(tmp_path)
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :])
        with pytest.raises(FormatError):
            load_arrays(file, "dmuh codes", 1, memory_map=memory_map)


def test_a_file_with_bytes_behind_it_is_refused(tmp_path):
    file = small_file(tmp_path)
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(FormatError):
        load_arrays(file, "dmuh codes", 1)


@pytest.mark.parametrize(
    ("kind", "version", "words"),
    [
        ("dmuh index", 1, ["holds dmuh codes", "expected dmuh index"]),
        ("dmuh codes", 2, ["version 1", "reads version 2"]),
    ],
    ids=["kind", "version"],
)
def test_a_file_of_another_kind_or_version_is_refused(tmp_path, kind, version, words):
    with pytest.raises(FormatError) as caught:
        load_arrays(small_file(tmp_path), kind, version)
    assert all(word in str(caught.value) for word in [*words, "a.safetensors"])


def test_a_safetensors_file_that_dmuh_did_not_write_is_refused(tmp_path):
    save_file({"x": np.arange(3)}, tmp_path / "foreign")
    with pytest.raises(FormatError, match="something that dmuh did not write, expected dmuh codes"):
        load_arrays(tmp_path / "foreign", "dmuh codes", 1)


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_a_missing_file_is_refused_with_what_was_expected(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match=f"{name}.*dmuh codes"):
        load_arrays(tmp_path / name, "dmuh codes", 1)


def test_a_file_that_may_not_be_replaced_stays(tmp_path):
    write_text(tmp_path / "a", "first", replace=False)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a", "second", replace=False)
    assert (tmp_path / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_only_what_a_kill_left_of_our_own_is_cleared_away(tmp_path):
    program = "import os, sys; from pathlib import Path; from dmuh.files import written_whole\n"
    program += "with written_whole(Path(sys.argv[1])) as file: file.write_text('half'); os.kill(os.getpid(), 9)"
    for name in ("codes.safetensors", "log"):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], check=False)
        assert done.returncode == -signal.SIGKILL
    others = {".codes.safetensors.swp", ".codes.safetensors.dmuh-backup", ".profile", "a.dmuh-12345678.txt"}
    for name in others:
        (tmp_path / name).touch()
    assert len(list(tmp_path.iterdir())) == 6
    clear_torn(tmp_path, "log")
    assert len(list(tmp_path.iterdir())) == 5
    clear_torn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == others


FULL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from dmuh.files import no_room, save_arrays, write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for write in (
    lambda: save_arrays(Path(sys.argv[1]), "kind", 1, {"x": np.zeros(100_000)}),
    lambda: write_text(Path(sys.argv[1]), 100_000 * "x"),
):
    try:
        write()
    except OSError as error:
        print(no_room(error))
"""


def test_a_full_disk_is_an_error_that_says_so_and_leaves_what_was_there(tmp_path):
    write_text(tmp_path / "a", "old")
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    assert not no_room(FileNotFoundError(2, "no such file"))
