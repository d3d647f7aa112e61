"""The cost of recording a model's own generate(): ``python -m benchmarks.overhead [--model smollm2] [--pairs 5]``.

Recorded and unrecorded calls take turns; their processor time is compared, which other programs do not change much.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from benchmarks import parser_of
from decoders import recording
from decoders.model.target_model.load import load_network

TEXT = "Repeat this exactly, three times: The old lamp in the hall of the old house was sold to the city museum.\n" * 4
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "prompt lookup, 6 tokens": {"prompt_lookup_num_tokens": 6},
    "assistant (itself), 5 tokens": {},
}


def main() -> None:
    """Print a line per way of drafting: processor seconds with and without recording, and their ratio."""
    parser = parser_of("overhead", __doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    model, tokenizer, name = load_network(args.model, attention="sdpa")
    assistant, _, _ = load_network(args.model, attention="sdpa")
    assistant.generation_config.num_assistant_tokens = 5
    assistant.generation_config.assistant_confidence_threshold = 0.0
    CASES["assistant (itself), 5 tokens"]["assistant_model"] = assistant
    inputs = tokenizer(TEXT, return_tensors="pt")
    options = {"max_new_tokens": args.tokens, "min_new_tokens": args.tokens, "do_sample": False, "pad_token_id": 0}

    def run(recorded: bool, how: dict[str, Any]) -> tuple[float, list[int]]:
        started = time.process_time()
        if recorded:
            with recording(model, tokenizer):
                output = model.generate(**inputs, **options, **how)
        else:
            output = model.generate(**inputs, **options, **how)
        return time.process_time() - started, output[0].tolist()

    for what, how in CASES.items():
        run(True, how)
        ratios, times, outputs = [], {True: [], False: []}, set()
        for pair in range(args.pairs):
            spent = {}
            for recorded in (False, True) if pair % 2 else (True, False):
                spent[recorded], ids = run(recorded, how)
                times[recorded].append(spent[recorded])
                outputs.add(tuple(ids))
            ratios.append(spent[True] / spent[False])
        assert len(outputs) == 1, "the output differs"
        with_it, without = (statistics.median(times[recorded]) for recorded in (True, False))
        low, high = min(ratios), max(ratios)
        print(
            f"{name}, {what}: {without:.2f} s without, {with_it:.2f} s with recording, processor time of "
            f"{args.tokens} tokens; ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
