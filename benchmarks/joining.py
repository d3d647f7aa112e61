"""Draft length auto of ``composite`` under simulated costs: ``python -m benchmarks.joining --prompts FILE [FILE …]``.

The model decodes each prompt once, plainly, and the drafters draft at every place of that text. The runs are then
walked through: a forward of so many rows and a draft so deep cost what a regime says, in plain steps. Per regime the
cost of a token: the first drafter alone, all drafters asked in every step, and auto, which decides whether the later
ones are asked; all under auto's choice of rows. Steps and tokens per step come first. No clock is read, so that a busy
machine gives the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from decoders import load_target, record
from decoders.draft.draft import Draft, Verdict
from decoders.engine.length import AutoLength
from decoders.engine.row_costs import Curve, RowCosts
from decoders.engine.stages import Asking, Gain, StageHistory
from decoders.study.look.places import PlaceReplay, composite_of, replayed_steps, strip_of
from specviz.views.prompts import records

LEVELS = 6  # of a whole draft
WITHIN = 1.03  # of the better of both
CPU = Curve((1, 4, 8, 16, 32, 64, 128), (1.0, 1.0, 1.01, 1.34, 2.15, 4.07, 7.47), "simulated")
FLAT = Curve((1, 64, 256), (1.0, 1.0, 4.0), "simulated")  # a GPU's: 64 rows are free
REGIMES: dict[str, tuple[Curve, float]] = {
    "CPU, draft 3.0": (CPU, 3.0), "CPU, draft 1.0": (CPU, 1.0),
    "CPU, draft .4": (CPU, 0.4), "64 rows free, draft .4": (FLAT, 0.4),
    "64 rows free, draft .15": (FLAT, 0.15),
}  # fmt: skip


class SimulatedAsking(Asking):
    """Asks by simulated times; ``always``: each time."""

    def __init__(self, length: AutoLength, draft_steps: float, always: bool, history: StageHistory | None) -> None:
        super().__init__(length.stage_gain, length.depth_of_stage, history)
        self.level_steps, self.always = draft_steps / LEVELS, always

    def pays(self, gain: Gain, cost: float) -> bool:
        return self.always or super().pays(gain, cost)

    def stage_ms(self, draft: Draft, number: int, depth: int) -> float:
        return self.level_steps * depth


class SimulatedLength(AutoLength):
    """Draft length auto on a simulated clock; ``total`` is the cost so far, in plain steps."""

    def __init__(self, curve: Curve, draft_steps: float, always: bool, earlier: SimulatedLength | None) -> None:
        super().__init__(RowCosts(curve, follows=False), earlier and earlier.survival)
        self.asking = SimulatedAsking(self, draft_steps, always, earlier and earlier.asking.history)
        self.total = 0.0

    def learn(
        self, draft: Draft, verdict: Verdict, *, rows: int, emitted: int, drafting_ms: float, target_ms: float
    ) -> float:
        stages = [] if self.stage_drafter is None else self.stage_drafter.later_stages()
        drafting = sum(self.asking.stage_ms(draft, number, depth) for number, depth, _ in stages)
        verifying = self.costs.ms(rows)
        self.total += drafting + verifying
        return super().learn(draft, verdict, rows=rows, emitted=emitted, drafting_ms=drafting, target_ms=verifying)


def run_all(
    replays: Sequence[tuple[PlaceReplay, dict[str, Any]]], names: Sequence[str], regime: tuple[Curve, float],
    always: bool,
) -> tuple[float, float]:  # fmt: skip
    """Cost per token, and the share of steps in which the second drafter was asked."""
    cost, tokens, asked, steps, length = 0.0, 0, 0.0, 0, None
    for replay, drafts in replays:
        drafter = composite_of({name: drafts[name] for name in names})
        length = SimulatedLength(*regime, always, length)
        for draft, verdict in replayed_steps(replay, drafter, length):
            emitted = verdict.accepted + (verdict.bonus is not None)
            length.learn(draft, verdict, rows=len(draft.tree), emitted=emitted, drafting_ms=0.0, target_ms=0.0)
            asked += float(draft.notes.get("asked2", 0.0))
            steps += 1
        cost, tokens = cost + length.total, tokens + len(replay.text)
    return cost / tokens, asked / steps


def steps_table(replays: Sequence[tuple[PlaceReplay, dict[str, Any]]]) -> Table:
    """Steps and tokens per step: each drafter alone, the better of them per prompt, the oracle at every place, and the
    merge by rows; its estimate begins anew with each prompt.
    """
    tokens = sum(len(replay.text) for replay, _ in replays)
    strips = [strip_of(replay, drafts) for replay, drafts in replays]
    steps = {f"{name} alone": sum(strip.steps_of(name) for strip in strips) for name in replays[0][1]}
    steps["better per prompt"] = sum(min(map(strip.steps_of, strip.reach)) for strip in strips)
    steps["oracle by place"] = sum(len(strip.oracle) for strip in strips)
    for rows in (8, 16, 32, None):
        counts = (sum(1 for _ in replayed_steps(replay, composite_of(drafts, rows))) for replay, drafts in replays)
        steps[f"merged, {rows or 'all'} rows"] = sum(counts)
    table = Table("drafts", "steps", "tokens per step")
    for name, count in steps.items():
        table.add_row(name, str(count), f"{tokens / count:.2f}")
    return table


def main() -> int:
    args = arguments()
    torch.set_num_threads(args.threads)
    target = load_target(args.model)
    names, replays = args.drafters.split(","), list[tuple[PlaceReplay, dict[str, Any]]]()
    for number, file in enumerate(args.prompts):
        every, limit = records(file, 5000), args.limit[min(number, len(args.limit) - 1)]
        for record_of in every[:: max(1, len(every) // limit)][:limit]:
            prompt = record_of.prompt(target.tokenizer, chat=True)
            replay = PlaceReplay(target, record(target, prompt, max_new_tokens=args.tokens))
            replays.append((replay, {name: dict(replay.drafts(name)) for name in names}))
            print(f"\rreplayed: {len(replays)} prompts", end="", file=sys.stderr, flush=True)
    Console(width=120).print(steps_table(replays))
    table = Table("costs", f"{names[0]} alone", "always asked", "auto", "asked in", "auto ÷ the better")
    worst = 0.0
    for name, regime in REGIMES.items():
        alone, _ = run_all(replays, names[:1], regime, False)
        always, _ = run_all(replays, names, regime, True)
        auto, asked = run_all(replays, names, regime, False)
        ratio = auto / min(alone, always)
        worst = max(worst, ratio)
        table.add_row(name, f"{alone:.3f}", f"{always:.3f}", f"{auto:.3f}", f"{asked:.0%}", f"{ratio:.3f}")
    Console(width=120).print(table)
    tokens = sum(len(replay.text) for replay, _ in replays)
    print(f"{len(replays)} prompts, {tokens} tokens; worst ratio {worst:.3f}")
    return 0 if worst <= WITHIN else 1


def arguments() -> argparse.Namespace:
    parser = parser_of("joining", __doc__)
    parser.add_argument("--prompts", nargs="+", default=["examples"], help="prompt files or sets (default: examples)")
    parser.add_argument("--limit", type=int, nargs="+", default=[16], help="prompts of each file, spread over it")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--drafters", default="pld+h,eagle3")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
