"""The pictures of docs/: the product as it is now, on profiles of our own. To take them anew, where
Chromium, TensorFlow and JAX are installed: `python -m tests.support.pictures`, or with the names of
some (`overview trace`).
"""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import nbprof
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from tests.e2e.conftest import ARGS, CHROMIUM, served
from tests.e2e.notebooks import command, open_notebook, wait_for_kernel, wait_until_idle
from tests.support import gpu_story, pods
from tests.support.caching_allocator import fragmented, snapshot

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WIDTH = 800


def keep(name: str, picture: bytes) -> None:
    """Writes a picture with 256 colours, a third of the size."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(DOCS / f"{name}.png", optimize=True)
    print(
        f"docs/{name}.png  {image.width}x{image.height}  {(DOCS / f'{name}.png').stat().st_size:,} B"
    )


class Camera:
    """Takes pictures of reports and of JupyterLab, twice as large as on screen."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder

    def page(self, width: int, height: int, dark: bool = False, scale: float = 2) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(60_000)
        page: Page = context.new_page()
        return page

    def report(self, of: Profile | Comparison | Path, **tabs: tuple[str, int]) -> None:
        """Pictures of tabs of a report: by the name of the picture, the tab and the most that it is
        high.
        """
        path = of if isinstance(of, Path) else of.save(self.folder / "report.html")
        page = self.page(WIDTH, 900)
        page.goto(path.as_uri())
        page.wait_for_selector(".nbp")
        for name, (tab, height) in tabs.items():
            # What has one view alone has no tabs.
            if page.get_by_role("tab").count():
                page.get_by_role("tab", name=re.compile(f"^{re.escape(tab)}")).click()
            page.mouse.move(0, 0)
            page.wait_for_timeout(1500)
            box = page.locator(".nbp").first.bounding_box()
            assert box is not None
            clip = {
                "x": box["x"],
                "y": box["y"],
                "width": box["width"],
                "height": min(box["height"], height),
            }
            keep(name, page.screenshot(clip=clip, full_page=True))
        page.context.close()


def reports(camera: Camera, wanted: Callable[..., bool]) -> None:
    """Those of reports on what was made up, or recorded for the tests."""
    folder = camera.folder
    if wanted("kernels", "memory"):
        (folder / "example.xplane.pb").write_bytes(gpu_story.write())
        camera.report(
            nbprof.load(folder / "example.xplane.pb"),
            kernels=("GPU kernels", 900),
            memory=("Memory", 900),
        )
    if wanted("device-time"):
        pods.write(folder / "ranks", ranks=4, steps=12, plant="kernel", seed=1, apart_s=0.001)
        camera.report(nbprof.load(folder / "ranks"), **{"device-time": ("Device time", 900)})
    if wanted("pods"):
        pods.write(
            folder / "workers",
            ranks=40,
            steps=24,
            plant="input",
            seed=4,
            form="xspace",
            apart_s=0.001,
        )
        camera.report(nbprof.load(folder / "workers"), pods=("Pods", 900))
    if wanted("allocator"):
        (folder / "snap.pickle").write_bytes(pickle.dumps(snapshot(fragmented())))
        camera.report(nbprof.load(folder / "snap.pickle"), allocator=("Allocator", 900))
    if wanted("ascend"):
        camera.report(nbprof.load(ROOT / "tests/data/ascend/before.zip"), ascend=("Ascend", 900))
    if wanted("compare"):
        before, after = (
            nbprof.load(ROOT / f"tests/data/xspace/tf_{name}.xplane.pb")
            for name in ("slow", "mended")
        )
        camera.report(nbprof.compare(before, after), compare=("Compare", 900))


def programs(camera: Camera) -> None:
    """Op profile and roofline of the first recording of notebooks/xla.ipynb, under peaks that are
    an example.
    """
    name = "padded.html"
    book = nbformat.read(ROOT / "notebooks" / "xla.ipynb", as_version=4)
    last = next(i for i, cell in enumerate(book.cells) if cell.source.startswith("%%nbprof"))
    book.cells = [*book.cells[: last + 1], nbformat.v4.new_code_cell(f"padded.save({name!r});")]
    book.cells[last].source = book.cells[last].source.replace(
        "%%nbprof", "%%nbprof --peaks flops=2.5T,bytes=200G", 1
    )
    nbformat.write(book, camera.folder / "xla.ipynb")
    run = [
        sys.executable,
        "-m",
        "jupyter",
        "nbconvert",
        "--to",
        "notebook",
        "--execute",
        "--inplace",
        "xla.ipynb",
    ]
    subprocess.run(run, cwd=camera.folder, check=True, stderr=subprocess.DEVNULL)
    camera.report(
        camera.folder / name, **{"op-profile": ("Op profile", 800), "hlo": ("HLO & roofline", 900)}
    )


