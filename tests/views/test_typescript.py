"""The declarations of payloads: in TypeScript, in the container, and by key."""

import re
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from nbprof.display import codec
from nbprof.display.payload import CLASSES, CategoryKey, Part
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN
from nbprof.tools import typescript

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example():
    class Example(Part):
        from_: float
        kind: Literal["a", "b"]
        part: Part | None
        times: list[float | None]
        shares: dict[CategoryKey, npt.NDArray[np.float32]]
        texts: dict[str, str]
        pair: tuple[int, str]
        hot: bool = False
        note: str | None = None

    yield Example
    del CLASSES["Example"]


def test_the_generated_file_is_current():
    assert typescript.PATH.read_text(encoding="utf-8") == typescript.source(), (
        "renew it: python -m nbprof.tools.typescript"
    )


def test_a_class_becomes_an_interface(example):
    assert re.findall(r"^  (.*);$", typescript._interface(example), re.MULTILINE) == [
        "from: number",
        'kind: "a" | "b"',
        "part: Part | null",
        "times: (number | null)[]",
        "shares: Partial<Record<CategoryKey, Float32Array>>",
        "texts: Record<string, string>",
        "pair: [number, string]",
        "hot?: boolean",
        "note?: string",
    ]


def test_a_field_that_has_its_default_is_left_out(example):
    values = {
        "from_": 1.5,
        "kind": "a",
        "part": None,
        "times": [],
        "shares": {},
        "texts": {},
        "pair": (1, "x"),
    }
    without = codec.unpack(codec.pack(example(**values)))
    assert list(without) == ["from", "kind", "part", "times", "shares", "texts", "pair"]
    assert codec.unpack(codec.pack(example(**values, hot=True, note="")))["note"] == ""


def test_parts_are_read_by_key_as_well(example):
    part = example(
        from_=1.5, kind="a", part=None, times=[], shares={}, texts={}, pair=(1, "x"), note="n"
    )
    assert (part["from"], part["note"], part.get("hot"), "hot" in part) == (1.5, "n", None, False)
    assert part == dict(part)
    with pytest.raises(KeyError):
        part["other"]


def test_labels_of_columns_are_those_of_the_schema():
    """Views name a column by its key; tables of slices are computed by the page and have their
    own.
    """
    columns = {
        column.name for frame in [*SCHEMA.values(), *WHERE_KNOWN.values()] for column in frame
    }
    typed = {}
    for path in (ROOT / "js" / "views").rglob("*.ts"):
        if "trace" not in path.parts:
            keys = re.findall(
                r'key: "(\w+)",\s+(?:\w+: [^,{}]+,\s+)*?label: ["`]',
                path.read_text(encoding="utf-8"),
            )
            typed |= (
                {f"{path.name}: {key}" for key in keys if key in columns} and {path.name: keys}
            ) or {}
    assert typed == {}
