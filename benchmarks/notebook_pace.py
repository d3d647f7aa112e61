"""The widget in a real JupyterLab: ``python -m benchmarks.notebook_pace [TRACE]``; and in marimo, where that is there.

It needs Chromium and, beside specviz, ``pip install jupyterlab anywidget`` (and marimo). A notebook shows a run; its
step and node go from the page to Python and back; it is saved and opened without its kernel. Printed are the widget's
weight and the time from the cell's start to the first view, the median of five. The aims for a run of 300 tokens: 400
kB and 1 s.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from decoders import load
from specviz.extras.notebook.widget import pack, script
from specviz.places import GALLERY
from tests.browser.conftest import FLAGS, found_chromium
from tests.waiting import becomes, expect, until

TIMES = 5
SOURCES = (
    "from decoders import load; trace = load({!r}); import anywidget",
    "import time; start = time.time(); w = trace.widget(); w",
    "print('traits', w.step, w.token, w.node)",
    "w.step = 4",
    "w.node = 1",
)

MARIMO = """import marimo

app = marimo.App()

@app.cell
def _():
    import marimo as mo
    from decoders import load
    w = mo.ui.anywidget(load({!r}).widget(step=2))
    w
    return mo, w

@app.cell
def _(mo, w):
    mo.md("traits " + " ".join(str(w.value.get(name)) for name in ("step", "token", "node")))

@app.cell
def _(mo, w):
    def choose(_):
        w.widget.step = 4
    mo.ui.button(label="step 4", on_click=choose)
