"""Images of strangers are decoded by processes that can be ended."""

import ast
import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import cache

import numpy as np
import pytest
from mutants import KINDS, many_scans, png_bomb
from PIL import Image
from serving import decoded, picture

from dmuh.errors import RequestError
from dmuh.images import Preprocess
from dmuh.server.images import decode
from dmuh.server.images.decoders import Decoders
from processes import started_by_dmuh

SMALL = Preprocess(16, 16)
MOST = 50_000_000


@cache
def large() -> bytes:
    """A file that takes longer: it is no quick one."""
    return picture("PNG", (1500, 1500))


@pytest.fixture
def decoders():
    with closing(Decoders(SMALL, MOST)) as made:
        yield made


def until(condition, *arguments) -> None:
    """Wait until something is so."""
    for _ in range(3000):
        if condition(*arguments):
            return
        time.sleep(0.01)
    raise AssertionError("it did not become so")


async def soon(condition) -> None:
    await asyncio.to_thread(until, condition)


@pytest.mark.parametrize("network", ["digit_hasher", "shape_hasher"])
def test_codes_are_those_of_the_encoder_bit_for_bit(network, request):
    rotated = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.linear_gradient("L").resize((90, 40)).convert("RGBA").convert("RGB").save(rotated, "JPEG", exif=exif)
    sizes = [(28, 28), (40, 64), (333, 100)]
    contents = [picture(kind, size, seed) for kind in KINDS for seed, size in enumerate(sizes)]
    contents += [rotated.getvalue(), large()]
    hasher = request.getfixturevalue(network)
    results = decoded(hasher.preprocess, contents, MOST)
    assert [found.name for found, _ in results] == [kind for kind in KINDS for _ in sizes] + ["JPEG", "PNG"]
    codes = hasher.encode_pixels(np.stack([pixels for _, pixels in results]))
    expected = hasher.encode(contents)
    np.testing.assert_array_equal(codes.bits, expected.bits)
    np.testing.assert_array_equal(codes.uncertainty, expected.uncertainty)


def test_good_and_bad_ones_are_told_apart():
    broken = bytearray(picture("PNG", seed=5))
    broken[60:80] = bytes(20)
    results = decoded(SMALL, [b"", picture(), bytes(broken), picture("GIF"), b"text", png_bomb(1001, 1000)])
    assert [getattr(result, "status", 200) for result in results] == [400, 200, 422, 200, 415, 413]


def test_one_that_takes_too_long_is_refused_and_the_others_are_not(decoders):
    async def ask():
        decoders._seconds = 0.01
        with pytest.raises(RequestError, match="takes too much time or memory to decode") as caught:
            await decoders.pixels(large())
        decoders._seconds = 60
        return caught.value.status, (await decoders.pixels(large()))[0].name, (await decoders.pixels(picture()))[0].name

    assert asyncio.run(ask()) == (422, "PNG", "PNG")


def test_a_process_that_dies_takes_one_image_with_it(decoders):
    async def ask():
        await asyncio.gather(decoders.pixels(picture()), decoders.pixels(large()))  # all have started
        running = asyncio.gather(decoders.pixels(large()), return_exceptions=True)
        await soon(lambda: not decoders._waiting[False])
        for child in started_by_dmuh():
            os.kill(child.pid, signal.SIGKILL)
        (failed,) = await running
        found = await asyncio.gather(*(decoders.pixels(picture(seed=n)) for n in range(9)), return_exceptions=True)
        return failed.status, [getattr(one, "status", 200) for one in found].count(200) >= 8

    assert asyncio.run(ask()) in ((422, True), (503, True))  # it may have died before it was sent all of it


def test_of_several_that_were_sent_together_only_the_bad_one_is_refused(decoders):
    """One process dies with all that it was sent; what was good in it is done again."""

    async def ask():
        slow, many = many_scans(80, (150, 150)), [picture(seed=n) for n in range(40)]
        await asyncio.gather(decoders.pixels(picture()), decoders.pixels(large()))
        tasks = [asyncio.create_task(decoders.pixels(content)) for content in (slow, *many)]
        await soon(lambda: len(decoders._waiting[True]) < 41)
        for child in started_by_dmuh():
            os.kill(child.pid, signal.SIGKILL)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [getattr(result, "status", 200) for result in results].count(200)

    assert asyncio.run(ask()) >= 39


