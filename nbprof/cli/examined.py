"""Check what can be recorded and read on this machine, with remedies and without heavy imports."""

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

PACKAGES: dict[str, Doctor] = {}
"""Frameworks, and packages that are built on them."""
for _framework in RECORDED.values():
    if _framework.doctor is not None:
        PACKAGES[_framework.title] = _framework.doctor
PACKAGES["Keras"] = Doctor("keras", ("keras",))
PACKAGES["torch_npu"] = Doctor("torch_npu", ("torch-npu",))
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
"""Folders of CUPTI in CUDA toolkits, which are not in the loader's search path."""


class Check(NamedTuple):
    """The result of one check.

    Attributes
    ----------
    name, state, text : str
    remedy : str
        '' if all is well.
    """

    name: str
    state: str
    text: str
    remedy: str = ""


def checks(*, deep: bool = False) -> Iterator[Check]:
    """All checks; `deep` imports each framework in a separate process and lists its devices."""
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
    """The installed frameworks, with their versions."""
    none_installed = True
    for title, package in PACKAGES.items():
        versions = []
        for name in package.distributions:
            version = _version(name)
            if version:
                versions.append(f"{name} {version}")
        if not versions and find_spec(package.module) is None:
            continue
        none_installed = False
        text = ", ".join(versions) or "installed, version unknown"
        if deep and package.devices:
            yield _devices(title, package, text)
        else:
            yield Check(title, OK, text)
    if none_installed:
        profiled = [framework.title for framework in RECORDED.values() if framework.profiled]
        advice = (
            "Profiles can be read, and cells are recorded without ops; to record ops, install"
            f" {wording.listed(profiled, 'or')}."
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
    match = re.search(
        r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _read(root / "proc/driver/nvidia/version")
    )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    text = f"driver {match[1]}" if match else "found; driver version unknown"
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
    """Check that the loader finds CUPTI; one of a toolkit outside of its path does not count."""
    libraries = _loaded("libcupti.so*", ("nvidia/*/lib", "torch/lib"))
    library = str(libraries[0]) if libraries else ctypes.util.find_library("cupti")
    if library:
        return Check("CUPTI", OK, library)
    toolkits: list[Path] = []
    for folders in _TOOLKITS:
        toolkits += _newest_first(root, folders, "libcupti.so*")
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
    """The sentence with the action, from a note that begins with the cause of a problem."""
    action = remedy.removesuffix(f"; {remedies.HOST_ONLY}")
    if ". " in action:
        action = action.partition(". ")[2]
    return f"{action}."


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
        # The libraries of frameworks for ROCm contain the path of its folder.
        libraries = _loaded(pattern, ("torch/lib", "_rocm_sdk_*/lib"))
        libraries += _newest_first(root, "opt/rocm*/lib", pattern)
        if libraries:
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
    """The tool that exports recordings of an NPU."""
    if not any((root / "dev").glob("davinci[0-9]*")):
        return
    tool = shutil.which("msprof")
    if tool:
        yield Check("Ascend NPU", OK, f"msprof is {tool}")
    else:
        remedy = "source set_env.sh of the CANN toolkit, which has it."
        yield Check("Ascend NPU", LIMITED, "msprof is not on the path", remedy)


def tpu(root: Path) -> Iterator[Check]:
    """The log of the runtime of a TPU, which has details on its start and on transfers."""
    has_tpu = any((root / "dev").glob("accel[0-9]*"))
    if not has_tpu and _version("libtpu"):
        has_tpu = any((root / "dev/vfio").glob("[0-9]*"))
    if not has_tpu:
        return
    log = root / remedies.TPU_LOG.lstrip("/")
    text = "found; TPU_STDERR_LOG_LEVEL=0 shows the log of its runtime on the console"
    if log.is_file():
        text = f"found; its runtime logs to {log}"
    yield Check("TPU", OK, text)


def _loaded(pattern: str, packages: tuple[str, ...]) -> list[Path]:
    """Libraries in packages of frameworks and in the loader's search path."""
    folders: list[Path] = []
    for path in filter(None, dict.fromkeys(sys.path)):
        for package in packages:
            folders += Path(path).glob(package)
    folders += map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    folders.append(Path(sys.prefix) / "lib")
    return _libraries(folders, pattern)


def _newest_first(root: Path, folders: str, pattern: str) -> list[Path]:
    return _libraries(sorted(root.glob(folders), reverse=True), pattern)


def _libraries(folders: list[Path], pattern: str) -> list[Path]:
    libraries: list[Path] = []
    for folder in folders:
        libraries += sorted(folder.glob(pattern))
    return libraries


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
    """Check that `nbprof.serve()` can listen."""
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
    """Free space for recordings in the current folder."""
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

    config_folders = [Path(folder) for folder in jupyter_config_path()]
    yield _lab_extension(list(map(Path, jupyter_path("labextensions"))), config_folders, jupyterlab)
    yield _server_extension(config_folders)


def _lab_extension(folders: list[Path], config_folders: list[Path], jupyterlab: str) -> Check:
    name = "lab extension"
    reinstall = "pip install --force-reinstall --no-deps nbprof"
    packages = [folder / "nbprof" / "package.json" for folder in folders]
    package = next(filter(Path.is_file, packages), None)
    if package is None:
        return Check(name, LIMITED, "JupyterLab cannot find it", reinstall)
    for folder in config_folders:
        if "nbprof" in _disabled(folder / "labconfig" / "page_config.json"):
            return Check(name, LIMITED, "disabled", "jupyter labextension enable nbprof")
    version = _json(package).get("version")
    if version != __version__:
        text = f"version {version}, from a different nbprof installation"
        return Check(name, LIMITED, text, reinstall)
    return Check(name, OK, f"version {version}, JupyterLab {jupyterlab}")


def _server_extension(config_folders: list[Path]) -> Check:
    enabled: dict[str, bool] = {}
    for folder in reversed(config_folders):
        files = sorted((folder / "jupyter_server_config.d").glob("*.json"))
        for file in (folder / "jupyter_server_config.json", *files):
            enabled |= _json(file).get("ServerApp", {}).get("jpserver_extensions", {})
    if enabled.get("nbprof"):
        return Check("server extension", OK, "enabled")
    text = "disabled" if "nbprof" in enabled else "Jupyter Server cannot find it"
    return Check("server extension", LIMITED, text, "jupyter server extension enable nbprof")


def _disabled(file: Path) -> list[str]:
    names = _json(file).get("disabledExtensions", {})
    return [name for name in names if not isinstance(names, dict) or names[name]]


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
