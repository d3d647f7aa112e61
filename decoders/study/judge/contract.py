"""The contract of every method: its output is what it says, it repeats, it stays inside its budget, its provenance is
recorded, and tracing changes nothing.

Each rule looks at one method with one target and one prompt, and tells in sentences what is broken; none is good news.
``tests/test_contract.py`` puts them to every registered method, ``specviz methods check`` to one that a user writes.

>>> for finding in check(method, target, prompts):        # doctest: +SKIP
...     print(finding.rule, finding.words)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from decoders.draft.params import controls, make_params
from decoders.drafters import select_method
from decoders.engine.decoding import Decoding, Step, generate, read_once
from decoders.engine.recording import record
from decoders.errors import UserError, first_line
from decoders.method.method import Method
from decoders.model.target_model.target import Target
from decoders.names import BASELINE, QUICK
from decoders.prompt.prompt import Prompt
from decoders.trace.files import load, save
from decoders.trace.metrics import first_difference
from decoders.verifiers.sampling import Sampling

NEW = 28  # tokens of the answers
WARM = Sampling(temperature=0.9, seed=4)
Named = str | Method


@dataclass(frozen=True, slots=True)
class ContractFinding:
    """A broken rule. ``words`` say what is wrong; ``error`` is the traceback, where something was raised; ``prompt`` is
    the prompt's number (from 0), where it takes one.
    """

    rule: str
    words: str
    prompt: int | None = None
    error: str = ""


def controls_faults(method: Named) -> Iterator[str]:
    """Controls: each parameter has a label, a sentence of help, and a default that passes its own check."""
    entry, _ = select_method(method)
    visible_controls = controls(entry.params)
    if make_params(entry.params, {control.name: control.default for control in visible_controls}) != entry.params():
        yield "the parameters' defaults do not pass their own checks"
    for control in visible_controls:
        if not control.label:
            yield f"parameter {control.name} has no label"
        if not control.help.endswith("."):
            yield f"parameter {control.name} has no help that is a sentence (it ends with a full stop)"
        if not control.range_in_words():
            yield f"parameter {control.name} does not say what is allowed"
    if not entry.title:
        yield "the method has no title"
    if not entry.summary.endswith("."):
        yield "the method's summary is not a sentence (it ends with a full stop)"


def output_faults(target: Target, prompt: Prompt, method: Named, plain: Sequence[int]) -> Iterator[str]:
    """Output: ``plain`` decoding's where the method says that it is lossless; twice the same, drawn tokens too."""
    entry, _ = select_method(method)
    first, second = (generate(target, prompt, method, max_new_tokens=NEW) for _ in range(2))
    if first != second:
        at = first_difference(first, second) + 1
        yield f"two runs of one prompt differ from output token {at} on: a run leaves nothing behind"
    if entry.lossless and first != list(plain):
        yield (
            f"it says that it is lossless, and its output differs from plain decoding's from token "
            f"{first_difference(first, plain) + 1} on"
        )
    samples = [generate(target, prompt, method, sampling=WARM, max_new_tokens=NEW) for _ in range(2)]
    if samples[0] != samples[1]:
        at = first_difference(*samples) + 1
        yield f"two runs with the same seed differ from output token {at} on: draw by sample_with's seed"


def provenance_faults(target: Target, prompt: Prompt, method: Named) -> Iterator[str]:
    """Provenance: one declared origin and one source per node; a copied token is the token at its source; a step
    without a draft says why; no tree is deeper than the budget.
    """
    entry, params = select_method(method)
    origin_names = {origin.name for origin in entry.for_params(params).origins}
    run = Decoding.of(target, prompt, method, max_new_tokens=NEW)
    for step in run:
        yield from (f"step {step.index + 1}: {fault}" for fault in _draft_faults(run, step, origin_names))


def _draft_faults(run: Decoding, step: Step, origin_names: set[str]) -> Iterator[str]:
    draft, tree, tokens = step.draft, step.draft.tree, run.context.tokens
    if not len(draft.origins) == len(draft.sources) == len(tree):
        yield f"{len(tree)} nodes have {len(draft.origins)} origins and {len(draft.sources)} sources"
        return
    if draft.origins[0] != "root":
        yield f"the first node's origin is {draft.origins[0]!r}, and it is the root"
    if unknown := set(draft.origins[1:]) - origin_names:
        yield f"the origin {min(unknown)!r} is not declared: the method's origins are {', '.join(sorted(origin_names))}"
    if max(tree.depths) > NEW:
        yield f"the draft is {max(tree.depths)} tokens deep, and {NEW} may be written"
    if tree.tokens[0] != tokens[step.context_length - 1]:
        yield f"the draft begins with token {tree.tokens[0]}, not with the context's last one"
    if draft.reason and tree.drafted:
        yield f"there is a draft, and yet a reason for there being none: {draft.reason!r}"
    if not draft.reason and not tree.drafted:
        yield "there is no draft, and no reason why: Draft.empty(context.root, “why”)"
    for node, source in enumerate(draft.sources):
        if source >= step.context_length:
            yield f"node {node} is copied from position {source}, and the context has {step.context_length} tokens"
        elif source >= 0 and tokens[source] != tree.tokens[node]:
            yield f"node {node} is token {tree.tokens[node]}, and at its source {source} stands {tokens[source]}"


