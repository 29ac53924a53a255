"""A real kernel that runs cells and keeps what a front end would show."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import local_provisioner

from tests.support.programs import FORKS, Forked

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90


LEFT = "nbprof: the cell ran"


def _kind(data: dict) -> str:
    if "application/vnd.nbprof.v1+json" in data:
        return "dashboard"
    return "line" if data["text/plain"].startswith(LEFT) else "display"


@dataclass
class Result:
    """What one cell left behind."""

    status: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
    value: str | None = None
    stdout: str = ""
    stderr: str = ""
    lines: list[str] = field(default_factory=list)
    errors: int = 0
    shown: list[dict | str] = field(default_factory=list)
    """All that stays, in order: what was displayed, and `stdout`, `stderr`, `result`, `error`."""

    @property
    def displays(self) -> list[dict]:
        """What was displayed, but for the line that the live status leaves."""
        return [
            data
            for data in self.shown
            if isinstance(data, dict) and not data["text/plain"].startswith(LEFT)
        ]

    @property
    def order(self) -> list[str]:
        """`line`, `dashboard`, `display`, `stdout`, `result`, `error`, each once where it is
        repeated; frameworks warn on stderr at any time.
        """
        kinds = [
            kind if isinstance(kind, str) else _kind(kind)
            for kind in self.shown
            if kind != "stderr"
        ]
        return [kind for before, kind in zip([None, *kinds], kinds, strict=False) if kind != before]

    @property
    def dashboards(self) -> list[dict]:
        return [data for data in self.displays if "application/vnd.nbprof.v1+json" in data]

    @property
    def sentences(self) -> str:
        return self.stderr + "\n".join(
            data["text/plain"] for data in self.displays if data not in self.dashboards
        )


KERNEL = "from ipykernel import kernelapp\nkernelapp.launch_new_instance()"


def _forked(module: str) -> Callable[..., Forked]:
    """Launch a kernel with this module imported already."""

    def launch(command: list[str], env: dict[str, str], cwd: str | None = None, **_: Any) -> Forked:
        arguments = tuple(command[command.index("-f") :])
        return Forked((module,), KERNEL, arguments, cwd, env)

    return launch


class Kernel:
    """A kernel.

    Parameters
    ----------
    folder : Path
        Where it runs.
    module : str, optional
        What its cells import and takes long to import; nbprof itself may be imported in any.
    """

    def __init__(self, folder: Path, module: str = "nbprof") -> None:
        self.folder = folder
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "IPYTHONDIR": str(folder / ".ipython"),
        }
        self.manager = KernelManager(kernel_name="python3")
        with pytest.MonkeyPatch.context() as patch:
            if FORKS:
                patch.setattr(local_provisioner, "launch_kernel", _forked(module))
            self.manager.start_kernel(cwd=str(folder), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code: str, *, interrupt_at: str = "", limit_s: float = LIMIT_S) -> Result:
        """Run a cell; with `interrupt_at`, press Ctrl-C when that text has been printed."""
        request = self.client.execute(code, store_history=True)
        result, places = Result(), {}
        deadline = time.monotonic() + limit_s
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except Empty:
                self.manager.interrupt_kernel()
                raise AssertionError(f"the cell did not end within {limit_s} s:\n{code}") from None
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                setattr(result, content["name"], getattr(result, content["name"]) + content["text"])
                result.shown.append(content["name"])
                if interrupt_at and interrupt_at in result.stdout:
                    interrupt_at = ""
                    self.manager.interrupt_kernel()
            elif kind == "execute_result":
                result.value = content["data"]["text/plain"]
                result.shown.append("result")
            elif kind == "clear_output":
                result.shown.clear()
                places.clear()
            elif kind in ("display_data", "update_display_data"):
                place = content["transient"].get("display_id")
                result.lines.append(content["data"]["text/plain"])
                if kind == "display_data":
                    result.shown.append(content["data"])
                    places[place] = content["data"]
                elif place in places:
                    places[place].clear()
                    places[place].update(content["data"])
            elif kind == "error":
                result.errors += 1
                result.shown.append("error")
        # On a busy machine replies to what was asked while the kernel started may come first.
        while (answer := self.client.get_shell_msg(timeout=20))["parent_header"].get(
            "msg_id"
        ) != request:
            pass
        reply = answer["content"]
        result.status = reply["status"]
        result.error, result.message = reply.get("ename", ""), reply.get("evalue", "")
        result.traceback = "\n".join(reply.get("traceback", []))
        return result

    def ask(self, expression: str) -> str:
        """The repr of an expression in the kernel."""
        result = self.run(expression)
        assert result.status == "ok", result.traceback
        return result.value or "None"

    def capture(self, profile: str = "nbprof.last") -> dict:
        """How a profile was recorded."""
        capture = ast.literal_eval(self.ask(f"{profile}.run.capture.to_dict()"))
        for name in ("notes", "warnings"):
            capture[name] = [note["text"] for note in capture[name]]
        return capture

    def idle(self) -> bool:
        """True if nothing is being recorded."""
        return (
            self.ask("__import__('nbprof.capture.session', fromlist=['active']).active() is None")
            == "True"
        )


MODEL = """
import os, numpy as np
import tensorflow as tf
import keras
keras.utils.set_random_seed(1)
x, y = np.ones((64, 4), "f"), np.ones((64, 1), "f")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
model.fit(data, verbose=0)
class Fails(keras.callbacks.Callback):
    def __init__(self, at):
        super().__init__()
        self.at = at
    def on_train_batch_begin(self, batch, logs=None):
        if batch + 1 == self.at:
            raise ValueError("the third batch is bad")
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        import time
        print(f"batch {batch};", flush=True)
        time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel with the extension loaded and a tiny trained model."""
    kernel = Kernel(tmp_path_factory.mktemp("kernel"), "tensorflow")
    loaded = kernel.run("%load_ext nbprof")
    assert (loaded.status, loaded.stdout, loaded.stderr) == ("ok", "", "")
    ready = kernel.run("import nbprof" + MODEL)
    assert ready.status == "ok", ready.traceback
    yield kernel
    kernel.close()


@pytest.fixture(scope="module")
def bare_kernel(tmp_path_factory):
    """A kernel with the extension loaded and no framework imported."""
    kernel = Kernel(tmp_path_factory.mktemp("bare"))
    assert kernel.run("%load_ext nbprof\nimport nbprof, sys").status == "ok"
    yield kernel
    kernel.close()
