"""What if: one step of a recorded run, drafted again from exactly there with another method, other parameters or a
hand-picked candidate, without running again what came before.

The model reads the run's tokens once (``ReadRun``), keeping what any method reads of every position; a step is then
drafted, scored and verified by the engine's own ``Decoding.attempt`` on the run cut at the step (``Session.at``).
Hidden states, top tokens, queries, keys and values come from one forward over the whole text instead of one per step:
equal up to rounding, so in half precision a near tie may fall the other way.

What a drafter knows besides the text is brought back by its ``resume``: PPD scores the step before once more, with the
prompt tokens that were recorded there; SpS's heuristic takes γ from the recorded outcomes. Draft models, AdaPLD's
index and CASD's pool are built from the text. Where SpS writes by PPD the drafts are the same too, but its draft
forwards are counted as in a first step: what its prompt tokens guessed before is not recorded. For a
method that is not the run's own (or has other parameters) the steps before are not its own: it starts as after a step
without a draft.

>>> found = whatif(target, trace, 12, "adapld", {"k": 4})        # doctest: +SKIP
>>> found.recorded, found.accepted                              # doctest: +SKIP
(3, 7)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Draft, Past, Scored, Verdict, emitted_tokens
from decoders.draft.needs import Needs, covers
from decoders.draft.params import controls, make_params
from decoders.draft.tree import DraftTree
from decoders.drafters import find_method
from decoders.engine.decoding import Decoding, Step
from decoders.engine.recording import Run, recorded_params
from decoders.engine.rows import JOINT
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.model.memory import Context
from decoders.model.target import Session, Target
from decoders.prompt.prompt import Pool, Prompt, Segment
from decoders.trace.trace import Trace
from decoders.verifiers.forced import ForcedVerifier
from decoders.verifiers.match import judged
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser

from .divergences import sampling_of

TOP_TOKENS = 64  # likeliest next tokens kept per position: as many as any method asks for
MOST_KEPT = 1 << 30  # bytes of hidden states and queries kept of a run; of a larger one, what was asked for
SHAPE = ("family", "layers", "heads", "hidden", "vocab")
APART, SHARE = 0.5, 0.1  # a run without a fingerprint is another model's if so many log-probabilities are so far apart


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A step as it would have been. ``trace`` holds this step alone (what was written before counts as its prompt, so
    positions are the run's own); ``recorded`` and ``accepted`` are accepted draft tokens of the run's step and of this
    one. ``same`` says that both trees and verdicts are equal. ``read_ms`` is the time the model took to read the run,
    0 where it had read it before; ``ms`` all the rest. ``notes`` say in which way this is not what a run would do.
    """

    trace: Trace
    step: int
    recorded: int
    accepted: int
    emitted: tuple[int, ...]
    same: bool
    read_ms: float
    ms: float
    notes: tuple[str, ...]


class PickedDrafter:
    """Copies after one candidate of a recorded ranking, whatever its score."""

    def __init__(self, trace: Trace, row: int, pool: Pool | None) -> None:
        table = trace.tables["candidates"]
        self.position, self.place, self.length = (table[name][row] for name in ("position", "pool", "length"))
        self.pool = pool

    def propose(self, context: Context, budget: int) -> Draft:
        count = min(self.length, budget)
        if count < 1:
            return Draft.empty(context.root, "this place offers no tokens to copy", route="picked")
        if self.place < 0:
            start = self.position + 1
            return Draft.copied(context.root, context.tokens[start : start + count].tolist(), start, route="picked")
        assert self.pool is not None
        places = range(self.place + 1, self.place + 1 + count)
        found = self.pool.positions
        return Draft(
            DraftTree.chain(context.root, self.pool.tokens[list(places)].tolist()),
            ("root",) + ("datastore",) * count,
            (-1, *((-1,) * count if found is None else found[list(places)].tolist())),
            route="picked",
            pool=(-1, *places),
        )

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None: ...


