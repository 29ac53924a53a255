"""Notes for the receipt on profiles of Ascend NPUs."""

from __future__ import annotations

from nbprof.core.receipt import Note, info, warning
from nbprof.display import wording
from nbprof.display.wording import plural

_TWO_STARTUP = 4
"""From this many iterations on, the first two are left out as startup."""


def startup_iterations(suffix: str, count: int) -> Note:
    """Iterations that are not averaged; `suffix` is ` of HOST` if there are several."""
    text = (
        f"The first iteration{suffix} is shown, but not averaged: its input wait is not recorded,"
        " and it is startup."
    )
    if count >= _TWO_STARTUP:
        text = (
            f"The first two iterations{suffix} are shown, but not averaged: the input wait of the"
            " first is not recorded, and both are startup."
        )
    return info("startup_iterations", text)


def other_iterations(suffix: str, source: str, count: int) -> Note:
    """Iterations of other graphs or devices than those that are the steps."""
    text = (
        f"Steps{suffix} are the iterations of {source}; {count:,} of other graphs or devices are in"
        " the table of iterations."
    )
    return info("other_iterations", text)


def steps_by_kernels() -> Note:
    """Steps by the number that each kernel states."""
    text = (
        "No steps are marked in the timeline: each lasts from its first kernel to the first kernel"
        " of the next one."
    )
    return info("steps_by_kernels", text)


def tasks_without_call(count: int, total: int) -> Note:
    """Tasks without a recorded launch."""
    text = (
        f"{count:,} of {total:,} NPU tasks ({100 * count / total:.3g} %) could not be linked to a"
        " call on the host."
    )
    return info("unlaunched_work", text)


def carrier_tasks(count: int, took_ms: float) -> Note:
    """Tasks that only carry others, which are recorded too."""
    text = (
        f"{plural(count, 'task')} with the type of a kernel ({wording.millis(took_ms)} in total)"
        " only carry collectives or parts of operators, which are recorded separately; these tasks"
        " are not counted."
    )
    return info("carrier_tasks", text)


def copies_without_direction(count: int) -> Note:
    """Copies that do not state between which memories."""
    text = f"{count:,} copies have no direction; they count as device-to-device copies."
    return info("copies_without_direction", text)


def ignored_allocations(source: str, count: int) -> Note:
    """Rows of a table of allocations that are not used."""
    rows = "a row" if count == 1 else f"{count:,} rows"
    text = (
        f"{source}: {rows} with a negative size or without a time, freed but allocated before the"
        " recording, ignored."
    )
    return info("ignored_allocations", text)


def memory_samples_only() -> Note:
    """Memory is known from samples alone."""
    text = (
        "This profile has no allocations per op, only samples of the memory held by each component."
    )
    return info("memory_samples_only", text)


def contradicted_tables(count: int) -> Note:
    """Rows of tables that the timeline contradicts."""
    verb, each = "state", "Each counts"
    if count == 1:
        verb, each = "states", "It counts"
    text = (
        f"{plural(count, 'row')} of the tables of tasks {verb} another duration than the timeline,"
        f" by far: that cannot be. {each} with the timeline's."
    )
    return warning("contradicted_tables", text)
