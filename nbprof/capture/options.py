"""The options of a recording, apart from how it is displayed."""

from __future__ import annotations

import difflib
import inspect
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from nbprof.activity.given_peaks import checked
from nbprof.capture.option_field import Setting, documented, option
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.frameworks.register import RECORDED
from nbprof.sources.urls import is_url

BACKENDS = tuple(RECORDED)
"""The frameworks that can be recorded, in the order of preference."""

PYTHON = "python"
"""The backend that records without a framework."""

ALL = "all"
"""What `steps` is where the cell is to be recorded from its beginning to its end."""

CHOICES = ("auto", *BACKENDS, PYTHON)
"""What `backend` may be."""

AIC_METRICS = (
    "PipeUtilization",
    "ArithmeticUtilization",
    "Memory",
    "MemoryL0",
    "MemoryUB",
    "MemoryAccess",
    "L2Cache",
    "ResourceConflictRatio",
)
"""Groups of counters of AI Cores, by the names that msprof, torch_npu and the adapters of
TensorFlow share.
"""
POINTS = ("fp_point", "bp_point")
_OP = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>:-]{0,999}")
LONGEST_S = 24 * 3600.0
"""A recording with a time limit ends within a day; a longer one would fill any memory."""
HOST_LEVELS = "0 nothing on the host, 1 the most important events, 2 also ops, 3 everything"
LOGDIR = "folder or URL for the run, in TensorBoard's layout"


