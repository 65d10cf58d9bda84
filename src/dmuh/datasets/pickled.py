"""Pickled data read without unpickling: a list of opcodes is looked at, and nothing in it is ever called.

A pickle is a program. Python's unpickler runs it, and to restrict what it may name is not enough: a dtype of NumPy's,
once made, can be altered until bytes pass for pointers, and a key that is nested a million times ends the process. Here
the few opcodes that data need make plain values, and a record of what the pickle would have called stands for the rest.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST = 1_000_000  # opcodes; a batch of CIFAR-10 has up to 90,000
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")


@dataclass(frozen=True, slots=True)
class _Named:
    """What the pickle names, which is not looked up."""

    name: str


@dataclass(slots=True)
class _Call:
    """What the pickle would have called, with which arguments, and what it would have given the result as its state."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


class _Reader:
    """A stack and a memo, as an unpickler has them."""

    def __init__(self, room: int) -> None:
        self.room = room  # of texts made by calls: together they are no longer than the pickle itself
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # what lay there when a mark was set, the last mark's last
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def set_mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def take_marked(self) -> list[Any]:
        marked, self.stack = self.stack, self.below.pop()
        return marked

    def take(self, n: int) -> list[Any]:
        if n > len(self.stack):
            raise ValueError("its end is missing")
        taken = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return taken

    def append(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if type(into) is not list:
            raise ValueError("it appends to what is no list")
        into.extend(values)

    def set_items(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if type(into) is not dict or len(values) % 2 or any(type(key) not in (bytes, str) for key in values[::2]):
            raise ValueError("it has keys that are not texts")
        into.update(zip(values[::2], values[1::2], strict=True))

    def call(self) -> None:
        named, arguments = self.take(2)
        if type(named) is not _Named or type(arguments) is not tuple:
            raise ValueError("it calls what no data need")
        match named.name, arguments:
            case "_codecs encode", (str(text), "latin1" | "latin-1"):  # how Python 3 keeps bytes in protocol 2
                self.room -= len(text)
                if self.room < 0:
                    raise ValueError("it makes more than it holds")
                self.push(text.encode("latin-1"))
            case name, _:
                self.push(_Call(name, arguments))

    def build(self) -> None:
        (state,) = self.take(1)
        made = self.stack[-1]
        if type(made) is not _Call or made.state is not None:
            raise ValueError("it alters what no data need")
        made.state = state

    def name(self) -> None:
        module, name = self.take(2)
        if type(module) is not str or type(name) is not str:
            raise ValueError("it names something by what is no text")
        self.push(_Named(f"{module} {name}"))


def _bytes(text: str | bytes) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else text


# by opcode: what it does, given its argument
_DO: dict[str, Callable[[_Reader, Any], object]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda *_: None),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES",
         "SHORT_BINBYTES", "BINBYTES8"),
        lambda reader, value: reader.push(value),
    ),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda reader, text: reader.push(_bytes(text))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda reader, at: reader.memo.update({at: reader.stack[-1]})),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda reader, at: reader.push(reader.memo[at])),
    "MEMOIZE": lambda reader, _: reader.memo.update({len(reader.memo): reader.stack[-1]}),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "MARK": lambda reader, _: reader.set_mark(),
    "TUPLE": lambda reader, _: reader.push(tuple(reader.take_marked())),
    "TUPLE1": lambda reader, _: reader.push(tuple(reader.take(1))),
    "TUPLE2": lambda reader, _: reader.push(tuple(reader.take(2))),
    "TUPLE3": lambda reader, _: reader.push(tuple(reader.take(3))),
    "APPEND": lambda reader, _: reader.append(reader.take(1)),
    "APPENDS": lambda reader, _: reader.append(reader.take_marked()),
    "SETITEM": lambda reader, _: reader.set_items(reader.take(2)),
    "SETITEMS": lambda reader, _: reader.set_items(reader.take_marked()),
    "GLOBAL": lambda reader, name: reader.push(_Named(name)),
    "STACK_GLOBAL": lambda reader, _: reader.name(),
    "REDUCE": lambda reader, _: reader.call(),
    "BUILD": lambda reader, _: reader.build(),
}  # fmt: skip


def read_pickled(content: bytes) -> Any:
    """Return what a pickle holds: plain values, and what `as_uint8` makes arrays of.

    A ValueError says why a pickle is not one of data.
    """
    reader = _Reader(len(content))
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name == "STOP":
            break
        if opcode.name not in _DO or number == _MOST:
            what = "is longer than data are" if number == _MOST else f"has the opcode {opcode.name}, which no data need"
            raise ValueError(f"it {what}")
        try:
            _DO[opcode.name](reader, argument)
        except (IndexError, KeyError):  # of the stack, the marks and the memo
            raise ValueError(f"its opcode {opcode.name} refers to what is not there") from None
    (value,) = reader.take(1)
    return value


def as_uint8(value: Any) -> NDArray[np.uint8]:
    """Return the matrix of bytes that a value of `read_pickled` describes; a ValueError says why it is none."""
    match value:
        case _Call(
            name,
            (_Named("numpy ndarray"), (0,), b"b"),
            (1, (int(rows), int(columns)), _Call("numpy dtype") as kind, bool() | 0 | 1 as by_columns, bytes(content)),
        ) if name in _RECONSTRUCT:
            _check_uint8(kind)
        case _:
            raise ValueError("its data are not a matrix")
    if min(rows, columns) < 0 or rows * columns != len(content):
        raise ValueError(f"its data are {len(content)} bytes and not the {rows} × {columns} of their shape")
    return np.frombuffer(content, np.uint8).reshape(rows, columns, order="F" if by_columns else "C")


def _check_uint8(kind: _Call) -> None:
    match kind.arguments, kind.state:
        case ("u1" | b"u1", *_), (int(), "|" | b"|", None, None, None, *_):
            return
    raise ValueError("its data are not bytes")