"""
END_SESSIONS = """async () => {
  const headers = { "X-XSRFToken": document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? "" };
  for (const { id } of await (await fetch("/api/sessions")).json())
    await fetch(`/api/sessions/${id}`, { method: "DELETE", headers });
}"""


def notebook(trace: Path) -> dict[str, Any]:
    cells = [
        {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "outputs": [], "execution_count": None,
         "source": source.format(str(trace))}
        for number, source in enumerate(SOURCES)
    ]  # fmt: skip
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(command: list[str], places: dict[str, str], address: str) -> Iterator[None]:
    """A server that answers at an address, for the time of a with block."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **places})

    def answers() -> bool:
        try:
            return urllib.request.urlopen(address, timeout=5).status == 200
        except OSError:
            return False

    try:
        for _ in range(4):  # it may take longer than a test waits
            try:
                until(answers, f"{command[2]} answers")
                break
            except AssertionError:
                continue
        yield
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab that shows a folder."""
    port = free_port()
    options = {"port": port, "ip": "127.0.0.1", "open_browser": False, "allow_root": True, "root_dir": folder}
    command = [sys.executable, "-m", "jupyterlab", "--IdentityProvider.token="]
    command += [f"--ServerApp.{name}={value}" for name, value in options.items()]
    home = folder / ".jupyter"  # nothing of the user's is read or changed
    places = {f"JUPYTER_{name}_DIR": str(home) for name in ("CONFIG", "DATA", "RUNTIME")} | {"IPYTHONDIR": str(home)}
    settings = home / "lab" / "user-settings" / "@jupyter-widgets" / "jupyterlab-manager"
    settings.mkdir(parents=True)
    (settings / "plugin.jupyterlab-settings").write_text('{"saveState": true}', "utf-8")
    address = f"http://127.0.0.1:{port}/lab"
    with serving(command, places, address):
        yield address


def in_marimo(browser: Any, folder: Path, trace: Path) -> None:
    """Show the run in marimo, and set its step from both sides."""
    file, port = folder / "marimo_run.py", free_port()
    file.write_text(MARIMO.format(str(trace)), "utf-8")
    command = [sys.executable, "-m", "marimo", "run", str(file), "--headless", "--no-token", "--host", "127.0.0.1"]
    places = {f"XDG_{name}_HOME": str(folder) for name in ("CONFIG", "STATE", "CACHE")} | {"HOME": str(folder)}
    address = f"http://127.0.0.1:{port}"
    with serving([*command, "--port", str(port)], places, address):
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        page.goto(address)
        counter = page.frame_locator("iframe[title='Trace inspector']").locator(".sv-counter")
        becomes(page, lambda: counter.inner_text().split()[1], "3")
        page.frame_locator("iframe[title='Trace inspector']").get_by_role("button", name="Next step").click()
        expect(page.get_by_text("traits")).to_have_text("traits 3 None None")
        page.get_by_role("button", name="step 4").click()
        becomes(page, lambda: counter.inner_text().split()[1], "5")
        page.close()
    print("marimo: the step went both ways")


def run_cell(page: Any, number: int) -> Any:
    """Run a cell of the open notebook; its output."""
    cell = page.locator(".jp-CodeCell").nth(number)
    cell.locator(".jp-InputArea-editor").click()
    page.keyboard.press("Control+Enter")
    expect(cell.locator(".jp-InputPrompt")).to_contain_text("[")
    return cell.locator(".jp-OutputArea")


def open_notebook(browser: Any, address: str) -> Any:
    """The notebook in a window of its own."""
    page = browser.new_page(viewport={"width": 1400, "height": 1600})
    page.set_default_timeout(60_000)
    page.goto(f"{address}/tree/run.ipynb")
    page.locator(".jp-CodeCell").nth(4).wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    return page


def main() -> None:
    parser = parser_of("notebook_pace", __doc__)
    default, about = next(GALLERY.glob("2-*")), "a run (default: one of the gallery)"
    parser.add_argument("trace", nargs="?", type=Path, default=default, metavar="TRACE", help=about)
    file: Path = parser.parse_args().trace.resolve()
    from playwright.sync_api import sync_playwright

    trace = load(file)
    weight = len(pack(trace)) + len(script().encode())
    print(f"{len(trace.output_ids)} tokens by {trace.run['method']['name']}: the widget has {weight / 1000:.0f} kB")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        (Path(scratch) / "run.ipynb").write_text(json.dumps(notebook(file)), "utf-8")
        browser = playwright.chromium.launch(executable_path=found_chromium(), args=FLAGS)
        with jupyterlab(Path(scratch)) as address:
            page = open_notebook(browser, address)
            run_cell(page, 0)
            expect(page.locator(".jp-CodeCell").nth(0).locator(".jp-InputPrompt")).to_contain_text("[1]")
            frame, times = page.frame_locator(".jp-CodeCell iframe >> nth=-1"), []
            for _ in range(TIMES):
                if times:  # the view of the time before
                    frame.locator("body").evaluate("body => (body.dataset.old = '')")
                start = time.perf_counter()
                run_cell(page, 1)
                frame.locator("body:not([data-old]) .sv-row .sv-t").first.wait_for()
                times.append(time.perf_counter() - start)
            print(f"first view: {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")
            frame.get_by_role("button", name="Next step").click()
            until(lambda: "traits 1 None None" in run_cell(page, 2).inner_text(), "Python has the page's step")
            run_cell(page, 3)
            becomes(page, lambda: frame.locator(".sv-counter").inner_text().split()[1], "5")
            run_cell(page, 4)
            until(
                lambda: "traits 4" in (text := run_cell(page, 2).inner_text()) and text.strip()[-1] == "1", "the node"
            )
            print("step and node went both ways")

            # saved, and opened without the kernel that made it
            page.locator("[data-command='docmanager:save']").first.click()
            until(
                lambda: "widgets" in json.loads((Path(scratch) / "run.ipynb").read_text("utf-8"))["metadata"], "saved"
            )
            page.evaluate(END_SESSIONS)
            page.close()
            page = open_notebook(browser, address)
            frame = page.frame_locator(".jp-CodeCell iframe >> nth=-1")
            becomes(page, lambda: frame.locator(".sv-counter").inner_text().split()[1], "5")
            print("the saved state shows the run")
            page.close()
        if find_spec("marimo"):
            in_marimo(browser, Path(scratch), file)
        browser.close()


if __name__ == "__main__":
    main()