def tracing_faults(target: Target, prompt: Prompt, method: Named) -> Iterator[str]:
    """Tracing: the traced run has the same steps, every node and candidate is in the trace, and its file reads back
    alike.
    """
    untraced_run = Decoding.of(target, prompt, method, max_new_tokens=NEW)
    steps = list(untraced_run)
    trace = record(target, prompt, method, max_new_tokens=NEW)
    if trace.output_ids != [token for step in steps for token in step.emitted]:
        yield "the recorded run wrote another text than the run that was not recorded"
    if trace.tables["steps"]["accepted"] != [step.accepted for step in steps]:
        yield "the recorded run accepted other drafts than the run that was not recorded"
    if trace.rows("nodes") != sum(len(step.draft.tree) for step in steps):
        yield "not every drafted node is in the trace"
    if trace.rows("candidates") != sum(len(s.draft.candidates) for s in steps if s.draft.candidates is not None):
        yield "not every candidate is in the trace"
    if not trace.run["complete"] or trace.run["stop"] != untraced_run.stop:
        yield f"the recorded run stopped otherwise: {trace.run['stop']!r}, not {untraced_run.stop!r}"
    if load(save(trace, None) or b"").to_json() != trace.to_json():
        yield "the trace's file does not read back alike"


def alternating_faults(target: Target, prompt: Prompt, methods: Sequence[Named]) -> Iterator[str]:
    """Apart: behind one reading of the prompt, and among others' runs in any order, a method's steps are its own."""

    def runs() -> dict[str, Decoding]:
        entries = [select_method(method)[0] for method in methods]
        return {entry.name: Decoding.of(target, prompt, entry, max_new_tokens=NEW) for entry in entries}

    def steps(run: Decoding, read: object) -> list[tuple[object, ...]]:
        run.prefill(read)  # type: ignore[arg-type]
        return [(step.draft.tree, step.draft.origins, step.verdict.status, step.emitted) for step in run]

    solo_steps = {name: steps(run, None) for name, run in runs().items()}
    for order in (list, lambda names: list(reversed(names))):
        joint_runs = runs()
        read = read_once(list(joint_runs.values()))
        for name in order(list(joint_runs)):
            if steps(joint_runs[name], read) != solo_steps[name]:
                yield f"{name} takes other steps after another run: nothing may be left behind a run"


def drafted_tokens(target: Target, prompt: Prompt, method: Named) -> int:
    """Tokens that a run drafts in all."""
    return sum(step.draft.tree.drafted for step in Decoding.of(target, prompt, method, max_new_tokens=NEW))


RULES: dict[str, Callable[[Target, Prompt, Method, Sequence[int]], Iterator[str]]] = {
    "output": output_faults,
    "provenance": lambda target, prompt, method, plain: provenance_faults(target, prompt, method),
    "tracing": lambda target, prompt, method, plain: tracing_faults(target, prompt, method),
    "alone": lambda target, prompt, method, plain: alternating_faults(target, prompt, [BASELINE, method, QUICK]),
}
"""The rules that are put to a run, by name."""
MEANINGS = {
    "controls": "parameters and texts", "available": "what it needs", "output": "output: lossless, repeatable",
    "provenance": "drafts: budget, origins, sources", "tracing": "recorded as it ran", "alone": "nothing left behind",
}  # fmt: skip
"""Every rule in words, in the order in which they are put."""


def rules_of(findings: Sequence[ContractFinding]) -> list[str]:
    """The rules that were put: after a missing part none is put to a run."""
    broken_rules = {finding.rule for finding in findings}
    return (
        ["controls", "available"] if "available" in broken_rules else [rule for rule in MEANINGS if rule != "available"]
    )


def check(method: Method, target: Target, prompts: Sequence[Prompt]) -> list[ContractFinding]:
    """Breaches of the contract on these prompts; each rule stops at the prompt where it is broken first. What a method
    raises is a finding.
    """
    findings: list[ContractFinding] = []

    def put(rule: str, faults: Callable[[], Iterator[str]], prompt: int | None = None) -> bool:
        old_count = len(findings)
        try:
            findings.extend(ContractFinding(rule, words, prompt) for words in list(faults())[:3])
        except Exception as problem:
            cause = problem.__cause__ or problem
            kind = "" if isinstance(problem, UserError) else f"{type(problem).__name__}: "
            lines = "" if isinstance(cause, UserError) else "".join(traceback.format_exception(cause))
            findings.append(ContractFinding(rule, f"{kind}{first_line(problem)}", prompt, lines))
        return len(findings) == old_count

    put("controls", lambda: controls_faults(method))
    if missing := method.missing(target):
        return [*findings, ContractFinding("available", missing)]
    fit = [(number, prompt) for number, prompt in enumerate(prompts) if not method.applies(prompt)]
    plain = {number: generate(target, prompt, max_new_tokens=NEW) for number, prompt in fit}
    for rule, faults in RULES.items():
        for number, prompt in fit:
            if not put(rule, partial(faults, target, prompt, method, plain[number]), number):
                break
    return findings
