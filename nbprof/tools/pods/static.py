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
    if not worst:
        return ""
    longest = max((ms for ms in worst if ms == ms), default=0.0)
    rows = [_worker(pods, row, longest) for row in range(len(worst))]
    scope = "slowest first" if table.rows <= _ROWS else f"the {_ROWS} slowest of {pods.total:,}"
    heads = ["Worker", "Step ms", "", "Over the median", "Slowest in", "Most over the median in"]
    html = markup.table("Workers", scope, heads, rows, "lrlrrl")
    for sentence in (*(pods.findings or ()), pods.statement):
        html += markup.paragraph(markup.marked(sentence))
    return html


def _worker(pods: Pods, row: int, longest: float) -> list[str]:
    table = pods.table
    ms = table.cell("mean_step_ms", row)
    return [
        markup.name(table.cell("worker", row), 60),
        wording.number(ms, 2),
        markup.bar(100 * ms / longest if longest else 0.0, OTHER),
        wording.percent(table.cell("over_median_percent", row)),
        wording.number(table.cell("times_slowest", row)),
        _over(pods, row),
    ]


def _over(pods: Pods, row: int) -> str:
    """The category in which a worker is farthest over the median one, with a swatch; a dash where
    that is less than 1% of the step.
    """
    typical = pods.typical or {}
    excess = {}
    for category in CATEGORIES:
        if category.column in typical:
            over = pods.table.cell(category.column, row) - typical[category.column]
            if over > _LEAST * typical["mean_step_ms"]:
                excess[category] = over
    if not excess:
        return wording.MISSING
    worst = max(excess, key=lambda category: excess[category])
    return (
        f"{markup.swatch(worst.colour)}{markup.text(worst.label)}, +{wording.millis(excess[worst])}"
    )


def _cores(cores: Cores | None) -> str:
    if not cores:
        return ""
    table, labels = cores.table, {head.key: head.label for head in cores.heads}
    rows = []
    for row in range(min(table.rows, _ROWS)):
        times = [table.cell(key, row) for key in ("mean_step_ms", *cores.kinds)]
        core = [markup.name(table.cell("worker", row), 60), wording.number(table.cell("chip", row))]
        rows.append([*core, *(wording.number(ms, 2) for ms in times)])
    scope = "means over the steps in averages, ms"
    if table.rows > _ROWS:
        scope += f"; {_ROWS} of {table.rows:,} cores"
    heads = ["Core", "Chip", "Step ms", *(labels[key] for key in cores.kinds)]
    return markup.table("TPU cores", scope, heads, rows, "lr" + "r" * (1 + len(cores.kinds)))
