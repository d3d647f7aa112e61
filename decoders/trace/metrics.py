"""Every number that specviz reports of a run, defined once (stdlib + numpy only).

``compute(trace)`` gives the values, ``METRICS`` (``metrics.toml``) their labels, formulas and units, in the order they
are shown.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from .decisions import decisions, draws, first_choices, knows_verdicts
from .lattice import lattice_sums
from .oracle import best_acceptance, oracle
from .run import RunMetric
from .trace import Trace

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity. ``unit``: tokens, steps, tokens/step, tokens/s, ms, MB, share (0 to 1), × or "" (a plain ratio).

    ``worked`` is the formula with a run's numbers: each name in braces is a part, as ``measure`` gives them.
    """

    key: str
    label: str
    formula: str
    unit: str
    help: str
    worked: str = ""


def declarations(kind: Callable[..., Kind], module: str) -> tuple[Kind, ...]:
    """Read the ``.toml`` beside a module's file, one of ``kind`` per table, its key first."""
    contents = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(kind(key, **about) for key, about in contents.items())


METRICS: tuple[Metric, ...] = declarations(Metric, __file__)


def metric_help() -> list[RunMetric]:
    """``METRICS`` as it is stored in a trace's run record."""
    fields = ("key", "label", "formula", "unit", "help")
    return [RunMetric(**{name: getattr(metric, name) for name in fields}) for metric in METRICS]


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric of one run: its value, and the numbers it is made of by the names that ``Metric.worked`` gives them."""

    value: float | None
    parts: dict[str, float | None]


def compute(trace: Trace, plain_tokens_per_s: float | None = None) -> dict[str, float | None]:
    """Every metric by key; None where it is not defined (nothing drafted, nothing timed, the run not over).

    ``plain_tokens_per_s`` is what plain decoding reached on the same engine, for the speedup.

    >>> from decoders.trace.trace import Trace
    >>> trace = Trace.new({"prompt_length": 1})
    >>> trace.extend({"steps": {"accepted": [2, 0, 1], "drafted": [4, 0, 2]}})
    >>> values = compute(trace)
    >>> values["tokens_per_step"], values["draft_efficiency"], values["no_draft_steps"]
    (2.0, 0.5, 1)
    """
    values = {key: metric.value for key, metric in measure(trace, plain_tokens_per_s).items()}
    return {**values, **_quality(trace)}


def doubts(values: Mapping[str, float | None]) -> dict[str, str]:
    """The reason why values of ``compute`` cannot be right, by key: views mark those, and call none of them the best.

    >>> list(doubts({"speedup": 2.4, "tokens_per_step": 2.0})), doubts({"speedup": 1.9, "tokens_per_step": 2.0})
    (['speedup'], {})
    """
    speedup, tokens_per_step = values.get("speedup"), values.get("tokens_per_step")
    if speedup is None or tokens_per_step is None or speedup <= tokens_per_step:
        return {}
    reason = (
        f"above the {tokens_per_step:.2f} tokens per step, which cannot be: one of the runs was disturbed, run both "
        "again"
    )
    return {"speedup": reason}


def notes(trace: Trace) -> dict[str, str]:
    """Notes on a run's numbers, by key: whose one-row time the cost c divides by, and
    which run of plain decoding the speedup is against, where it is another.

    >>> row = {"run": "b", "measured": "2026-11-25T15:00:00Z", "engine": "eager", "context": [65, 128]}
    >>> notes(Trace.new({"id": "a", "prompt_length": 1, "one_row": row}))["draft_cost"]
    'one-row time of an earlier run (2026-11-25 15:00 UTC, engine eager, contexts of 65 to 128 tokens)'
    """
    plain = trace.run.get("plain_run")
    against = {"speedup": f"against the run {plain}, plain decoding of the same prompt"} if plain else {}
    row = trace.run.get("one_row")
    if not isinstance(row, dict):
        return against
    context = row.get("context")
    low, high = context if isinstance(context, list | tuple) and len(context) == 2 else ("?", "?")
    owner = "this run" if row.get("run") == trace.run.get("id") else "an earlier run"
    timestamp = str(row.get("measured"))[:16].replace("T", " ")
    origin = f"{timestamp} UTC, engine {row.get('engine')}, contexts of {low} to {high} tokens"
    return {**against, "draft_cost": f"one-row time of {owner} ({origin})"}


# what a metric is made of, where an imported run may not know it (``run["unknown"]``)
MADE_OF: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens",), "tokens_per_s": ("tokens",), "speedup": ("tokens",), "steps": ("steps",),
    "drafted": ("steps.drafted",), "accepted": ("steps.accepted",),
    "tokens_per_step": ("tokens", "steps", "steps.accepted"), "draft_efficiency": ("steps.drafted", "steps.accepted"),
    "depth_efficiency": ("steps.drafted", "steps.accepted"),
    "no_draft_steps": ("steps.drafted",), "copied_share": ("tokens.source",), "differs": ("tokens.rank",),
    "other_share": ("nodes.rank", "steps.accepted"), "divergence": ("nodes.rank", "steps.accepted"),
    "draft_ms": ("steps",), "verify_ms": ("steps",), "decide_ms": ("steps",),
}  # fmt: skip


def first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    """Find the place where two outputs part: the first index at which they differ, or the end of the shorter one.

    >>> first_difference([1, 2, 3], [1, 2]), first_difference([1, 2], [3])
    (2, 0)
    """
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def measure(trace: Trace, plain_tokens_per_s: float | None = None) -> dict[str, MetricValue]:
    """Every metric that is made of the tables, with its parts; the scores against a reference are not."""
    run, steps, tokens = trace.run, trace.tables["steps"], len(trace.output_ids)
    count, timings, memory = len(steps["accepted"]), run.get("timings", {}), run.get("memory", {})
    drafted, accepted = sum(steps["drafted"]), sum(steps["accepted"])
    without, copies, all_tokens = steps["drafted"].count(0), _copies(trace), trace.rows("tokens")
    draft_ms, verify_ms = _total(steps["draft_ms"]), _total(steps["verify_ms"])
    decode_ms = timings.get("decode_ms") or (steps["elapsed_ms"][-1] if steps["elapsed_ms"] else None)
    timed_tokens = tokens - int(timings.get("untimed_tokens") or 0)  # a server's clock may start with its first token
    speed, overlap_values, rankings = ratio(1000 * timed_tokens, decode_ms), overlaps(trace), regrets(trace)
    (forward_ms, forwards), one_row_ms = _draft_forwards(trace), timings.get("one_row_ms")
    perfect, lattices = oracle(trace), lattice_sums(trace)
    differs = sum(rank > 0 for rank in trace.tables["tokens"]["rank"])
    distance, positions = distances(trace)
    kv_mb, draft_mb = (ratio(memory.get(name), 1e6) for name in ("kv_bytes", "draft_bytes"))

    def quotient(**parts: float | None) -> MetricValue:
        """The first part ÷ the second."""
        return MetricValue(ratio(*parts.values()), parts)

    metric_values = {
        "tokens": MetricValue(tokens, {"all": all_tokens, "prompt": run.get("prompt_length")}),
        "steps": MetricValue(count, {"steps": count}),
        "drafted": MetricValue(drafted, {"drafted": drafted, "steps": count}),
        "accepted": MetricValue(accepted, {"accepted": accepted, "steps": count}),
        "tokens_per_step": MetricValue(ratio(accepted + count, count), {"accepted": accepted, "steps": count}),
        "tokens_per_s": MetricValue(speed, {"tokens": timed_tokens, "seconds": ratio(decode_ms, 1000)}),
        "speedup": quotient(tokens_per_s=speed, plain_tokens_per_s=plain_tokens_per_s),
        "prefill_ms": MetricValue(timings.get("prefill_ms"), {}),
        "prepare_ms": MetricValue(timings.get("prepare_ms"), {}),
        "kv_mb": MetricValue(kv_mb, {"bytes_per_token": memory.get("kv_bytes_per_token"), "tokens": all_tokens}),
        "draft_mb": MetricValue(draft_mb, {}),
        "draft_ms": quotient(draft_ms=draft_ms, steps=count),
        "verify_ms": quotient(verify_ms=verify_ms, steps=count),
        "decide_ms": quotient(decide_ms=_total(steps["decide_ms"]), steps=count),
        "draft_share": quotient(draft_ms=draft_ms, verify_ms=verify_ms),
        "beta": quotient(overlap=sum(overlap_values), tokens=len(overlap_values)),
        "draft_cost": MetricValue(
            draft_cost(trace), {"forward_ms": forward_ms, "forwards": forwards, "one_row_ms": one_row_ms}
        ),
        "draft_efficiency": quotient(accepted=accepted, drafted=drafted),
        "depth_efficiency": quotient(accepted=accepted, depth=sum(steps["depth"])),
        "copied_share": quotient(copied=copies, tokens=tokens),
        "no_draft_steps": MetricValue(without, {"without": without, "steps": count}),
        "ranking_regret": quotient(regret=sum(regret.tokens for regret in rankings), ranked=len(rankings)),
        "ranking_cost": MetricValue(
            perfect.cost if perfect else None, {"steps": count, "oracle": perfect.steps if perfect else None}
        ),
        "candidate_recall": quotient(covered=lattices["covered"], positions=lattices["positions"]),
        "selector_accuracy": quotient(right=lattices["right"], chosen=lattices["chosen"]),
        "oracle_length": quotient(oracle=lattices["oracle"], steps=lattices["steps"]),
        "differs": MetricValue(differs, {"differs": differs, "tokens": tokens}),
        "other_share": quotient(distance=distance, tokens=tokens),
        "divergence": quotient(distance=distance, positions=positions),
    }
    unknown = set(run.get("unknown", ()))
    for key, columns in MADE_OF.items() if unknown else ():
        if unknown.intersection(columns):
            metric_values[key] = MetricValue(None, {})
    return metric_values


def _copies(trace: Trace) -> int:
    """Output tokens that were copied, from an earlier position or a pool."""
    places = (trace.tables["tokens"][name][trace.run["prompt_length"] :] for name in ("source", "pool"))
    return sum(source >= 0 or pool >= 0 for source, pool in zip(*places, strict=True))


def _quality(trace: Trace) -> dict[str, float | None]:
    scores: dict[str, float | None] = {"quality_f1": None, "quality_rouge_l": None, "quality_edit": None}
    if reference := trace.run.get("reference"):
        from .quality import quality

        quality_values = quality(trace.text(trace.output_ids), reference)
        scores |= {f"quality_{key}": value for key, value in quality_values.items()}
    return scores


def overlaps(trace: Trace) -> list[float]:
    """The shares of which β is the mean (GLIDE §2): the overlap at every position of a step that was decided, up
    to and including the first at which all was rejected; a position counts once, however many tokens were drafted
    there. Empty where no draft model's distributions were there to compare.
    """
    nodes = trace.tables["nodes"]
    rows = zip(nodes.get("term:overlap", ()), nodes["status"], nodes["step"], nodes["parent"], strict=False)
    verdicts = ("accepted", "rejected")
    return [*{(step, parent): o for o, status, step, parent in rows if o is not None and status in verdicts}.values()]


def distances(trace: Trace) -> tuple[float | None, int]:
    """Σ TV(p′, p) over a lossy run's decided positions, and how many these are. p′ is the next token's distribution
    under the run's verifier, p the target's own; of a greedy run both are one token, so that TV is 0 or 1. None for a
    lossless run, of processed logits, and where the verifier does not say p′ (drafts that are trees, decisions that
    look ahead).
    """
    if trace.run.get("forced") or trace.run.get("method", {}).get("lossless", True):
        return None, 0
    nodes, choices = trace.tables["nodes"], decisions(trace)
    if "processing" in trace.run:
        return None, 0  # the recorded p is the one before the processors
    if not trace.run.get("sampling", {}).get("temperature"):
        ranks = np.asarray(nodes["rank"], dtype=np.int64)
        return float((ranks[choices.node] > 0)[choices.is_accepted].sum()), len(choices.node)
    tv_terms = nodes.get("term:tv")
    node_distances = [tv_terms[node] for node in choices.node.tolist()] if tv_terms else [None]
    known_values = [value for value in node_distances if value is not None]
    return (sum(known_values) if len(known_values) == len(node_distances) else None), len(choices.node)


def _draft_forwards(trace: Trace) -> tuple[float | None, float | None]:
    """Milliseconds and number of the draft model's forwards, over the steps with a draft where both are known; None
    where none ran. The prompt was read before the first step.

    Steps record how many ran (``draft_forwards``). Where they do not, a drafted depth took one: a token of a chain, a
    level of a tree that is settled before the step, a head. How many a dynamic tree took cannot be told from what was
    left of it: such a step of an old run is left out.
    """
    steps = trace.tables["steps"]
    forward_ms, counts = steps.get("term:forward_ms", ()), steps.get("term:draft_forwards", ())
    samples = list[tuple[float, float]]()
    for i, (ms, depth) in enumerate(zip(forward_ms, steps["depth"], strict=False)):
        count = counts[i] if i < len(counts) else None
        if count is None and steps["route"][i : i + 1] != ["dynamic tree"]:
            count = depth
        if depth and ms is not None and count:
            samples.append((ms, count))
    return (sum(ms for ms, _ in samples), sum(count for _, count in samples)) if samples else (None, None)


def draft_cost(trace: Trace) -> float | None:
    """c: a draft forward's mean time ÷ a one-row forward's of the target (Leviathan, §3.2)."""
    return ratio(ratio(*_draft_forwards(trace)), trace.run.get("timings", {}).get("one_row_ms"))


def one_forward_per_token(trace: Trace) -> bool:
    """True where all drafts were chains of which every token took a draft forward, as formulas over γ and c have it."""
    steps, (_, forwards) = trace.tables["steps"], _draft_forwards(trace)
    chains = all(drafted == depth for drafted, depth in zip(steps["drafted"], steps["depth"], strict=True))
    return chains and forwards == sum(steps["depth"])


def outcomes(trace: Trace) -> dict[str, int]:
    """Steps by what was accepted (AdaPLD, fig. 4): each origin or chain of origins, mismatch (a draft, nothing
    accepted) and none (no draft). Empty where that is not recorded.
    """
    if not knows_verdicts(trace):
        return {}
    rows = zip(*(trace.tables["steps"][name] for name in ("origins", "drafted")), strict=True)
    return dict(Counter(origins or ("mismatch" if drafted else "none") for origins, drafted in rows).most_common())


def routes(trace: Trace) -> dict[str, int]:
    """Steps by the way the method took."""
    return dict(Counter(trace.tables["steps"]["route"]).most_common())


def drafting_times(trace: Trace) -> dict[str, float | None]:
    """Of each part of drafting that the method times (step terms that end in ``_ms``): its sum over the steps."""
    names = [term["key"] for term in trace.run.get("step_terms", ()) if term["key"].endswith("_ms")]
    return {name: _total(trace.tables["steps"][f"term:{name}"]) for name in names}


def step_term_shares(trace: Trace) -> dict[str, float | None]:
    """Each part of ``drafting_times`` ÷ Σ verify_ms."""
    verify_ms = _total(trace.tables["steps"]["verify_ms"])
    return {name: ratio(term_ms, verify_ms) for name, term_ms in drafting_times(trace).items()}


def time_parts(trace: Trace) -> dict[str, float]:
    """The parts of a run's time, in ms: reading the prompt, preparing to draft, and Σ draft_ms, verify_ms and commit_ms
    of its steps.
    """
    steps = trace.tables["steps"]
    parts = {name: _total(steps[f"{name}_ms"]) or 0.0 for name in ("draft", "verify", "commit")}
    timings = trace.run.get("timings", {})
    return {**{name: timings.get(f"{name}_ms") or 0.0 for name in ("prefill", "prepare")}, **parts}


def accepted_lengths(trace: Trace) -> list[int]:
    """Accepted draft tokens (bonus excluded) of the steps that had a draft; empty where that is not recorded."""
    if not knows_verdicts(trace):
        return []
    steps = trace.tables["steps"]
    return [a for a, drafted in zip(steps["accepted"], steps["drafted"], strict=True) if drafted]


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """One ÷ the other; None where one is missing, or nothing to divide by."""
    return numerator / denominator if numerator is not None and denominator else None


def _total(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


@dataclass(frozen=True, slots=True)
class Regret:
    """A step's ranking judged by what followed: accepted tokens of the chosen candidate, and of the best one. ``step``
    counts from 0.
    """

    step: int
    chosen: int
    best: int

    @property
    def tokens(self) -> int:
        """The step's ranking regret."""
        return self.best - self.chosen


