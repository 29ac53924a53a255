"""Ctrl-C at random moments of a profiled cell, in real kernels, as Jupyter delivers it.

    python -m tests.fuzz.interrupts --count 500 --seed 1                     for each framework that is installed
    python -m tests.fuzz.interrupts --frameworks jax --seed 1 --first 37 --count 1     one of them again

The moments are drawn over the whole life of a cell: its start, training, the writing of the
recording, its reading, the analysis and the display. In every kernel the first of them meets
modules that have not been imported yet. What was drawn follows from the seed; where in the program
it lands is up to the machine, so a find may need some tries.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from queue import Empty

from tests.magic.conftest import MODEL, Kernel
from tests.support.tracebacks import PACKAGE, own

MOST_S = 30.0
"""How long a kernel may take to answer after the last Ctrl-C: a hang lasts for ever, and a busy
machine is slow.
"""

IN_A_KERNEL = 20
"""Cells that are interrupted before the next kernel starts."""

IMPORTS_S = 2.0
"""How much longer the first cell of a kernel may take: it imports what the analysis needs."""

TRAINED = "the cell has trained"
AGAIN = 0.2
"""Share of the cells in which Ctrl-C is pressed twice."""

_TORCH = """
import torch
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        layer(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
"""
_JAX = """
import jax, jax.numpy as jnp
@jax.jit
def train_step(w):
    return w - 0.1 * jnp.mean(jnp.tanh(w @ w))
def train(steps):
    w = jnp.ones((64, 64))
    for _ in range(steps):
        w = train_step(w).block_until_ready()
train(2)
"""
_KERAS = f"{MODEL}\ndef train(steps):\n    model.fit(data.repeat().take(steps), verbose=0)\n"
FRAMEWORKS = {"tensorflow": _KERAS, "jax": _JAX, "torch": _TORCH}

_PREPARE = """
%load_ext nbprof
import faulthandler, gc, os, signal, sys, tempfile, threading, time
import nbprof
from nbprof.capture.session import active
faulthandler.register(signal.SIGUSR1, file=open("stacks.txt", "w"), all_threads=True)
def state():
    for _ in range(100):
        threads = sorted(thread.name for thread in threading.enumerate() if "nbprof" in thread.name and "cache" not in thread.name)
        if not threads: break
        time.sleep(0.05)
    half = [name for name, m in list(sys.modules.items()) if getattr(getattr(m, "__spec__", None), "_initializing", False)]
    folder = "nbprof-results"
    return {
        "active": active() is not None, "threads": threads, "half": half, "finders": len(sys.meta_path),
        "handler": str(signal.getsignal(signal.SIGINT)), "hooks": len(get_ipython().events.callbacks["post_run_cell"]),
        "scratch": [name for name in os.listdir(folder) if name.startswith(".recording-")] if os.path.isdir(folder) else [],
    }
"""
_CELL = f"%%nbprof -o p\ntrain(20)\nprint({TRAINED!r}, flush=True)"
_NEXT = """
from nbprof.profiles.load import _last
_last.clear()
%nbprof -q train(2)
nbprof.last is not None and len(nbprof.last.run.trace.events) > 0
"""


@dataclass(frozen=True)
class Press:
    """One Ctrl-C: a share of the time from the beginning of the cell to the end of its training, or
    from there to its end.
    """

    trained: bool
    share: float


@dataclass
class Outcome:
    """What became of a cell."""

    status: str = ""
    error: str = ""
    traceback: str = ""
    texts: list[str] = field(default_factory=list)
    dashboards: int = 0
    stderr: str = ""
    trained: float | None = None
    """Seconds from the request."""
    ended: float = 0.0
    pressed: list[float] = field(default_factory=list)
    hung: str = ""

    @property
    def told(self) -> list[str]:
        """What nbprof said of having been interrupted."""
        return [text for text in self.texts if "interrupted" in text and text.startswith("nbprof:")]

    @property
    def became(self) -> str:
        """What became of it, in words."""
        if not self.status:
            return "hung" if self.hung else "no reply"
        cell = "cell interrupted" if self.status == "error" else "cell done"
        return f"{cell}, {'analysis interrupted' if self.told else 'dashboard' if self.dashboards else 'nothing shown'}"

    @property
    def answer_s(self) -> float:
        """Seconds from the last Ctrl-C to the end."""
        return self.ended - self.pressed[-1] if self.pressed else 0.0


def drawn(seed: int, framework: str, number: int) -> list[Press]:
    """What is pressed in a cell."""
    rng = random.Random(f"{seed} {framework} {number}")
    # More after the training: that is where nbprof works.
    presses = [Press(rng.random() < 0.65, rng.random() * 1.05)]
    if rng.random() < AGAIN:
        presses.append(Press(presses[0].trained or rng.random() < 0.5, rng.random()))
        presses.sort(key=lambda press: (press.trained, press.share))
    return presses


class Interrupted:
    """A kernel whose cells are interrupted.

    Parameters
    ----------
    framework : str
    folder : Path
        Where the kernel runs.
    """

    def __init__(self, framework: str, folder: Path) -> None:
        self.framework = framework
        self.kernel = Kernel(folder, framework)
        ready = self.kernel.run(_PREPARE + FRAMEWORKS[framework])
        assert ready.status == "ok", ready.traceback
        # IPython imports what shows tracebacks with the first of them, and a Ctrl-C there is no
        # business of nbprof's.
        self.kernel.run("1 / 0")
        self.before = self.state()

    def close(self) -> None:
        """End the kernel."""
        self.kernel.close()

    def state(self) -> dict[str, object]:
        """What a cell must leave as it was."""
        found: dict[str, object] = ast.literal_eval(self.kernel.ask("state()"))
        return found

    def measure(self) -> tuple[float, float]:
        """Seconds that a cell takes when nobody interrupts it."""
        outcome = self.run([], (1.0, 1.0))
        assert (outcome.status, outcome.dashboards) == ("ok", 1), outcome
        assert outcome.trained is not None
        return outcome.trained, outcome.ended - outcome.trained

    def run(self, presses: list[Press], took: tuple[float, float]) -> Outcome:
        """Run the cell, with Ctrl-C pressed in it."""
        client, out = self.kernel.client, Outcome()
        waiting = list(presses)
        began = time.monotonic()
        request = client.execute(_CELL, store_history=True)
        while True:
            now = time.monotonic() - began
            due = self._due(waiting, out, took)
            if due is not None and now >= due:
                waiting.pop(0)
                self.kernel.manager.interrupt_kernel()
                out.pressed.append(time.monotonic() - began)
                continue
            since = max([0.0, *out.pressed])
            if now - since > MOST_S + sum(took):
                out.hung = self._stacks()
                return out
            try:
                message = client.get_iopub_msg(timeout=max(0.0, min(1.0, (due or now + 1.0) - now)))
            except Empty:
                continue
            if message["parent_header"].get("msg_id") == request and self._take(
                message, out, time.monotonic() - began
            ):
                break
        try:
            while (reply := client.get_shell_msg(timeout=10))["parent_header"].get(
                "msg_id"
            ) != request:
                pass
        except Empty:
            # IPython's own: a Ctrl-C between the end of the cell and the answer.
            return out
        content = reply["content"]
        out.status, out.error = content["status"], content.get("ename", "")
        out.traceback = "\n".join(content.get("traceback", []))
        return out

    def _due(self, waiting: list[Press], out: Outcome, took: tuple[float, float]) -> float | None:
        if not waiting or (waiting[0].trained and out.trained is None):
            return None
        press = waiting[0]
        return (
            (out.trained or 0.0) + press.share * took[1] if press.trained else press.share * took[0]
        )

    def _take(self, message: dict, out: Outcome, now: float) -> bool:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            if TRAINED in content["text"] and out.trained is None:
                out.trained = now
            if content["name"] == "stderr":
                out.stderr += content["text"]
        elif kind in ("display_data", "update_display_data"):
            out.dashboards += "application/vnd.nbprof.v1+json" in content["data"]
            out.texts.append(content["data"]["text/plain"])
        elif kind == "status" and content["execution_state"] == "idle":
            out.ended = now
            return True
        return False

    def _stacks(self) -> str:
        """Where each thread of a kernel that hangs stands."""
        self.kernel.manager.signal_kernel(signal.SIGUSR1)
        time.sleep(2)
        return (self.kernel.folder / "stacks.txt").read_text() or "no stacks"

    def judge(self, out: Outcome) -> Iterator[str]:
        """What is wrong with an interrupted cell, and with the kernel after it."""
        if out.hung:
            yield f"no answer within {MOST_S:.0f} s:\n{out.hung}"
            return
        said = "\n".join(out.texts)
        if out.status == "error" and out.error != "KeyboardInterrupt":
            yield f"the cell ended with {out.error}:\n{out.traceback}"
        frames = own(out.traceback, self.kernel.folder)
        if frames:
            yield f"the traceback has frames of nbprof: {frames}"
        # In a callback of `gc` Python itself loses a Ctrl-C that meets the training, and says so.
        if "Error in callback" in out.stderr or (
            "Traceback" in out.stderr and str(PACKAGE) in out.stderr
        ):
            yield f"stderr has a traceback:\n{out.stderr}"
        for wrong in (
            "could not be finished",
            "could not be shown",
            "could not be read",
            "did not start",
            "still running",
        ):
            if wrong in said or wrong in out.stderr:
                yield f"nbprof said: {[text for text in [*out.texts, out.stderr] if wrong in text]}"
        if out.status == "ok" and out.trained is not None and not out.dashboards and not out.told:
            yield f"neither a dashboard nor a sentence:\n{said}\n{out.stderr}"
        if (
            out.status == "ok"
            and out.trained is not None
            and self.kernel.ask("len(nbprof.runs('nbprof-results')) > 0") != "True"
        ):
            yield "the recording was not kept"
        left = self.state()
        if left != self.before:
            yield f"left behind: { {key: value for key, value in left.items() if value != self.before[key]} }"
        after = self.kernel.run(_NEXT)
        if (after.status, after.value) != ("ok", "True"):
            yield f"the next recording: {after.status} {after.value}\n{after.traceback}\n{after.stderr}"


def storm(
    framework: str, seed: int, numbers: range, folder: Path
) -> Iterator[tuple[int, list[Press], Outcome, list[str]]]:
    """Interrupt a cell for each number; gives what was pressed, what became of it, and what is
    wrong.
    """
    took, kernel, done = (0.5, 1.0), None, 0
    try:
        for number in numbers:
            if kernel is None:
                place = folder / f"{framework}-{number}"
                place.mkdir()
                kernel = Interrupted(framework, place)
            presses = drawn(seed, framework, number)
            out = kernel.run(
                presses, took if done % IN_A_KERNEL else (took[0], took[1] + IMPORTS_S)
            )
            wrong = list(kernel.judge(out))
            yield number, presses, out, wrong
            if wrong or (done + 1) % IN_A_KERNEL == 0:
                kernel.close()
                kernel = None
            elif not done:
                took = kernel.measure()
            done += 1
    finally:
        if kernel is not None:
            kernel.close()


def main() -> int:
    """Interrupt as many cells as are asked for; 1 where something is wrong."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--frameworks", default=",".join(name for name in FRAMEWORKS if find_spec(name))
    )
    arguments.add_argument("--count", type=int, default=25)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    # Whoever runs this in the background has Ctrl-C turned off, for every process started here too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return max(
        [
            _report(framework, given.seed, range(given.first, given.first + given.count))
            for framework in given.frameworks.split(",")
        ]
    )


def _report(framework: str, seed: int, numbers: range) -> int:
    """Interrupt the cells of a framework and print what became of them; 1 where something is
    wrong.
    """
    outcomes: dict[int, Outcome] = {}
    finds = 0
    try:
        with tempfile.TemporaryDirectory(prefix="nbprof-interrupts-") as folder:
            os.environ["NBPROF_CACHE_DIR"] = str(Path(folder) / "cache")
            for number, presses, out, wrong in storm(framework, seed, numbers, Path(folder)):
                outcomes[number] = out
                if wrong:
                    finds += 1
                    print(
                        f"FIND: --frameworks {framework} --seed {seed} --first {number} --count 1\n{presses}",
                        *wrong,
                        sep="\n",
                        flush=True,
                    )
    finally:
        print(
            f"{framework}: {len(outcomes)} cells from {numbers.start} with seed {seed}, {finds} finds"
        )
        for became, count in Counter(out.became for out in outcomes.values()).most_common():
            number = max(
                (n for n, out in outcomes.items() if out.became == became),
                key=lambda n: outcomes[n].answer_s,
            )
            print(
                f"  {count:4} {became}; slowest answer {outcomes[number].answer_s:.2f} s (cell {number})",
                flush=True,
            )
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
