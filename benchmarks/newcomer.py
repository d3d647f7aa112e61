"""A new user's first minutes under ``auto``, beside ``eager``: ``python -m benchmarks.newcomer``.

The app is started with an empty home (the converted model alone is there) under each engine in turn, and is given the
same short runs one after the other, with pauses in which ``auto`` may compile and measure. A run's tokens per second
are compared with those of the same run under the other engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks import parser_of
from benchmarks.durability import Server
from decoders.folders import cache_folder
from decoders.sweep.bench import SpeedSpread

METHODS = ("plain", "pld", "adapld")
PROMPTS = (
    "Write three sentences about a lamp in the hall of an old house.",
    "Say this twice, word by word: The letters that lay in the old lamp were sold to the museum of the city.",
    "What is the difference between a lake and a river?",
    "Write a function in Python that adds all even numbers of a list, then say what each line of it does.",
)
KEPT = ("gguf", "packed.json")  # of the cache: what has nothing to do with engines


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run: when it began (seconds behind the first one), how fast it was, and how many of its steps ran compiled."""

    began_s: float
    tokens_per_s: float
    steps: int
    compiled: int


def use(engine: str, model: str, seconds: float, tokens: int, pause_s: float) -> list[RunEnd]:
    """The runs of a new user's first so many seconds."""
    with tempfile.TemporaryDirectory(prefix="specviz-newcomer-") as folder:
        home = Path(folder)
        (home / "cache").mkdir()
        for name in KEPT:
            if (kept := cache_folder() / name).exists():
                (home / "cache" / name).symlink_to(kept)
        server = Server(home, model, "--engine", engine)
        try:
            runs = list[RunEnd]()
            start = time.monotonic()
            while (began := time.monotonic() - start) < seconds:
                number = len(runs)
                prompt, method = PROMPTS[number % len(PROMPTS)], METHODS[number % len(METHODS)]
                asked = [prompt, method, {}, {"max_new_tokens": tokens, "compare": False}, True]
                event = server.json("POST", "/gradio_api/call/run", {"data": asked})["event_id"]
                link, answer = server.answer("GET", f"/gradio_api/call/run/{event}")
                said = [line for line in answer.read().decode().splitlines() if line.startswith("data:")]
                link.close()
                trace = server.json("GET", f"/api/traces/{json.loads(said[-1][5:])[0]['id']}")
                speed = trace["run"]["metrics"]["tokens_per_s"]
                engines = trace["steps"]["engine"]
                runs.append(RunEnd(began, speed, len(engines), engines.count("compiled")))
                time.sleep(pause_s)
            return runs
        finally:
            server.kill()


def main() -> int:
    """Print a line per run as it ends, then the ratios."""
    parser = parser_of("newcomer", __doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seconds", type=float, default=75.0, help="of each turn (default: 75)")
    parser.add_argument("--turns", type=int, default=4, help="of the app, the engines alternating (default: 4)")
    parser.add_argument("--tokens", type=int, default=40, help="of each run (default: 40)")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two runs (default: 3)")
    given = parser.parse_args()
    opened = f"from decoders.model.target_model.load import load_network; load_network({given.model!r})"
    subprocess.run([sys.executable, "-c", opened], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    order = [("eager", "auto", "auto", "eager")[turn % 4] for turn in range(given.turns)]
    turns: dict[str, list[list[RunEnd]]] = {"eager": [], "auto": []}
    for engine in order:
        turns[engine].append(runs := use(engine, given.model, given.seconds, given.tokens, given.pause))
        speed, compiled = SpeedSpread.of([run.tokens_per_s for run in runs]), sum(run.compiled for run in runs)
        assert speed is not None
        print(
            f"{engine}: {len(runs)} runs, {speed.median:.1f} tokens/s ({speed.low:.1f} to {speed.high:.1f}), "
            f"{compiled} of {sum(run.steps for run in runs)} steps compiled; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    pairs = [pair for each in zip(turns["auto"], turns["eager"], strict=False) for pair in zip(*each, strict=False)]
    edges = [0.0, given.seconds / 3, 2 * given.seconds / 3, given.seconds]
    for low, high in [(0.0, given.seconds), *pairwise(edges)]:
        ratios = [auto.tokens_per_s / eager.tokens_per_s for auto, eager in pairs if low <= auto.began_s < high]
        if (spread := SpeedSpread.of(ratios)) is not None:
            quartiles = f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"
            print(f"auto ÷ eager, {low:.0f} to {high:.0f} s: {quartiles}, {spread.count} pairs of runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
