"""Settings from the text of TOML files and of key=value pairs, and back to text."""

import re
import tomllib
from pathlib import Path
from typing import Any

from dmuh.config.sections import SECTIONS, keys_of
from dmuh.errors import ConfigError, unknown

_NO_TEXT = re.compile("[\udc80-\udcff]")  # as Python has the bytes of a path that are no UTF-8, which TOML cannot have
_NO_TEXT_IN_TOML = re.compile("\0([89a-f][0-9a-f])")  # a path has no zeros


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file into one flat layer; the method's options stand in its [method] section."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the flat layer of a configuration file's text."""
    sections = tomllib.loads(text)
    layer: dict[str, Any] = {}
    for name, values in sections.items():
        if name not in SECTIONS and name != "method":
            raise ConfigError(f"{path}: {unknown('section', name, [*SECTIONS, 'method'])}")
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: {name} must be a section, write [{name}]")
        for key in values:
            if name != "method" and key not in keys_of(SECTIONS[name]):
                raise ConfigError(f"{path}: {unknown(f'setting in [{name}]', key, keys_of(SECTIONS[name]))}")
        layer |= {key: _with_bytes(value) for key, value in values.items()}
    return layer


def _with_bytes(value: Any) -> Any:
    """Return a value of a file as it was set: what `toml_value` wrote for bytes of a path that are no UTF-8."""
    return _NO_TEXT_IN_TOML.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), value) if isinstance(value, str) else value


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key=value`; the value is read as TOML would (3, 0.1, true), anything else is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"a setting is given as key=value, got {text!r}")
    try:
        read = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        read = None
    return key.strip(), read if isinstance(read, int | float | str) else value.strip()


def toml_value(value: Any) -> str:
    """Return a value as it stands in a TOML file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = _NO_TEXT.sub(lambda byte: f"\0{ord(byte[0]) - 0xDC00:02x}", value)
        escaped = escaped.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
