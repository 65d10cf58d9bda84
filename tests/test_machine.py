"""What is asked of the machine itself."""

import ctypes
import platform
import subprocess
import sys

import numpy as np
import pytest

from dmuh import machine


def test_freed_memory_is_kept_and_used_again_however_often_it_is_asked_for():
    for _ in range(3):
        machine.keep_freed_memory()
        machine.give_freed_memory_back()
        assert np.ones(2**22).sum() == 2**22


@pytest.mark.parametrize("library", ["", "musl"])
def test_a_c_library_that_cannot_keep_freed_memory_is_left_alone(monkeypatch, library):
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, ""))
    monkeypatch.setattr(ctypes, "CDLL", None)
    machine.keep_freed_memory()
    machine.give_freed_memory_back()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_what_was_kept_is_given_back_when_asked():
    program = """
import numpy as np
from dmuh import machine
def held(): return int(open("/proc/self/statm").read().split()[1]) * 4096
machine.keep_freed_memory()
before = held()
arrays = [np.ones(2**20) for _ in range(30)]
del arrays
kept = held() - before
machine.give_freed_memory_back()
print(kept, held() - before)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    kept, after = map(int, told)
    assert kept > 200 * 2**20
    assert after < kept / 2
