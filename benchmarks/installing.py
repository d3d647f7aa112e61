"""Installing and opening the app as a newcomer does: ``python -m benchmarks.installing``.

The README's own commands run in a clone without history, pip's cache left out, up to the last one, which opens the app:
how long until the page is served and until the model is ready, the first time (the model is converted then) and again.
The numbers go to ``assets/measured/installing.json``, of which ``python -m benchmarks.results`` makes the README's
sentence and a section of docs/results.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import parser_of
from benchmarks.load import ROOT, Session, Tally, start
from benchmarks.results import MEASURED
from decoders.model.engines.machine import processor_name

BLOCK = "```bash\npython3 -m venv "  # the README's commands begin so
FILE = MEASURED / "installing.json"


def readme_commands() -> list[str]:
    """The README's commands for newcomers; the last one opens the app.

    >>> commands = readme_commands()
    >>> commands[0], commands[-1]
    ('python3 -m venv .venv', 'python app.py')
    """
    text = (ROOT / "README.md").read_text("utf-8")
    return text[text.index(BLOCK) :].splitlines()[1].split(" && ")


def install(clone: Path) -> dict[str, float]:
    """Seconds of all commands but the last, and the size of the environment that they make."""
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), clone], check=True)
    commands = readme_commands()[:-1]
    script = "\n".join(["set -e", *(f"{command} >&2\necho $EPOCHREALTIME" for command in commands)])
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    began = time.time()
    with (clone.parent / "pip.log").open("w") as log:
        shell = subprocess.run(
            ["bash", "-c", script], cwd=clone, env=env | {"PIP_NO_CACHE_DIR": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=log, check=False,
        )  # fmt: skip
    if shell.returncode:
        raise SystemExit((clone.parent / "pip.log").read_text("utf-8")[-2000:])
    files = (path for path in (clone / ".venv").rglob("*") if path.is_file() and not path.is_symlink())
    return {
        "install_s": float(shell.stdout.split()[-1]) - began,
        "environment_gb": sum(path.stat().st_size for path in files) / 1e9,
    }


def open_app(clone: Path, home: Path, model: str, patience_s: float) -> tuple[float, float]:
    """Seconds from the start of the app until its page is served and until its model is ready."""
    began = time.perf_counter()
    server, port = start(str(home), model, python=str(clone / ".venv" / "bin" / "python"), root=clone)
    try:
        browser = Session(port, Tally(), 0, threading.Event())
        while not browser.ask("page", "GET", "/"):  # it tells its address a moment before it answers there
            time.sleep(0.02)
        page_s = time.perf_counter() - began
        while browser.json("status", "GET", "/api/status").get("model", {}).get("state") != "ready":
            if server.poll() is not None or time.perf_counter() - began > patience_s:
                raise SystemExit(f"the model was not ready within {patience_s:.0f} s")
            time.sleep(0.1)
        return page_s, time.perf_counter() - began
    finally:
        server.kill()
        server.wait()


def measure(clone: Path, home: Path, model: str, starts: int, patience_s: float) -> dict[str, Any]:
    """All numbers; those of the app's later starts are medians."""
    numbers: dict[str, Any] = {"date": date.today().isoformat(), "load": os.getloadavg()[0], **install(clone)}
    first, *later = (open_app(clone, home, model, patience_s) for _ in range(1 + starts))
    numbers |= {"first_page_s": first[0], "first_model_s": first[1]}
    numbers |= {"page_s": median(page for page, _ in later), "model_s": median(ready for _, ready in later)}
    return numbers | {"starts": starts, "cores": os.cpu_count(), "processor": processor_name()}


def main() -> int:
    parser = parser_of("installing", __doc__)
    parser.add_argument("--model", default="smollm2", help="that the app opens (default: smollm2)")
    parser.add_argument("--starts", type=int, default=3, help="of the app, after the first (default: 3)")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that a model may take (default: 300)")
    parser.add_argument("--rehearse", action="store_true", help="print the numbers, and write nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specviz-installing-") as folder:
        place = Path(folder)
        numbers = measure(place / "clone", place / "home", options.model, options.starts, options.patience)
    print(json.dumps(numbers, indent=1))
    if not options.rehearse:
        section = json.loads(FILE.read_text("utf-8"))
        FILE.write_text(json.dumps(section | {"numbers": numbers}, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{FILE.relative_to(ROOT)} is written: python -m benchmarks.results makes the pages of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
