"""The gain of draft length auto on this machine: ``python -m benchmarks.lengths --prompts FILE [--model smollm2]``.

Plain decoding, every method at its own length and under auto, and a sweep of fixed lengths run prompt by prompt in
alternation. Per category: speed ÷ plain decoding, paired by prompt and round. Compile the model before (``specviz
compile``), and leave the machine alone. What is measured so far is written as it goes (``--json``); after ``--minutes``
no further run begins, and the tables are made of what there is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from decoders import load_target
from decoders.drafters import methods, select_method
from decoders.engine.decoding import Decoding
from decoders.sweep.contenders import run_unrecorded
from decoders.sweep.plan import Contender, Failure, Measurement, alternate, execute
from specviz.commands.options import parse_sets
from specviz.views.prompts import records

LEAST, BEST, NEAR, DECISION_MS = 0.97, 1.35, 0.9, 0.1  # what is to be reached
PLAIN, FIXED, AUTO = "plain", " fixed", " auto"
OWN, OVER = "pld+h", "adapld"  # the one against its own fixed length, the other against it on edits


def arguments() -> argparse.Namespace:
    parser = parser_of("lengths", __doc__)
    parser.add_argument("--prompts", default="examples", help="prompt file or set (default: examples)")
    parser.add_argument("--limit", type=int, default=26, help="prompts; of a file, spread over its categories")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--methods", default="", help="with commas (default: all lossless ones that are there)")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sweep", action="append", default=[], metavar="METHOD.K=V,V", help="fixed settings beside it")
    parser.add_argument("--edits", default="demo:code_edit,text_edit", help="prompts to rewrite a text; '' for none")
    parser.add_argument("--edit-limit", type=int, default=4, help="of them")
    parser.add_argument("--minutes", type=float, default=18.0, help="then no further run begins")
    parser.add_argument("--json", type=Path, help="write every sample to a file, as it is measured")
    return parser.parse_args()


def spread(every: list[Any], limit: int) -> list[Any]:
    """``limit`` records, the categories in turn."""
    by: dict[str, list[Any]] = defaultdict(list)
    for one in every:
        by[one.category].append(one)
    made = [one for turn in range(len(every)) for of in by.values() for one in of[turn : turn + 1]]
    return made[:limit]


def main() -> int:
    options = arguments()
    target = load_target(options.model, engine=options.engine)
    some = spread(records(options.prompts, 5000), options.limit)
    edits = spread(records(options.edits, 5000), options.edit_limit) if options.edits else []
    some += edits
    prompts = [(one, one.prompt(target.tokenizer)) for one in some]
    prompts = [(one, p) for one, p in prompts if len(p.tokens) + options.max_new_tokens < target.context_length]
    names = options.methods.split(",") if options.methods else [
        name for name, m in methods().items() if m.lossless and not m.null and name != PLAIN and not m.missing(target)
    ]  # fmt: skip
    settings: dict[str, tuple[str, Any, str]] = {PLAIN: (PLAIN, None, "fixed")}
    for name in names:
        settings |= {name + FIXED: (name, None, "fixed"), name + AUTO: (name, None, "auto")}
    for key, values in parse_sets(options.sweep, "--sweep", "METHOD.K=V,V").items():
        name, _, param = key.rpartition(".")
        for value in values.split(","):
            settings[f"{name} {param}={value}"] = name, {param: value}, "fixed"
    decided: dict[str, list[float]] = defaultdict(list)

    def contender(label: str) -> Contender:
        name, params, length = settings[label]

        def decoding(prompt: Any) -> Any:
            return Decoding.of(target, prompt, name, params, max_new_tokens=options.max_new_tokens, length=length)

        lossless = select_method(name)[0].lossless
        return Contender(label, "method", lossless, lambda p: run_unrecorded(label, lambda: decoding(p)))

    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    speeds: dict[tuple[int, int], dict[str, Measurement]] = defaultdict(dict)
    samples, failed, differing = list[dict[str, Any]](), dict[str, str](), set[str]()

    def write() -> None:
        if options.json:
            options.json.write_text(json.dumps({"samples": samples, "decided_ms": decided, "failed": failed}), "utf-8")

    for name in names:  # what deciding takes, apart from the timed runs
        for _, prompt in prompts[:: max(1, len(prompts) // 3)]:
            run = Decoding.of(target, prompt, name, max_new_tokens=options.max_new_tokens, length="auto")
            decided[name] += [
                float(s.observation.notes["length_ms"]) for s in run if s.observation and s.draft.proposed.tree.drafted
            ]
    write()
    taking, over = [contender(label) for label in settings], threading.Event()
    timer = threading.Timer(options.minutes * 60, over.set)
    timer.daemon = True
    timer.start()
    order = alternate(taking, [prompt for _, prompt in prompts], options.repeats)
    for turn, made in execute(order, cancel=over, tidy=True):
        if isinstance(made, Failure):
            failed[turn.contender.name] = made.reason
        if turn.round < 0 or not isinstance(made, Measurement):
            continue
        group = speeds[turn.prompt, turn.round]
        group[turn.contender.name] = made
        if turn.last and PLAIN in group:
            plain, category = group[PLAIN], prompts[turn.prompt][0].category
            for label, one in group.items():
                if one.output != plain.output:
                    differing.add(label)
                ratio = (one.sample.tokens_per_s or 0) / (plain.sample.tokens_per_s or 1)
                ratios[label][category].append(ratio)
                samples.append({"line": label, "category": category, "prompt": turn.prompt, "round": turn.round,
                                "tokens_per_s": one.sample.tokens_per_s, "ratio": ratio,
                                "tokens_per_step": one.sample.tokens_per_step})  # fmt: skip
            write()
            print(f"prompt {turn.prompt + 1} of {len(prompts)}, round {turn.round + 1}", file=sys.stderr, flush=True)
    timer.cancel()
    if over.is_set():
        print(f"ended after {options.minutes:g} minutes, before all {options.repeats} rounds", file=sys.stderr)
    return show(ratios, decided, failed, differing, names, {one.category for one in edits})


def show(
    ratios: Any, decided: Any, failed: dict[str, str], differing: set[str], names: list[str], edits: set[str]
) -> int:
    """Tables by setting and by category, then each number that was asked for, and whether it was reached."""
    categories = list(dict.fromkeys(c for by in ratios.values() for c in by))
    middle = {label: {c: statistics.median(v) for c, v in by.items()} for label, by in ratios.items()}
    overall = {label: statistics.median([r for v in by.values() for r in v]) for label, by in ratios.items()}
    out = Console(width=200)
    table = Table("× plain", *categories, "all")
    for label in ratios:
        table.add_row(label, *(f"{middle[label].get(c, 0):.2f}" for c in categories), f"{overall[label]:.2f}")
    out.print(table)
    autos = {name: middle[name + AUTO] for name in names if name + AUTO in middle}
    fixed = {name: [one for one in ratios if one.startswith(f"{name} ") and not one.endswith(AUTO)] for name in autos}
    table = Table(
        "category", "least auto × plain", "best auto × plain", *(f"{name}: auto ÷ best fixed" for name in autos)
    )
    for c in categories:
        by = sorted((of[c], name) for name, of in autos.items() if c in of)
        near = [f"{of[c] / max(middle[one][c] for one in fixed[name]):.2f}" for name, of in autos.items()]
        table.add_row(c, "{:.2f} {}".format(*by[0]), "{:.2f} {}".format(*by[-1]), *near)
    out.print(table)
    least = min(((v, name, c) for name, by in autos.items() for c, v in by.items()), default=(0, "", ""))
    best = max(((overall[name + AUTO], name) for name in autos), default=(0, ""))
    slowest = max(((statistics.median(ms), name) for name, ms in decided.items() if ms), default=(0, ""))
    said = [
        (least[0] >= LEAST, f"least of all categories: {least[0]:.2f} × plain ({least[1]}, {least[2]}); {LEAST} asked"),
        (best[0] >= BEST, f"best method: {best[0]:.2f} × plain ({best[1]}); {BEST} asked"),
    ]
    for name in autos:
        near = overall[name + AUTO] / max(overall[one] for one in fixed[name])
        own = overall[name + AUTO] / overall[name + FIXED] if name + FIXED in overall else float("nan")
        words = f"{name}: auto ÷ best fixed setting {near:.2f} ({NEAR} asked), ÷ its own {own:.2f}"
        said.append((near >= NEAR, words + (" (1 asked)" if name == OWN else "")))
        if name == OWN:
            said[-1] = near >= NEAR and own >= 1, said[-1][1]
    for c in sorted(edits & {*categories} if {OVER, OWN} <= autos.keys() else ()):
        more = autos[OVER][c] / autos[OWN][c]
        said.append((more >= 1, f"{OVER} ÷ {OWN} on {c}: {more:.2f}; 1 asked"))
    for name, ms in decided.items():
        if ms:
            out.print(f"a decision of {name}: median {statistics.median(ms):.3f}, mean {statistics.fmean(ms):.3f} ms")
    said.append((slowest[0] <= DECISION_MS, f"deciding a length: {slowest[0]:.3f} ms a step at most ({slowest[1]})"))
    said.append((not differing, f"outputs that differ from plain decoding's: {', '.join(sorted(differing)) or 'none'}"))
    for reached, words in said:
        out.print("✓" if reached else "✗", words)
    for label, why in failed.items():
        out.print(f"failed: {label}: {why}", markup=False)
    return 0 if all(reached for reached, _ in said) else 1


if __name__ == "__main__":
    sys.exit(main())
