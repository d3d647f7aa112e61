"""The search in the contents of 1,000 runs: ``python -m benchmarks.find_pace``.

Copies of the gallery's runs in a folder: the index's making and size, and per question the median and the longest of 20
answers, each with the look at the folder that comes before it. The aim: 100 ms.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import parser_of
from specviz.extras.find.index import FILE, RunIndex, file_sources
from specviz.places import GALLERY, SUFFIX

RUNS, TIMES = 1_000, 20
QUESTIONS = (["the"], ["library"], ["def", "light"], ["return self"], ["e"], ["zq"], ["no such words"])


def milliseconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    parser_of("find_pace", __doc__).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, files = Path(scratch), sorted(GALLERY.glob(f"*{SUFFIX}"))
        for number in range(RUNS):
            shutil.copy(files[number % len(files)], folder / f"run{number}{SUFFIX}")
        index = RunIndex(folder)
        seconds = milliseconds(lambda: index.sync(file_sources(folder))) / 1000
        check = milliseconds(index.check)
        size = (folder / FILE).stat().st_size / 1e6
        print(f"{RUNS} runs: indexed in {seconds:.1f} s, {size:.1f} MB, checked in {check:.0f} ms")
        for words in QUESTIONS:

            def ask(words: list[str] = words) -> int:
                sources = file_sources(folder)
                index.sync(sources)
                return len(index.find(words, list(sources)))

            times = [milliseconds(ask) for _ in range(TIMES)]
            times_text = f"{statistics.median(times):.0f} ms ({max(times):.0f})"
            print(f"{' '.join(map(repr, words)):16} {ask():5} runs: {times_text}")
        index.close()


if __name__ == "__main__":
    main()
