"""What is asked of the machine itself."""

import ctypes
import os
import platform
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from commands import dmuh, refused
from dmuh import machine
from dmuh.errors import ConfigError


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


def test_threads_that_wait_sleep_unless_the_environment_says_how(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    dmuh("--version")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    dmuh("--version")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_torch_is_not_there_yet_when_a_command_says_how_its_threads_wait():
    program = "import sys, dmuh.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_where_the_cache_is(monkeypatch):
    for name in ("DMUH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert machine.cache_folder() == Path("/home/someone/.cache/dmuh")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert machine.cache_folder() == Path("/caches/dmuh")
    monkeypatch.setenv("DMUH_CACHE", "/own")
    assert machine.cache_folder() == Path("/own")


def test_a_user_without_a_home_has_a_cache_too(monkeypatch):
    for name in ("DMUH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def none_of_that_number(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", none_of_that_number)  # as for a container's --user
    assert machine.cache_folder() == Path(tempfile.gettempdir()) / f"dmuh-{os.getuid()}"


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("0", ""), ("2", "2"), ("-1", "2"), ("0", "0")])
def test_a_place_in_a_group_that_cannot_be_is_a_sentence(monkeypatch, rank, size):
    group = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in group.items():
        monkeypatch.setenv(name, value)
    sentence = f"the environment has RANK={rank} and WORLD_SIZE={size}"
    with pytest.raises(ConfigError, match=sentence):
        machine.place_in_group()
    assert sentence in refused("list")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert machine.place_in_group() == (1, 2)