def test_small_ones_do_not_wait_for_large_ones(decoders):
    async def ask():
        many = [asyncio.create_task(decoders.pixels(large())) for n in range(4 * len(decoders._threads))]
        await decoders.pixels(picture())
        waiting = sum(not task.done() for task in many)
        for task in many:
            task.cancel()
        return waiting

    assert asyncio.run(ask()) > 0


def test_a_small_file_that_is_drawn_often_is_no_quick_one():
    often = many_scans(80, (500, 500))
    assert len(often) < 2**18
    assert decode.decode("pixels", often, SMALL, MOST, quick=True)[0] == {"large": True}
    assert decode.decode("pixels", often, SMALL, MOST, quick=False)[0] == {"kind": "JPEG"}
    assert decode.decode("pixels", picture("JPEG"), SMALL, MOST, quick=True)[0] == {"kind": "JPEG"}
    assert decoded(SMALL, [often], MOST)[0][0].name == "JPEG"


def test_what_nobody_waits_for_is_not_begun_and_not_finished(decoders):
    async def ask():
        tasks = [asyncio.create_task(decoders.pixels(large())) for n in range(30)]
        await soon(lambda: 0 < len(decoders._waiting[False]) < 30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not decoders._waiting[False]
        return (await decoders.pixels(large()))[0].name

    assert asyncio.run(ask()) == "PNG"


def test_too_many_are_refused(decoders):
    async def ask():
        tasks = [asyncio.create_task(decoders.pixels(large())) for _ in range(300)]
        await asyncio.sleep(0)
        refused = await asyncio.gather(*tasks[-3:], return_exceptions=True)
        for task in tasks:
            task.cancel()
        return refused

    for error in asyncio.run(ask()):
        assert (error.status, "try again" in str(error)) == (503, True)


def test_one_that_takes_too_much_memory_is_refused():
    program = """
import sys
from dmuh.images import Preprocess
from dmuh.server.images import decode
content = sys.stdin.buffer.read()
for most in (1_000_000, 40_000_000):
    decode.limit_memory(["pixels"], most)
    print(decode.decode("pixels", content, Preprocess(16, 16), 10**8, quick=False)[0])
"""
    buffer = io.BytesIO()
    Image.new("RGB", (6000, 6000)).save(buffer, "PNG", compress_level=1)
    result = subprocess.run([sys.executable, "-c", program], input=buffer.getvalue(), capture_output=True, check=True)
    refused, taken = map(ast.literal_eval, result.stdout.decode().splitlines())
    assert refused == {"status": 413, "error": "this image takes too much memory to decode"}
    assert taken == {"kind": "PNG"}


def test_a_process_loads_little():
    heavy = {"torch", "onnxruntime", "numba", "fastapi", "uvicorn", "sqlite3"}
    program = f"import sys, dmuh.server.images.decoders; print({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_where_no_process_can_be_started_it_is_tried_again(monkeypatch):
    def fail(self):
        raise OSError(11, "Resource temporarily unavailable")

    async def ask():
        with pytest.raises(RequestError, match="try again in a moment") as caught:
            await decoders.pixels(picture())
        monkeypatch.undo()
        while isinstance((await asyncio.gather(decoders.pixels(picture()), return_exceptions=True))[0], RequestError):
            pass
        return caught.value.status

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", fail)
    with closing(Decoders(SMALL, MOST)) as decoders:
        assert asyncio.run(ask()) == 503


def test_the_processes_end_with_the_pool():
    before = set(started_by_dmuh())
    decoders = Decoders(SMALL, MOST)
    decoders.close()
    assert set(started_by_dmuh()) <= before


@pytest.mark.parametrize("made", ["pipe", "device", "link", "folder", "nothing", "huge"])
def test_no_thumbnail_of_what_is_no_regular_file(made, tmp_path, monkeypatch):
    file = tmp_path / "x.png"
    match made:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file = tmp_path.__class__("/dev/zero")
        case "link":
            (tmp_path / "y.png").write_bytes(picture())
            file.symlink_to(tmp_path / "y.png")
        case "folder":
            file.mkdir()
        case "huge":
            file.write_bytes(picture())
            monkeypatch.setattr(decode, "_FILE_BYTES", 100)
    about, raw = decode.decode("thumbnail", os.fsencode(file), SMALL, MOST, quick=True)
    assert (about["status"], raw) == (404, b"")