class ReadRun:
    """A run's tokens, read once by the model that it was made with; any of its steps can be drafted again.

    Raises UserError for a run of another model, without a step, or too long for the model.
    """

    def __init__(self, target: Target, trace: Trace, wanted: Needs | None = None) -> None:
        if other := other_model(target, trace.run):
            raise UserError(other)
        ids = trace.tables["tokens"]["id"]
        if not trace.rows("steps"):
            raise UserError("this run has no step")
        if len(ids) > target.context_length:
            most = target.context_length
            raise UserError(f"this run has {len(ids):,} tokens and {target.name} reads at most {most:,}")
        if min(ids) < 0 or max(ids) >= target.info["vocab"]:
            raise UserError(f"this run has token ids beyond {target.name}'s vocabulary of {target.info['vocab']:,}")
        self.target, self.trace = target, trace
        self.kept = everything(target, len(ids)) or wanted or Needs(top_tokens=TOP_TOKENS)
        self.prompt = recorded_prompt(trace)
        started = time.perf_counter()
        self.session: Session = target.session(self.kept, len(ids))
        self.session.prefill(Prompt(tuple(ids), self.prompt.segments))
        self.session.prompt_length = trace.run["prompt_length"]
        self.session.pool = self.prompt.pool or self.prompt.context_pool()
        self.ms = (time.perf_counter() - started) * 1e3
        if "key" not in trace.run["model"]:
            self._check_probabilities()

    @property
    def bytes(self) -> int:
        """What it holds on the device."""
        memory, store = self.session.memory, self.session.cache.store
        held = [memory.hidden, memory.top_ids, memory.top_logprobs, store]
        held += [*memory.states.values(), *memory.queries.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in held if tensor is not None)

    def serves(self, needs: Needs) -> bool:
        """Whether it kept what ``needs`` names."""
        return covers(self.kept, needs)

    @cached_property
    def first(self) -> dict[str, np.ndarray]:
        """Of every table with rows per step, the first row of each step, and the end."""
        steps = np.arange(self.trace.rows("steps") + 1)
        tables = {name: self.trace.tables[name]["step"] for name in ("nodes", "candidates", "probes")}
        return {name: np.searchsorted(np.asarray(column, dtype=np.int64), steps) for name, column in tables.items()}

    def rows(self, table: str, step: int) -> range:
        """Rows of a step in a table."""
        first = self.first[table]
        return range(int(first[step]), int(first[step + 1]))

    def past(self, step: int, *, own: bool) -> Past:
        """A step as a drafter may know it later; of a method that is not its own, as a step without a draft that wrote
        the last token alone.
        """
        nodes, steps = self.trace.tables["nodes"], self.trace.tables["steps"]
        ids = self.trace.tables["tokens"]["id"]
        if not own:
            end = steps["context"][step] + steps["emitted"][step]
            return Past(end - 1, DraftTree.chain(ids[end - 2]), (0,), ids[end - 1])
        rows = self.rows("nodes", step)
        tree = DraftTree(tuple(nodes["token"][r] for r in rows), tuple(nodes["parent"][r] for r in rows))
        path = tuple(i for i, r in enumerate(rows) if nodes["status"][r] in ("root", "accepted"))
        bonus = steps["bonus"][step]
        probes = self.trace.tables["probes"]
        hung = tuple(probes["parent"][r] for r in self.rows("probes", step) if probes["kind"][r] != JOINT)
        return Past(steps["context"][step], tree, path, None if bonus < 0 else bonus, hung)

    def redraft(
        self,
        step: int,
        method: str | Method | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        candidate: int | None = None,
    ) -> WhatIf:
        """Draft a step again. Without a method: the run's own; without parameters: those recorded for the run's own
        method, the defaults of another. ``candidate`` counts the step's recorded candidates: the draft is copied after
        that one, and the run's own method and parameters verify it.

        Raises UserError for a step, method, parameter or candidate that is not there, for a method whose parts are
        missing, and for one that would have changed the prompt.
        """
        started = time.perf_counter()
        run = self.trace.run
        if candidate is not None:
            method, params = None, None
        if not 0 <= step < self.trace.rows("steps"):
            raise UserError(f"there is no step {step + 1}: this run has steps 1 to {self.trace.rows('steps')}")
        chosen = find_method(str(run["method"]["name"])) if method is None else method
        chosen = find_method(chosen) if isinstance(chosen, str) else chosen
        mine = chosen.name == run["method"]["name"]
        given = dict(own_params(self.trace, chosen) if mine and params is None else params or {})
        values = make_params(chosen.params, given)
        now, then = recorded_params(values), recorded_params(chosen.params()) | run["method"]["params"]
        own = mine and now == then
        decoding, notes = self._decoding(step, chosen, values, own, candidate)
        if mine and (named := [name for name in now if now[name] is None and isinstance(then.get(name), str)]):
            which = ", ".join(f"{name} = {then[name]}" for name in named)
            notes.append(f"This run had {which}, which names files: give it anew to draft with it.")
        if not self.serves(decoding.needs):
            raise UserError(
                f"this run is too long to keep all that methods read of it: read it again for {chosen.name}"
            )
        length = self.trace.tables["steps"]["context"][step]
        with self.session.at(length, decoding.needs) as part:
            decoding.session = part
            if prepare := getattr(decoding.drafter, "prepare", None):
                prepare(part.context.cut(part.prompt_length))
            self._resume(decoding, step, own, notes)
            tried = decoding.attempt(part)
            path = tried.verdict.path
            with torch.inference_mode():  # keys as a drafter finds them after a step; ``at`` puts the rows back
                part.cache.commit(path if tried.verdict.bonus is not None else path[:-1])
            decoding.drafter.observe(tried.draft, tried.scored, tried.verdict)
            emitted = tuple(emitted_tokens(tried.draft.tree.tokens, tried.verdict))
            taken = Step(
                0, length, tried.draft, tried.scored, tried.verdict, emitted, draft_ms=tried.propose_ms,
                verify_ms=tried.verify_ms, commit_ms=0.0,
            )  # fmt: skip
            recorder = Run.of(decoding, f"{run.get('title') or 'Untitled run'}: step {step + 1}, {chosen.title}")
            made = recorder.alone(taken, self.trace.tables["tokens"]["id"][length:])
            if run.get("forced"):
                made.run["forced"] = True
        return WhatIf(
            trace=made,
            step=step,
            recorded=self.trace.tables["steps"]["accepted"][step],
            accepted=taken.accepted,
            emitted=emitted,
            same=self._same(step, tried.draft, tried.verdict),
            read_ms=0.0,
            ms=(time.perf_counter() - started) * 1e3,
            notes=tuple(notes),
        )

    def _decoding(
        self, step: int, method: Method, values: Any, own: bool, candidate: int | None
    ) -> tuple[Decoding, list[str]]:
        """The engine's decoding for this step, and what has to be said of it."""
        run, notes, output = self.trace.run, [], self.trace.output_ids
        prompt, length = self.prompt, self.trace.tables["steps"]["context"][step]
        written = length - run["prompt_length"]
        if method.prompt is not None and "compression" not in run:
            if method.prompt(self.target, values, prompt).tokens != prompt.tokens:
                raise UserError(
                    f"{method.title} with these parameters would have made another prompt of this one, so all that "
                    "came before would be another text: start a run of its own"
                )
        elif method.prompt is not None and not own:
            notes.append("The prompt stays as this run had it: its context was shortened before the run.")
        needs = method.needs(self.target, values)
        if needs.pool and self._pool_is_partial:
            raise UserError(
                f"only parts of {run['pool'].get('label', 'the pool')} are in this run's record, and {method.title} "
                "drafts from all of it"
            )
        used = replace(method, prompt=None)
        if run.get("forced"):
            used = replace(used, verifier=lambda p, c, s: ForcedVerifier(output[written:]))
            notes.append("The answer was given: a drafted token stands while it equals the next token of the answer.")
        if candidate is not None:
            rows = self.rows("candidates", step)
            if not 0 <= candidate < len(rows):
                raise UserError(
                    f"step {step + 1} has {len(rows)} candidate{'s' * (len(rows) != 1)}: there is none with the number "
                    f"{candidate + 1}"
                )
            row, pool = rows[candidate], self.session.pool
            used = replace(
                used, build=lambda target, params: PickedDrafter(self.trace, row, pool), needs=lambda t, p: Needs(),
                node_terms=(), step_terms=(),
            )  # fmt: skip
            if self.trace.tables["candidates"]["pool"][row] >= 0 and (self._pool_is_partial or pool is None):
                raise UserError("the text that this candidate stands in is not wholly in this run's record")
            if len(rows) and method.node_terms and any(key.startswith("branch") for key in _keys(method)):
                notes.append("The copy alone: the branches that the method adds beside a copy are left out.")
        sampling = sampling_of(run)
        decoding = Decoding(
            self.target, prompt, used, values, sampling=sampling, max_new_tokens=run["max_new_tokens"],
            stop_ids=run.get("stop_ids"),
        )  # fmt: skip
        if not sampling.greedy and not run.get("forced"):
            decoding.chooser.random.random(self._drawn_before(step))
            if not own:
                ratio = isinstance(decoding.verifier, ResidualVerifier)
                words = "accepts by drawing too" if ratio else "draws with the run's seed, from the same place on"
                notes.append(f"This run drew its tokens. {method.title} {words}: what differs may be chance.")
        dtype = run["model"].get("dtype")
        if dtype not in (None, self.target.info["dtype"]):
            notes.append(f"The run was made in {dtype}, the model is loaded in {self.target.info['dtype']}.")
        return decoding, notes

    @property
    def _pool_is_partial(self) -> bool:
        pool = self.trace.run.get("pool") or {}
        return not pool.get("in_prompt", True) and pool.get("tokens") != self.trace.rows("pool")

    def _resume(self, decoding: Decoding, step: int, own: bool, notes: list[str]) -> None:
        """Bring the drafter to the state it had, or would have."""
        resume = getattr(decoding.drafter, "resume", None)
        if resume is None or step == 0:
            return
        assert decoding.session is not None
        past = [self.past(number, own=True) for number in range(step)] if own else [self.past(step - 1, own=False)]
        again = resume(decoding.session.context, past)
        if again is None:
            return
        last = past[-1]
        with self.session.at(last.length, decoding.needs) as before:
            scored = before.score(again)
        decoding.drafter.observe(again, scored, judged(again, list(last.path), last.bonus))
        if not own:
            notes.append(f"{decoding.method.title} starts as after a step without a draft: the steps were not its own.")

    def _drawn_before(self, step: int) -> int:
        """Random numbers that the run's own verifier took before a step."""
        run, steps = self.trace.run, self.trace.tables["steps"]
        method = find_method(str(run["method"]["name"]))
        values = make_params(method.params, run["method"]["params"])
        verifier: Any = None
        if method.verifier is not None:
            verifier = method.verifier(values, Chooser(sampling_of(run)), frozenset(run.get("stop_ids", ())))
        draws = getattr(verifier, "draws", lambda route, drafted, accepted: accepted + 1)
        taken = (steps[name][:step] for name in ("route", "drafted", "accepted"))
        return sum(draws(*one) for one in zip(*taken, strict=True))

    def _same(self, step: int, draft: Draft, verdict: Verdict) -> bool:
        nodes, rows = self.trace.tables["nodes"], self.rows("nodes", step)
        bonus = self.trace.tables["steps"]["bonus"][step]
        recorded = [(nodes["token"][r], nodes["parent"][r], nodes["status"][r]) for r in rows]
        now = list(zip(draft.tree.tokens, draft.tree.parents, verdict.status, strict=True))
        return recorded == now and bonus == (-1 if verdict.bonus is None else verdict.bonus)

    def _check_probabilities(self) -> None:
        """A run recorded without a fingerprint: the model must say of its output what it said then."""
        tokens, memory, start = self.trace.tables["tokens"], self.session.memory, self.trace.run["prompt_length"]
        assert memory.top_ids is not None and memory.top_logprobs is not None
        ids, probs = memory.top_ids.cpu().numpy(), memory.top_logprobs.float().exp().cpu().numpy()
        apart: list[float] = []
        for position in range(max(start, 1), len(tokens["id"])):
            if (recorded := tokens["prob"][position]) is not None:
                row = probs[position - 1]
                found = np.flatnonzero(ids[position - 1] == tokens["id"][position])
                now = row[found[0]] if len(found) else min(recorded, row[-1])  # at most that of the last one kept
                apart.append(abs(float(np.log(max(now, 1e-4)) - np.log(max(recorded, 1e-4)))))
        if apart and float(np.mean(np.asarray(apart) > APART)) > SHARE:
            raise UserError(_another(self.target, self.trace.run))


