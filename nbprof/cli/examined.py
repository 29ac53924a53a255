"""What can be recorded and read on this machine, and what to do about what cannot. Nothing heavy is
imported to find out.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.core.units import size_text
from nbprof.core.version import __version__
from nbprof.display import wording
from nbprof.frameworks.framework import Doctor
from nbprof.frameworks.register import RECORDED

OK, LIMITED, BROKEN = "ok", "limited", "broken"
"""All is well; something cannot be recorded or is not on; profiles cannot be read."""

PACKAGES = {
    **{
        framework.title: framework.doctor
        for framework in RECORDED.values()
        if framework.doctor is not None
    },
    "Keras": Doctor("keras", ("keras",)),
    "torch_npu": Doctor("torch_npu", ("torch-npu",)),
}
"""Frameworks, and what is built on them."""
_DEEP_S = 300
_LEAST_BYTES = 1 << 30
"""A recording with its GPU has 100 MB and more."""
_PORT = 6009
_PERFMON, _SYS_ADMIN = 1 << 38, 1 << 21
"""Capabilities of Linux; either one lets a process read performance counters."""
_ROOT = Path("/")
_TOOLKITS = (
    "usr/local/cuda*/extras/CUPTI/lib64",
    "usr/local/cuda*/targets/*/lib",
    "opt/cuda*/extras/CUPTI/lib64",
)
"""Where CUDA toolkits put CUPTI; no loader looks there by itself."""


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes
    ----------
    name, state, text : str
    remedy : str
        What to do; '' where all is well.
    """

    name: str
    state: str
    text: str
    remedy: str = ""


def checks(*, deep: bool = False) -> Iterator[Check]:
    """All of them; `deep` imports the frameworks, each in a process of its own, and asks for their
    devices.
    """
    yield installation()
    yield from frameworks(deep=deep)
    yield from nvidia(_ROOT)
    yield from amd(_ROOT)
    yield from ascend(_ROOT)
    yield from tpu(_ROOT)
    yield grpc()
    yield port()
    yield disk()
    yield cache()
    yield from lab()


def installation() -> Check:
    """Python, and what nbprof needs to read anything."""
    text = (
        f"nbprof {__version__}, Python {platform.python_version()}, {platform.system()}"
        f" {platform.machine()}"
    )
    try:
        needed = metadata.requires("nbprof") or []
    except metadata.PackageNotFoundError:
        return Check("nbprof", OK, f"{text}; not installed, but found on Python's path")
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed if "extra ==" not in line]
    missing = [name for name in names if not _version(name)]
    if missing:
        return Check(
            "nbprof",
            BROKEN,
            f"{text}; {', '.join(missing)} not installed",
            f"pip install {' '.join(missing)}",
        )  # noqa: RUF100, S603
    return Check("nbprof", OK, text)


