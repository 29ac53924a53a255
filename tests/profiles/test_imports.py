"""What comes in with a profile: by modules, since time depends on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
SCRIPT = """
import sys
import numpy, pandas
known = set(sys.modules)
import nbprof.profiles.load, nbprof.profiles.profile
new = set(sys.modules) - known
foreign = {name.partition(".")[0] for name in new} - {"nbprof"} - sys.stdlib_module_names
assert not foreign, foreign
# Half a millisecond each.
own = sorted(name for name in new if name.startswith("nbprof"))
assert len(own) <= 392, (len(own), own)
p = nbprof.load(sys.argv[1])
len(p.steps.frame), len(p.ops.frame), p.advice, p.text(), p.payload(), p.overview
drawing = {"bokeh", "IPython", "PIL", "anywidget", "ipywidgets"}
assert not drawing & set(sys.modules), drawing & set(sys.modules)
p.mimebundle()
assert drawing & set(sys.modules) == {"PIL"}, drawing & set(sys.modules)
# Pillow's own writer would import those of other formats.
assert "PIL.JpegImagePlugin" not in sys.modules
"""


def test_a_profile_imports_little_and_nothing_to_draw_with_before_it_is_drawn() -> None:
    environment = {**os.environ, "NBPROF_CACHE": "0"}
    path = str(DATA / "xspace" / "jax_cpu.xplane.pb")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert not done.returncode, done.stderr
