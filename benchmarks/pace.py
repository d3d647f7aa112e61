"""The cost of a change of each page, in milliseconds: ``python -m benchmarks.pace [--throttle 4]``.

The budget is 16 ms of the browser's main thread a change (60 frames a second). The changes are those of the browser
tests, which assert the work done (nodes touched) and no time."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import parser_of

BUDGET_MS = 16.0


def main() -> int:
    parser = parser_of("pace", __doc__)
    parser.add_argument("--throttle", type=float, default=0.0, help="make the browser's processor N times slower")
    options = parser.parse_args()
    import pytest

    from tests.browser import pace

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pace.jsonl"
        os.environ |= {pace.TIMED: str(file), pace.SLOWER: str(options.throttle)}
        code = int(pytest.main(["-q", "-n", "0", "-m", "pace", "tests/browser"]))
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    table = Table("one change", "ms", "of the budget", "nodes", "layouts", "styles")
    for one in map(json.loads, lines):
        share = f"{one['ms'] / BUDGET_MS:.0%}"
        work = (f"{one[key]:.1f}" for key in ("nodes", "layouts", "styles"))
        table.add_row(one["name"], f"{one['ms']:.1f}", share, *work)
    Console().print(table)
    return code


if __name__ == "__main__":
    sys.exit(main())