def frameworks(*, deep: bool = False) -> Iterator[Check]:
    """Those that are installed, by their versions."""
    none = True
    for title, package in PACKAGES.items():
        found = [
            f"{name} {version}" for name in package.distributions if (version := _version(name))
        ]
        if not found and find_spec(package.module) is None:
            continue
        none = False
        text = ", ".join(found) or "installed, version unknown"
        yield _devices(title, package, text) if deep and package.devices else Check(title, OK, text)
    if none:
        titles = wording.listed(
            [framework.title for framework in RECORDED.values() if framework.profiled], "or"
        )
        advice = (
            "Profiles can be read, and cells are recorded without ops; to record ops, install"
            f" {titles}."
        )
        yield Check("frameworks", LIMITED, "none is installed here", advice)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _devices(title: str, package: Doctor, text: str) -> Check:
    try:
        asked = subprocess.run(  # noqa: S603
            [sys.executable, "-c", package.devices],
            capture_output=True,
            text=True,
            timeout=_DEEP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(
            title,
            LIMITED,
            f"{text}; did not start within {_DEEP_S} s",
            f"Try: python -c '{package.devices.splitlines()[0]}'",
        )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
        return Check(
            title,
            LIMITED,
            f"{text}; cannot be imported or started: {last}",
            f"Install it again; then python -c 'import {package.module}' works.",
        )
    return Check(title, OK, f"{text}; devices: {'; '.join(asked.stdout.strip().splitlines())}")


def nvidia(root: Path) -> Iterator[Check]:
    """The driver, the library that traces, and the permission for counters."""
    if not any((root / "dev").glob("nvidia[0-9]*")):
        yield Check("NVIDIA GPU", OK, "none here")
        return
    found = re.search(
        r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _read(root / "proc/driver/nvidia/version")
    )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    text = f"driver {found[1]}" if found else "found; driver version unknown"
    if hidden is not None and hidden.strip() in ("", "-1"):
        yield Check(
            "NVIDIA GPU",
            LIMITED,
            f"{text}, hidden by CUDA_VISIBLE_DEVICES={hidden}",
            "Unset CUDA_VISIBLE_DEVICES to use and record it.",
        )
    else:
        yield Check("NVIDIA GPU", OK, text)
    yield _cupti(root)
    yield _counters(root)


def _cupti(root: Path) -> Check:
    """Whether the loader finds CUPTI: one of a toolkit that is in none of its folders is as good as
    none.
    """
    libraries = _loaded("libcupti.so*", ("nvidia/*/lib", "torch/lib"))
    where = str(libraries[0]) if libraries else ctypes.util.find_library("cupti")
    if where:
        return Check("CUPTI", OK, where)
    toolkits = [
        library for pattern in _TOOLKITS for library in _newest_first(root, pattern, "libcupti.so*")
    ]
    if not toolkits:
        return Check("CUPTI", LIMITED, "not found", _sentence(remedies.NO_CUPTI))
    folder = toolkits[0].parent
    return Check(
        "CUPTI",
        LIMITED,
        f"{toolkits[0]} is not in the loader's search path",
        f"Before Jupyter starts: export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH; or install the"
        " CUPTI package of the framework's CUDA (pip install nvidia-cuda-cupti-cu12, or -cu13).",
    )


def _counters(root: Path) -> Check:
    only = re.search(
        r"^RmProfilingAdminOnly:\s*(\d)", _read(root / "proc/driver/nvidia/params"), re.MULTILINE
    )
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(root / "proc/self/status"), re.MULTILINE)
    if only is None:
        return Check(
            "GPU counters",
            LIMITED,
            "whether they can be read is unknown: the driver does not report it",
            "",
        )
    if only[1] == "0":
        return Check("GPU counters", OK, "open to all users")
    if rights is not None and int(rights[1], 16) & (_PERFMON | _SYS_ADMIN):
        return Check("GPU counters", OK, "open to administrators, as this process is")
    return Check(
        "GPU counters",
        LIMITED,
        "open to administrators only; with some drivers, nothing on the GPU is recorded then",
        _sentence(remedies.PRIVILEGES),
    )


def _sentence(remedy: str) -> str:
    """What to do, of a remedy that begins with what happened and ends with what still works."""
    said = remedy.removesuffix(f"; {remedies.HOST_ONLY}")
    return said[said.index(". ") + 2 :] + "." if ". " in said else said + "."


def amd(root: Path) -> Iterator[Check]:
    """The tracing libraries of ROCm, and the permission to use the device."""
    device = root / "dev/kfd"
    if not device.exists():
        return
    text = "there is one"
    if os.access(device, os.R_OK | os.W_OK):
        yield Check("AMD GPU", OK, text)
    else:
        yield Check(
            "AMD GPU",
            LIMITED,
            "this user has no access to it",
            "sudo usermod -aG render,video $USER, then log in again.",
        )
    for pattern in ("librocprofiler-sdk.so*", "libroctracer64.so*"):
        # The frameworks of ROCm state its folder in their libraries.
        if libraries := [
            *_loaded(pattern, ("torch/lib", "_rocm_sdk_*/lib")),
            *_newest_first(root, "opt/rocm*/lib", pattern),
        ]:
            yield Check("ROCm tracing", OK, str(libraries[0]))
            return
    remedy = (
        "Install rocprofiler-sdk (or roctracer) of the ROCm release that the framework was built"
        " for."
    )
    yield Check(
        "ROCm tracing", LIMITED, "neither librocprofiler-sdk nor libroctracer64 found", remedy
    )


def ascend(root: Path) -> Iterator[Check]:
    """The tool that exports what an NPU recorded."""
    if any((root / "dev").glob("davinci[0-9]*")):
        tool = shutil.which("msprof")
        remedy = "source set_env.sh of the CANN toolkit, which has it."
        yield (
            Check("Ascend NPU", OK, f"msprof is {tool}")
            if tool
            else Check("Ascend NPU", LIMITED, "msprof is not on the path", remedy)
        )


def tpu(root: Path) -> Iterator[Check]:
    """Where the runtime of a TPU logs what it does, of which a profile says little: its start, and
    the buffer for transfers.
    """
    if not any((root / "dev").glob("accel[0-9]*")) and not (
        _version("libtpu") and any((root / "dev/vfio").glob("[0-9]*"))
    ):
        return
    log = root / remedies.TPU_LOG.lstrip("/")
    where = (
        f"its runtime logs to {log}"
        if log.is_file()
        else "TPU_STDERR_LOG_LEVEL=0 shows the log of its runtime on the console"
    )
    yield Check("TPU", OK, f"found; {where}")


