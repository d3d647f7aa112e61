"""A static site of 100 runs: publishing it, its weight, its opening from disk (``python -m benchmarks.site_pace``).

Medians of five new windows, with the load of the machine: the list until its first run is drawn, and a run from the
click on it until its steps are drawn. The aims: 150 kB, 1 s and 0.5 s; publishing 100 runs, also of one prompt, in 20 s
(before their tab Rules), one more in 2 s, each with its process's start.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from decoders import load, save
from specviz.extras.publish.site.build import write_site
from specviz.extras.publish.site.entries import SiteEntry
from specviz.places import GALLERY
from tests import recordings
from tests.browser.conftest import FLAGS, SIZE, found_chromium

RUNS, TIMES = 100, 5
ALL, ONE_PROMPT = "*.spectrace", "*-class-docstring-*.spectrace"  # of the gallery


def write(out: Path) -> list[str]:
    """A site of the gallery's runs and of copies of one; their keys, the gallery's first."""
    entries = [SiteEntry.of(load(path), ("gallery",)) for path in sorted(GALLERY.glob("*.spectrace"))]
    for number in range(RUNS - len(entries)):
        trace = recordings.chain()
        trace.run.update(id=f"r{number}", title=f"Run {number} of one prompt", category="code")
        entries.append(SiteEntry.of(trace, (f"tag {number % 7}",)))
    return write_site(out, "A hundred runs", entries).keys


def publish_times(pattern: str) -> dict[str, float]:
    """Seconds of ``specviz publish`` for 100 runs, those of the gallery that a pattern names and copies of them, then
    for one more. Copies of runs of one prompt are that prompt's; of others each has a model of its own.
    """
    with tempfile.TemporaryDirectory() as scratch:
        runs, files = Path(scratch) / "runs", sorted(GALLERY.glob(pattern))
        runs.mkdir()
        command = [sys.executable, "-m", "specviz", "publish", f"{scratch}/site", str(runs), "--no-rules"]
        seconds = {}
        for label, numbers in {"100 runs published  ": range(RUNS), "one more published  ": [RUNS]}.items():
            for number in numbers:
                trace = load(files[number % len(files)])
                trace.run |= {"id": f"r{number}", "created": f"2026-11-01T{number // 60:02}:{number % 60:02}:00Z"}
                if pattern == ALL:
                    trace.run["model"] = {**trace.run["model"], "name": f"model {number // len(files)}"}
                save(trace, runs / f"r{number}.spectrace")
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[label] = time.perf_counter() - start
    return seconds


def median(times: list[float]) -> str:
    return f"{statistics.median(times):5.0f} ms ({min(times):.0f} to {max(times):.0f})"


def main() -> None:
    parser_of("site_pace", __doc__).parse_args()
    for pattern, words in {ALL: "", ONE_PROMPT: " of one prompt"}.items():
        for label, seconds in publish_times(pattern).items():
            print(f"{label} {seconds:5.1f} s{words}")
    from playwright.sync_api import ViewportSize, sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        site = Path(scratch) / "site"
        keys = write(site)
        print(f"{len(keys)} runs; the list: {weight(site, 'index')}, a run's page: {weight(site, 'run')}", end=", ")
        print(f"a player's: {weight(site, 'player')}")
        browser = playwright.chromium.launch(executable_path=found_chromium(), args=FLAGS)

        def time_of(act: Callable[[Any], None]) -> str:
            times = []
            for _ in range(TIMES + 1):  # the first is a warm-up
                page = browser.new_page(viewport=ViewportSize(**SIZE))
                act(page)
                times.append(float(page.evaluate("performance.now()")))
                page.close()
            return median(times[1:])

        def first_view(page: Any) -> None:
            page.goto((site / "index.html").as_uri(), wait_until="commit")
            page.wait_for_selector(".st-prompt a")

        def opens(key: str, name: str, drawn: str) -> Callable[[Any], None]:
            def act(page: Any) -> None:
                page.goto(f"{(site / name).as_uri()}?run={key}", wait_until="commit")
                page.wait_for_selector(drawn)

            return act

        print(f"first view of the list   {time_of(first_view)}")
        heaviest = max(keys, key=lambda key: (site / "traces" / f"{key}.js").stat().st_size)
        for label, key in (("a usual run opens       ", keys[-1]), ("the heaviest run opens  ", heaviest)):
            print(f"{label} {time_of(opens(key, 'run.html', '.sv-row'))}")
        print(f"the player plays         {time_of(opens(heaviest, 'player.html', '.svq-chip'))}")
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        browser.close()


def weight(site: Path, name: str) -> str:
    """The bytes of a page and its modules."""
    return f"{sum((site / file).stat().st_size for file in (f'{name}.html', f'{name}.js')) / 1000:.1f} kB"


if __name__ == "__main__":
    main()