@documented
@dataclass(frozen=True)
class Options:
    """The choices of one recording, checked.

    Raises
    ------
    CaptureError
        Invalid value.
    """

    backend: str = option(
        "auto",
        f"framework to record: auto, {', '.join(BACKENDS)} or {PYTHON}, which records steps and"
        " waits without a framework's profiler",
        metavar="NAME",
        choices=CHOICES,
        setting=Setting("Framework"),
    )
    steps: tuple[int, int | None] | str | None = option(
        None,
        "record only steps A to B, counted from 1, both included; all: the whole cell",
        metavar="A:B",
        default="until enough is known",
        undo="auto",
        more=(
            '`"10:20"`, `(10, 20)`, `(10, None)` for all from the tenth on, or `"all"`; see [Which'
            " steps](#which-steps)"
        ),
        setting=Setting(
            "Steps", unset="", limits={"pattern": r"^\s*(\d+\s*:?\s*\d*|:\s*\d+|all)?\s*$"}
        ),
        not_in_callback="use batches=(10, 15)",
    )
    warmup: int | None = option(
        None,
        "exclude the first N recorded steps from averages",
        metavar="N",
        type=int,
        default="detected",
        undo="auto",
        setting=Setting("Warm-up", unset=-1, limits={"minimum": -1}),
    )
    every: int = option(
        0,
        "repeat the window of steps every N steps",
        metavar="N",
        type=int,
        default="once",
        undo="0",
        more="`steps=(10, 12), every=100` records the steps 10 to 12, 110 to 112 and so on",
        setting=Setting("Repeat every … steps", limits={"minimum": 0}),
    )
    seconds: float | None = option(
        None,
        "stop recording after S seconds, a day at most, at the end of a step",
        metavar="S",
        type=float,
        default="until enough is known",
        undo="auto",
        setting=Setting("Seconds", unset=0, limits={"minimum": 0, "maximum": int(LONGEST_S)}),
    )
    limit_gb: float | None = option(
        None,
        "stop recording when the process has grown by this many GB",
        flag="--limit",
        metavar="GB",
        type=float,
        default="a quarter of the memory",
        undo="auto",
        more="counted from the end of the first recorded step",
        setting=Setting("Memory limit, in GB", unset=0, limits={"minimum": 0}),
    )
    peaks: dict[str, float] | None = option(
        None,
        "peak rates of the device per second, if the profile lacks them, as flops=312T,bytes=2.0T",
        metavar="P",
        default="those in the profile",
        undo="auto",
        more=(
            'or a dict, `{"flops": 312e12, "bytes": 2.0e12}`: operations and bytes of main memory,'
            " also `vmem_read`, `vmem_write`, `cmem_read`, `cmem_write` and `shared_memory`; see"
            " [HLO & roofline](views.md#hlo--roofline)"
        ),
    )
    memory: bool = option(
        True,
        "record allocations, if the framework can turn them on and off",
        negative="don't",
        setting=Setting("Allocations"),
    )
    shapes: bool = option(
        True,
        "record the shapes of inputs; PyTorch only",
        negative="don't",
        setting=Setting("Shapes"),
    )
    stacks: bool = option(
        False,
        "record the time of each line of the cell, and the Python stack of each op of PyTorch",
        negative="don't",
        setting=Setting("Python stacks"),
    )
    sampling: bool = option(
        True,
        "sample the Python stacks of all threads, about 100 times a second",
        negative="don't",
        more="see [Python](#python)",
        setting=Setting("Samples of Python"),
    )
    python: bool = option(
        False,
        "record every Python call: many events, a slower cell",
        negative="don't",
        more="TensorFlow 2.21 ignores this and `--host-level`; the receipt says so",
        setting=Setting("Python calls"),
    )
    host_level: int = option(
        2,
        HOST_LEVELS,
        metavar="0-3",
        type=int,
        setting=Setting("Host level", limits={"minimum": 0, "maximum": 3}, note="Not for PyTorch."),
    )
    children: bool = option(
        False,
        "also record the Python processes that it starts, as further hosts of its run",
        negative="don't",
        more=(
            "see [Processes that a cell or a script"
            " starts](#processes-that-a-cell-or-a-script-starts)"
        ),
        not_in_callback="record the script with `nbprof run --children`",
    )
    aic_metrics: str = option(
        AIC_METRICS[0],
        "counters of an NPU's AI Cores, one group at a time: PipeUtilization,"
        " ArithmeticUtilization, Memory, L2Cache and others",
        metavar="GROUP",
        more="see [NPUs of Ascend](#npus-of-ascend)",
    )
    fp_point: str | None = option(
        None,
        "first op of the forward pass in a TensorFlow graph on an NPU",
        metavar="OP",
        default="detected",
        undo="auto",
        more="with `bp_point` it separates the iterations of the graph",
    )
    bp_point: str | None = option(
        None,
        "last op of the backward pass in a TensorFlow graph on an NPU",
        metavar="OP",
        default="detected",
        undo="auto",
    )
    logdir: str | None = option(
        None,
        LOGDIR,
        metavar="DIR",
        default="nbprof-results",
        more=(
            "it receives `plugins/profile/<run>/`; a URL such as `gs://bucket/logs` or"
            " `s3://bucket/logs` receives the complete run (by fsspec: `pip install gcsfs` or"
            " `s3fs`); a run that cannot be copied stays here, and the receipt says where"
        ),
        setting=Setting(
            "Folder of runs", unset="", note="Relative to the kernel's working directory."
        ),
    )
    save: bool = option(
        True,
        "keep the files of the run",
        negative="delete them when the profile is no longer used",
        more="`False` keeps them as long as the profile lives",
        setting=Setting("Keep the files"),
        not_in_callback="a run that is not saved cannot be opened",
    )

    def __post_init__(self) -> None:
        if self.backend not in CHOICES:
            raise CaptureError(
                f"unknown backend {self.backend!r}: choose {', '.join(CHOICES[:-1])} or"
                f" {CHOICES[-1]}"
            )
        if self.logdir is not None and is_url(self.logdir):
            from nbprof.sources.upload import refusal

            if why := refusal(self.logdir):
                raise CaptureError(why)
        if self.host_level not in (0, 1, 2, 3):
            raise CaptureError(f"the host level must be 0, 1, 2 or 3, not {self.host_level!r}")
        if self.steps not in (None, ALL):
            _check_steps(self.steps)
        if self.warmup is not None and not (_is_integer(self.warmup) and self.warmup >= 0):
            raise CaptureError(f"the warm-up must be 0 or more steps, not {self.warmup!r}")
        if not (_is_integer(self.every) and self.every >= 0):
            raise CaptureError(f"'every' must be 0 or more steps, not {self.every!r}")
        if self.every:
            self._check_every()
        if self.seconds is not None and not (
            _number(self.seconds) and 0 < self.seconds <= LONGEST_S
        ):
            raise CaptureError(
                f"a recording lasts a number of seconds above 0 and at most {LONGEST_S:,.0f} (a"
                f" day), not {self.seconds!r}"
            )
        if self.limit_gb is not None and not (
            _number(self.limit_gb) and 0 < self.limit_gb < math.inf
        ):
            raise CaptureError(f"the limit must be a number of GB above 0, not {self.limit_gb!r}")
        if self.aic_metrics not in AIC_METRICS:
            raise CaptureError(
                f"unknown group of counters {self.aic_metrics!r}: aic_metrics is one of"
                f" {', '.join(AIC_METRICS)}"
            )
        points: tuple[tuple[str, object], ...] = (
            ("fp_point", self.fp_point),
            ("bp_point", self.bp_point),
        )
        for name, point in points:
            if point is not None and not (isinstance(point, str) and _OP.fullmatch(point)):
                raise CaptureError(
                    f"{name} must be the name of an op of the graph, such as"
                    f" 'fp32_vars/conv2d/Conv2D', not {point!r}"
                )
        try:
            object.__setattr__(self, "peaks", checked(self.peaks) or None)
        except NbprofError as error:
            raise CaptureError(str(error)) from None

    @property
    def window(self) -> tuple[int, int | None] | None:
        """The range of steps to record; None if none was asked for."""
        return self.steps if isinstance(self.steps, tuple) else None

    @property
    def until_enough(self) -> bool:
        """True if recording may end once enough is known."""
        return self.steps is None and self.seconds is None

    def given_for_npu(self, *names: str) -> list[str]:
        """Flags of the options of an NPU that differ from their defaults."""
        flags = []
        defaults = {field.name: field.default for field in fields(self)}
        for name in names or ("aic_metrics", *POINTS):
            if getattr(self, name) != defaults[name]:
                flags.append(f"--{name.replace('_', '-')}")
        return flags

    def _check_every(self) -> None:
        first, last = self.window or (1, None)
        if last is None:
            raise CaptureError(
                "'every' repeats a window of steps and needs its first and last step, as in --steps"
                " 10:12 --every 100 or steps=(10, 12), every=100"
            )
        if self.every < last - first + 1:
            raise CaptureError(
                f"a window of {last - first + 1} steps cannot repeat every {self.every} steps:"
                " windows may not overlap"
            )


