"""A stand-in for MLX, which runs on Macs and GPUs of NVIDIA: arrays that are computed when somebody
evaluates them.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable

VERSION = "0.31.0"


class array:
    """An array that keeps what it has to compute; `__module__` is that of MLX's."""

    __module__ = "mlx.core"

    def __init__(self, compute: Callable[[], float] | float) -> None:
        self._compute = compute if callable(compute) else lambda: compute
        self.value: float | None = None

    def __add__(self, other: array | float) -> array:
        return array(
            lambda: evaluated(self) + (evaluated(other) if isinstance(other, array) else other)
        )

    def item(self) -> float:
        return evaluated(self)


def evaluated(one: array) -> float:
    if one.value is None:
        time.sleep(0.002)
        one.value = one._compute()
    return one.value


def modules() -> tuple[types.ModuleType, types.ModuleType]:
    """The modules `mlx` and `mlx.core`; `mlx.core.log` has the calls that wait."""
    package, core = types.ModuleType("mlx"), types.ModuleType("mlx.core")
    log: list[str] = []

    def evaluate(*arrays: array) -> None:
        log.append("eval")
        for one in arrays:
            evaluated(one)

    def synchronize() -> None:
        log.append("synchronize")

    core.__version__ = VERSION  # type: ignore[attr-defined]
    core.array, core.eval, core.synchronize, core.log = array, evaluate, synchronize, log  # type: ignore[attr-defined]
    package.core = core  # type: ignore[attr-defined]
    package.__path__ = []  # type: ignore[attr-defined]
    return package, core


class Finder:
    """Finds the stand-in when a program imports it, as an installed MLX would be found."""

    def __init__(self) -> None:
        self.package, self.core = modules()

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        from importlib.machinery import ModuleSpec

        if name not in ("mlx", "mlx.core"):
            return None
        return ModuleSpec(name, self, is_package=name == "mlx")

    def create_module(self, spec: object) -> types.ModuleType:
        return self.package if spec.name == "mlx" else self.core  # type: ignore[attr-defined]

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def install(monkeypatch: object) -> Finder:
    """Have ``import mlx.core`` give the stand-in."""
    finder = Finder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])  # type: ignore[attr-defined]
    for name in ("mlx", "mlx.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # type: ignore[attr-defined]
    return finder
