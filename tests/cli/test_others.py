"""compare, runs, capture, serve, doctor and cache."""

from __future__ import annotations

import json
import shutil
import socket
import sys

import pytest

import nbprof
from nbprof.cli import examined
from nbprof.cli.main import BAD, FAILED, UNKNOWN
from nbprof.frameworks.framework import Doctor
from nbprof.run.cache import background, run_cache
from tests.cli.support import DATA, SLOW, answer, call
from tests.support.chrome import compact, complete
from tests.support.profiler_server import answer as recorded
from tests.support.profiler_server import standing_in

MENDED = str(DATA / "xspace" / "tf_mended.xplane.pb")


@pytest.fixture(scope="module")
def comparison():
    return nbprof.compare(SLOW, MENDED)


def test_compare_as_text_markdown_and_page(comparison, tmp_path):
    assert call("compare", SLOW, MENDED).stdout == comparison.text() + "\n"
    target = tmp_path / "compare.html"
    assert call("compare", SLOW, MENDED, "--markdown", "-o", target).stdout == comparison.markdown()
    assert "2.14× faster" in target.read_text()


def test_the_text_of_a_comparison_is_that_of_its_dashboard(comparison):
    from nbprof.tools.compare import text

    assert comparison.text() == text.plain(comparison.payload(0).compare)


def test_compare_as_json(comparison):
    said = answer("compare", SLOW, MENDED)
    assert said["verdict"]["verdict"] == "real"
    assert said["verdict"]["change_ms"] == comparison.verdict["change_ms"][0]
    assert said["after"]["file"] == "tf_mended.xplane.pb"
    assert {finding["state"] for finding in said["findings"]} <= {"gone", "new", "still found"}
    assert len(said["ops"]) == len(comparison.ops)


def test_what_cannot_be_compared_is_unknown(tmp_path):
    plain = tmp_path / "plain.json"
    plain.write_text(compact(complete(ts=1)))
    assert answer("compare", SLOW, plain, code=UNKNOWN)["verdict"]["verdict"] == "unknown"
    assert "not both" in call("compare", SLOW, MENDED, "--json", "--markdown", code=BAD).stderr


def test_runs_of_a_logdir(tmp_path):
    assert call("runs", tmp_path).stdout == "no runs\n"
    assert answer("runs", tmp_path)["runs"] == []
    found = nbprof.runs(DATA / "xspace")
    said = answer("runs", DATA / "xspace")["runs"]
    assert [row["bytes"] for row in said] == found["bytes"].tolist()
    assert said[0]["modified"] == found["modified"][0].isoformat()
    head, *rows = call("runs", DATA / "xspace").stdout.splitlines()
    assert head.split() == ["Run", "Hosts", "Format", "Size", "Modified", "Path"]
    assert len(rows) == len(found)
    assert call("runs", tmp_path / "nowhere", code=BAD).stderr.startswith("nbprof: ")


def test_runs_of_cells_are_listed_by_notebook_and_cell(tmp_path):
    for day, cell in (("01", 3), ("02", 5)):
        folder = tmp_path / "plugins" / "profile" / f"2026_11_{day}_10_00_00"
        folder.mkdir(parents=True)
        shutil.copy(SLOW, folder)
        (folder / "nbprof.json").write_text(
            json.dumps({"backend": "tensorflow", "label": f"training [{cell}]"})
        )
    head, *rows = call("runs", tmp_path).stdout.splitlines()
    assert "Recorded as" in head
    assert ["training [5]" in rows[0], "training [3]" in rows[1]] == [True, True]
    assert [row["label"] for row in answer("runs", tmp_path)["runs"]] == [
        "training [5]",
        "training [3]",
    ]


