"""Whether the value of a setting is of its type and within its bounds."""

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], problems: list[str]) -> T | None:
    """Make `cls` from `values`, adding a sentence to `problems` for each value that does not fit."""
    checked: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    before = len(problems)
    for item in dataclasses.fields(cls):  # type: ignore[arg-type]
        if item.name in values:
            try:
                checked[item.name] = _checked(values[item.name], hints[item.name], item.metadata)
            except ValueError as error:
                problems.append(f"{item.name} must be {error}, got {values[item.name]!r}")
    return None if len(problems) > before else cls(**checked)


def _checked(value: Any, hint: Any, limits: Mapping[str, Any]) -> Any:
    """Return `value` as the type `hint` within its limits, or raise ValueError saying what it must be."""
    optional = isinstance(hint, types.UnionType)
    if optional and value is None:
        return None
    kind = typing.get_args(hint)[0] if optional else hint
    if kind is str:
        if not isinstance(value, str) or (limits["choices"] and value not in limits["choices"]):
            raise ValueError(" or ".join(filter(None, limits["choices"])) or "a text")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    whole = kind is int
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not number or (whole and value != int(value)) or not _within(value, limits):
        raise ValueError(("a whole number" if whole else "a number") + _range(limits))
    return kind(value)


def _within(value: float, limits: Mapping[str, Any]) -> bool:
    return bool(limits["low"] <= value <= limits["high"] and limits["above"] < value < limits["below"])


def _range(limits: Mapping[str, Any]) -> str:
    lower, upper = max(limits["low"], limits["above"]), min(limits["high"], limits["below"])
    parts = []
    if lower > -math.inf:
        parts.append(f"above {lower:g}" if lower == limits["above"] else f"at least {lower:g}")
    if upper < math.inf:
        parts.append(f"below {upper:g}" if upper == limits["below"] else f"at most {upper:g}")
    return " " + " and ".join(parts) if parts else ""
