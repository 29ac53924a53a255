"""A program that trains elsewhere, recorded from a real JupyterLab by its form."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.e2e.axe import violations
from tests.e2e.conftest import ROOT
from tests.support.profiles import require

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def worker():
    """Address of a program that trains with JAX."""
    require("jax", "grpc")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "support" / "training_worker.py"), "jax"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield f"localhost:{process.stdout.readline().split()[1]}"
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_worker_is_recorded_and_its_dashboard_opens_and_what_is_missing_is_named(
    page, lab, worker
):
    url, root = lab
    (root / "training").mkdir()
    (root / "training" / "here.txt").write_text("")
    page.goto(f"{url}/lab/tree/training?reset")
    page.locator(".jp-DirListing-item", has_text="here.txt").wait_for()
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('nbprof:capture')")
    page.evaluate(
        "() => window.jupyterapp.restored.then(() => window.jupyterapp.commands.execute('nbprof:capture')).then(() => undefined)"
    )
    form = page.get_by_role("form", name="Capture a profile")
    addresses = form.get_by_label("Worker addresses")
    addresses.wait_for()
    page.wait_for_function("() => document.activeElement.id.endsWith('-addresses')")

    # By keyboard alone: a wrong address is told beside its field, which has the focus.
    page.keyboard.type("localhost")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.getAttribute('aria-invalid') === 'true'")
    assert violations(page, ".nbprof-capture") == []
    assert (
        "localhost has no port" in page.locator(".field[data-field=addresses] .wrong").inner_text()
    )

    # Cancelled in the midst of it: nothing is kept, and the worker is free.
    addresses.fill(worker)
    form.get_by_label("Duration").fill("60000")
    page.keyboard.press("Enter")
    row = page.locator(f".workers [data-address='{worker}']")
    page.locator(".workers [data-state=recording]").wait_for()
    form.get_by_role("button", name="Cancel").click()
    page.locator(".head", has_text="Cancelled. Nothing was saved.").wait_for()

    addresses.fill(f"grpc://{worker}, localhost:1")
    form.get_by_label("Duration").fill("300")
    form.get_by_label("Retries").fill("2")
    form.get_by_label("Run name").fill("first try")
    assert form.get_by_label("Folder").input_value() == "training/nbprof-results"
    form.get_by_role("button", name="Record").click()
    page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp").get_by_role(
        "tab", name="Overview"
    ).wait_for()
    files = sorted(
        path.name
        for path in (
            root / "training" / "nbprof-results" / "plugins" / "profile" / "first try"
        ).iterdir()
    )
    assert files == [f"{worker.replace(':', '_')}.xplane.pb", "nbprof.json"]
    assert not list((root / "training" / "nbprof-results").glob(".recording*"))

    page.get_by_role("tab", name="Capture").click()
    assert "1 of 2 workers was recorded." in page.locator(".nbprof-capture .head").inner_text()
    assert row.get_attribute("data-state") == "recorded"
    assert (
        "Nothing listens on this port"
        in page.locator(".workers [data-address='localhost:1']").inner_text()
    )
    assert page.problems == []
