"""Forwards of one target by stock code, by compiled layers and by the kernels: ``python -m benchmarks.forwards``.

The same rows in alternation, random keys before them. One thread: processor time, which other work disturbs least;
more: time by the clock, which wants an idle machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from decoders import load_target
from decoders.draft.needs import Needs
from decoders.model.engines.engines import Engines, example
from decoders.model.engines.static import StaticForward, StaticRows
from decoders.model.state.capture import Capture
from specviz.extras.cpu.compiled_layers import CompiledForward, why_not
from specviz.extras.cpu.kernel import KERNELS
from specviz.extras.cpu.kernel_forward import KernelForward, packed_layers

ROWS = (1, 2, 4, 8, 16, 32, 64)


def through(forward: StaticForward) -> Callable[[StaticRows], object]:
    """Run rows by one of the static forwards."""

    def run(request: StaticRows) -> object:
        bucket = forward.bucket(request)
        assert bucket is not None
        return forward.run(bucket, request, Needs(), Capture())

    return run


@torch.inference_mode()
def main() -> int:
    parser = parser_of("forwards", __doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keys", type=int, default=512, help="keys that a row sees")
    parser.add_argument("--repeats", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    target = load_target(options.model, engine="eager")
    engines, packed = Engines(target), packed_layers(target)
    if reason := why_not(target) or KERNELS.why_not() or (None if packed else "its weights are not packed"):
        print(f"nothing to compare: {reason}")
        return 1
    layers, kernels = CompiledForward(target), KernelForward(target, packed)
    for forward in (layers, kernels):
        forward.make()
        if reason := forward.wait():
            print(reason)
            return 1
        assert forward.ready(1) and forward.ready(4)
    ways: list[Callable[[StaticRows], object]] = [
        lambda request: engines.eager(request, Needs(), Capture()), through(layers), through(kernels)
    ]
    table = Table("rows", "eager, ms", "compiled layers", "kernels", "layers ÷ kernels, quartiles")
    for rows in ROWS:
        _, request = example(target, rows, options.keys)
        times: list[list[float]] = [[] for _ in ways]
        for turn in range(options.repeats + 1):
            for way, taken in zip(ways, times, strict=True):
                start_time = clock()
                way(request)
                if turn:  # the first is a rehearsal
                    taken.append(1000 * (clock() - start_time))
        ratios = [a / b for a, b in zip(times[1], times[2], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        table.add_row(str(rows), *(f"{median(taken):.1f}" for taken in times), f"{middle:.2f} ({low:.2f}–{high:.2f})")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