def test_capture_of_a_worker_and_of_one_that_is_away(tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        away = f"localhost:{bound.getsockname()[1]}"
        with standing_in(recorded()) as worker:
            words = (
                "capture",
                worker.address,
                away,
                "--duration",
                "50",
                "--retries",
                "0",
                "--name",
                "here",
                "--logdir",
                tmp_path,
            )
            said = answer(*words)["run"]
    assert said["path"] == str(tmp_path / "plugins" / "profile" / "here")
    assert any(f"{away} is missing" in text for text in said["warnings"])
    assert nbprof.load(said["path"]).hosts == said["hosts"]
    assert "1 ms" in call("capture", "localhost:1", "--duration", "0", code=BAD).stderr


@pytest.fixture
def served(monkeypatch, tmp_path):
    """What the server was asked for; the program writes its arguments to `ran`."""
    asked = []
    monkeypatch.setattr(
        "nbprof.capture.remote.serve.serve",
        lambda port, backend, host: asked.append((port, backend)) or 6010,
    )
    monkeypatch.setattr(sys, "argv", ["nbprof"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text(
        "import sys\nopen('ran', 'w').write(' '.join(sys.argv[1:]))\nsys.exit(int(sys.argv[1]))\n"
    )
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "fails.py").write_text("raise KeyError('mine')\n")
    yield asked
    sys.modules.pop("helper", None)


def test_serve_runs_a_program_with_its_own_arguments(served, tmp_path):
    said = call("serve", "--backend", "jax", "--port", "0", "train.py", "5", "--port", "7", code=5)
    assert served == [(0, "jax")]
    assert "nbprof capture grpc://HOST:6010" in said.stderr
    assert (tmp_path / "ran").read_text() == "5 --port 7"
    call("serve", "--backend", "tensorflow", "-m", "helper", "0", "-m", "x")
    assert (tmp_path / "ran").read_text() == "0 -m x"


def test_an_error_of_the_program_is_its_own(served, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    call("serve", "--backend", "jax", "fails.py", code=FAILED)
    assert shown[0].args == ("mine",)


def test_serve_says_what_it_needs(served, monkeypatch):
    assert "no script" in call("serve", "nowhere.py", code=BAD).stderr
    monkeypatch.setattr("nbprof.cli.serve.find_spec", lambda name: name)
    assert "--backend" in call("serve", "train.py", code=BAD).stderr
    assert served == []


def test_cache_is_told_and_emptied(monkeypatch):
    # A fast machine reads the file in less time than is worth caching.
    monkeypatch.setattr(run_cache, "WORTH_S", 0.0)
    call("summary", SLOW)
    # What is still being written would be freed and not counted.
    assert background.finish(120)
    before = answer("cache")
    assert before["runs"] > 0
    assert before["folder"] in call("cache").stdout
    after = answer("cache", "--clear")
    assert (after["runs"], after["freed_bytes"]) == (0, before["bytes"])


def test_doctor_as_text_and_json():
    said = answer("doctor")["checks"]
    lines = call("doctor").stdout.splitlines()
    assert [
        f"{check['name']}:" in line
        for check, line in zip(said, [line for line in lines if line[0] != " "], strict=True)
    ] == [True] * len(said)
    assert all(check["remedy"] for check in said if check["state"] != "ok")


def test_what_blocks_reading_is_an_error(monkeypatch):
    version = examined._version
    monkeypatch.setattr(
        examined, "_version", lambda name: "" if name == "pandas" else version(name)
    )
    assert "pip install pandas" in call("doctor", code=BAD).stdout


def machine(root, *, only="1", rights="0"):
    for name, text in {
        "dev/nvidia0": "",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
        "proc/driver/nvidia/params": f"EnableMSI: 1\nRmProfilingAdminOnly: {only}\n",
        "proc/self/status": f"Name: python\nCapEff:\t{rights:0>16}\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def of(checks):
    return {check.name: check for check in checks}


def test_a_machine_without_gpus(tmp_path):
    assert [check.state for check in examined.nvidia(tmp_path)] == ["ok"]
    assert not [*examined.amd(tmp_path), *examined.ascend(tmp_path)]


@pytest.mark.parametrize(
    ("only", "rights", "state"),
    [
        ("0", "0", "ok"),
        ("1", "0", "limited"),
        ("1", "200000", "ok"),
        ("1", "4000000000", "ok"),
        ("x", "0", "limited"),
    ],
)
def test_counters_of_an_nvidia_gpu(tmp_path, monkeypatch, only, rights, state):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = of(examined.nvidia(machine(tmp_path, only=only, rights=rights)))
    assert found["NVIDIA GPU"].text == "driver 570.86.15"
    assert found["GPU counters"].state == state
    if (only, state) == ("1", "limited"):
        assert "NVreg_RestrictProfilingToAdminUsers=0" in found["GPU counters"].remedy


def test_cupti_is_looked_for_where_the_loader_finds_it(tmp_path, monkeypatch):
    root = machine(tmp_path / "root")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert "LD_LIBRARY_PATH" in of(examined.nvidia(root))["CUPTI"].remedy
    assert "pip install nvidia-cuda-cupti" in of(examined.nvidia(root))["CUPTI"].remedy
    for place in ("libraries", "packages/nvidia/cuda_cupti/lib"):
        library = tmp_path / place / "libcupti.so.12"
        library.parent.mkdir(parents=True)
        library.touch()
        if place == "libraries":
            monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
        assert of(examined.nvidia(root))["CUPTI"][1:3] == ("ok", str(library))


@pytest.mark.parametrize(
    "place", ["usr/local/cuda-12.8/extras/CUPTI/lib64", "usr/local/cuda/targets/x86_64-linux/lib"]
)
def test_a_cupti_that_no_loader_finds_is_none(tmp_path, monkeypatch, place):
    root = machine(tmp_path / "root")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "elsewhere"))
    library = root / place / "libcupti.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    found = of(examined.nvidia(root))["CUPTI"]
    assert found.state == "limited"
    assert str(library) in found.text
    assert f"export LD_LIBRARY_PATH={library.parent}:$LD_LIBRARY_PATH" in found.remedy
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{library.parent}")
    assert of(examined.nvidia(root))["CUPTI"][1:3] == ("ok", str(library))


def test_a_hidden_gpu_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert of(examined.nvidia(machine(tmp_path)))["NVIDIA GPU"].state == "limited"


def test_rocm(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert of(examined.amd(tmp_path))["ROCm tracing"].state == "limited"
    library = tmp_path / "opt/rocm-7.0/lib/librocprofiler-sdk.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert of(examined.amd(tmp_path))["ROCm tracing"].text == str(library)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "render" in of(examined.amd(tmp_path))["AMD GPU"].remedy


def test_the_log_of_a_tpu_is_named(tmp_path):
    assert not [*examined.tpu(tmp_path)]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/accel0").touch()
    assert "TPU_STDERR_LOG_LEVEL=0" in of(examined.tpu(tmp_path))["TPU"].text
    log = tmp_path / "tmp/tpu_logs/tpu_driver.INFO"
    log.parent.mkdir(parents=True)
    log.touch()
    assert of(examined.tpu(tmp_path))["TPU"].text == f"found; its runtime logs to {log}"


def test_a_framework_that_does_not_start_is_told(monkeypatch):
    fails = Doctor("torch", ("torch",), "raise ImportError('libx.so')")
    monkeypatch.setattr(examined, "PACKAGES", {"PyTorch": fails})
    found = of(examined.frameworks(deep=True))
    assert found["PyTorch"].state == "limited"
    assert found["PyTorch"].text.endswith("ImportError: libx.so")


def test_without_a_framework_profiles_can_be_read(monkeypatch):
    monkeypatch.setattr(
        examined, "PACKAGES", {"Other": Doctor("no_such_module", ("no-such-distribution",))}
    )
    assert "read" in of(examined.frameworks())["frameworks"].remedy


def test_a_port_that_is_taken_is_told(monkeypatch):
    with socket.create_server(("", 0)) as other:
        monkeypatch.setattr(examined, "_PORT", other.getsockname()[1])
        assert "in use" in examined.port().text
    assert examined.port().state == "ok"


def test_a_cache_that_is_off_or_not_writable_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("NBPROF_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").touch()
    assert examined.cache().state == "limited"
    monkeypatch.setenv("NBPROF_CACHE", "0")
    assert "NBPROF_CACHE" in examined.cache().remedy


def test_extensions_that_are_off_are_told(monkeypatch, tmp_path):
    pytest.importorskip("jupyter_core")
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda name: [str(tmp_path / name)])
    monkeypatch.setattr("jupyter_core.paths.jupyter_config_path", lambda: [str(tmp_path)])
    assert {check.state for check in examined.lab()} == {"limited"}
    for name, text in {
        "labextensions/nbprof/package.json": f'{{"version": "{nbprof.__version__}"}}',
        "jupyter_server_config.d/nbprof.json": '{"ServerApp": {"jpserver_extensions": {"nbprof": true}}}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert {check.state for check in examined.lab()} == {"ok"}
    (tmp_path / "labconfig").mkdir()
    (tmp_path / "labconfig/page_config.json").write_text('{"disabledExtensions": {"nbprof": true}}')
    assert of(examined.lab())["lab extension"].text == "disabled"


def test_a_brief_of_a_run_and_of_two():
    assert call("brief", MENDED, "--tokens", 700).stdout == nbprof.load(MENDED).brief(700)
    assert call("brief", MENDED, "--against", SLOW).stdout == nbprof.brief(
        nbprof.compare(SLOW, MENDED)
    )


def test_what_is_redacted_names_no_file(tmp_path):
    target = tmp_path / "page.html"
    call("report", SLOW, "--redact", "-o", target)
    said = [
        call("brief", SLOW, "--redact").stdout,
        call("compare", SLOW, MENDED, "--redact", "--markdown").stdout,
        target.read_text(),
    ]
    assert not any("tf_slow" in each for each in said)
    assert "name_" in said[0]
    plain, hidden = (answer("compare", SLOW, MENDED, *more) for more in ([], ["--redact"]))
    assert "tf_slow" in str(plain)
    assert "tf_slow" not in str(hidden)
    assert [*hidden] == [*plain]
    assert [[*row] for row in hidden["ops"]] == [[*row] for row in plain["ops"]]
    assert [row["change_us"] for row in hidden["ops"]] == [row["change_us"] for row in plain["ops"]]