def options_of(chosen: Mapping[str, Any]) -> Options:
    """The options given by name; `steps` may be a string or two numbers.

    Raises
    ------
    CaptureError
        Unknown option, or invalid value.
    """
    names = [field.name for field in fields(Options)]
    for name in chosen:
        if name not in names:
            hint = f"the options are {', '.join(names)}"
            near = difflib.get_close_matches(name, names, 1)
            if near:
                hint = f"did you mean {near[0]!r}?"
            raise CaptureError(f"unknown option {name!r}: {hint}")
    values = dict(chosen)
    steps = values.get("steps")
    if isinstance(steps, str) and steps.strip() != ALL:
        values["steps"] = parse_steps(steps)
    elif isinstance(steps, str):
        values["steps"] = ALL
    elif isinstance(steps, list):
        values["steps"] = tuple(steps)
    if isinstance(values.get("logdir"), os.PathLike):
        values["logdir"] = os.fspath(values["logdir"])
    return Options(**values)


def signature(
    *before: inspect.Parameter,
    without: Collection[str] = (),
    after: Mapping[str, object] | None = None,
) -> inspect.Signature:
    """The signature of a function with options: `before`, then each option with its default, and
    keywords of its own, by their defaults.
    """
    parameters = list(before)
    keyword = inspect.Parameter.KEYWORD_ONLY
    for field in fields(Options):
        if field.name not in without:
            parameters.append(
                inspect.Parameter(field.name, keyword, default=field.default, annotation=field.type)
            )
    for name, default in (after or {}).items():
        parameters.append(inspect.Parameter(name, keyword, default=default))
    return inspect.Signature(parameters)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_steps(steps: object) -> None:
    if not (
        isinstance(steps, tuple)
        and len(steps) == 2
        and _is_integer(steps[0])
        and (steps[1] is None or _is_integer(steps[1]))
    ):
        raise CaptureError(
            "steps must be a string such as '10:20' or two numbers such as (10, 20), counted from"
            f" 1, not {steps!r}"
        )
    first: int = steps[0]
    last: int | None = steps[1]
    if first < 1 or (last is not None and last < first):
        raise CaptureError(
            f"steps {first} to {last} is an empty range: steps are counted from 1, and the first"
            " may not be after the last"
        )


def parse_steps(text: str) -> tuple[int, int | None]:
    """Return the first and last step of a text such as ``10:20``, ``10:``, ``:20`` or ``7``.

    Parameters
    ----------
    text : str
        Steps are counted from 1 within the cell, both ends included.

    Raises
    ------
    CaptureError
        If the text has another form, or the range is empty.
    """
    match = re.fullmatch(r"\s*(\d*)\s*(:?)\s*(\d*)\s*", text)
    if not match or not (match[1] or match[3]):
        raise CaptureError(
            f"--steps takes A:B, A:, :B, one number (steps are counted from 1) or all, not {text!r}"
        )
    first = int(match[1] or 1)
    last: int | None = first
    if match[3]:
        last = int(match[3])
    elif match[2]:
        last = None
    if first < 1 or (last is not None and last < first):
        raise CaptureError(
            f"--steps {text.strip()} is an empty range: steps are counted from 1, and A may not be"
            " after B"
        )
    return first, last
