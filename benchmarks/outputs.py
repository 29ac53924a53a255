"""Everything that nbprof makes of every profile at hand, recorded to be compared: shows that a
refactoring changed nothing.

    python benchmarks/outputs.py record before/ --package ../checkout-of-the-old-commit
    python benchmarks/outputs.py record after/
    python benchmarks/outputs.py diff before/ after/

`record` loads each profile in `tests/data` and `../shared/profiles` of this checkout (files,
folders, archives, runs of several hosts), and pairs of them for `nbprof.compare`, with the package
of `--package` (this checkout when left out). It keeps every public frame, value, text and figure:
what a `Profile` or one of its views has is found by looking, not by a list, and methods that need
arguments are in `CALLS`. Beside them the payload as the page gets it, the HTML of output and
report, answers of the timeline, the exported trace; of what cannot be loaded, the error. Masked are
the version, the time that the analysis took, random keys, and where files lie; JavaScript is left
out.

`diff` prints how many differences each profile has in which part, then the differences, equal ones
of all profiles together. Texts that differ in words but in no number count as wording; `--values`
leaves them out. The exit status is 1 where there is a difference.

`--quick` leaves out files of more than 600 kB, folders of more than 2 MB, single files of Ascend's
runs, and the outputs of single views; it is to be compared with another quick one. `--only TEXT`
takes the profiles whose name has it, and is of `diff` too.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import html
import importlib
import inspect
import json
import multiprocessing
import os
import pickle
import re
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parents[1]
PLACES = {"tests": HERE / "tests" / "data", "shared": HERE.parent / "shared" / "profiles"}
KINDS = (".pb", ".json", ".json.gz", ".pickle", ".csv", ".zip")
MOST_FILE, MOST_FOLDER = 600_000, 2_000_000
MOST_ITEMS, MOST_DEPTH = 12, 4
PAIRS = {
    "mended": ["tests/xspace/tf_slow.xplane.pb", "tests/xspace/tf_mended.xplane.pb"],
    "same": ["tests/xspace/tf_slow.xplane.pb", "tests/xspace/tf_slow.xplane.pb"],
    "ascend": ["tests/ascend/before.zip", "tests/ascend/after.zip"],
    "three": [
        "tests/xspace/jax_loop.xplane.pb",
        "tests/xspace/jax_cpu.xplane.pb",
        "tests/kineto/cpu_train.pt.trace.json.gz",
    ],
    "inference": [
        "shared/kineto/h100-bert/h100_bert.pt.trace.json.gz",
        "shared/jax/tpu-v6e-inference/tpu_inference_2.xplane.pb",
    ],
    "batches": [
        "shared/tf-gpu/rtx5000-cnn-batch8/sandor.xplane.pb",
        "shared/tf-gpu/rtx5000-cnn-batch64/sandor.xplane.pb",
    ],
    "workers": [f"shared/kineto/v100-resnet50-workers{n}" for n in (0, 4)],
}
# Taken apart elsewhere, or the way to another profile, or a place to write to.
LEFT_OUT = {
    "run",
    "widget",
    "mimebundle",
    "payload",
    "save",
    "export",
    "before",
    "after",
    "profiles",
}
CALLS: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    "allocator.at": lambda a: [(t,) for t in a.timeline["time_ms"].quantile([0.1, 0.6]).tolist()],
    "ascend.table": lambda a: [(kind,) for kind in a.kinds],
    "ascend.ops.by": lambda _: [
        (c,)
        for c in ("op", "op_type", "task_type", "core", "stream", "iteration", "op_state", "scope")
    ],
    "device_time.critical_path_of": lambda d: (
        [(int(d._profile.steps.frame["step"].iloc[0]),)] if len(d._profile.steps.frame) else []
    ),
    "device_time.figure": lambda _: [
        (f,) for f in ("frame", "idle", "queue", "bandwidth", "stragglers", "critical_path")
    ],
    "hlo.by": lambda _: [
        (c,)
        for c in (
            "program",
            "op",
            "framework_op",
            "bound_by",
            "source",
            "rematerialized",
            "in_file",
        )
    ],
    "kernels.as_xprof": lambda _: [()],
    "memory.at": lambda m: [(t,) for t in m.timeline["time_ms"].quantile([0.1, 0.6]).tolist()],
    "memory_viewer[].in_space": lambda m: [(space,) for space in m.spaces[1:]],
    "op_profile.tree": lambda _: [("category",), ("provenance",)],
    "ops.by_scope": lambda _: [(None,), (2,)],
    "ops.distribution": lambda _: [
        (where, by, idle)
        for where in ("device", "host")
        for by, idle in (("type", False), ("op", True))
    ],
    "ops.as_xprof": lambda _: [(True,)],
    "tf_data.call": lambda d: [
        (name, rank) for name in d.pipelines["pipeline"].unique()[:3].tolist() for rank in (0, 1)
    ],
    "torch_ops.by": lambda _: [(key,) for key in ("shapes", "stack", "module")],
    "trace.find": lambda _: [("step",), ("/gemm|conv|mul/",), ("1",)],
    "trace.range": lambda t: [(0.0, 1e9), (float(t.events()["start_us"].median()) / 1e3, 1e6)],
}


class Recorder:
    """What one profile or comparison gives, part by part, as frames, arrays and plain values."""

    def __init__(self, root: Path, quick: bool = False) -> None:
        self.parts: dict[str, Any] = {}
        self._quick = quick
        self._whole: dict[str, Any] = {}
        self._masks = [
            (str(root) + os.sep, ""),
            (str(root), "."),
            (f"nbprof@{_version()}", "nbprof@"),
            (f"nbprof {_version()}", "nbprof"),
        ]

    def take(self, where: str, make: Callable[[], Any], depth: int = 0) -> None:
        """Records a value, or what it raises."""
        try:
            value = make()
        except Exception as error:
            value = {"raises": f"{type(error).__name__}: {error}"}
        # Frames and dicts that display as a tab are frames and dicts.
        shown = isinstance(value, (pd.DataFrame, dict))
        if (
            type(value).__module__.partition(".")[0] == "nbprof"
            and not shown
            and depth < MOST_DEPTH
        ):
            self.walk(where, value, depth + 1)
        else:
            self.parts[where] = self.plain(value)

    def walk(self, where: str, owner: Any, depth: int = 0) -> None:
        """Records all that an object of nbprof has to offer."""
        for name in sorted(n for n in dir(owner) if n[0] != "_" and n not in LEFT_OUT):
            place = f"{where}.{name}".lstrip(".")
            if not callable(inspect.getattr_static(owner, name)):
                self.take(place, partial(getattr, owner, name), depth)
                continue
            method = getattr(owner, name)
            needed = [
                p
                for p in inspect.signature(method).parameters.values()
                if p.default is p.empty and p.kind < p.VAR_POSITIONAL
            ]
            if not needed and not (
                isinstance(owner, Mapping) and name in ("keys", "values", "items")
            ):
                self.take(f"{place}()", method, depth)
            try:
                given = CALLS.get(re.sub(r"\[.*\]", "[]", place), lambda _: [])(owner)
            except Exception:
                # What the arguments are made of is recorded, with what it raises.
                given = []
            for args in given:
                self.take(f"{place}({', '.join(map(repr, args))})", partial(method, *args), depth)
        self.take(f"{where}.repr", lambda: repr(owner))
        if "__str__" in vars(type(owner)):
            self.take(f"{where}.str", lambda: str(owner))
        if where and not self._quick and hasattr(owner, "_repr_mimebundle_"):
            self.take(f"{where}.output", lambda: self.output(owner._repr_mimebundle_()))
        if isinstance(owner, Mapping):
            for key in list(owner)[:MOST_ITEMS]:
                self.take(f"{where}[{key}]", partial(owner.__getitem__, key), depth)

    def plain(self, value: Any) -> Any:
        """A value made of types that every version of the package has."""
        if isinstance(value, str):
            for old, new in self._masks:
                value = value.replace(old, new)
            value = re.sub(r"<nbprof\.[\w.]+ object at 0x[0-9a-f]+>", "<object>", value)
            return re.sub(r"\b0-[0-9a-f]{32}\b", "0-random", value)
        if isinstance(value, (pd.DataFrame, pd.Series)):
            return self._frame(pd.DataFrame(value))
        if isinstance(value, Mapping):
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, value))
        if value is None or isinstance(value, (bool, int, float, bytes, np.ndarray)):
            return value
        if isinstance(value, np.generic):
            return self.plain(value.item())
        if type(value).__module__.startswith("bokeh."):
            return self._figure(value)
        return self.plain(str(value))

    def _frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        for name in frame.columns:
            if any(
                isinstance(cell, str) and self.plain(cell) != cell for cell in frame[name].unique()
            ):
                frame = frame.assign(**{name: frame[name].map(self.plain)})
        return frame

    def _figure(self, model: Any) -> Any:
        from bokeh.embed import json_item

        found: dict[str, str] = {}
        text = json.dumps(json_item(model))
        text = re.sub(
            r'"(?:p\d+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"',
            lambda m: found.setdefault(m[0], f'"id{len(found)}"'),
            text,
        )
        return self.plain(json.loads(text))

    def output(self, bundle: Any) -> dict[str, Any]:
        """The output of a cell: of its payload what the whole dashboard has not, and the HTML that
        needs no script.
        """
        data, about = bundle if isinstance(bundle, tuple) else (bundle, {})
        out: dict[str, Any] = {"about": self.plain(about)}
        for mime, value in data.items():
            if mime.startswith("application/vnd.nbprof"):
                payload = self.plain(
                    unpack(
                        base64.b64decode(value["data"])
                        if "data" in value
                        else in_page(data["text/html"])
                    )
                )
                payload["meta"]["version"] = payload["meta"]["footer"]["analysed_s"] = None
                shown = {"meta", *(tab["id"] for tab in payload["meta"]["tabs"])}
                new = {
                    k: v
                    for k, v in payload.items()
                    if not self._whole
                    or (k in shown and any(differences(v, self._whole.get(k), k)))
                }
                out["payload"] = new
                out[mime] = self.plain(
                    {k: v for k, v in value.items() if k not in ("data", "version")}
                )
            else:
                out[mime] = (
                    digest(base64.b64decode(value)) if mime == "image/png" else self.page(value)
                )
        return out

    def page(self, text: str) -> str:
        """HTML with pictures as digests, and no scripts."""
        text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
        text = re.sub(r'<div data-nbprof="[0-9a-f]*">', "<div>", text)
        text = re.sub(
            r'base64,([^"]+)"', lambda m: f'base64,{digest(base64.b64decode(m[1]))}"', text
        )
        plain: str = self.plain(text)
        return plain

    def timeline(self, run: Any) -> None:
        """What a page asks of the events, and some answers."""
        answer = run.timeline.answer
        self.take("ask.open", lambda: answer({"ask": "open"}) | {"version": None})
        whole = answer({"ask": "open"})
        if not whole.get("total"):
            return
        end, total = whole["end_ns"], whole["total"]
        level = max(int(np.ceil(np.log2(max(end, 1) / 512))), 0)
        rows = [[lane["id"], 1, lane["depths"], 0, 0] for lane in whole["lanes"]]
        asked: list[dict[str, Any]] = [{"ask": "tiles", "level": level, "want": rows[:4000]}]
        asked += [
            {
                "ask": "tiles",
                "level": level - 5,
                "want": [[*row[:4], 31] for row in rows[:100]],
                "query": query,
            }
            for query in ("", "a")
        ]
        events = np.unique(np.linspace(0, total - 1, 60).astype(int)).tolist()
        asked += [{"ask": "slice", "event": event} for event in events]
        ways = ("previous", "next", "parent", "child", "previous_same", "next_same")
        asked += [
            {"ask": "step", "event": event, "to": to} for event in events[::10] for to in ways
        ]
        asked += [{"ask": "many", "events": events}, {"ask": "gaps", "most": 20}]
        asked += [
            {"ask": ask, "from": end * 0.4, "to": end * 0.6, "lanes": [row[0] for row in rows[:50]]}
            for ask in ("range", "first")
        ]
        for query in ("a", "step", "/gemm|conv|mul/", "1"):
            asked.append({"ask": "search", "query": query})
            asked += [
                {"ask": "hit", "query": query, **at}
                for at in ({"index": 1}, {"longest": True}, {"time_ns": end / 2, "by": 1})
            ]
        names = {
            "op": self.parts.get("ops.frame"),
            "kernel": self.parts.get("kernels.frame"),
            "input": self.parts.get("input_pipeline.frame"),
        }
        for kind, frame in names.items():
            column = {"op": "op", "kernel": "kernel", "input": "op"}[kind]
            if isinstance(frame, pd.DataFrame) and column in frame:
                asked += [
                    {"ask": "locate", "kind": kind, "name": str(name)}
                    for name in frame[column].head(5)
                ]
        steps = self.parts.get("steps.frame")
        if isinstance(steps, pd.DataFrame):
            asked += [
                {"ask": "locate", "kind": "step", "step": int(step)}
                for step in steps["step"].head(3)
            ]
        asked += [{"ask": "locate", "kind": kind} for kind in ("gap", "memory_peak")]
        for one in asked:
            told = json.dumps(
                {
                    key: value if not isinstance(value, list) else len(value)
                    for key, value in one.items()
                    if key != "ask"
                }
            )
            self.take(f"ask.{one['ask']} {told}", partial(answer, one))

    def everything(self, shown: Any, folder: Path) -> None:
        """A profile, or a comparison, as far as it can be looked at."""
        self.take("output", lambda: self.output(shown._repr_mimebundle_()))
        self._whole = self.parts["output"].get("payload", {})
        self.walk("", shown)
        if hasattr(shown, "trace"):
            self.timeline(shown.run)
            self.take(
                "roofline(peaks)",
                lambda: (
                    vars(r := shown.roofline(peak_flops=1e12, peak_bytes=1e11))
                    and [r.frame, r.total]
                ),
            )
            self.take(
                "trace.export()", lambda: _file(shown.trace.export(folder / "trace.json"), 200)
            )
            self.take(
                "output of overview",
                lambda: self.output(shown.mimebundle(views=["overview"], height=300, live=False)),
            )
            self.take(
                "widget",
                lambda: [
                    *unpack((w := shown.widget(views=["steps"], height=300)).packed),
                    w.views,
                    w.height,
                    w.selected,
                ],
            )
        self.take("report", lambda: self.page(shown.save(folder / "report.html").read_text()))
        self.take(
            "report, 100 events",
            lambda: self.report_payload(shown.save(folder / "report.html", events=100).read_text()),
        )

    def report_payload(self, text: str) -> Any:
        """What a report holds of the trace."""
        payload = self.plain(unpack(in_page(text)))
        return {name: payload[name] for name in ("trace", "compare") if name in payload} | {
            "receipt": payload["meta"]["receipt"]
        }


def in_page(text: str) -> bytes:
    """The packed payload that a page holds: in base 85, or in base 64 as pages of earlier
    builds.
    """
    found = re.search(r'const data = "([^"]*)"', text)
    if not found:
        return b""
    if "atob(" in text:
        return base64.b64decode(found[1])
    return base64.b85decode(found[1].translate(str.maketrans(".,:[", "<&$`")))


def unpack(packed: bytes) -> dict[str, Any]:
    """The payload that an output holds, as the page reads it: also of a package whose own reader is
    elsewhere.
    """
    body = gzip.decompress(packed)
    (length,) = struct.unpack_from("<I", body)
    start = 4 + length + -(4 + length) % 8

    def rich(value: Any) -> Any:
        if isinstance(value, list):
            return [rich(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$" not in value:
            return {key: rich(item) for key, item in value.items()}
        code, offset, count, *words = value["$"]
        coding, dtype, at = " ".join(words).split(), np.dtype(f"<{code}"), start + offset
        column = np.frombuffer(body, dtype, count, at)
        if "planes" in coding:
            column = (
                np.frombuffer(body, np.uint8, count * dtype.itemsize, at)
                .reshape(dtype.itemsize, count)
                .T.copy()
                .view(dtype)[:, 0]
            )
        return np.cumsum(column, dtype=column.dtype) if "delta" in coding else column

    payload: dict[str, Any] = rich(json.loads(body[4 : 4 + length]))
    return payload


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _file(path: Path, lines: int) -> dict[str, Any]:
    data = path.read_bytes()
    return {"bytes": len(data), "digest": digest(data), "lines": data.decode().splitlines()[:lines]}


def _version() -> str:
    return str(importlib.import_module("nbprof").__version__)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", name)


def sources(root: Path, quick: bool) -> dict[str, tuple[str, list[str], int]]:
    """By name of what is recorded: how, of which paths below `root`, and how large they are."""
    import nbprof

    found: dict[str, tuple[str, list[str], int]] = {}
    alike = set()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            size = sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
            found[f"folder {name}"] = ("folder", [name], size)
        # Of files that differ in their numbers alone, one by one, the first; the folder has all.
        elif (
            path.name.endswith(KINDS)
            and (kind := (path.parent, re.sub(r"\d+", "#", path.name))) not in alike
        ):
            alike.add(kind)
            found[name] = ("load", [name], path.stat().st_size)
    for top in sorted(root.iterdir()):
        for run in nbprof.runs(top.name).to_dict("records"):
            if Path(run["path"]).is_dir() and (
                run["hosts"] > 1 or run["format"] not in ("xspace", "chrome")
            ):
                found[f"run {run['path']} {run['run']}"] = ("load", [run["path"]], run["bytes"])
    for name, paths in PAIRS.items():
        if all((root / path).exists() for path in paths):
            found[f"compare {name}"] = (
                "compare",
                paths,
                sum(found.get(path, found.get(f"folder {path}", ("", [], 0)))[2] for path in paths),
            )
    found["load with peaks"] = ("peaks", ["tests/xspace/jax_cpu.xplane.pb"], 0)
    found["nothing there"] = ("load", ["nowhere"], 0)
    if quick:
        found = {
            k: v
            for k, v in found.items()
            if v[2] <= (MOST_FOLDER if v[0] == "folder" else MOST_FILE)
        }
        found = {
            k: v
            for k, v in found.items()
            if not (k.startswith("shared/ascend/") and v[0] == "load")
        }
    return found


def record_one(
    name: str, how: str, paths: list[str], root: Path, out: Path, quick: bool = False
) -> tuple[str, float, int]:
    """Records one profile to a file; its name, seconds and how many parts it has."""
    import nbprof

    began = time.perf_counter()
    recorder = Recorder(root, quick)
    with tempfile.TemporaryDirectory() as folder:
        if how == "folder":
            # What is in it is recorded for itself.
            recorder.take("runs", lambda: nbprof.runs(paths[0]))
            recorder.take(
                "newest",
                lambda: [(p := nbprof.load(paths[0])).path, p.text(), str(p.receipt), p.hosts],
            )
        else:
            peaks = {"flops": 1e12, "bytes": 1e11} if how == "peaks" else None
            try:
                shown = (
                    nbprof.compare(*paths)
                    if how == "compare"
                    else nbprof.load(paths[0], peaks=peaks)
                )
            except Exception as error:
                recorder.parts["load"] = recorder.plain(f"{type(error).__name__}: {error}")
            else:
                recorder.everything(shown, Path(folder))
    with gzip.open(out / f"{slug(name)}.gz", "wb", 1) as file:
        pickle.dump({"name": name, "parts": recorder.parts}, file)
    return name, time.perf_counter() - began, len(recorder.parts)


def record(out: Path, package: Path, quick: bool, only: str, jobs: int) -> None:
    """Records everything with the package of one checkout."""
    os.environ |= {"PYTHONPATH": str(package), "NBPROF_CACHE": "0", "TZ": "UTC"}
    sys.path.insert(0, str(package))
    import nbprof

    if not (package / "nbprof" / "static" / "dashboard.js").exists():
        raise SystemExit(
            f"{package}: the front end is not built, so no report is whole; npm run build, or copy"
            " nbprof/static here"
        )
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    out = out.resolve()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, place in PLACES.items():
            if place.is_dir():
                shutil.copytree(
                    place, root / name, ignore=shutil.ignore_patterns("expected", "*.py", "*.md")
                )
        logdir = root / "made" / "logs" / "plugins" / "profile"
        for run in ("tf_slow", "jax_loop"):
            (logdir / run).mkdir(parents=True)
            shutil.copy(
                root / "tests" / "xspace" / f"{run}.xplane.pb", logdir / run / "host-a.xplane.pb"
            )
        # A snapshot of the allocator beside a trace.
        shutil.copytree(root / "tests" / "kineto", root / "made" / "both")
        for snapshot in root.glob("shared/findings/*/*.pickle"):
            shutil.copy(snapshot, root / "made" / "both" / "snapshot.pickle")
        for i, path in enumerate(sorted([root, *root.rglob("*")])):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (1.7e9 + i, 1.7e9 + i))
        os.chdir(root)
        cases = {name: case for name, case in sources(root, quick).items() if only in name}
        print(f"{len(cases)} profiles, folders and pairs with {nbprof.__file__}", flush=True)
        # The longest first, so that none is waited for alone in the end.
        order = sorted(
            cases, key=lambda name: (cases[name][0] != "folder", cases[name][2]), reverse=True
        )
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            done = [
                pool.submit(record_one, name, *cases[name][:2], root, out, quick) for name in order
            ]
            for one in as_completed(done):
                name, seconds, parts = one.result()
                if seconds > 5:
                    print(f"  {seconds:5.1f} s  {parts:5} parts  {name}", flush=True)
        os.chdir(out)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {size / 1e6:.0f} MB in {time.perf_counter() - began:.0f} s")


def differences(a: Any, b: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two recorded values differ, and what stands there on either side."""
    if type(a) is not type(b):
        yield where, a, b
    elif isinstance(a, pd.DataFrame):
        if list(a.columns) != list(b.columns):
            yield f"{where} columns", list(a.columns), list(b.columns)
        if len(a) != len(b) or not a.index.equals(b.index):
            yield f"{where} rows", _rows(a), _rows(b)
        for name in a.columns.intersection(b.columns, sort=False):
            if a[name].dtype != b[name].dtype:
                yield f"{where}[{name}] dtype", str(a[name].dtype), str(b[name].dtype)
            elif len(a) == len(b):
                numbers = isinstance(a[name].dtype, np.dtype) and a[name].dtype != object
                one, other = (
                    column.to_numpy() if numbers else column.tolist()
                    for column in (a[name], b[name])
                )
                yield from differences(one, other, f"{where}[{name}]")
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or len(a) != len(b):
            yield where, f"{len(a)} {a.dtype}", f"{len(b)} {b.dtype}"
        elif a.tobytes() != b.tobytes():
            unequal = np.flatnonzero((a != b) & ((a == a) | (b == b)))
            yield from ((f"{where}[{i}]", a[i].item(), b[i].item()) for i in unequal)
    elif isinstance(a, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key in a and key in b:
                yield from differences(a[key], b[key], f"{where}.{key}")
            else:
                yield (
                    (f"{where}.{key}", a[key], "(absent)")
                    if key in a
                    else (f"{where}.{key}", "(absent)", b[key])
                )
    elif isinstance(a, list) and len(a) == len(b):
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            if one is not other:
                yield from differences(one, other, f"{where}[{i}]")
    elif isinstance(a, list):
        left, right = (
            [x for x in map(repr, mine) if x not in others]
            for mine, others in ((a, set(map(repr, b))), (b, set(map(repr, a))))
        )
        yield (
            where,
            f"{len(a)} items, only here: {', '.join(left)}",
            f"{len(b)} items, only here: {', '.join(right)}",
        )
    elif isinstance(a, str) and a != b and len(lines := _lines(a)) == len(others := _lines(b)) > 1:
        yield from (
            (f"{where}[{i}]", *pair)
            for i, pair in enumerate(zip(lines, others, strict=True))
            if pair[0] != pair[1]
        )
    elif a is not b and a != b and not (a != a and b != b):
        yield where, a, b


def _lines(text: str) -> list[str]:
    """Lines of a text, pieces between the tags of HTML."""
    return re.split(r"\n|(?<=>)", text)


def _rows(frame: pd.DataFrame) -> str:
    return f"{len(frame)} rows, index {frame.index.dtype} {frame.index[:3].tolist()}"


def excerpt(a: Any, b: Any) -> tuple[str, str]:
    """Both sides from a little before the first difference on."""
    one, other = (x if isinstance(x, str) else repr(x) for x in (a, b))
    same = next(
        (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    start = max(same - 30, 0)
    return one[start : same + 60], other[start : same + 60]


def is_wording(a: Any, b: Any) -> bool:
    if not (isinstance(a, str) and isinstance(b, str)):
        return False
    numbers = [re.findall(r"\d+(?:[.,]\d+)*", html.unescape(text)) for text in (a, b)]
    return numbers[0] == numbers[1] and "(absent)" not in (a, b)


def diff(before: Path, after: Path, values: bool, only: str, most: int) -> int:
    """Prints what differs between two recordings; how much it is."""
    sides = [
        {path.name: path for path in folder.glob("*.gz") if slug(only) in path.name}
        for folder in (before, after)
    ]
    both = sorted({*sides[0], *sides[1]})
    if not sides[0] or not sides[1]:
        raise SystemExit(f"{before if not sides[0] else after}: no recording is here")
    total = 0
    grouped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for file in both:
        loaded = [
            pickle.loads(gzip.decompress(side[file].read_bytes())) if file in side else None
            for side in sides
        ]
        if loaded[0] is None or loaded[1] is None:
            print(f"{file}: only in {before if loaded[0] else after}")
            total += 1
            continue
        name = loaded[0]["name"]
        counts: Counter[str] = Counter()
        for where, a, b in differences(loaded[0]["parts"], loaded[1]["parts"], ""):
            wording = is_wording(a, b)
            if wording and values:
                continue
            part = re.match(r"\.*([\w ,]+(?:\.\w+)?)", where)
            counts[f"{part[1] if part else where} ({'wording' if wording else 'values'})"] += 1
            place = "wording" if wording else re.sub(r"\[\d+\]", "[]", where)
            grouped[(place, *excerpt(a, b))].append(f"{name} {where}")
        total += sum(counts.values())
        if counts:
            print(
                f"{name}: " + ", ".join(f"{part} {count:,}" for part, count in counts.most_common())
            )
    for (where, one, other), at in sorted(grouped.items(), key=lambda item: -len(item[1]))[:most]:
        print(f"\n{len(at):,} × {where}, first: {at[0]}\n  - {one!r}\n  + {other!r}")
    if len(grouped) > most:
        print(f"\n… and {len(grouped) - most:,} more; --most shows them")
    print(f"\n{total:,} differences in {len(both)} profiles, folders and pairs")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument(
        "--package",
        type=Path,
        default=HERE,
        help="checkout whose package is used; this one when left out",
    )
    recording.add_argument("--quick", action="store_true", help="small files only")
    recording.add_argument("--only", default="", help="only what has this text in its name")
    recording.add_argument("--jobs", type=int, default=2)
    comparing = commands.add_parser("diff")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--values", action="store_true", help="leave out texts that differ in words alone"
    )
    comparing.add_argument("--only", default="", help="only what has this text in its name")
    comparing.add_argument(
        "--most", type=int, default=40, help="how many different differences are printed"
    )
    given = parser.parse_args()
    if given.command == "diff":
        sys.exit(bool(diff(given.before, given.after, given.values, given.only, given.most)))
    record(given.out.absolute(), given.package.resolve(), given.quick, given.only, given.jobs)


if __name__ == "__main__":
    main()
