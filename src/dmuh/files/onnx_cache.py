"""Networks in the ONNX format that are made once and kept in the cache."""

import logging
from collections.abc import Callable

import numpy as np

from dmuh.errors import FormatError
from dmuh.files import load_arrays, save_arrays
from dmuh.machine import cache_folder

log = logging.getLogger(__name__)

_KIND, _VERSION = "dmuh network", 1


def kept_network(name: str, make: Callable[[], bytes]) -> bytes:
    """Return a network by its name, NAME-NUMBER, which is made if it is not there or cannot be used."""
    file = cache_folder() / "networks" / f"{name}.safetensors"
    if file.is_file():
        try:
            kept = load_arrays(file, _KIND, _VERSION)
            if kept.metadata.get("network") == name:
                return kept.arrays["onnx"].tobytes()
        except FormatError as error:
            log.warning("%s: it is made again", error)
    content = make()
    try:
        save_arrays(file, _KIND, _VERSION, {"onnx": np.frombuffer(content, np.uint8)}, {"network": name})
    except OSError as error:
        log.info("the network for ONNX Runtime cannot be kept in %s: %s", file.parent, error.strerror)
    return content
