"""The weight of a static site of 100 runs, and its opening from disk in Chromium: ``python -m benchmarks.site_pace``.

Medians of five new windows, with the load of the machine: the list until its first run is drawn, and a run from the
click on it until its steps are drawn. The aims: 150 kB, 1 s and 0.5 s.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from decoders import load
from specviz.extras.publish.site.build import SiteEntry, write_site
from specviz.places import GALLERY
from tests import recordings
from tests.browser.conftest import FLAGS, SIZE, found_chromium

RUNS, TIMES = 100, 5


def write(out: Path) -> list[str]:
    """A site of the gallery's runs and of copies of one; their keys, the gallery's first."""
    entries = [SiteEntry(load(path), ("gallery",)) for path in sorted(GALLERY.glob("*.spectrace"))]
    for number in range(RUNS - len(entries)):
        trace = recordings.chain()
        trace.run.update(id=f"r{number}", title=f"Run {number} of one prompt", category="code")
        entries.append(SiteEntry(trace, (f"tag {number % 7}",)))
    return list(write_site(out, "A hundred runs", entries))


def median(times: list[float]) -> str:
    return f"{statistics.median(times):5.0f} ms ({min(times):.0f} to {max(times):.0f})"


def main() -> None:
    parser_of("site_pace", __doc__).parse_args()
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
