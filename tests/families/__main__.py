"""``python -m tests.families``: every configuration in a table; exit code 1 where one is silently wrong."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .cases import cases
from .compare import REFUSED, WRONG, compare, quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    args = parser.parse_args()
    wanted = [one for one in cases() if args.only in one.name]
    started, results = time.perf_counter(), []
    print(f"{'family':18}{'window':18}{'rotary':10}{'heads':12}{'result':11}what was seen")
    with ProcessPoolExecutor(args.jobs, get_context("spawn"), quiet) as pool:
        for result in pool.map(compare, wanted):
            results.append(result)
            one, verdict = result.case, WRONG if result.wrong else result.verdict
            kind = f"{one.family:18}{one.window:18}{one.rotary:10}{one.heads:12}"
            print(f"{kind}{verdict:11}{result.detail} ({result.seconds:.1f} s)", flush=True)
    counts, wrong = Counter(result.verdict for result in results), [r for r in results if r.wrong]
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))
    missing = [r for r in results if r.verdict == REFUSED and not r.case.refused]
    print(f"\n{len(results)} configurations in {time.perf_counter() - started:.0f} s: {summary}")
    print(f"{len(missing)} refused that could be supported; {len(wrong)} silently wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