def _loaded(pattern: str, packages: tuple[str, ...]) -> list[Path]:
    """A library where the loader finds it: in the packages of a framework, in the environment, or
    where it is told to look.
    """
    places = [
        path
        for folder in dict.fromkeys(sys.path)
        if folder
        for part in packages
        for path in Path(folder).glob(part)
    ]
    places += [
        Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder
    ]
    places.append(Path(sys.prefix) / "lib")
    return [library for place in places for library in sorted(place.glob(pattern))]


def _newest_first(root: Path, folders: str, pattern: str) -> list[Path]:
    return [
        library
        for place in sorted(root.glob(folders), reverse=True)
        for library in sorted(place.glob(pattern))
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def grpc() -> Check:
    """Recording programs that run elsewhere."""
    version = _version("grpcio")
    if version:
        return Check("remote capture", OK, f"grpcio {version}")
    return Check(
        "remote capture",
        LIMITED,
        "grpcio is not installed: nbprof capture needs it",
        "pip install 'nbprof[remote]'",
    )


def port() -> Check:
    """Whether `nbprof.serve()` can listen."""
    from nbprof.capture.remote.serve import free_port

    try:
        free_port(_PORT)
    except CaptureError as error:
        return Check(
            "profiler port",
            LIMITED,
            str(error),
            "nbprof.serve(0) takes a free port; nbprof capture records who listens there.",
        )
    return Check("profiler port", OK, f"{_PORT} is free")


def disk() -> Check:
    """Room for recordings in the current folder."""
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    text = f"{size_text(free)} free in {here}"
    if not os.access(here, os.W_OK):
        return Check(
            "disk",
            LIMITED,
            f"{here} is not writable",
            "Record with --logdir DIR, a folder that you can write to.",
        )
    if free < _LEAST_BYTES:
        return Check(
            "disk", LIMITED, text, "Free some space, or record with --logdir DIR on another disk."
        )
    return Check("disk", OK, text)


def cache() -> Check:
    """The cache of opened profiles."""
    from nbprof.run.cache.folder import Folder, enabled, location

    folder = Folder(location())
    if not enabled():
        return Check(
            "cache",
            LIMITED,
            "turned off by NBPROF_CACHE: each profile is read from scratch",
            "Unset NBPROF_CACHE.",
        )
    above = folder.path
    while not above.exists() and above != above.parent:
        above = above.parent
    remedy = (
        "Set NBPROF_CACHE_DIR to a private folder; without a cache each profile is read from"
        " scratch."
    )
    if not folder.owned():
        return Check(
            "cache", LIMITED, f"{folder.path} belongs to another user, or is world-writable", remedy
        )
    if not above.is_dir() or not os.access(above, os.W_OK):
        return Check("cache", LIMITED, f"{folder.path} cannot be written", remedy)
    return Check("cache", OK, f"{folder.path}, at most {size_text(folder.limit())}")


def lab() -> Iterator[Check]:
    """JupyterLab's extension and that of its server."""
    jupyterlab = _version("jupyterlab") or _version("notebook")
    if not jupyterlab or find_spec("jupyter_core") is None:
        yield Check("JupyterLab", OK, "not installed here")
        return
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    again = "pip install --force-reinstall --no-deps nbprof"
    found = next(
        (
            path
            for place in jupyter_path("labextensions")
            if (path := Path(place) / "nbprof" / "package.json").is_file()
        ),
        None,
    )
    version = _json(found).get("version") if found else None
    off = any(
        "nbprof" in _disabled(Path(place) / "labconfig" / "page_config.json")
        for place in jupyter_config_path()
    )
    if found is None:
        yield Check("lab extension", LIMITED, "JupyterLab cannot find it", again)
    elif off:
        yield Check("lab extension", LIMITED, "disabled", "jupyter labextension enable nbprof")
    elif version != __version__:
        yield Check(
            "lab extension",
            LIMITED,
            f"version {version}, from a different nbprof installation",
            again,
        )
    else:
        yield Check("lab extension", OK, f"version {version}, JupyterLab {jupyterlab}")
    state: dict[str, bool] = {}
    for place in reversed(jupyter_config_path()):
        files = [
            Path(place) / "jupyter_server_config.json",
            *sorted((Path(place) / "jupyter_server_config.d").glob("*.json")),
        ]
        for file in files:
            state |= _json(file).get("ServerApp", {}).get("jpserver_extensions", {})
    if state.get("nbprof"):
        yield Check("server extension", OK, "enabled")
    else:
        yield Check(
            "server extension",
            LIMITED,
            "disabled" if "nbprof" in state else "Jupyter Server cannot find it",
            "jupyter server extension enable nbprof",
        )


def _disabled(file: Path) -> list[str]:
    names = _json(file).get("disabledExtensions", {})
    return [name for name in names if not isinstance(names, dict) or names[name]]


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