def regrets(trace: Trace) -> list[Regret]:
    """Of every step whose chosen candidate offered tokens to copy and whose outcome is known, in order; empty before
    the run is over.
    """
    candidates = trace.tables["candidates"]
    step, would, chosen_mask, length = (np.array(candidates[n]) for n in ("step", "would_accept", "chosen", "length"))
    if not len(step) or not chosen_mask.any():
        return []
    best = best_acceptance(trace)
    ranked_rows = np.flatnonzero(chosen_mask & (would >= 0) & (length > 0))
    return [Regret(int(step[row]), int(would[row]), int(best[step[row]])) for row in ranked_rows]


def ranking_regret(trace: Trace) -> float | None:
    """Mean tokens, over steps with a chosen candidate, that the best would have added; None before the run is over."""
    return measure(trace)["ranking_regret"].value


def acceptance_by_depth(trace: Trace) -> list[tuple[int, int, int]]:
    """(depth, reached, accepted) from depth 1 on: acceptance per depth is accepted ÷ reached.

    A depth is reached by a step where a position was decided there (``decisions``), accepted where it stood.
    """
    choices = decisions(trace)
    reach_counts, accepted = np.bincount(choices.depth), np.bincount(choices.depth[choices.is_accepted])
    return [(d, int(n), int(accepted[d]) if d < len(accepted) else 0) for d, n in enumerate(reach_counts) if d]