def lab(camera: Camera) -> None:
    """JupyterLab: the quickstart, its runs in the sidebar, a file, a capture; and tabs of the
    report that the quickstart saves.
    """
    folder = camera.folder / "lab"
    folder.mkdir()
    # What is recorded quietly is not kept, and would be no run in the sidebar.
    text = (ROOT / "notebooks" / "quickstart.ipynb").read_text()
    (folder / "quickstart.ipynb").write_text(text.replace("%%nbprof -q", "%%nbprof"))
    shutil.copy(ROOT / "tests/data/xspace/tf_mended.xplane.pb", folder / "training.xplane.pb")
    with served(folder, "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True") as url:
        page = camera.page(WIDTH + 40, 1136)
        open_notebook(page, url, "quickstart.ipynb")
        wait_for_kernel(page)
        command(page, "notebook:run-all-cells")
        page.wait_for_timeout(3000)
        wait_until_idle(page, timeout=600_000)
        command(page, "application:toggle-left-area")
        _without_news(page)
        for name, theme in (("overview", "JupyterLab Light"), ("overview-dark", "JupyterLab Dark")):
            command(page, "apputils:change-theme", theme=theme)
            page.wait_for_timeout(3000)
            _show_cell(page, "%%nbprof -o before")
            keep(name, page.screenshot())
        command(page, "apputils:change-theme", theme="JupyterLab Light")
        command(page, "docmanager:save")
        page.set_viewport_size({"width": 760, "height": 572})
        command(page, "nbprof:runs-show")
        page.get_by_role("tree", name="Runs").get_by_role("treeitem").nth(1).wait_for()
        page.wait_for_timeout(5000)
        keep("lab-runs", page.screenshot())
        page.context.close()

        page = camera.page(1180, 720, scale=1)
        page.goto(f"{url}/lab?reset")
        item = page.locator(".jp-DirListing-item", has_text="training.xplane.pb")
        item.wait_for()
        item.dblclick()
        _without_news(page)
        page.locator(".nbprof-document .nbp").get_by_role("tab", name="Overview").wait_for()
        page.wait_for_timeout(2000)
        keep("lab-document", page.screenshot())
        page.context.close()
        _capture(camera, url)
    camera.report(
        folder / "report.html", **{"steps-input": ("Steps & input", 1100), "ops": ("Ops", 740), "trace": ("Trace", 800)}
    )  # fmt: skip


def _without_news(page: Page) -> None:
    """JupyterLab asks whether it may show news, over what is shown."""
    page.add_style_tag(content=".Toastify { display: none }")


def _show_cell(page: Page, begins: str) -> None:
    """Selects the cell that begins so, and scrolls it to the top."""
    page.evaluate(
        """begins => {
            const book = window.jupyterapp.shell.currentWidget.content;
            book.activeCellIndex = book.widgets.findIndex(cell => cell.model.sharedModel.getSource().startsWith(begins));
            book.activeCell.node.scrollIntoView({ block: "start" });
        }""",
        begins,
    )
    page.mouse.move(0, 0)
    page.wait_for_timeout(2000)


def _capture(camera: Camera, url: str) -> None:
    """The form after a recording of two workers, where a third is missing."""
    start = [sys.executable, str(ROOT / "tests" / "support" / "training_worker.py"), "jax"]
    workers = [
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})
        for _ in range(2)
    ]  # fmt: skip
    try:
        addresses = [
            f"grpc://localhost:{worker.stdout.readline().split()[1]}"
            for worker in workers
            if worker.stdout
        ]
        page = camera.page(1100, 900, scale=1)
        page.goto(f"{url}/lab?reset")
        page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('nbprof:capture')")
        page.evaluate(
            "() => window.jupyterapp.restored.then(() => window.jupyterapp.commands.execute('nbprof:capture')).then(() => undefined)"
        )
        form = page.get_by_role("form", name="Capture a profile")
        form.get_by_label("Worker addresses").fill(", ".join([*addresses, "grpc://localhost:6009"]))
        form.get_by_label("Run name").fill("before the fix")
        form.get_by_label("Retries").fill("1")
        form.get_by_role("button", name="Record").click()
        page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp").get_by_role(
            "tab", name="Overview"
        ).wait_for()
        page.get_by_role("tab", name="Capture").click()
        _without_news(page)
        page.wait_for_timeout(1500)
        keep("lab-capture", page.locator(".nbprof-capture").screenshot())
        page.context.close()
    finally:
        for worker in workers:
            worker.kill()


def main(names: list[str]) -> None:
    def wanted(*these: str) -> bool:
        return not names or bool({*these} & {*names})

    with tempfile.TemporaryDirectory() as made, sync_playwright() as running:
        camera = Camera(running.chromium.launch(executable_path=CHROMIUM, args=ARGS), Path(made))
        reports(camera, wanted)
        if wanted("op-profile", "hlo"):
            programs(camera)
        if wanted(
            "overview",
            "overview-dark",
            "steps-input",
            "ops",
            "trace",
            "lab-runs",
            "lab-document",
            "lab-capture",
        ):
            lab(camera)


if __name__ == "__main__":
    main(sys.argv[1:])
