"""Compiles the C sources beside it to the library that `library.py` loads.

The build of a wheel does so (`hatch_build.py`); `python nbprof/native/compile.py` does it in place,
and with `--targets` lists what zig compiles for.
It imports nothing of nbprof, which is not installed yet.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
_FLAGS = ["-std=c11", "-O2", "-shared", "-fvisibility=hidden"]

TARGETS = {
    "x86_64-linux-gnu.2.17": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-linux-gnu.2.17": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-linux-musl": "musllinux_1_1_x86_64",
    "aarch64-linux-musl": "musllinux_1_1_aarch64",
    "x86_64-macos.11.0": "macosx_11_0_x86_64",
    "aarch64-macos.11.0": "macosx_11_0_arm64",
    "x86_64-windows-gnu": "win_amd64",
    "aarch64-windows-gnu": "win_arm64",
}
"""What zig compiles for, and the platform of the wheel."""


def library_name(target: str = "") -> str:
    """The file's name on a target, here if none is given; `library.py` looks for it."""
    system = target or sys.platform
    if "win32" in system or "windows" in system:
        return "nbprof.dll"
    if "darwin" in system or "macos" in system:
        return "libnbprof.dylib"
    return "libnbprof.so"


def compiler() -> list[str]:
    """The command of a C compiler that works here: `$CC`, `cc`, or that of the package ziglang;
    empty where there is none.
    """
    return own_compiler() or _zig()


def own_compiler() -> list[str]:
    """The command of the machine's own C compiler; empty where it has none that works."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        return []
    # A compiler without the headers of the C library, or macOS' stand-in for one, compiles nothing.
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <stdlib.h>\nint probe(void) { return abs(-1); }\n")
        done = _run([*command, *_FLAGS, *_position(), str(source), "-o", f"{folder}/probe.out"])
    return command if done.returncode == 0 else []


def _zig() -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        return []
    return [sys.executable, "-m", "ziglang", "cc"]


def build(folder: Path, target: str = "") -> Path:
    """Compiles the library into a folder: for this machine, or by zig for one of `TARGETS`.

    Raises
    ------
    OSError
        There is no compiler, or it failed.
    """
    command = _zig() if target else compiler()
    if not command:
        raise OSError("there is no C compiler: neither cc nor the package ziglang.")
    flags = list(_FLAGS)
    if target:
        flags += ["-target", target, "-s"]
    if "windows" not in target:
        flags += _position()
    path = folder / library_name(target)
    sources = sorted(map(str, HERE.glob("*.c")))
    # The old library may be loaded: the new one takes its place as a whole.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        result = Path(scratch) / path.name
        done = _run([*command, *flags, *sources, "-o", str(result)])
        if done.returncode != 0:
            raise OSError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
        result.replace(path)
    return path


def _position() -> list[str]:
    return [] if sys.platform == "win32" else ["-fPIC"]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603


if __name__ == "__main__":
    if "--targets" in sys.argv:
        sys.stdout.write("\n".join(TARGETS) + "\n")
        sys.exit()
    try:
        build(HERE)
    except OSError as error:
        sys.exit(f"nbprof's compiled reader was not built: {error}")