def fill_would_accept(trace: Trace) -> None:
    """Fill ``candidates.would_accept``, in place, once the output is known.

    For every candidate: how many leading tokens of its offer (the tokens at ``position + 1`` to ``position + length``)
    equal the output that followed its step's context; -1 where nothing followed. A run that was cut short can only show
    as much as it emitted.
    """

    def column(table: str, name: str) -> np.ndarray:
        return np.array(trace.tables[table][name], dtype=np.int64)

    candidates, pool = trace.tables["candidates"], trace.tables["pool"]
    ids, context = column("tokens", "id"), column("steps", "context")
    place, length = column("candidates", "pool"), column("candidates", "length")
    pooled = np.full(max(pool["position"], default=-1) + 1, -1, dtype=np.int64)
    pooled[pool["position"]] = pool["id"]
    text = np.concatenate([ids, [-1], pooled])  # the pool behind the tokens, so that an offer is a place in one array
    offer = np.where(place >= 0, len(ids) + 1 + place, column("candidates", "position")) + 1
    follows = context[column("candidates", "step")] if len(offer) else offer
    would = np.where(follows < len(ids), 0, -1)
    alive = np.flatnonzero(would == 0)
    reach = 0
    while len(alive):
        inside_mask = (follows[alive] + reach < len(ids)) & (offer[alive] + reach < len(text))
        alive = alive[(length[alive] > reach) & inside_mask]
        alive = alive[text[offer[alive] + reach] == ids[follows[alive] + reach]]
        would[alive] += 1
        reach += 1
    candidates["would_accept"] = would.tolist()


