"""Pickled batches, as each Python and NumPy writes them and as nobody should, read without unpickling."""

import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from dmuh.datasets.pickled import as_uint8, read_pickled

PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 6)
# written by Python 2.7's cPickle with NumPy 1.16
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
    b"(K\x01K\x02K\x06\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
    b"K\x00tb\x89U\x0c\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0btbU\x06labelsq\x08]q\t(K\x06K\teU\x0bbatch_labelq\n"
    b"U\x15training batch 1 of 5q\x0bU\tfilenamesq\x0c]q\r(U\x05a.pngq\x0eU\x05b.pngq\x0feu."
)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def raw(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def dtype(code="u1", order="|", flags=0) -> bytes:
    """A copy of a dtype, whose state is set."""
    made = b"cnumpy\ndtype\n" + text(code) + b"\x89\x88\x87R"
    return made + b"(K\x03" + text(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK" + bytes([flags]) + b"tb"


def array(kind=None, shape=b"K\x02K\x06\x86", by_columns=b"\x89", content=bytes(range(12))) -> bytes:
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + raw(b"b") + b"\x87R"
    return made + b"(K\x01" + shape + (kind or dtype()) + by_columns + raw(content) + b"tb"


def test_what_python_2_wrote():
    batch = read_pickled(PYTHON_2)
    np.testing.assert_array_equal(as_uint8(batch.pop(b"data")), PIXELS)
    assert batch == {
        b"labels": [6, 9], b"batch_label": b"training batch 1 of 5", b"filenames": [b"a.png", b"b.png"],
    }  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("module", [b"numpy.core", b"numpy._core"])
@pytest.mark.parametrize("pixels", [PIXELS, np.asfortranarray(PIXELS)], ids=["by rows", "by columns"])
def test_what_python_3_writes(protocol, module, pixels):
    batch = {b"labels": [6, 300, -1, 2**40], b"data": pixels, "text": ["ä", 0.5, None, True, (), (1, 2, 3, 4)]}
    content = pickle.dumps(batch, protocol=protocol)
    if protocol < 4:  # where the name of a module ends with its line
        content = content.replace(b"cnumpy._core.", b"c" + module + b".")
    read = read_pickled(content)
    np.testing.assert_array_equal(as_uint8(read.pop(b"data")), PIXELS)
    del batch[b"data"]
    assert read == batch


def test_crafted_arrays_are_what_numpy_would_make():
    """So that what is refused below is refused for its fault."""
    np.testing.assert_array_equal(pickle.loads(b"\x80\x03" + array() + b"."), PIXELS)
    np.testing.assert_array_equal(as_uint8(read_pickled(b"\x80\x03" + array() + b".")), PIXELS)


@pytest.mark.parametrize(("content", "sentence"), [
    (array(dtype("O8")), "not bytes"),
    (array(dtype("i8", "<")), "not bytes"),
    (array(dtype("u1", "<")), "not bytes"),
    (array(b"cnumpy\ndtype\n" + text("u1") + b"\x89\x88\x87R"), "not bytes"),  # no state
    (array(b"cnumpy\nuint8\n"), "not a matrix"),
    (array(shape=b"K\x0c\x85"), "not a matrix"),
    (array(shape=b"K\x03K\x06\x86"), "12 bytes and not the 3 × 6"),
    (array(shape=b"J\xff\xff\xff\xffJ\xf4\xff\xff\xff\x86"), "12 bytes and not the -1 × -12"),
    (array(shape=b"\x8a\x08" + b"\xff" * 7 + b"\x7fK\x02\x86"), "12 bytes and not the"),
    (array(content=b""), "0 bytes and not the 2 × 6"),
    (array().replace(b"K\x00\x85", b"K\x01\x85"), "not a matrix"),
    (array().replace(b"ndarray", b"matrix"), "not a matrix"),
    (b"]", "not a matrix"),
])  # fmt: skip
def test_what_is_no_matrix_of_bytes_is_refused(content, sentence):
    with pytest.raises(ValueError, match=sentence):
        as_uint8(read_pickled(b"\x80\x03" + content + b"."))


NAMED = b"cnumpy\nndarray\n"


@pytest.mark.parametrize(("content", "sentence"), [
    (NAMED + b"}" + text("shape") + b"K\x01sb", "alters what no data need"),  # a class
    (b"c_codecs\nencode\n}b", "alters"),  # a function
    (dtype() + b"}b", "alters"),  # a state set twice
    (b"]}b", "alters"),
    (NAMED + b")\x81", "opcode NEWOBJ"),
    (b"(" + NAMED + b"o", "opcode OBJ"),
    (b"(inumpy\nndarray\n", "opcode INST"),
    (b"\x82\x01", "opcode EXT1"),
    (text("x") + b"Q", "opcode BINPERSID"),
    (b"]K\x01R", "calls what no data need"),
    (NAMED + b"K\x01R", "calls"),
    (NAMED + b")RK\x01a", "no list"),
    (NAMED + b")R" + text("x") + b"K\x01s", "keys that are not texts"),
    (b"}" + b"K\x01K\x01s", "keys that are not texts"),
    (b"}(" + text("x") + b"u", "keys that are not texts"),
    (b"c_codecs\nencode\n" + text("61") + text("hex") + b"\x86RK\x00a", "no list"),  # not called at all
    (b"c_codecs\nencode\n" + text("€") + text("latin1") + b"\x86R", "codec can't encode"),
    (b"K\x01K\x02\x93", "no text"),
    (b"h\x07", "BINGET refers to what is not there"),
    (b"t", "TUPLE refers to what is not there"),
    (b"a", "its end is missing"),
    (b"", "its end is missing"),
    (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx", "bytes"),
    (b"r\xff\xff\xff\xff", "LONG_BINPUT refers to what is not there"),
])  # fmt: skip
def test_opcodes_that_call_or_alter_or_lead_nowhere_are_refused(content, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_pickled(b"\x80\x02" + content + b".")


def test_a_memo_takes_no_more_room_than_what_it_holds():
    assert read_pickled(b"\x80\x02K\x05r\xff\xff\xff\xffj\xff\xff\xff\xff\x86.") == (5, 5)


@pytest.mark.long
def test_a_short_pickle_does_not_make_much():
    some = b"c_codecs\nencode\nq\x00" + text("a" * 10_000) + b"q\x01" + text("latin1") + b"q\x02"
    again = b"h\x00h\x01h\x02\x86R"
    assert read_pickled(b"\x80\x02" + some + b"\x86R.") == b"a" * 10_000
    with pytest.raises(ValueError, match="more than it holds"):
        read_pickled(b"\x80\x02]" + some + b"\x86Ra" + (again + b"a") * 1000 + b".")
    with pytest.raises(ValueError, match="longer than data are"):
        read_pickled(b"\x80\x02" + b"]" * 1_000_001 + b".")


ALTERED = array(dtype("O8"), shape=b"K\x04\x85", content=b"A" * 32)
HELD = b"}(" + raw(b"data") + ALTERED + raw(b"labels") + ALTERED + b"u"
DEEP = b"\x85" * 900_000


@pytest.mark.parametrize("content", [
    HELD,  # bytes for pointers: they were followed
    b"}(" + raw(b"data") + array() + raw(b"labels") + ALTERED + b"u",
    b"})" + DEEP + b"K\x01s",  # the key's hash went down all the way
    b"}(" + raw(b"data") + array() + raw(b"labels") + b"]" + b")" + DEEP + b"au",
    b"}(" + raw(b"data") + b")" + DEEP + raw(b"labels") + b"]u",
    b"}(" + raw(b"data") + array() + raw(b"labels") + b"]]au",
], ids=["pointers", "pointers as labels", "deep key", "deep label", "deep data", "a list as label"])  # fmt: skip
@pytest.mark.long
def test_what_ended_the_process_is_refused(content, tmp_path):
    """In a process of its own, which then does not end this one."""
    file = tmp_path / "batch"
    file.write_bytes(b"\x80\x03" + content + b".")
    program = """
import pathlib, sys
from dmuh.datasets.cifar10 import _from_pickle
from dmuh.errors import DataError
try: _from_pickle(pathlib.Path(sys.argv[1]).read_bytes(), "batch")
except DataError as error: print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.startswith("refused: batch is not a batch of CIFAR-10's Python version: it")
    assert len(done.stdout) < 200
