"""The cost of recording a run, method by method: ``python -m benchmarks.tracing [--model smollm2] [--minutes 7]``.

Recorded and unrecorded runs of the same prompt take turns, round by round over all methods, until the time is up. Both
are timed from the first draft to the last token, the prompt and the drafter's index excluded; all that a record takes
is in, its numbers at the end too. By the clock, and by processor time, which other programs change less. And what
recorded runs spent outside decoding: a machine whose speed drifts changes both parts of a run alike.
"""

from __future__ import annotations

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

from benchmarks import parser_of
from decoders import Decoding, Prompt, load_target, methods
from decoders.engine.recording import Run, describe
from decoders.model.target_model.target import Target
from decoders.sweep.bench import SpeedSpread

TEXT = (
    "Copy this list, then add one line: the old lamp in the hall; the letters in the lamp; the museum of the city; "
    "the old house by the lake. The old lamp in the hall; the letters in the lamp;"
)
WARM = 6  # tokens
CLOCKS = (time.perf_counter, time.process_time)
Times = tuple[float, float]  # seconds of a run by each of the clocks


def clock(
    target: Target, prompt: Prompt, method: Any, tokens: int, *, recorded: bool
) -> tuple[Times, float, int, list[int]]:
    """Seconds of a run, the prompt excluded; its part outside decoding; its steps, and what it wrote."""
    params = method.params()
    decoding = Decoding.of(target, prompt, method, params, max_new_tokens=tokens, stop_ids=())
    gc.collect()
    begun = [clock() for clock in CLOCKS]
    if recorded:
        trace = Run.of(decoding, describe(method, params, decoding)).finish()
        output, steps, decode_ms = trace.output_ids, trace.rows("steps"), trace.run["timings"].get("decode_ms")
    else:
        decoding.prefill()
        emitted = [step.emitted for step in decoding]
        output, steps, decode_ms = [token for tokens in emitted for token in tokens], len(emitted), None
    # both read the prompt and prepare by the same code: what that took by the clock is about what it computed
    before = (decoding.prefill_ms + decoding.prepare_ms) / 1e3
    wall, computed = (clock() - start for clock, start in zip(CLOCKS, begun, strict=True))
    own = 0.0 if decode_ms is None else wall - before - decode_ms / 1e3
    return (wall - before, computed - before * computed / wall), own, steps, output


def rounds(target: Target, prompt: Prompt, chosen: Sequence[Any], tokens: int, minutes: float) -> Iterator[Any]:
    """(method, steps, times unrecorded, times recorded, recording's own part), round by round, the order of each pair
    changing; each method warms up with a short run of both kinds first.
    """
    end = time.monotonic() + 60 * minutes
    for method in chosen:
        for on in (True, False):
            clock(target, prompt, method, WARM, recorded=on)
    for number in count():
        for method in chosen:
            if time.monotonic() > end:
                return
            made = {on: clock(target, prompt, method, tokens, recorded=on) for on in (number % 2 == 0, number % 2 == 1)}
            assert made[True][2:] == made[False][2:], f"a recorded run of {method.name} is another one"
            yield method, made[True][2], made[False][0], *made[True][:2]


def main() -> int:
    """Print a row per method."""
    parser = parser_of("tracing", __doc__)
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
    able = [m for m in methods().values() if not m.missing(target) and not m.needs(target, m.params()).pool]
    chosen = [method for method in able if not given.methods or method.name in given.methods]
    steps, off, on = dict[str, int](), dict[str, list[Times]](), dict[str, list[Times]]()
    parts = dict[str, list[float]]()
    for method, length, without, with_it, part in rounds(target, prompt, chosen, given.tokens, given.minutes):
        steps[method.name] = length
        off.setdefault(method.name, []).append(without)
        on.setdefault(method.name, []).append(with_it)
        parts.setdefault(method.name, []).append(part)
    table = Table(
        "method",
        "pairs",
        "steps",
        "on ÷ off",
        "ms per step",
        "on ÷ off, processor",
        "own part ÷ decoding",
        "own part, ms per step",
    )
    for name, length in steps.items():
        cells = list[str]()
        pairs = list(zip(off[name], on[name], strict=True))
        cells.append(_spread([b[0] / a[0] for a, b in pairs], 2))
        cells.append(_spread([1e3 * (b[0] - a[0]) / length for a, b in pairs], 2))
        cells.append(_spread([b[1] / a[1] for a, b in pairs], 2))
        own = list(zip(on[name], parts[name], strict=True))
        cells.append(_spread([part / (times[0] - part) for times, part in own], 3))
        cells.append(_spread([1e3 * part / length for _, part in own], 2))
        table.add_row(name, str(len(on[name])), str(length), *cells)
    console = Console(width=150)
    console.print(table)
    about = f"{target.name}, {given.tokens} tokens a run, {given.engine}; medians with quartiles"
    console.print(f"{about}; load now {os.getloadavg()[0]:.1f}")
    return 0


def _spread(values: Sequence[float], digits: int) -> str:
    spread = SpeedSpread.of(values)
    assert spread is not None
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