def confidence_bins(trace: Trace) -> list[tuple[int, int, int]]:
    """(tenth, reached, accepted) of a drafter's first choices by its confidence at their position (GLIDE fig. 1b).

    Reached: the token's parent was accepted or is the root. A confidence of 1 belongs to the last tenth. Drawn drafts
    count with what was drawn, first choice or not. Empty where no drafter told its confidence.
    """
    nodes = trace.tables["nodes"]
    choice_mask = first_choices(trace) | draws(trace)
    reach_counts: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    rows = zip(nodes.get("term:confidence", ()), nodes["status"], choice_mask.tolist(), strict=False)
    for confidence, status, counts in rows:
        if confidence is not None and counts and status in ("accepted", "rejected"):
            tenth = min(9, int(10 * confidence))
            reach_counts[tenth] += 1
            accepted[tenth] += status == "accepted"
    return [(tenth, reach_counts[tenth], accepted[tenth]) for tenth in sorted(reach_counts)]


def target_ranks(trace: Trace) -> dict[tuple[int, int], int]:
    """Count, by depth of the draft, the ranks that the target's tokens had in the drafter's distribution.

    {(depth from 1, rank from 0): count} over the positions reached (the accepted path and the token after it) where the
    drafter told its distribution; empty where no draft model did.
    """
    nodes, guesses = trace.tables["nodes"], trace.tables["guesses"]
    wrote: dict[tuple[int, int], tuple[int, int]] = {}  # (step, node) → depth and token of what followed it
    number = -1
    for i, (step, parent, status) in enumerate(zip(nodes["step"], nodes["parent"], nodes["status"], strict=True)):
        number = 0 if status == "root" else number + 1
        if status in ("root", "accepted"):
            wrote[step, number] = (nodes["depth"][i] + 1, trace.tables["steps"]["bonus"][step])
            if parent >= 0:
                wrote[step, parent] = (nodes["depth"][i], nodes["token"][i])
    counts: Counter[tuple[int, int]] = Counter()
    for step, node, token, rank in zip(*(guesses[name] for name in ("step", "node", "token", "rank")), strict=True):
        depth, output_token = wrote.get((step, node), (0, -1))
        if token == output_token:
            counts[depth, rank] += 1
    return dict(counts)
