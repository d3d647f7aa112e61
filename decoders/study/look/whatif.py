"""One step of a recorded run ("what if"), drafted again from exactly there with another method, other parameters or a
hand-picked candidate, without running again what came before.

The model reads the run's tokens once (``ReadRun``), keeping what any method reads of every position; a step is then
drafted, scored and verified by the engine's own ``Decoding.attempt`` on the run cut at the step (``Session.at``).
Hidden states, top tokens, queries, keys and values come from one forward over the whole text instead of one per step:
equal up to rounding, so in half precision a near tie may fall the other way.

What a drafter knows besides the text is brought back by its ``resume``: by default it observes every step before
once more, with logits that the target computes again. PPD has only the last one scored, with the prompt tokens that
were recorded there; SpS's heuristic takes γ from the recorded outcomes. Draft models, AdaPLD's index and CASD's pool
are built from the text. Where SpS writes by PPD the drafts are the same too, but its draft forwards are counted as in a
first step: what its prompt tokens guessed before is not recorded. For a method that is not the run's own (or has other
parameters) the steps before are not its own: it starts as after a step without a draft.

>>> again = ReadRun(target, trace).redraft(12, "adapld", {"k": 4})     # doctest: +SKIP
>>> again.recorded, again.accepted                                    # doctest: +SKIP
(3, 7)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Draft, Past, Scored, Verdict, emitted_tokens
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.drafters import select_method
from decoders.engine.decoding import Decoding, Step, process_logits
from decoders.engine.recording import Run, describe, recorded_params
from decoders.engine.rows import JOINT
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, wait
from decoders.model.target_model.own_settings import run_settings, settings_behind
from decoders.model.target_model.target import Session, Target
from decoders.prompt.codec import of_trace, pool_is_partial
from decoders.prompt.prompt import Pool, Prompt, Segment
from decoders.trace.trace import Trace
from decoders.verifiers.forced import ForcedVerifier
from decoders.verifiers.match import judged
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser

from .run_settings import (
    check_ids,
    check_model,
    check_step,
    drawn_before,
    extra_processors,
    generation_of,
    model_mismatch,
    redraft_method,
    sampling_of,
)

TOP_TOKENS = 64  # likeliest next tokens kept per position: as many as any method asks for
MOST_KEPT = 1 << 30  # bytes of hidden states and queries kept of a run; of a larger one, what was asked for
MAX_GAP, SHARE = (
    0.5,
    0.1,
)  # a run without a fingerprint is another model's if so many log-probabilities are so far apart


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


class PickedDrafter(Drafter):
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
            return Draft.copy_from(context.root, context.tokens[start : start + count].tolist(), start, route="picked")
        assert self.pool is not None
        return Draft.copy_from_pool(context.root, self.pool, self.place + 1, count, route="picked")


class ReadRun:
    """A run's tokens, read once by the model that it was made with; any of its steps can be drafted again.

    Raises UserError for a run of another model, without a step, or too long for the model.
    """

    def __init__(self, target: Target, trace: Trace, needs: Needs | None = None) -> None:
        check_model(target, trace.run)
        ids = trace.tables["tokens"]["id"]
        if not trace.rows("steps"):
            raise UserError("this run has no step")
        check_ids(target, ids)
        self.target, self.trace = target, trace
        self.needs = everything(target, len(ids)) or needs or Needs(top_tokens=TOP_TOKENS)
        self.prompt = of_trace(trace)
        start_time = time.perf_counter()
        self.session: Session = target.session(self.needs, len(ids))
        self.session.prefill(Prompt(tuple(ids), self.prompt.segments), trace.run["prompt_length"])
        self.session.pool = self.prompt.pool or self.prompt.context_pool()
        wait(target.device)
        self.ms = (time.perf_counter() - start_time) * 1e3
        if "key" not in trace.run["model"]:
            self._check_probabilities()

    @property
    def bytes(self) -> int:
        """Bytes on the device."""
        return self.session.memory.bytes() + self.session.cache.bytes()

    def serves(self, needs: Needs) -> bool:
        """True if it has read what ``needs`` names."""
        return self.needs.covers(needs)

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

    def past(self, decoding: Decoding, step: int, *, is_own: bool) -> list[Past]:
        """The steps before one, as a drafter may look back on them; for a method that is not the run's own, a step
        without a draft that wrote the last token alone.
        """
        if is_own:
            return [self._past(decoding, number) for number in range(step)]
        end = self.trace.tables["steps"]["context"][step]
        ids = self.trace.tables["tokens"]["id"]
        draft = Draft.empty(ids[end - 2], "the step was another method's")
        return [Past(end - 1, draft, judged(draft, [0], ids[end - 1]), self._scoring(decoding, end - 1))]

    def _past(self, decoding: Decoding, step: int) -> Past:
        steps, probes = self.trace.tables["steps"], self.trace.tables["probes"]
        tokens, parents, origins, status = self._nodes(step, "token", "parent", "origin", "status")
        draft = Draft(DraftTree(tokens, parents), origins, route=steps["route"][step])
        path = [node for node, node_status in enumerate(status) if node_status in ("root", "accepted")]
        bonus, length = steps["bonus"][step], steps["context"][step]
        probe_parents = tuple(
            probes["parent"][row] for row in self.rows("probes", step) if probes["kind"][row] != JOINT
        )
        verdict = judged(draft, path, None if bonus < 0 else bonus)
        return Past(length, draft, verdict, self._scoring(decoding, length), probe_parents)

    def _nodes(self, step: int, *names: str) -> list[tuple[Any, ...]]:
        """Columns of a step's tree."""
        rows = self.rows("nodes", step)
        return [tuple(self.trace.tables["nodes"][name][rows.start : rows.stop]) for name in names]

    def _scoring(self, decoding: Decoding, length: int) -> Callable[[Draft], Scored]:
        """Scoring of drafts where ``length`` tokens were committed."""

        def score(draft: Draft) -> Scored:
            self._scored_again = True
            with self.session.at(length, decoding.needs) as session:
                return session.score(draft)

        return score

    def redraft(
        self,
        step: int,
        method: str | Method | None = None,
        params: Mapping[str, Any] | Any = None,
        *,
        candidate: int | None = None,
    ) -> WhatIf:
        """Draft a step again. Without a method: the run's own; without parameters: those recorded for the run's own
        method, the defaults of another. ``candidate`` counts the step's recorded candidates: the draft is copied after
        that one, and the run's own method and parameters verify it.

        Raises UserError for a step, method, parameter or candidate that is not there, for a method whose parts are
        missing, and for one that would have changed the prompt.
        """
        start_time = time.perf_counter()
        run, tables = self.trace.run, self.trace.tables
        check_step(self.trace, step)
        if candidate is not None:
            method, params = None, None
        entry, values = redraft_method(self.trace, method, params)
        is_own, notes = self._is_own(entry, values)
        cold = entry.cold(values)
        if cold != values:
            notes.append("No trace records what earlier runs had left behind: this step is drafted without it.")
        decoding = self._decoding(step, entry, cold, is_own, notes)
        if candidate is not None:
            self._pick(decoding, step, candidate, entry, notes)
        about = describe(entry, cold, decoding)
        if candidate is not None:
            about |= {"node_terms": [], "step_terms": []}
        if not self.serves(decoding.needs):
            raise UserError(f"this run is too long to keep all that methods read of it: read it again for {entry.name}")
        length, drafter = tables["steps"]["context"][step], decoding.drafter
        with self.session.at(length, decoding.needs) as part:
            decoding.session = part
            drafter.prepare(part.context.cut(part.prompt_length))
            if step:
                self._scored_again = False
                drafter.resume(part.context, self.past(decoding, step, is_own=is_own))
                if self._scored_again and not is_own:
                    notes.append(f"{entry.title} starts as after a step without a draft: the steps were not its own.")
            attempt = decoding.attempt(part)
            draft, scored, verdict = attempt.draft, attempt.scored, attempt.verdict
            with torch.inference_mode():  # keys as a drafter finds them after a step; ``at`` puts the rows back
                part.cache.commit(verdict.path if verdict.bonus is not None else verdict.path[:-1])
            observation = drafter.observe(draft, scored, verdict)
            emitted = tuple(emitted_tokens(draft.tree.tokens, verdict))
            new_step = Step(
                0, length, draft, scored, verdict, emitted, draft_ms=attempt.propose_ms, verify_ms=attempt.verify_ms,
                commit_ms=Span(), observation=observation, processed=attempt.processed_step,
            )  # fmt: skip
            recorder = Run.of(decoding, about, f"{run.get('title') or 'Untitled run'}: step {step + 1}, {entry.title}")
            trace = recorder.one_step(new_step, tables["tokens"]["id"][length:])
            if run.get("forced"):
                trace.run["forced"] = True
        return WhatIf(
            trace=trace,
            step=step,
            recorded=tables["steps"]["accepted"][step],
            accepted=new_step.accepted,
            emitted=emitted,
            same=self._is_same(step, draft, verdict),
            read_ms=0.0,
            ms=(time.perf_counter() - start_time) * 1e3,
            notes=tuple(notes),
        )

    def _is_own(self, method: Method, values: Any) -> tuple[bool, list[str]]:
        """True if this is the run's method with its parameters, and the message where the record does not say."""
        recorded_method = self.trace.run["method"]
        if method.name != recorded_method["name"]:
            return False, []
        current_params, old_params = (
            recorded_params(values),
            recorded_params(method.params()) | recorded_method.get("params", {}),
        )
        file_params = [
            f"{name} = {old_params[name]}"
            for name in current_params
            if current_params[name] is None and isinstance(old_params.get(name), str)
        ]
        files = f"This run had {', '.join(file_params)}, which names files: give it anew to draft with it."
        return current_params == old_params, [files] if file_params else []

    def _decoding(self, step: int, method: Method, values: Any, is_own: bool, notes: list[str]) -> Decoding:
        """The engine's decoding for this step; what has to be said of it is added to ``notes``."""
        run, prompt = self.trace.run, self.prompt
        if method.prompt is not None and "compression" not in run:
            if method.prompt(self.target, values, prompt).tokens != prompt.tokens:
                raise UserError(
                    f"{method.title} with these parameters would have made another prompt of this one, so all that "
                    "came before would be another text: start a run of its own"
                )
        elif method.prompt is not None and not is_own:
            notes.append("The prompt stays as this run had it: its context was shortened before the run.")
        if method.needs(self.target, values).pool and pool_is_partial(self.trace):
            raise UserError(
                f"only parts of {run.get('pool', {}).get('label', 'the pool')} are in this run's record, and "
                f"{method.title} drafts from all of it"
            )
        sampling, stops = sampling_of(run), run.get("stop_ids", self.target.stop_ids)
        processing = process_logits(
            self.target, run_settings(None, sampling, generation_of(run)), (), prompt, sampling=sampling,
            stop_ids=stops, max_new_tokens=run["max_new_tokens"],
        )  # fmt: skip
        if names := extra_processors(run):
            notes.append(f"This run's logits went through {names}, which no trace holds: the step is judged without.")
        chooser = Chooser(sampling, processing and processing.warpers)
        parts = method.parts(self.target, values, prompt, chooser, stops, keep_prompt=True)
        verifier = parts.verifier
        if run.get("forced"):
            output_length = self.trace.tables["steps"]["context"][step] - run["prompt_length"]
            verifier = ForcedVerifier(self.trace.output_ids[output_length:])
            notes.append("The answer was given: a drafted token stands while it equals the next token of the answer.")
        elif not sampling.greedy:
            parts.chooser.random.random(drawn_before(self.trace)[step])
            if not is_own:
                ratio = isinstance(verifier, ResidualVerifier)
                words = "accepts by drawing too" if ratio else "draws with the run's seed, from the same place on"
                notes.append(f"This run drew its tokens. {method.title} {words}: what differs may be chance.")
        dtype = run["model"].get("dtype")
        if dtype not in (None, self.target.info["dtype"]):
            notes.append(f"The run was made in {dtype}, the model is loaded in {self.target.info['dtype']}.")
        return Decoding(
            self.target, prompt, parts.drafter, verifier, parts.needs, sampling=sampling,
            max_new_tokens=run["max_new_tokens"], stop_ids=stops, processing=processing,
        )  # fmt: skip

    def _pick(self, decoding: Decoding, step: int, candidate: int, method: Method, notes: list[str]) -> None:
        """Have the step's draft copied after one of its candidates."""
        rows, pool = self.rows("candidates", step), self.session.pool
        if not 0 <= candidate < len(rows):
            has = f"step {step + 1} has {len(rows)} candidate{'s' * (len(rows) != 1)}"
            raise UserError(f"{has}: there is none with the number {candidate + 1}")
        pooled = self.trace.tables["candidates"]["pool"][rows[candidate]] >= 0
        if pooled and (pool_is_partial(self.trace) or pool is None):
            raise UserError("the text that this candidate stands in is not wholly in this run's record")
        if any(term.key.startswith("branch") for term in method.node_terms):
            notes.append("The copy alone: the branches that the method adds beside a copy are left out.")
        decoding.drafter, decoding.needs = PickedDrafter(self.trace, rows[candidate], pool), Needs()

    def _is_same(self, step: int, draft: Draft, verdict: Verdict) -> bool:
        bonus = self.trace.tables["steps"]["bonus"][step]
        new_tree = [draft.tree.tokens, draft.tree.parents, verdict.status]
        same_tree = self._nodes(step, "token", "parent", "status") == new_tree
        return same_tree and bonus == (-1 if verdict.bonus is None else verdict.bonus)

    def _check_probabilities(self) -> None:
        """A run recorded without a fingerprint: the model must say of its output what it said then."""
        tokens, memory, start = self.trace.tables["tokens"], self.session.memory, self.trace.run["prompt_length"]
        assert memory.top_ids is not None and memory.top_logprobs is not None
        ids, probs = memory.top_ids.cpu().numpy(), memory.top_logprobs.float().exp().cpu().numpy()
        deviations: list[float] = []
        for position in range(max(start, 1), len(tokens["id"])):
            if (recorded_prob := tokens["prob"][position]) is not None:
                row = probs[position - 1]
                place = np.flatnonzero(ids[position - 1] == tokens["id"][position])
                new_prob = (
                    row[place[0]] if len(place) else min(recorded_prob, row[-1])
                )  # at most that of the last one kept
                deviations.append(abs(float(np.log(max(new_prob, 1e-4)) - np.log(max(recorded_prob, 1e-4)))))
        if deviations and float(np.mean(np.asarray(deviations) > MAX_GAP)) > SHARE:
            raise UserError(model_mismatch(self.target, self.trace.run))


