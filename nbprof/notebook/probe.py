"""`%%nbprof --probe input`: measure a step of the cell with its input taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.capture.experiments.program import Program, Refused, Unrestorable, of_cell
from nbprof.capture.probe.inputs import Inputs
from nbprof.capture.probe.state import everything
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.capture.options import Options
    from nbprof.profiles.profile import Profile
    from nbprof.run.run import Run

MOST_INPUT = 0.2
"""The share of input in a step from which on TensorFlow Profiler calls it high.

If the second run waits for more than that, of its own steps and of the wait that was recorded, some
input was not taken out.
"""
_AGAIN = "The cell was not run again"
_SLOWED = "Other processes slowed the second run down."


class _NoProbe(Exception):  # noqa: N818 - a sentence, not an error
    """The reason why the input was not probed."""


def probe(
    shell: Any, options: Options, source: str, profile: Profile, *, in_place: bool
) -> dict[str, Any]:
    """Run a cell again with its input taken out, and measure a step.

    Parameters
    ----------
    shell : InteractiveShell
        The shell that ran the cell.
    options : Options
        Options of the recording; the second recording has the same, and is not saved.
    source : str
        The text of the cell, without the line of the magic.
    profile : Profile
        The profile of the first run.
    in_place : bool
        Also run it if its changes cannot be restored.

    Returns
    -------
    dict
        `text` and `detail`, sentences; `measured_ms` and `predicted_ms`, floats or None; `slowed`,
        True if other processes slowed the second run down.
    """
    predicted, unpredicted = _predicted(profile.run)
    result: dict[str, Any] = {
        "text": "",
        "detail": "",
        "measured_ms": None,
        "predicted_ms": predicted,
        "slowed": False,
    }
    # The first run is shown whatever error occurs here.
    try:
        second = _second_run(shell, options, source, profile, in_place=in_place)
    except _NoProbe as reason:
        result["text"] = f"The input was not probed: {reason}"
    except KeyboardInterrupt:
        result["text"] = (
            "The input was not probed: it was interrupted. What the second run changed was"
            " restored."
        )
    except Exception as error:
        result["text"] = f"The input was not probed: {type(error).__name__}: {error}"
    else:
        prediction = f"not predicted: {unpredicted}"
        if predicted is not None:
            prediction = f"predicted {wording.millis(predicted)}"
        measured = wording.millis(second.step_ms)
        recorded = wording.number(profile.run.overview_of_files["step_time_ms"], 2)
        result["measured_ms"], result["slowed"] = second.step_ms, _SLOWED in second.notes
        result["text"] = f"With instant input, a step takes {measured} (measured; {prediction})."
        result["detail"] = (
            f"As recorded it takes {recorded} ms. For the measurement the cell ran a second time,"
            f" with each input replaced by its first batch, repeated: {'; '.join(second.replaced)}."
            f" {second.used} averaged. {' '.join(second.notes)}"
        )
    return result


class _SecondRun(NamedTuple):
    """The measurement of the second run.

    Attributes
    ----------
    step_ms : float
    used : str
        The steps that were averaged, as part of a sentence.
    replaced : list of str
        The inputs that were replaced.
    notes : list of str
    """

    step_ms: float
    used: str
    replaced: list[str]
    notes: list[str]


def _predicted(run: Run) -> tuple[float | None, str]:
    """The mean of the recorded steps without their input, or why it is unknown."""
    mean = run.steps_summary.set_index("category")["mean_ms"]
    step = wording.real(mean.get("step_time"))
    if step is None:
        return None, "no steps were recorded"
    waiting = wording.real(mean.get("input"))
    if waiting is None or run.overview_of_files["input_percent"] is None:
        return None, "how long steps wait for input was not recorded"
    return step - waiting, ""


def _second_run(
    shell: Any, options: Options, source: str, profile: Profile, *, in_place: bool
) -> _SecondRun:
    try:
        program = of_cell(shell, source)
    except Refused as reason:
        raise _NoProbe(str(reason)) from None
    capture = profile.run.capture
    if capture is not None and capture.cell_failed:
        raise _NoProbe("the cell did not finish.")
    inputs = Inputs(
        max(capture.cell_s if capture is not None else 0.0, 1.0),
        lambda value: _name_of(program.namespace, value),
    )
    try:
        with program.restored(in_place=in_place) as saved:
            again = _record(options, program, inputs)
    except Unrestorable as reason:
        raise _NoProbe(f"{reason} {_AGAIN}; --probe-in-place runs it anyway.") from None
    except Refused as reason:
        raise _NoProbe(f"{reason} {_AGAIN}.") from None
    recorded = wording.real(profile.run.steps_summary.set_index("category")["mean_ms"].get("input"))
    measured, used = _measured(again.run, inputs, recorded or 0.0)
    notes = ["Its output is not shown."]
    if saved.uncopied or saved.failed:
        notes.append(
            f"What it changed stays changed in {', '.join(saved.uncopied + saved.failed)};"
            " everything else was restored."
        )
    else:
        notes.append(
            "Variables, models, optimizers and random number generators were restored; files that"
            " it wrote were not."
        )
    if again.run.overview.get("contention"):
        notes.append(_SLOWED)
    return _SecondRun(measured, used, list(inputs.replaced), notes)


def _record(options: Options, program: Program, inputs: Inputs) -> Profile:
    """The second recording, read."""
    from nbprof.capture.session import Session
    from nbprof.profiles.load import last, open_recording, set_last

    session = Session(
        replace(options, save=False, logdir=None),
        source=program.cell.source,
        namespace=program.namespace,
    )
    # It does not count among the runs.
    session.windows.label = "probe"
    inputs.step = lambda: session.clock.seen + 1
    failure: BaseException | None = None
    with inputs, program.hidden():
        try:
            session.start()
        except CaptureError as error:
            raise _NoProbe(f"{error}. {_AGAIN}.") from None
        try:
            program.run()
        except BaseException as error:
            failure = error
        finally:
            recording = session.stop(failure)
    if isinstance(failure, KeyboardInterrupt):
        raise _NoProbe("the second run was interrupted. What it changed was put back.")
    if failure is not None:
        reason = type(failure).__name__
        message = str(failure).strip().partition("\n")[0][:300]
        if message:
            reason += f": {message}"
        raise _NoProbe(f"the second run failed: {reason}. What it changed was put back.")
    if inputs.empty:
        raise _NoProbe(f"{', '.join(inputs.empty)} yielded no batch in the second run.")
    if not inputs.replaced:
        raise _NoProbe(
            "the cell reads no dataset of tf.data and no DataLoader; nbprof.steps(batches) marks"
            " other inputs."
        )
    if recording is None:
        raise _NoProbe(f"the second run was not recorded: {session.failure}.")
    before = last()
    try:
        return open_recording(recording)
    except NbprofError as error:
        raise _NoProbe(f"the second run could not be read: {error}") from None
    finally:
        if before is not None:
            set_last(before)


def _measured(run: Run, inputs: Inputs, recorded: float) -> tuple[float, str]:
    """The mean of the steps in averages without those that read a first batch, and their number.

    Parameters
    ----------
    run : Run
    inputs : Inputs
    recorded : float
        How long the steps of the first run waited for input, in ms.
    """
    frame = run.steps
    if not len(frame):
        raise _NoProbe("no steps were found in the second run.")
    used = frame[frame["counted"].astype(bool) & ~frame["step"].isin(inputs.prepared)]
    if not len(used):
        raise _NoProbe(
            "each step of the second run read the first batch of an input, or is warm-up: record"
            " more steps."
        )
    mean, waiting = float(used["step_time_ms"].mean()), float(used["input_ms"].mean())
    if waiting > MOST_INPUT * max(mean, recorded):
        part = f"{wording.millis(waiting)} of {wording.millis(mean)} per step"
        raise _NoProbe(
            f"the second run still waits for input, {part}: not all of it could be removed."
        )
    verb = "are" if len(used) > 1 else "is"
    noun = "step"
    if run.capture is not None and run.capture.ended_before:
        noun = "recorded step"
    return mean, f"{len(used):,} of {wording.plural(len(frame), noun)} of it {verb}"


def _name_of(namespace: dict[str, Any], value: Any) -> str:
    return next((name for name in sorted(everything(namespace)) if namespace[name] is value), "")
