"""Framework op names: how `tf_op` stats and host event names are read.

Source: reproduced on real profiles against TensorFlow Profiler's tables, both of TensorFlow 2.3/2.4
and of XProf 2.24.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_TF = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_./>-]*):([A-Z_][a-zA-Z0-9_]*)\Z")
_JAX_TYPE = re.compile(r"[a-z_][a-z0-9_]*(\[.*\])?\Z")
_COPIES = ("MEMCPYHTOD", "MEMCPYDTOH", "MEMCPYDTOD", "MEMCPYHTOH")
_COPY_NAMES = {
    "MEMCPYHTOD": "MemcpyHToD",
    "MEMCPYDTOH": "MemcpyDToH",
    "MEMCPYDTOD": "MemcpyDToD",
    "MEMCPYHTOH": "MemcpyHToH",
}


class OpName(NamedTuple):
    """The parts of a full op name; `category` is tf, dataset, jax, copy or '' for other names."""

    category: str
    name: str
    type: str


@lru_cache(maxsize=1 << 18)
def parse(full: str) -> OpName:
    """The name and type in `scope/name:Type`.

    Returns
    -------
    OpName
        `category` '' when the text is not the name of a framework op; `name` is then the whole
        text.
    """
    match = _TF.match(full)
    if match and not full.startswith("Iterator:"):
        return OpName("tf", *match.groups())
    name, colon, kind = full.partition(":")
    if not colon:
        head = full[:10].upper()
        if head in _COPIES:
            return OpName("copy", full, _COPY_NAMES[head])
        return OpName("", full, "")
    if name == "Iterator":
        return OpName("dataset", full, "Dataset")
    type_name = kind or re.sub(r"_\d+\Z", "", name.rpartition("/")[2])
    if _JAX_TYPE.match(type_name):
        return OpName("jax", name, type_name.partition("[")[0])
    if not kind:
        return OpName("tf", name, type_name)
    return OpName("", full, "")