def go_on(
    target: Target,
    trace: Trace,
    step: int,
    method: str | Method,
    params: Mapping[str, Any] | None = None,
    *,
    emitted: Sequence[int] = (),
) -> dict[str, Any]:
    """Arguments of a ``Run`` that starts where a step began, with another method: what was written before the step is
    part of its prompt, then what a redraft of the step ``emitted``; it writes no more than the run could.

    Raises UserError as ``ReadRun.redraft`` does, before anything is computed, and where ``emitted`` ends the run.
    """
    check_model(target, trace.run)
    check_step(trace, step)
    entry, values = select_method(method, params)
    stops = trace.run.get("stop_ids")
    prompt = of_trace(trace)
    ids = (*trace.tables["tokens"]["id"][: trace.tables["steps"]["context"][step]], *emitted)
    output_length = len(ids) - len(prompt.tokens)
    if emitted and (emitted[-1] in (stops or ()) or output_length >= trace.run["max_new_tokens"]):
        raise UserError("nothing is left to write: this place ends the run")
    grammar = prompt.grammar and replace(prompt.grammar, prefix=prompt.grammar.prefix + output_length)
    segments = (*prompt.segments, *([Segment("output", len(prompt.tokens), len(ids))] if output_length else []))
    return {
        "prompt": replace(prompt, tokens=ids, segments=segments, grammar=grammar),
        "method": entry,
        "params": values,
        "keep_prompt": True,
        "sampling": sampling_of(trace.run),
        "generation": settings_behind(generation_of(trace.run), output_length),
        "max_new_tokens": max(1, trace.run["max_new_tokens"] - output_length),
        "stop_ids": stops,
        "compare": not entry.lossless,
    }


def bounded_needs(needs: Needs) -> Needs:
    """Needs for which a run that is too long to keep all of is read, where a drafter with these needs asks. The whole
    run is read at once: what is there of its prompt is there of its output.

    >>> bounded_needs(Needs(top_tokens=8, top_of_prompt=True)).covers(Needs(top_tokens=4))
    True
    """
    return replace(needs, top_tokens=TOP_TOKENS, top_of_prompt=False, pool=False)


def everything(target: Target, tokens: int) -> Needs | None:
    """All that any method may read of a run of so many tokens; None where that is more than ``MOST_KEPT`` bytes."""
    shape, pairs = target.shape, () if target.no_attention else target.shape.attention_heads
    per_token = (shape.layers + 1) * shape.hidden + len(shape.attention_heads) * shape.head_dim
    if tokens * per_token * target.dtype.itemsize > MOST_KEPT:
        return None
    return Needs(heads=pairs, top_tokens=TOP_TOKENS, layers=tuple(range(shape.layers + 1)))
