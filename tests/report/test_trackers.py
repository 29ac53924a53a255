"""A profile in experiment trackers: in those that are installed, offline, and in stand-ins of their
documented calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.profiles import trackers

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def profile():
    return nbprof.load(DATA / "xspace" / "tf_slow.xplane.pb")


@pytest.fixture(scope="module")
def expected(profile):
    return {
        "nbprof/step_time_ms": profile.steps.summary["mean_ms"].iloc[0],
        "nbprof/steps_per_second": 1000 / profile.steps.summary["mean_ms"].iloc[0],
        "nbprof/input_percent": profile.overview["input_percent"],
    }


def package(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    return module


def test_metrics_are_the_key_figures_that_are_known(profile, expected):
    assert trackers.metrics(profile.run) == pytest.approx(expected)


class MLflow:
    def __init__(self, run=True):
        self.run, self.files, self.metrics = run, {}, {}

    def module(self):
        return package(
            "mlflow",
            active_run=lambda: self.run or None,
            log_metrics=lambda metrics, step=None: self.metrics.update({step: metrics}),
            log_artifact=self.log_artifact,
            log_text=lambda text, path: self.files.update({path: text}),
        )

    def log_artifact(self, path, folder):
        self.files[f"{folder}/{Path(path).name}"] = Path(path).read_text("utf-8")


def test_mlflow_gets_metrics_the_report_and_the_brief(profile, expected):
    server = MLflow()
    profile.log_to(server.module(), step=7)
    assert server.metrics == {7: pytest.approx(expected)}
    assert set(server.files) == {"nbprof/report.html", "nbprof/brief.md"}
    assert "<html" in server.files["nbprof/report.html"]
    assert server.files["nbprof/brief.md"] == nbprof.brief(profile)


def test_names_are_redacted_in_all_that_is_logged(profile):
    server = MLflow()
    profile.log_to(server.module(), redact=True)
    assert server.files["nbprof/brief.md"] == nbprof.brief(profile, redact=True)
    assert "tf_slow" not in server.files["nbprof/report.html"]


def test_without_an_active_run_nothing_is_logged(profile, monkeypatch):
    server = MLflow(run=False)
    with pytest.raises(NbprofError, match=r"no active run: call mlflow\.start_run\(\) first"):
        profile.log_to(server.module())
    assert server.files == {}
    wandb = package("wandb", run=None)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(NbprofError, match=r"no active run: call wandb\.init\(\) first"):
        profile.log_to(wandb)


@pytest.mark.parametrize("tracker", [json, "mlflow", object(), None])
def test_something_else_is_refused(profile, tracker):
    with pytest.raises(NbprofError, match="pass the module mlflow, the module wandb"):
        profile.log_to(tracker)


def test_a_run_of_aim_without_a_folder_for_artifacts_is_refused(profile, monkeypatch):
    class Run:
        __module__ = "aim.sdk.run"
        artifacts_uri = None

    monkeypatch.setitem(sys.modules, "aim", package("aim", Text=str))
    # It has no `track`: nothing is logged before.
    with pytest.raises(NbprofError, match=r"no folder for the report: call run\.set_artifacts_uri"):
        profile.log_to(Run())
    with pytest.raises(NbprofError, match=r"cannot log to module: pass .* a Run of Aim"):
        profile.log_to(sys.modules["aim"])


class Writer:
    def __init__(self, folder):
        self.log_dir, self.scalars, self.texts = str(folder), {}, {}

    def add_scalar(self, name, value, step=None):
        self.scalars[name, step] = value

    def add_text(self, name, text, step=None):
        self.texts[name, step] = text

    def flush(self):
        pass


def test_tensorboard_gets_scalars_and_text_and_the_report_beside(profile, expected, tmp_path):
    writer = Writer(tmp_path / "a run")
    profile.log_to(writer, 3)
    profile.log_to(writer, 3)
    assert writer.scalars == pytest.approx({(name, 3): value for name, value in expected.items()})
    report = tmp_path / "a run" / "nbprof" / "report-3.html"
    assert writer.texts["nbprof", 3].startswith(nbprof.brief(profile))
    assert writer.texts["nbprof", 3].endswith("Report: `nbprof/report-3.html`")
    assert "<html" in report.read_text("utf-8")


def test_a_writer_to_a_bucket_is_refused_before_anything_is_logged(profile):
    writer = Writer("s3://bucket/runs")
    with pytest.raises(NbprofError, match="s3://bucket/runs is no local folder"):
        profile.log_to(writer)
    assert writer.scalars == {}


def test_the_list_of_pseudonyms_is_that_of_the_report(profile, tmp_path):
    server, names = MLflow(), tmp_path / "names.json"
    profile.log_to(server.module(), redact=names)
    listed = set(json.loads(names.read_text("utf-8")))
    report = server.files["nbprof/report.html"] + server.files["nbprof/brief.md"]
    used = set(re.findall(r"\bname_[0-9a-f]{8}\b", report))
    assert used
    assert used <= listed


def installed(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: it is not among what the tests need")
    return importlib.import_module(module)


def test_mlflow_itself(profile, expected, tmp_path, monkeypatch):
    mlflow = installed("mlflow")
    # Newer versions want a database instead of files.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        profile.log_to(mlflow)
    client = mlflow.MlflowClient()
    assert client.get_run(run.info.run_id).data.metrics == pytest.approx(expected)
    files = {file.path for file in client.list_artifacts(run.info.run_id, "nbprof")}
    assert files == {"nbprof/report.html", "nbprof/brief.md"}


def test_wandb_itself(profile, expected, tmp_path, monkeypatch):
    wandb = installed("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    run = wandb.init(project="test", dir=tmp_path, mode="offline")
    try:
        profile.log_to(run)
        run.log({"loss": 1.0})
        assert dict(run.summary)["nbprof/step_time_ms"] == pytest.approx(
            expected["nbprof/step_time_ms"]
        )
        # What came next is in the same step.
        assert run.step == 1
        (page,) = Path(run.dir).rglob("*.html")
        assert "<html" in page.read_text("utf-8")
    finally:
        run.finish()


def test_tensorboard_itself(profile, expected, tmp_path):
    installed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        profile.log_to(writer, 3)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name, value in expected.items():
        (scalar,) = events.Scalars(name)
        assert (scalar.step, scalar.value) == (3, pytest.approx(value))
    assert events.Tags()["tensors"] == ["nbprof/text_summary"]


def test_aim_itself(profile, expected, tmp_path):
    aim = installed("aim")
    context = importlib.import_module("aim.storage.context").Context({})
    run = aim.Run(repo=str(tmp_path), system_tracking_interval=None, capture_terminal_logs=False)
    try:
        run.set_artifacts_uri((tmp_path / "artifacts").as_uri())
        profile.log_to(run, step=3)
        for name, value in expected.items():
            (row,) = run.get_metric(name, context).dataframe().to_dict("records")
            assert (row["step"], row["value"]) == (3, pytest.approx(value))
        text = run.get_text_sequence("nbprof/brief", context)
        assert text.values.last_value().data == nbprof.brief(profile)
        report = tmp_path / "artifacts" / run.hash / "nbprof" / "report.html"
        assert "<html" in report.read_text("utf-8")
    finally:
        run.close()