def whatif(
    target: Target,
    trace: Trace,
    step: int,
    method: str | Method | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    candidate: int | None = None,
) -> WhatIf:
    """A step (from 0) of a recorded run as another method, other parameters or another candidate would have made it.

    Arguments and errors as of ``ReadRun`` and ``ReadRun.redraft``; make a ``ReadRun`` to ask more than once.
    """
    chosen = find_method(method or str(trace.run["method"]["name"])) if not isinstance(method, Method) else method
    mine = chosen.name == trace.run["method"]["name"]
    given = own_params(trace, chosen) if mine and params is None else params or {}
    needs = chosen.needs(target, make_params(chosen.params, given))
    read = ReadRun(target, trace, wanted(needs))
    return replace(read.redraft(step, chosen, given, candidate=candidate), read_ms=read.ms)


def go_on(
    target: Target, trace: Trace, step: int, method: str | Method, params: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Arguments of a ``Run`` that starts where a step began, with another method: what was written before the step is
    part of its prompt, and it writes no more than the run could.

    Raises UserError as ``ReadRun.redraft`` does, before anything is computed.
    """
    if other := other_model(target, trace.run):
        raise UserError(other)
    if not 0 <= step < trace.rows("steps"):
        raise UserError(f"there is no step {step + 1}: this run has steps 1 to {trace.rows('steps')}")
    chosen = find_method(method) if isinstance(method, str) else method
    prompt, length = recorded_prompt(trace), trace.tables["steps"]["context"][step]
    written = length - len(prompt.tokens)
    segments = (*prompt.segments, *([Segment("output", len(prompt.tokens), length)] if written else []))
    ids = tuple(trace.tables["tokens"]["id"][:length])
    return {
        "prompt": replace(prompt, tokens=ids, segments=segments),
        "method": replace(chosen, prompt=None),
        "params": dict(params or {}),
        "sampling": sampling_of(trace.run),
        "max_new_tokens": max(1, trace.run["max_new_tokens"] - written),
        "stop_ids": trace.run.get("stop_ids"),
        "compare": not chosen.lossless,
    }


def own_params(trace: Trace, method: Method) -> dict[str, Any]:
    """The parameters that a run recorded for its method, but those that name files: a trace may come from anybody."""
    named = {c.name for c in controls(method.params) if c.kind == "str"}
    known = {c.name for c in controls(method.params)}
    recorded = trace.run["method"]["params"]
    return {name: value for name, value in recorded.items() if name in known and (name not in named or value is None)}


def wanted(needs: Needs) -> Needs:
    """What a run that is too long to keep all of is read for, where a drafter with these needs asks."""
    return replace(needs, top_tokens=TOP_TOKENS, pool=False)


def other_model(target: Target, run: Mapping[str, Any]) -> str | None:
    """Why a run cannot be drafted again here: another model made it. None where the loaded model did, as far as its
    record tells.
    """
    model = run["model"]
    if "key" in model:
        return None if model["key"] == target.key else _another(target, run)
    same = all(model.get(name) == target.info[name] for name in SHAPE)
    return None if same else _another(target, run)


def _another(target: Target, run: Mapping[str, Any]) -> str:
    name = run["model"].get("name") or "another model"
    which = "another model of that name" if name == target.name else target.name
    return f"this run was made with {name}, and {which} is loaded: start the app with that model to draft it again"


def everything(target: Target, tokens: int) -> Needs | None:
    """All that any method may read of a run of so many tokens; None where that is more than ``MOST_KEPT`` bytes."""
    layers, heads = len(target.layers), target.heads
    size = int(getattr(target.config, "head_dim", None) or target.hidden_size // heads)
    each = (layers + 1) * target.hidden_size + layers * heads * size
    if tokens * each * target.dtype.itemsize > MOST_KEPT:
        return None
    pairs = tuple((layer, head) for layer in range(layers) for head in range(heads))
    return Needs(heads=pairs, top_tokens=TOP_TOKENS, hidden_layers=tuple(range(layers + 1)))


def recorded_prompt(trace: Trace) -> Prompt:
    """A run's prompt, its segments and (where all of it was recorded) its pool."""
    tokens, run = trace.tables["tokens"], trace.run
    segments: list[Segment] = []
    for place in range(run["prompt_length"]):
        name, passage = tokens["segment"][place], tokens["passage"][place]
        if segments and (segments[-1].name, segments[-1].passage) == (name, passage):
            segments[-1] = replace(segments[-1], stop=place + 1)
        else:
            segments.append(Segment(name, place, place + 1, passage))
    recorded, pool = run.get("pool") or {}, None
    if not recorded.get("in_prompt", True) and recorded.get("tokens") == trace.rows("pool"):
        table = trace.tables["pool"]
        order = np.argsort(np.asarray(table["position"], dtype=np.int64))
        ids = np.asarray(table["id"], dtype=np.int64)[order]
        passages = np.asarray(table["passage"], dtype=np.int64)[order]
        starts = (0, *(np.flatnonzero(np.diff(passages)) + 1).tolist())
        pool = Pool(ids, starts, None, str(recorded.get("label", "the pool")))
    return Prompt(tuple(trace.prompt_ids), tuple(segments), pool, run.get("compression"))


def _keys(method: Method) -> list[str]:
    return [term.key for term in method.node_terms]
