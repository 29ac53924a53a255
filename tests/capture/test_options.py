"""What a person may ask of a recording, and what is said where it makes no sense."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.options import BACKENDS, Options, options_of
from nbprof.core.errors import CaptureError


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"backend": "mxnet"},
            f"unknown backend 'mxnet': choose auto, {', '.join(BACKENDS)} or python",
        ),
        ({"host_level": 4}, "the host level must be 0, 1, 2 or 3, not 4"),
        ({"steps": (0, 3)}, "steps 0 to 3 is an empty range"),
        ({"steps": (5, 3)}, "the first may not be after the last"),
        ({"steps": (5,)}, "two numbers such as (10, 20)"),
        ({"steps": 5}, "two numbers such as (10, 20)"),
        ({"steps": (1.5, 3)}, "two numbers such as (10, 20)"),
        ({"steps": "3:1"}, "steps are counted from 1"),
        ({"warmup": -1}, "0 or more steps, not -1"),
        ({"warmup": 1.5}, "0 or more steps, not 1.5"),
        ({"warmup": True}, "0 or more steps, not True"),
        ({"every": -5}, "0 or more steps, not -5"),
        ({"every": 100}, "needs its first and last step"),
        ({"every": 100, "steps": (5, None)}, "needs its first and last step"),
        ({"every": 2, "steps": (5, 9)}, "a window of 5 steps cannot repeat every 2 steps"),
        ({"seconds": 0}, "above 0 and at most 86,400 (a day), not 0"),
        ({"seconds": -1}, "not -1"),
        ({"seconds": math.nan}, "not nan"),
        ({"seconds": math.inf}, "not inf"),
        ({"seconds": 864_000}, "not 864000"),
        ({"seconds": "5"}, "not '5'"),
        ({"limit_gb": 0}, "GB above 0, not 0"),
        ({"limit_gb": math.nan}, "not nan"),
        ({"limit_gb": math.inf}, "not inf"),
        (
            {"logdir": "smb://host/logs"},
            "smb://host/logs needs a backend of fsspec that is not installed: pip install smbprotocol",
        ),
        (
            {"logdir": "https://host/logs"},
            "https://host/logs cannot be written to: choose a folder, or a bucket such as gs://bucket/logs",
        ),
        ({"step": "1:2"}, "unknown option 'step': did you mean 'steps'?"),
        ({"zzz": 1}, "unknown option 'zzz': the options are backend, steps,"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(given, says):
    with pytest.raises(CaptureError, match=re.escape(says)):
        options_of(given)


def test_steps_are_a_text_or_two_numbers():
    assert (
        options_of({"steps": "10:20"})
        == options_of({"steps": (10, 20)})
        == options_of({"steps": [10, 20]})
        == Options(steps=(10, 20))
    )
    assert options_of({"steps": "3:5", "every": 3}).every == 3
    assert options_of({"logdir": Path("logs")}).logdir == "logs"
    assert options_of({"seconds": 86_400, "warmup": 0, "limit_gb": 0.5}).warmup == 0


def test_a_block_shows_and_takes_the_options():
    names = set(inspect.signature(nbprof.profile).parameters)
    assert set(inspect.signature(Options).parameters) <= names
    with pytest.raises(CaptureError, match="did you mean 'seconds'"):
        nbprof.profile(second=3)
