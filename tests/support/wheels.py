"""What is in wheels: their tags, and the one library that fits them.

python -m tests.support.wheels dist      # lists the wheels of a folder; fails where one is wrong
"""

from __future__ import annotations

import email
import re
import struct
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from nbprof.native import compile as native

LIBRARIES = (".so", ".dylib", ".dll")
_ELF = {62: "x86_64", 183: "aarch64"}
_MACH_O = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE = {0x8664: "x86_64", 0xAA64: "aarch64"}


class Wheel(NamedTuple):
    """A wheel: its platform, its library (name and bytes), and the sizes of both."""

    platform: str
    library: str
    data: bytes
    size: int


def machine_of(data: bytes) -> tuple[str, str]:
    """The system and the machine that a library is for, by its first bytes."""
    if data.startswith(b"\x7fELF"):
        (code,) = struct.unpack_from("<H", data, 18)
        return "linux", _ELF[code]
    if data.startswith(b"\xcf\xfa\xed\xfe"):
        (code,) = struct.unpack_from("<I", data, 4)
        return "macos", _MACH_O[code]
    assert data.startswith(b"MZ"), data[:4]
    (offset,) = struct.unpack_from("<I", data, 0x3C)
    assert data[offset : offset + 4] == b"PE\0\0"
    (code,) = struct.unpack_from("<H", data, offset + 4)
    return "windows", _PE[code]


def glibc_of(data: bytes) -> list[tuple[int, int]]:
    """The versions of glibc whose functions a library asks for."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", data)
    return sorted({(int(major), int(minor)) for major, minor in found})


def opened(path: Path) -> Wheel:
    """A wheel whose tags, name and content agree with each other."""
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        (info,) = [name for name in names if name.endswith(".dist-info/WHEEL")]
        stated = email.message_from_bytes(file.read(info))
        (library,) = [name for name in names if name.endswith(LIBRARIES)]
        data = file.read(library)
    sources = [name for name in names if name.endswith((".c", ".h", "/compile.py"))]
    assert not sources, sources
    python, abi, platform = path.stem.split("-")[2:]
    assert (python, abi) == ("py3", "none"), path.name
    assert stated["Root-Is-Purelib"] == "false"
    tags = [f"py3-none-{part}" for part in platform.split(".")]
    assert sorted(stated.get_all("Tag", [])) == sorted(tags)
    return Wheel(platform, library, data, path.stat().st_size)


def check(wheel: Wheel, target: str) -> None:
    """Its library is the one that is compiled for a target of zig."""
    machine, system, *_ = target.split("-")
    assert wheel.library == f"nbprof/native/{native.library_name(target)}"
    assert machine_of(wheel.data) == (system.partition(".")[0], machine)
    assert b"nbprof_abi_version" in wheel.data
    newest = glibc_of(wheel.data)[-1:]
    if "gnu.2.17" in target:
        assert newest <= [(2, 17)], newest
    else:
        assert not newest, newest


def main() -> None:
    """Lists and checks the wheels of a folder, one for each target."""
    wheels = {wheel.platform: wheel for wheel in map(opened, Path(sys.argv[1]).glob("*.whl"))}
    for target, platform in native.TARGETS.items():
        wheel = wheels.pop(platform)
        check(wheel, target)
        sizes = f"{wheel.size / 1e6:.2f} MB, library {len(wheel.data) / 1e3:.0f} kB"
        print(f"py3-none-{platform}: {wheel.library}, {sizes}")
    assert not wheels, list(wheels)


if __name__ == "__main__":
    main()
