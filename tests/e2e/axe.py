"""What axe, the checker of accessibility, finds on a page."""

from __future__ import annotations

from tests.e2e.conftest import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

RUN = """
async within => (await axe.run(within ? { include: within } : document, { resultTypes: ["violations"] })).violations.flatMap(({ id, nodes }) =>
    nodes.map(node => `${id}: ${String(node.target)} ${node.html.slice(0, 200)}`))
"""


def violations(page, within=None):
    """One line for each element that breaks a rule, of the whole page or of what a selector finds;
    [] where all is well.
    """
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(content=AXE.read_text())
    return page.evaluate(RUN, within)
