"""A profile in an experiment tracker: MLflow, Weights & Biases, Aim, or TensorBoard."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.analysis.compare import compare
from nbprof.core.errors import NbprofError
from nbprof.profiles.sides import sides

if TYPE_CHECKING:
    from nbprof.run.run import Run

FOLDER = "nbprof"
REPORT, BRIEF = "report.html", "brief.md"
_SUFFIXES = {"ms": "_ms", "percent": "_percent", "bytes": "_bytes"}


class Logged(NamedTuple):
    """Contents of a log entry.

    Attributes
    ----------
    metrics : dict of str to float
        Key figures that are known, by `nbprof/NAME`.
    report : Path
        The HTML report.
    brief : str
        Verdict and findings as Markdown.
    """

    metrics: dict[str, float]
    report: Path
    brief: str


def metrics(run: Run) -> dict[str, float]:
    """The key figures that are known, those of `nbprof.compare(a, b).figures`, with their units in
    their names: `nbprof/step_time_ms`.
    """
    (side,) = sides([run])
    figures = {}
    for row in compare.figures(side, side).to_dict("records"):
        name = f"{FOLDER}/{row['figure']}{_SUFFIXES.get(row['unit'], '')}"
        figures[name] = float(row["before"])
    return figures


def log(
    tracker: Any,
    run: Run,
    save: Callable[[Path], Path],
    brief: Callable[[], str],
    step: int | None = None,
) -> None:
    """Log metrics, report and brief with a tracker.

    Parameters
    ----------
    tracker : module, run or SummaryWriter
    run : Run
        Whose key figures become metrics.
    save : callable
        Writes the report to a file.
    brief : callable
        Returns verdict and findings as Markdown.
    step : int, optional
        The step of the training.

    Raises
    ------
    NbprofError
        The tracker is unknown, or has no active run.
    """
    write = _writer(tracker)
    with tempfile.TemporaryDirectory(prefix="nbprof-") as folder:
        # A list of pseudonyms that the report writes has those of the brief, too.
        text = brief()
        report = save(Path(folder) / REPORT)
        write(tracker, Logged(metrics(run), report, text), step)


def _writer(tracker: Any) -> Callable[[Any, Logged, int | None], None]:
    owner = tracker if hasattr(tracker, "__path__") else type(tracker)
    package = str(getattr(owner, "__module__", owner.__name__)).partition(".")[0]
    if package == "mlflow" and owner is tracker:
        return _to_mlflow
    if package == "wandb":
        return _to_wandb
    if package == "aim" and owner is not tracker:
        return _to_aim
    if hasattr(tracker, "add_scalar") and hasattr(tracker, "add_text"):
        return _to_tensorboard
    raise NbprofError(
        f"nbprof cannot log to {type(tracker).__name__}: pass the module mlflow, the module wandb"
        " or a run of it, a Run of Aim, or a SummaryWriter of TensorBoard"
    )


def _to_mlflow(mlflow: Any, logged: Logged, step: int | None) -> None:
    if mlflow.active_run() is None:
        raise NbprofError("MLflow has no active run: call mlflow.start_run() first")
    mlflow.log_metrics(logged.metrics, step=step)
    mlflow.log_artifact(str(logged.report), FOLDER)
    mlflow.log_text(logged.brief, f"{FOLDER}/{BRIEF}")


def _to_wandb(tracker: Any, logged: Logged, step: int | None) -> None:
    import wandb

    run = wandb.run if tracker is wandb else tracker
    if run is None:
        raise NbprofError("Weights & Biases has no active run: call wandb.init() first")
    # Not committed: the step of the training's own metrics is not over.
    run.log(
        {**logged.metrics, f"{FOLDER}/report": wandb.Html(str(logged.report), inject=False)},
        step=step,
        commit=False,
    )
    artifact = wandb.Artifact(f"{FOLDER}-{run.id}", type="profile", metadata=logged.metrics)
    artifact.add_file(str(logged.report))
    with artifact.new_file(BRIEF) as file:
        file.write(logged.brief)
    run.log_artifact(artifact)


def _to_aim(run: Any, logged: Logged, step: int | None) -> None:
    from aim import Text

    if not run.artifacts_uri:
        raise NbprofError(
            "the run of Aim has no folder for the report: call"
            " run.set_artifacts_uri('file:///...') first"
        )
    for name, value in logged.metrics.items():
        run.track(value, name=name, step=step)
    run.track(Text(logged.brief), name=f"{FOLDER}/brief", step=step)
    # The report is gone when this returns.
    run.log_artifact(str(logged.report), name=f"{FOLDER}/{REPORT}", block=True)


def _to_tensorboard(writer: Any, logged: Logged, step: int | None) -> None:
    log_dir = getattr(writer, "log_dir", None) or getattr(writer, "logdir", None)
    if not log_dir or "://" in str(log_dir):
        raise NbprofError(
            f"the report is saved next to the events, and {log_dir or 'the writer'} is no local"
            " folder: log to a SummaryWriter with one"
        )
    for name, value in logged.metrics.items():
        writer.add_scalar(name, value, step)
    # TensorBoard shows no HTML.
    name = REPORT if step is None else f"report-{step}.html"
    folder = Path(log_dir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    # It may be on another disk.
    shutil.move(logged.report, folder / name)
    writer.add_text(FOLDER, f"{logged.brief}\n\nReport: `{FOLDER}/{name}`", step)
    writer.flush()
