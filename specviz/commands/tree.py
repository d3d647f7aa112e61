"""``specviz tree``: PPD's trees, designed for a target's prompt tokens and sized for this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.names import DESIGNED, PROMPT_TOKENS, TREE_KINDS
from specviz.words import decimals, plural, visible

from . import common, options, turns

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.prompt_tokens.design import SizePoint
    from decoders.prompt_tokens.latency import Latency
    from decoders.prompt_tokens.trees import PromptTree, PromptTrees

BEST = "best"
TOP = 5  # ranks whose sum the table shows beside the first
MOST_SIZE = 256
CHECK_PROMPTS, MOST_CHECKED = 12, 32  # prompts and rows of --check


def size(text: str) -> int | None:
    """An argparse type: a number of rows, or None for ``best``."""
    if text == BEST:
        return None
    try:
        return options.whole(1, MOST_SIZE)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {BEST}") from None


DESCRIPTION = "PPD's trees: design them, look at them."


def add(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part_of_tree", metavar="COMMAND", required=True, title="commands")
    design = parts.add_parser(
        "design",
        help="measure acceptance and design the trees",
        description="Measure how often the prompt tokens guess right, design trees of every size, and choose the one "
        "with the most tokens per millisecond on this machine. The result is kept beside the prompt tokens.",
    )
    options.file(design, "--part", "prompt tokens (default: those trained for the target)", "FOLDER")
    design.add_argument(
        "--prompts", default="demo", metavar="F",
        help="prompt file, or demo[:task,…], examples[:task,…], turns (default: demo)",
    )  # fmt: skip
    options.count(design, "--limit", "read at most N prompts", 24, high=5000)
    options.count(design, "--max-new-tokens", "tokens per answer", 64)
    design.add_argument(
        "--size", type=size, default=None, metavar="N", help=f"rows of the trees, or {BEST} for this machine (default)"
    )
    options.count(design, "--max-size", "largest size tried", 64, high=MOST_SIZE)
    design.add_argument(
        "--kind", choices=TREE_KINDS, default=DESIGNED, metavar="KIND",
        help="which trees are kept: designed (default), or for comparison naive or random ones of the same size",
    )  # fmt: skip
    options.flag(
        design,
        "--check",
        f"then decode {CHECK_PROMPTS} further prompts with trees of every size, and compare the best size with the one "
        "predicted",
    )
    options.file(design, "--out", "where the trees go (default: beside the prompt tokens)", "FILE")
    options.add_model(design, plugins=False)
    design.set_defaults(run=run)
    show = parts.add_parser("show", help="print a tree file", description="Print the trees of a file, state by state.")
    options.file(show, "file", "a tree file, or the folder of prompt tokens with one", "FILE")
    show.set_defaults(run=run_show)
    latency = parts.add_parser(
        "latency",
        help="measure decode steps by rows",
        description="Measure how long a decode step of 1, 2, 4, … rows takes on this machine with the model; the "
        "result is kept.",
    )
    options.count(latency, "--max-size", "most rows", 64, high=MOST_SIZE)
    options.flag(latency, "--again", "measure even where a result is kept")
    options.add_model(latency, plugins=False)
    latency.set_defaults(run=run_latency)


def run(args: argparse.Namespace) -> int:
    from specviz.views.prompts import records

    common.check_writable(args.out)
    all_records = records(args.prompts, args.limit + CHECK_PROMPTS * args.check, toy=common.wants_toy(args))
    test_prompts, check_records = all_records[: args.limit], all_records[args.limit :]
    target = common.open_target(args)

    from decoders.parts import find_part, load_part
    from decoders.prompt_tokens import design
    from decoders.prompt_tokens.trees import FILE, save_trees
    from decoders.study.measure.guess_acceptance import measure_acceptance
    from decoders.study.measure.latency import latency_for

    tokens = load_part(target, PROMPT_TOKENS, args.part)
    folder = args.part.expanduser() if args.part else find_part(target.key, PROMPT_TOKENS)
    out_file = args.out or Path(str(folder)) / FILE
    common.check_writable(out_file)
    m, ensemble = tokens.config.tokens, tokens.config.vectors
    design.check_size(args.size or args.max_size, m, ensemble)
    size_limit = max(args.size or 0, args.max_size)
    prompts, _, note = common.fitting(target, test_prompts, args.max_new_tokens)
    with common.progress_bar("measuring acceptance") as progress:
        table = measure_acceptance(target, tokens, prompts, max_new_tokens=args.max_new_tokens, progress=progress)
    with common.progress_bar("measuring latency") as progress:
        latency = latency_for(target, size_limit, progress=progress)
    sizes: list[int] = sorted({args.size or size_limit, *design.sizes_up_to(size_limit, m, ensemble)})
    points = design.compare_sizes(table, sizes, ensemble, latency)
    trees_by_size = {point.size: point.trees for point in points}
    best = design.best_size(trees_by_size, latency)
    size = args.size or best
    _show_acceptance(target, table, prompts)
    _show_sizes(points, best)
    makers = {
        DESIGNED: lambda *_: trees_by_size[size],
        "wide": design.wide_trees, "naive": design.naive_trees, "random": design.random_trees,
    }  # fmt: skip
    trees = makers[args.kind](table, size, ensemble)
    save_trees(trees, out_file)
    reason = "as asked for" if size != best else f"the best size for {latency.setup.device}"
    common.say(note, turns.first_turns(prompts), latency.note, _choice(trees, latency, reason), f"kept in {out_file}")
    if args.check:
        prompts, _, _ = common.fitting(target, check_records or test_prompts[-CHECK_PROMPTS:], args.max_new_tokens)
        points = [point for point in points if point.size <= max(MOST_CHECKED, best)]
        _check(target, tokens, points, best, prompts, args.max_new_tokens)
    return 0


def _check(
    target: Target, tokens: Any, points: list[SizePoint], best: int, prompts: list[Prompt], max_new_tokens: int
) -> None:
    """Decode with every size, print both, and say how far apart the best sizes are."""
    from decoders.sweep.tree_trial import steps_apart, try_trees

    trees_by_size = {point.size: point.trees for point in points}
    with common.progress_bar("decoding with every size") as progress:
        trials = try_trees(target, tokens, trees_by_size, prompts, max_new_tokens=max_new_tokens, progress=progress)
    fastest = max(sorted(trials), key=lambda size: trials[size].speedup)
    rows = []
    for point in points:
        trial = trials[point.size]
        taus = [decimals(result.tokens_per_step, 3) for result in (point.trees, trial)]
        rows.append((point.size, *taus, *(f"{decimals(result.speedup, 2)}×" for result in (point, trial))))
    heads = ("size", "τ predicted", "τ measured", "speedup predicted", "speedup measured")
    common.show_table(heads, rows, f"Predicted and measured, {plural(len(prompts), 'prompt')}", bold=fastest)
    distance = steps_apart(list(trials), best, fastest)
    verdict = "within one step" if distance <= 1 else f"{distance} sizes apart; was the machine idle?"
    common.say(f"best size: {best} rows predicted, {fastest} measured: {verdict}")


def run_show(args: argparse.Namespace) -> int:
    from decoders.prompt_tokens.trees import FILE, load_trees

    path = args.file.expanduser()
    trees = load_trees(path / FILE if path.is_dir() else path)
    common.say("\n".join(describe(trees)))
    return 0


def run_latency(args: argparse.Namespace) -> int:
    target = common.open_target(args)

    from decoders.study.measure.latency import latency_for

    with common.progress_bar("measuring latency") as progress:
        latency = latency_for(target, args.max_size, refresh=args.again, progress=progress)
    _show_latency(latency)
    return 0


def describe(trees: PromptTrees) -> list[str]:
    """Trees as lines of text: every state with its nodes' path and stop probabilities, then π, f and R.

    >>> from decoders.prompt_tokens.design import split_trees
    >>> for line in describe(split_trees([[.6, .2], [.5, .1]], 3, 11))[-7:]: print(line)
    state 2: π = 0.833, f = 1.100, 11 rows
    root      2 prompt tokens, nothing accepted 0.200
    ├─ #0     2 prompt tokens, p = 0.600, ends here 0.300
    │  └─ #0  2 prompt tokens, p = 0.300, ends here 0.300
    └─ #1     1 prompt token, p = 0.200, ends here 0.200
    <BLANKLINE>
    R = Σ π f = 1.050 accepted per step, τ = 2.050 tokens per step
    """
    rows = f" (a prompt token is {trees.ensemble} rows)" if trees.ensemble > 1 else ""
    lines = [f"{visible(trees.label)}: {trees.m} prompt tokens, at most {trees.size} rows{rows}", ""]
    for k, tree in enumerate(trees.states):
        lines.append(f"state {k}: π = {trees.pi[k]:.3f}, f = {trees.f[k]:.3f}, {tree.rows(trees.ensemble)} rows")
        lines += [*_draw(tree, trees), ""]
    return [*lines, f"R = Σ π f = {trees.R:.3f} accepted per step, τ = {trees.tokens_per_step:.3f} tokens per step"]


def _draw(tree: PromptTree, trees: PromptTrees) -> list[str]:
    children: list[list[int]] = [[] for _ in tree.prompts]
    for node, parent in enumerate(tree.parents):
        if node:
            children[parent].append(node)
    p, stops = [1.0, *tree.probabilities(trees.acceptance)], tree.stops(trees.acceptance)
    lines: list[tuple[str, str]] = []

    def walk(node: int, first: str, indent: str) -> None:
        count = plural(tree.prompts[node], "prompt token") if tree.prompts[node] else "none"
        chance = f"p = {p[node]:.3f}, ends here" if node else "nothing accepted"
        label = f"#{tree.paths[node - 1][-1]}" if node else "root"
        lines.append((first + label, f"{count}, {chance} {stops[node]:.3f}"))
        for child in children[node]:
            last = child == children[node][-1]
            walk(child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "))

    walk(0, "", "")
    width = max(len(shape) for shape, _ in lines)
    return [f"{shape:<{width}}  {text}" for shape, text in lines]


def _show_acceptance(target: Target, acceptance: list[list[float]], prompts: list[Prompt]) -> None:
    ranks = len(acceptance[0])
    heads = ("distance", *(f"#{rank}" for rank in range(ranks)), f"top {TOP}", f"top {ranks}")
    rows = [
        (distance, *(decimals(share, 3) for share in (*row, sum(row[:TOP]), sum(row))))
        for distance, row in enumerate(acceptance, 1)
    ]
    common.show_table(heads, rows, f"Guesses that held: {target.name}, {plural(len(prompts), 'prompt')}")


def _show_sizes(points: list[SizePoint], best: int) -> None:
    numbers, bold = ("R", "tokens_per_step", "naive", "random", "ms", "tokens_per_ms"), f"{best} (best)"
    rows = []
    for point in points:
        data, size = point.to_json(), bold if point.size == best else point.size
        cells = [decimals(data[key], 3) for key in numbers]
        rows.append((size, data["candidates"], data["prompts"], *cells, f"{decimals(point.speedup, 2)}×"))
    heads = ("size", "candidates", "prompt tokens", "R", "τ", "naive τ", "random τ", "L ms", "τ ÷ L", "against 1 row")
    common.show_table(heads, rows, "Trees by size: τ tokens per step, L ms per decode step", bold=bold)


def _choice(trees: PromptTrees, latency: Latency, reason: str) -> str:
    gain = trees.tokens_per_step * latency.ms(1) / latency.ms(trees.size)
    expected = f"{trees.tokens_per_step:.2f} tokens per step and {gain:.2f}× plain decoding are expected"
    line = f"chosen: {trees.label} trees of {trees.size} rows, {reason}; {expected}"
    return line + ("" if gain > 1 else ": on this machine PPD does not pay for this model")


def _show_latency(latency: Latency) -> None:
    setup = latency.setup
    threads = f", {plural(setup.threads, 'thread')}" if setup.threads else ""
    common.say(
        f"{latency.model} · {setup.dtype} · {setup.device}{threads} · torch {setup.torch} · {latency.context} tokens "
        f"of context · {plural(latency.rounds, 'round')}"
    )
    latency_rows = zip(latency.rows, latency.median, latency.low, latency.high, strict=True)
    lines = [
        (n, f"{ms:.3f}", f"{low:.3f}–{high:.3f}", f"{ms / latency.ms(1):.2f}×") for n, ms, low, high in latency_rows
    ]
    common.show_table(("rows", "step ms", "quartiles", "against 1 row"), lines)
    common.say(latency.note)
