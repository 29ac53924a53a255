"""Kernels where the framework is missing, or comes with the cell."""

from __future__ import annotations

import subprocess
import sys

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


def test_nothing_to_record_is_one_sentence_and_the_cell_runs(bare_kernel):
    result = bare_kernel.run("%%nbprof --backend jax\nvalue = 6 * 7\nvalue")
    assert (result.status, result.value) == ("ok", "42")
    assert (
        "nothing to record: JAX is imported neither by this cell nor before it" in result.sentences
    )
    assert len(result.displays) == 1


def test_a_cell_without_a_framework_is_recorded(bare_kernel):
    result = bare_kernel.run("%%nbprof -o p\nvalue = 6 * 7\nvalue")
    assert (result.status, result.value) == ("ok", "42")
    assert (
        bare_kernel.ask("(p.run.capture.backend, p.overview['framework'].split()[0])")
        == "('python', 'Python')"
    )
    assert (
        bare_kernel.ask("[name for name in ('tensorflow', 'jax', 'torch') if name in sys.modules]")
        == "[]"
    )


def test_a_framework_that_is_not_installed(bare_kernel):
    bare_kernel.run(HIDE)
    asked = bare_kernel.run("%%nbprof --backend tensorflow\nvalue = 1\nvalue")
    imported = bare_kernel.run("%%nbprof\nimport tensorflow")
    bare_kernel.run("sys.meta_path.pop(0)")
    assert (asked.status, asked.value) == ("ok", "1")
    assert "TensorFlow is not installed: the cell runs unprofiled" in asked.sentences
    assert (imported.status, imported.error, imported.errors) == ("error", "ModuleNotFoundError", 1)


def test_a_cell_that_imports_its_framework_is_recorded(bare_kernel):
    assert bare_kernel.ask("'tensorflow' in sys.modules") == "False"
    result = bare_kernel.run(
        "%%nbprof -o p\nimport os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\nimport numpy as np, keras\n"
        "model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])\nmodel.compile('sgd', 'mse')\n"
        "model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=8, verbose=0)"
    )
    assert (result.status, len(result.dashboards)) == ("ok", 1), result.traceback
    assert bare_kernel.ask("len(p.steps.frame)") == "8"
    assert bare_kernel.capture()["steps_marked"] == 8


def test_loading_the_extension_imports_little_and_no_framework():
    code = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "before = set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'nbprof')\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"tensorflow", "jax", "torch", "bokeh", "pandas", "numpy", "keras"} & set(imported)
    # Each costs about a millisecond of every notebook that has the extension in its settings.
    assert len(imported) <= 30, imported


def test_what_the_live_status_needs_is_imported_before_the_recording():
    code = (
        "import sys, torch\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from nbprof.capture.session import Session\n"
        "start = Session.start\n"
        "Session.start = lambda self: (start(self), seen.extend(sys.modules))\n"
        "seen, shell = [], InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'nbprof')\n"
        "shell.user_ns['seen'] = seen\n"
        "shell.run_cell('%%nbprof --no-save\\nimport sys, torch; more = sorted(set(sys.modules) - set(seen)); torch.ones(3).sum()')\n"
        "print('MORE', *shell.user_ns['more'])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    (more,) = (line for line in out.splitlines() if line.startswith("MORE"))
    assert not [name for name in more.split() if name.startswith(("nbprof", "pandas"))], more
