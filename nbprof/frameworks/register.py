"""The supported frameworks: each that nbprof records is one file and one line here."""

from __future__ import annotations

from importlib import import_module

from nbprof.frameworks.framework import Framework, Words

RECORDED: dict[str, Framework] = {}
"""The frameworks that can be recorded by name, in the order of preference."""


def _recorded(name: str) -> Framework:
    framework: Framework = import_module(f"nbprof.frameworks.{name}").FRAMEWORK
    RECORDED[framework.name] = framework
    return framework


TENSORFLOW = _recorded("tensorflow")
JAX = _recorded("jax")
PYTORCH = _recorded("torch")
MLX = _recorded("mlx")

PYTHON = Framework("python", "Python", profiled=False)
"""For recordings that nbprof made without a framework."""
MINDSPORE = Framework("mindspore", "MindSpore")
CUDA = Framework(
    "cuda",
    "CUDA",
    machine_learning=False,
    words=Words(
        mark_ranges=(
            'put "with nvtx.annotate(name):" around a part of the step, and record with  nsys'
            " profile --trace=cuda,nvtx."
        ),
    ),
)
HIP = Framework(
    "hip",
    "HIP",
    machine_learning=False,
    words=Words(
        mark_ranges=(
            "call roctxRangePush and roctxRangePop around a part of the step, and record with "
            " rocprofv3 --runtime-trace."
        ),
    ),
)
UNKNOWN = Framework("", "", has_scopes=True, xla=True)
"""For recordings that do not state their framework; XLA may have compiled their programs."""

FRAMEWORKS = (*RECORDED.values(), PYTHON, MINDSPORE, CUDA, HIP)
_BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
_BY_TITLE = {framework.title: framework for framework in FRAMEWORKS}


def named(name: str) -> Framework:
    """The framework of a name, as of ``--backend``; `UNKNOWN` for others."""
    return _BY_NAME.get(name, UNKNOWN)


def of_module(name: str) -> Framework:
    """The framework that importing a module makes available; `UNKNOWN` for other modules."""
    return next(
        (framework for framework in RECORDED.values() if framework.recorder.module == name), UNKNOWN
    )


def titled(text: str) -> Framework:
    """The framework at the beginning of a text, such as ``JAX 0.5.0, Keras 3.8.0``.

    One that is not known keeps its title, and has the words that hold for any.
    """
    title = text.partition(",")[0].partition(" ")[0]
    if title in _BY_TITLE:
        return _BY_TITLE[title]
    return Framework("", text) if text else UNKNOWN


def is_imported(name: str) -> bool:
    """Return whether the framework of a name is imported in this process."""
    return named(name).recorder.imported
