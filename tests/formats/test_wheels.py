"""Wheels of other platforms, as `make wheels` builds them, without the network."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from nbprof.native import compile as native
from tests.support import wheels
from tests.support.profiles import needed

ROOT = Path(__file__).parents[2]
TARGET = "aarch64-linux-gnu.2.17"


def build(folder, target):
    """Builds a wheel; skips the test where what builds wheels is not installed, as zig is only for
    those who publish them.
    """
    for module in ("ziglang", "hatchling", "hatch_jupyter_builder"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: `make wheels` installs it")
    for part in ("labextension/package.json", "static/dashboard.js", "static/site.js"):
        if not (ROOT / "nbprof" / part).exists():
            pytest.skip(f"nbprof/{part} is not built: `make static` builds it")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = {**os.environ, "NBPROF_TARGET": target}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_a_wheel_of_another_platform_has_its_tags_and_its_library(tmp_path):
    wheel = wheels.opened(build(tmp_path, TARGET))
    assert wheel.platform == native.TARGETS[TARGET]
    wheels.check(wheel, TARGET)
    with pytest.raises(AssertionError):
        wheels.check(wheel, "x86_64-linux-gnu.2.17")


def test_the_machine_of_a_library_is_read_from_its_bytes(tmp_path):
    if not native.own_compiler():
        needed("there is no C compiler")
    data = native.build(tmp_path).read_bytes()
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}
    here = platform.machine().lower()
    assert wheels.machine_of(data) == (system, machine.get(here, here))
    assert b"nbprof_abi_version" in data


def test_targets_have_a_platform_of_their_own():
    assert len(set(native.TARGETS.values())) == len(native.TARGETS) == 8
    assert TARGET in native.TARGETS
