"""What is asked of the machine itself."""

import ctypes
import platform

import numpy as np
import pytest

from dmuh import machine


def test_freed_memory_is_kept_and_used_again_however_often_it_is_asked_for():
    for _ in range(3):
        machine.keep_freed_memory()
        assert np.ones(2**22).sum() == 2**22


@pytest.mark.parametrize("library", ["", "musl"])
def test_a_c_library_that_cannot_keep_freed_memory_is_left_alone(monkeypatch, library):
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, ""))
    monkeypatch.setattr(ctypes, "CDLL", None)
    machine.keep_freed_memory()
