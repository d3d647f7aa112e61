"""``specviz judge``: recorded drafts under every verifier."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.names import POSITION_BIAS
from specviz.words import decimals, plural

from . import common, options

if TYPE_CHECKING:
    from decoders import Trace
    from decoders.study.judge.judge import Range, StepJudged

DESCRIPTION = (
    "Judge the drafts of recorded runs by every verifier, by the p and q that were recorded: tokens per step that each "
    "would give, the share of tokens that the target would have written otherwise, and with --step which tokens differ "
    "and why. No model is loaded. Where a run holds too little of p and q, a range is printed; specviz run "
    "--first-choices N records more."
)
HEADS = ("verifier", "output", "tokens per step", "accepted", "other tokens", "steps that differ", "open")


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files", "TRACE", nargs="+")
    parser.add_argument("--verifier", nargs="+", metavar="NAME", help="these alone (default: all)")
    options.several(parser, "--set", "K=V", "a parameter of the verifiers that have it; may be repeated")
    options.count(parser, "--step", "one step of one run, node by node (from 1)")
    options.flag(parser, "--sampled", "judge greedy runs as if tokens were drawn, at temperature 1")
    options.flag(parser, "--json", "print everything, step by step, as one JSON object")
    options.add_plugin(parser, "verifier")


def run(args: argparse.Namespace) -> int:
    from decoders import load
    from decoders.study.judge.judge import Total, chosen_rules, fault, judge_steps, totals

    if args.step is not None and len(args.traces) > 1:
        raise UserError(f"--step is of one run, and {len(args.traces)} are given: leave all but one out")
    rules = chosen_rules(options.split(args.verifier or ()), _sets(args.set, options.split(args.verifier or ())))
    sums: dict[str, Total] = {name: Total() for name in rules}
    runs, left_out, open_share = [], [], 0.0
    for path in args.traces:
        trace = load(path)
        if problem := fault(trace):
            left_out.append(f"{path} was left out: {problem}")
            continue
        step_choice = None if args.step is None else [_check(trace, args.step)]
        steps = list(judge_steps(trace, rules, sampled=True if args.sampled else None, steps=step_choice))
        for name, total in totals(steps).items():
            sums[name] += total
        open_share = max([open_share, *(max(step.rest) for step in steps)])
        runs.append((path, trace, steps))
    if not any(steps for _, _, steps in runs):
        raise UserError("; ".join(left_out) or "there is no step whose draft can be judged")
    if args.json:
        entries = [{"run": str(path), "steps": [step.to_json() for step in steps]} for path, _, steps in runs]
        totals = {name: total.to_json() for name, total in sums.items()}
        data = {"totals": totals, "runs": entries, "bias": POSITION_BIAS}
        return common.print_json({**data, "left_out": left_out})
    if args.step is not None:
        _show_step(runs[0][1], runs[0][2][0])
    count = next(iter(sums.values())).steps
    title = f"{plural(len(runs), 'run')}, {plural(count, 'step')} with a draft"
    common.show_table(HEADS, [_row(name, rules[name][0].lossless, total) for name, total in sums.items()], title)
    common.say(
        "tokens per step is expected, over each rule's own draws, the target's token included; accepted is one verdict "
        "by the same draws for all; other tokens: how many the target would have written otherwise (– where a rule "
        "does not say).",
        f"{POSITION_BIAS} (specviz run --again TRACE --verifier NAME)",
        f"Only the top probabilities were recorded (up to {100 * open_share:.0f} % misses): some numbers are ranges."
        if open_share > 0.01 else "", *left_out,
    )  # fmt: skip
    return 0


def _sets(pairs: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """``--set``'s parameters of each verifier: K=V is of all that have it. Raises UserError for one that none has."""
    from decoders.draft.params import controls
    from decoders.study.judge.judge import chosen_rules

    sets: dict[str, dict[str, str]] = {}
    for key, value in options.parse_sets(pairs).items():
        having = [name for name, (card, _) in chosen_rules(names).items()
                  if key in {control.name for control in controls(card.params)}]  # fmt: skip
        if not having:
            raise UserError(f"--set {key}={value} is of no use: no verifier that judges has a parameter {key!r}")
        for name in having:
            sets.setdefault(name, {})[key] = value
    return sets


def _check(trace: Trace, number: int) -> int:
    """The step (from 0) that a user means, where it is there and has a draft."""
    step = common.step_number(number, trace)
    if not trace.tables["steps"]["drafted"][step]:
        reason = trace.tables["steps"]["reason"][step] or "nothing was proposed"
        raise UserError(f"step {number} has no draft: {reason}")
    return step


def _row(name: str, lossless: bool, total: object) -> tuple[str, ...]:
    data = total.to_json()  # type: ignore[attr-defined]
    share = data["other_share"]
    return (
        name, "lossless" if lossless else "lossy", _range(data["tokens_per_step"], 2), str(data["accepted"]),
        "0" if lossless else "–" if share is None else _range([100 * bound for bound in share], 1) + " %",
        str(data["differs"]), str(data["open"]),
    )  # fmt: skip


def _range(bounds: Sequence[float] | Range | None, digits: int) -> str:
    """One number, or two where they differ."""
    if bounds is None:
        return "–"
    low, high = (decimals(bound, digits) for bound in bounds)
    return low if low == high else f"{low} to {high}"


def _show_step(trace: Trace, step: StepJudged) -> None:
    """Node by node, what each rule did and why."""
    from specviz.views.step_words import rows_of

    node_rows = rows_of(trace, "nodes", step.step)
    words = {"accepted": "✓", "rejected": "✗", "unreached": "·"}
    drafted = range(1, len(node_rows))
    for name, ruling in step.rules.items():
        rows = [
            (str(node), repr(trace.text([node_rows[node]["token"]])), words[ruling.status[node]],
             _range(ruling.chances[node], 2), ruling.reasons[node])
            for node in drafted if ruling.status[node] != "unreached"
        ]  # fmt: skip
        title = f"{name}: {plural(ruling.accepted, 'token')} accepted, {_range(ruling.expected, 2)} expected"
        if differs := ruling.differing(step.status):
            title += "; not as the run: " + ", ".join(str(node) for node, _ in differs)
        common.show_table(("node", "token", "accepted", "chance", "why"), rows, title, right=3)
