"""Compiles the library into the wheel; an editable install has it beside its sources.

Where there is no C compiler, the package ziglang brings one; where there is none of it either, the
wheel goes without the library, and nbprof reads more slowly.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

_ZIG_SYSTEMS = {"linux", "darwin", "win32"}
_ZIG_MACHINES = {"x86_64", "amd64", "aarch64", "arm64"}


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the library to wheels."""

    def dependencies(self) -> list[str]:
        """Ziglang, where the machine has no compiler and there is a ziglang for it."""
        machine = sysconfig.get_platform().rpartition("-")[2].lower()
        has_zig = sys.platform in _ZIG_SYSTEMS and machine in _ZIG_MACHINES
        wanted = os.environ.get("NBPROF_TARGET") or not _compile().own_compiler()
        return ["ziglang>=0.13"] if has_zig and wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles for this machine, or for the target in `NBPROF_TARGET`."""
        compile_ = _compile()
        target = os.environ.get("NBPROF_TARGET", "")
        editable = version == "editable"
        self._folder = tempfile.TemporaryDirectory(prefix="nbprof-")
        try:
            library = compile_.build(compile_.HERE if editable else Path(self._folder.name), target)
        except OSError as error:
            if target:
                raise
            self.app.display_warning(f"nbprof is installed without its compiled reader: {error}")
            return
        if not editable:
            build_data["force_include"][str(library)] = f"nbprof/native/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{compile_.TARGETS.get(target) or _here()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """The wheel has the library in it."""
        self._folder.cleanup()


def _here() -> str:
    """The platform of a wheel for this machine."""
    if sys.platform == "darwin":
        return next(iter(platform_tags()))
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _compile() -> Any:
    """The module that compiles, without the package it lies in: that is not installed yet."""
    path = Path(__file__).parent / "nbprof" / "native" / "compile.py"
    spec = importlib.util.spec_from_file_location("nbprof_compile", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
