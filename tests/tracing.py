"""What recording a run costs, method by method: ``python -m tests.tracing [--model smollm2] [--minutes 7]``.

Recorded and unrecorded runs of the same prompt take turns, round by round over all methods, until the time is up. Both
are timed from the first draft to the last token, the prompt and the drafter's index excluded; all that a record takes
is in, its numbers at the end too. By the clock, and by processor time, which other programs change less.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from decoders import Decoding, Prompt, load_target, methods
from decoders.engine.recording import Run, described
from decoders.model.target import Target
from decoders.study.bench import Spread

TEXT = (
    "Copy this list, then add one line: the old lamp in the hall; the letters in the lamp; the museum of the city; "
    "the old house by the lake. The old lamp in the hall; the letters in the lamp;"
)
WARM = 6  # tokens
CLOCKS = (time.perf_counter, time.process_time)
Times = tuple[float, float]  # seconds of a run by each of the clocks


def timed(target: Target, prompt: Prompt, method: Any, tokens: int, *, recorded: bool) -> tuple[Times, int, list[int]]:
    """Seconds of a run, the prompt excluded, its steps, and what it wrote."""
    params = method.params()
    decoding = Decoding.of(target, prompt, method, params, max_new_tokens=tokens, stop_ids=())
    gc.collect()
    begun = [clock() for clock in CLOCKS]
    if recorded:
        trace = Run.of(decoding, described(method, params, decoding)).finished()
        output, steps = trace.output_ids, trace.rows("steps")
    else:
        decoding.prefill()
        emitted = [step.emitted for step in decoding]
        output, steps = [token for tokens in emitted for token in tokens], len(emitted)
    # both read the prompt and prepare by the same code: what that took by the clock is about what it computed
    before = (decoding.prefill_ms + decoding.prepare_ms) / 1e3
    wall, computed = (clock() - start for clock, start in zip(CLOCKS, begun, strict=True))
    return (wall - before, computed - before * computed / wall), steps, output


def rounds(target: Target, prompt: Prompt, chosen: Sequence[Any], tokens: int, minutes: float) -> Iterator[Any]:
    """(method, steps, times unrecorded, times recorded), round by round, the order of each pair changing; each method
    warms up with a short run of both kinds first.
    """
    end = time.monotonic() + 60 * minutes
    for method in chosen:
        for on in (True, False):
            timed(target, prompt, method, WARM, recorded=on)
    for number in count():
        for method in chosen:
            if time.monotonic() > end:
                return
            made = {on: timed(target, prompt, method, tokens, recorded=on) for on in (number % 2 == 0, number % 2 == 1)}
            assert made[True][1:] == made[False][1:], f"a recorded run of {method.name} is another one"
            yield method, made[True][1], made[False][0], made[True][0]


def main() -> int:
    """Print a row per method."""
    parser = argparse.ArgumentParser(prog="python -m tests.tracing", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--engine", default="eager")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="default: all that need no pool of text")
    parser.add_argument("--minutes", type=float, default=7.0, help="for how long (default: 7)")
    parser.add_argument("--tokens", type=int, default=32, help="of each run (default: 32)")
    parser.add_argument("--threads", type=int, default=0, help="of torch (default: its own choice)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    target = load_target(given.model, engine=given.engine)
    prompt = Prompt.from_text(target.tokenizer, TEXT)
    able = [m for m in methods().values() if not m.available(target) and not m.needs(target, m.params()).pool]
    chosen = [method for method in able if not given.methods or method.name in given.methods]
    steps, off, on = dict[str, int](), dict[str, list[Times]](), dict[str, list[Times]]()
    for method, length, without, with_it in rounds(target, prompt, chosen, given.tokens, given.minutes):
        steps[method.name] = length
        off.setdefault(method.name, []).append(without)
        on.setdefault(method.name, []).append(with_it)
    table = Table(
        "method", "pairs", "steps", "on ÷ off", "ms per step", "on ÷ off, processor", "ms per step, processor"
    )
    for name, length in steps.items():
        cells = list[str]()
        for clock in range(len(CLOCKS)):
            pairs = [(a[clock], b[clock]) for a, b in zip(off[name], on[name], strict=True)]
            cells += [_spread([b / a for a, b in pairs], 2), _spread([1e3 * (b - a) / length for a, b in pairs], 2)]
        table.add_row(name, str(len(on[name])), str(length), *cells)
    console = Console(width=130)
    console.print(table)
    about = f"{target.name}, {given.tokens} tokens a run, {given.engine}; medians with quartiles"
    console.print(f"{about}; load now {os.getloadavg()[0]:.1f}")
    return 0


def _spread(values: Sequence[float], digits: int) -> str:
    spread = Spread.of(values)
    assert spread is not None
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
