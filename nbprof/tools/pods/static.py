"""Workers, and cores of TPUs, in plain HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import CATEGORIES, OTHER
from nbprof.tools.pods.parts import Cores, Pods

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10
_LEAST = 0.01


def html(payload: Payload) -> str:
    """Both, as far as there are several."""
    return _workers(payload.pods) + _cores(payload.pods.cores)


def _workers(pods: Pods) -> str:
    table = pods.table
    worst = [table.cell("mean_step_ms", i) for i in range(min(table.rows, _ROWS))]
    longest = max((ms for ms in worst if ms == ms), default=0.0)
    rows = [
        [
            markup.name(table.cell("worker", i), 60),
            wording.number(ms, 2),
            markup.bar(100 * ms / longest if longest else 0.0, OTHER),
            wording.percent(table.cell("over_median_percent", i)),
            wording.number(table.cell("times_slowest", i)),
            _over(pods, i),
        ]
        for i, ms in enumerate(worst)
    ]
    if not rows:
        return ""
    scope = "slowest first" if table.rows <= _ROWS else f"the {_ROWS} slowest of {pods.total:,}"
    heads = ["Worker", "Step ms", "", "Over the median", "Slowest in", "Most over the median in"]
    sentences = "".join(
        markup.paragraph(markup.marked(text)) for text in (*(pods.findings or ()), pods.statement)
    )
    return markup.table("Workers", scope, heads, rows, "lrlrrl") + sentences


def _over(pods: Pods, row: int) -> str:
    """The category in which a worker is farthest over the median one, with a swatch; a dash where
    that is less than 1% of the step.
    """
    typical = pods.typical or {}
    over = {
        c: pods.table.cell(c.column, row) - typical[c.column]
        for c in CATEGORIES
        if c.column in typical
    }
    excess = {c: ms for c, ms in over.items() if ms > _LEAST * typical["mean_step_ms"]}
    if not excess:
        return "–"
    worst = max(excess, key=lambda c: excess[c])
    return (
        f"{markup.swatch(worst.colour)}{markup.text(worst.label)}, +{wording.millis(excess[worst])}"
    )


def _cores(cores: Cores | None) -> str:
    if not cores:
        return ""
    table, labels = cores.table, {head.key: head.label for head in cores.heads}
    rows = [
        [
            markup.name(table.cell("worker", i), 60),
            wording.number(table.cell("chip", i)),
            *(wording.number(table.cell(key, i), 2) for key in ("mean_step_ms", *cores.kinds)),
        ]
        for i in range(min(table.rows, _ROWS))
    ]
    scope = "means over the steps in averages, ms" + (
        f"; {_ROWS} of {table.rows:,} cores" if table.rows > _ROWS else ""
    )
    return markup.table(
        "TPU cores",
        scope,
        ["Core", "Chip", "Step ms", *(labels[key] for key in cores.kinds)],
        rows,
        "lr" + "r" * (1 + len(cores.kinds)),
    )
