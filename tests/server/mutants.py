"""Uploads that are no image, or not quite: each has to be refused."""

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator

from PIL import Image
from serving import picture

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "AVIF")
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
FOREIGN = {
    "svg": SVG,
    "html": b"<!doctype html><script>alert(1)</script>",
    "pdf": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF",
    "zip": b"PK\x03\x04" + bytes(60),
    "elf": b"\x7fELF" + bytes(60),
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "text": b"hello",
    "tiff": b"II*\x00\x08\x00\x00\x00" + bytes(60),
    "bmp": b"BM" + bytes(60),
    "psd": b"8BPS" + bytes(60),
    "zero": bytes(1000),
}


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_bomb(width: int, height: int) -> bytes:
    """A picture that says it is huge, of a few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A small picture with a text that unpacks to 200 MB."""
    bomb = png_chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(200_000_000), 9))
    whole = picture("PNG")
    return whole[:33] + bomb + whole[33:]


def gif_bomb(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("P", (8, 8)).save(buffer, "GIF")
    content = bytearray(buffer.getvalue())
    content[6:10] = struct.pack("<HH", width, height)
    return bytes(content)


def many_scans(n: int, size: tuple[int, int] = (64, 64)) -> bytes:
    """A progressive JPEG whose last scan is there n times more: little to send, much to decode."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:-2] + content[last:-2] * n + content[-2:]


def tiny_parts(kind: str, length: int) -> bytes:
    """An image of about this many bytes, nearly all of them in parts that hold nothing."""
    whole = picture(kind)
    match kind:
        case "PNG":
            return whole[:33] + png_chunk(b"teSt", b"") * (length // 12) + whole[33:]
        case "JPEG":
            return whole[:2] + b"\xff\xfe\x00\x02" * (length // 4) + whole[2:]
        case "GIF":
            return whole[:-1] + (b"\x21\xfe" + b"\x01x" * (length // 2) + b"\0") + whole[-1:]
        case "AVIF":
            return whole + box(b"free", b"") * (length // 8)
    body = whole[12:] + b"teSt\0\0\0\0" * (length // 8)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def archive() -> bytes:
    """A ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("page.html", "<script>alert(1)</script>")
    return buffer.getvalue()


def box(name: bytes, content: bytes) -> bytes:
    """A part of a film as phones make them."""
    return struct.pack(">I", 8 + len(content)) + name + content


def mutants(n: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield n uploads by name: cut short, bombs, of another type, empty, two files in one, overwritten."""
    rng = random.Random(seed)
    whole = {kind: picture(kind, (40, 30)) for kind in KINDS}
    bombs = {
        "png bomb": png_bomb(60_000, 60_000), "flat bomb": png_bomb(2**31 - 1, 1), "gif bomb": gif_bomb(65_535, 65_535),
        "text bomb": text_bomb(), "nothing": b"", "one byte": b"\xff", "many scans": many_scans(500),
        "long side": png_bomb(1, 100_000),
    }  # fmt: skip
    yield from list({**bombs, **FOREIGN}.items())[:n]
    for number in range(n - len(bombs) - len(FOREIGN)):
        kind = KINDS[number % len(KINDS)]
        content = whole[kind]
        match rng.choice(("cut", "start", "polyglot", "prefixed", "overwritten", "garbage", "swapped")):
            case "cut":
                yield f"{kind} cut", content[: rng.randrange(1, len(content) - 1)]
            case "start":
                yield f"{kind} without its start", content[rng.randrange(4, 30) :]
            case "polyglot":
                name, other = rng.choice(list(FOREIGN.items())[:6])
                yield f"{kind} and {name}", content + other
            case "prefixed":
                name, other = rng.choice(list(FOREIGN.items()))
                yield f"{name} and {kind}", other + content
            case "overwritten":
                yield f"{kind} overwritten", content[:16] + rng.randbytes(len(content) - 16)
            case "garbage":
                yield "garbage", rng.randbytes(rng.randrange(1, 5000))
            case "swapped":
                other = whole[KINDS[(number + 1) % len(KINDS)]]
                yield f"{kind} with another's start", other[:12] + content[12:]
