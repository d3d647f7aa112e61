"""Decoding: one generator of steps. Plain decoding is the empty drafter.

>>> for step in decode(target, prompt, "pld"):        # doctest: +SKIP
...     print(step.emitted, step.accepted)
"""

from __future__ import annotations

import functools
import operator
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from decoders.draft.draft import Draft, Learned, Scored, Verdict, emitted_tokens
from decoders.draft.needs import Needs
from decoders.draft.pruning import GRAMMAR, pruned_draft
from decoders.draft.settings import FIXED
from decoders.drafters import select_method
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context, ReadingStopped
from decoders.model.state.transfer import Mark, Passenger, Span, mark, taking_along, wait
from decoders.model.target_model.finite import not_finite
from decoders.model.target_model.own_settings import processors_of, run_settings
from decoders.model.target_model.target import SPARE_ROWS, Session, Target
from decoders.names import BASELINE
from decoders.prompt.grammar import FILTER, Matcher
from decoders.prompt.prompt import Prompt
from decoders.verifiers.match import MatchVerifier, cut_at_stop
from decoders.verifiers.processors import GrammarProcessor, ProcessedStep, Processing
from decoders.verifiers.sampling import Chooser, Sampling
from decoders.verifiers.verifier import Verifier

from .length import AutoLength, auto_length

NO_NEEDS = Needs()


@dataclass(frozen=True, slots=True)
class Step:
    """One verify step. ``context_length`` counts the committed tokens before it, the root included; ``learned`` is
    what the drafter made of it; times in milliseconds, which a GPU knows a moment later: ``float`` waits for them.
    ``verify_ms`` is the target's forward and the decision, which takes ``decide_ms`` of it (None: not timed apart).
    ``scored`` is the target's own; ``processed`` what logits processors made of it, where the run has any.
    """

    index: int
    context_length: int
    draft: Draft
    scored: Scored
    verdict: Verdict
    emitted: tuple[int, ...]
    draft_ms: Span
    verify_ms: Span
    commit_ms: Span
    observation: Learned | None = None
    decide_ms: Span | None = None
    processed: ProcessedStep | None = None

    @property
    def accepted(self) -> int:
        """Accepted draft tokens (bonus excluded)."""
        return self.verdict.accepted


@dataclass(frozen=True, slots=True)
class Attempt:
    """A step before it is committed: the draft and what the target says of it, and when it was ``proposed``, its rows
    ``processed`` by the target, and ``verified``.
    """

    draft: Draft
    scored: Scored
    verdict: Verdict
    start_mark: Mark
    proposed: Mark
    processed: Mark
    verified: Mark
    processed_step: ProcessedStep | None = None

    @property
    def propose_ms(self) -> Span:
        return Span((self.start_mark, self.proposed))

    @property
    def verify_ms(self) -> Span:
        return Span((self.proposed, self.verified))

    @property
    def decide_ms(self) -> Span:
        return Span((self.processed, self.verified))


class Decoding:
    """A run under way: iterate it for its steps; ``stop`` says why it ended.

    It is made from parts: the drafter, the verifier (default: tokens must match the target's choice by ``sampling``)
    and what the drafter needs; ``Decoding.of`` has a method make them. ``length`` decides what of its drafts is
    verified (None: all). Drafts are kept ``max_new_tokens`` long, the run ends behind one of ``stop_ids`` (default: the
    target's), and ``cancel`` is polled between steps. The verifier judges by the logits that ``processing`` makes of
    the target's. Raises UserError before any work for a prompt that does not fit.
    """

    def __init__(
        self,
        target: Target,
        prompt: Prompt,
        drafter: Drafter,
        verifier: Verifier | None = None,
        needs: Needs = NO_NEEDS,
        *,
        sampling: Sampling | None = None,
        max_new_tokens: int = 256,
        stop_ids: Collection[int] | None = None,
        cancel: threading.Event | None = None,
        length: AutoLength | None = None,
        processing: Processing | None = None,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={max_new_tokens} is not allowed: a whole number of at least 1")
        target.check_fits(len(prompt.tokens))
        self.target, self.prompt, self.cancel = target, prompt, cancel
        self.user_prompt = prompt  # before the method rewrote it
        self.sampling = sampling or Sampling()
        self.max_new_tokens = max_new_tokens
        self.stop_ids = frozenset(target.stop_ids if stop_ids is None else stop_ids)
        self.drafter, self.needs = drafter, needs
        self.verifier = verifier or MatchVerifier(Chooser(self.sampling))
        self.length = length
        self.processing, self.processed = processing, None
        self.matcher = processing and processing.matcher
        self.generation: Mapping[str, Any] = {}  # settings that became processors
        self.processors: Sequence[Any] = ()  # those that were given
        self.session: Session | None = None
        self.index = 0  # of the step
        self.stop = ""
        self.on_read: Callable[[int, int], None] | None = None  # hears how much of a long prompt is read, of how much
        self.prefill_ms = self.prepare_ms = 0.0

    @classmethod
    def of(
        cls,
        target: Target,
        prompt: Prompt,
        method: str | Method = BASELINE,
        params: Mapping[str, Any] | Any = None,
        *,
        sampling: Sampling | None = None,
        stop_ids: Collection[int] | None = None,
        verifier: Verifier | None = None,
        keep_prompt: bool = False,
        length: str = FIXED,
        processors: Sequence[Any] = (),
        generation: Mapping[str, Any] | None = None,
        processing: Processing | None = None,
        max_new_tokens: int = 256,
        **options: Any,
    ) -> Self:
        """A run by a method: its parts, made for these parameters. ``verifier`` takes the place of the method's own,
        ``keep_prompt`` leaves the prompt as it is where the method would rewrite it. ``length`` is one of
        ``draft.settings.LENGTHS``: "fixed" verifies all that is drafted, "auto" what pays.

        ``processors`` are logits processors of transformers, or a user's own. Those that the model's generation config
        asks for are applied, too, as generate() does; ``generation`` has settings over it
        (``model.target_model.own_settings``; NEUTRAL: none). A ``processing`` stands for all of them.

        Raises UserError before any work for an unknown method, parameter or length, missing parts, a processor that
        cannot be asked node by node, or a prompt without what the method needs.
        """
        entry, values = select_method(method, params)
        sampling = sampling or Sampling()
        stops = frozenset(target.stop_ids if stop_ids is None else stop_ids)
        settings = run_settings(getattr(target.model, "generation_config", None), sampling, generation)
        if is_given := processing is not None:
            settings, processors = {}, processing.by_text
            processing = processing if processing.changes(sampling) else None
        process = functools.partial(
            process_logits, target, settings, processors, sampling=sampling, stop_ids=stops,
            max_new_tokens=max_new_tokens,
        )  # fmt: skip
        if not is_given:
            processing = process(prompt)
        chooser = Chooser(sampling, processing and processing.warpers)
        parts = entry.parts(target, values, prompt, chooser, stops, keep_prompt=keep_prompt)
        if processing is not None and not is_given and parts.prompt.tokens != prompt.tokens:
            processing = process(parts.prompt)
        rule = auto_length(length, target, entry.name, [method.name for method, _ in entry.joins(values)])
        decoding = cls(
            target, parts.prompt, parts.drafter, verifier or parts.verifier, parts.needs, sampling=sampling,
            stop_ids=stops, length=rule, processing=processing,
            max_new_tokens=max_new_tokens, **options,
        )  # fmt: skip
        decoding.user_prompt, decoding.generation, decoding.processors = prompt, settings, tuple(processors)
        return decoding

    @property
    def context(self) -> Context:
        assert self.session is not None, "the run has not begun"
        return replace(self.session.context, grammar=self.matcher)

    def prefill(self, read: Session | None = None) -> None:
        """Open the session, process the prompt and let the drafter prepare; called by iteration if not before. A run
        that is cancelled meanwhile stops between two pieces of a long prompt.

        ``read`` has processed the prompt for several runs (``read_once``): this one begins behind it.
        """
        start_time = time.perf_counter()
        if read is not None:
            self.session = read.check_again(self.needs)
        else:
            self.session = self.target.session(self.needs, len(self.prompt.tokens) + self.max_new_tokens)
            if not self.session.prefill(self.prompt, stops=self._stops_reading):
                self.stop = "cancelled"
                return
        wait(self.target.device)
        processed = time.perf_counter()
        self.prefill_ms = (processed - start_time) * 1e3
        try:
            self.drafter.prepare(replace(self.context, cancelled=self._is_cancelled))
        except ReadingStopped:
            self.stop = "cancelled"
            return
        wait(self.target.device)
        self.prepare_ms = (time.perf_counter() - processed) * 1e3

    def _stops_reading(self, rows: int, of: int) -> bool:
        if self.on_read is not None:
            self.on_read(rows, of)
        return self._is_cancelled()

    def _is_cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    def __iter__(self) -> Iterator[Step]:
        if self.session is None:
            self.prefill()
        if self.stop:  # while the prompt was read
            return
        session = self.session
        assert session is not None
        room, clock = self.room(session), functools.partial(mark, self.target.device)
        emitted_count = 0
        while True:
            if self._is_cancelled():
                self.stop = "cancelled"
                return
            start_length = session.length
            attempt = self.attempt(session)
            draft, scored, verdict = attempt.draft, attempt.scored, attempt.verdict
            session.commit(verdict)
            commit_time = clock()
            observation = self.drafter.observe(draft, scored, verdict)
            drafting = Span((attempt.start_mark, attempt.proposed), (commit_time, clock()))
            emitted = tuple(emitted_tokens(draft.tree.tokens, verdict))
            emitted_count += len(emitted)
            times = drafting, attempt.verify_ms, Span((attempt.verified, commit_time))
            if self.length is not None:
                observation = self._learn(draft, verdict, len(emitted), times, observation)
            yield Step(
                self.index, start_length, draft, scored, verdict, emitted, *times, observation, attempt.decide_ms,
                attempt.processed_step,
            )  # fmt: skip
            self.index += 1
            if emitted[-1] in self.stop_ids:
                self.stop = "eos"
            elif emitted_count >= room:
                self.stop = "max tokens" if emitted_count >= self.max_new_tokens else "context full"
            if self.stop:
                return

    def room(self, session: Session) -> int:
        """Number of tokens that the run may write in all."""
        return min(self.max_new_tokens, self.target.context_length - session.prompt_length)

    def propose(self, session: Session, choose: bool = True) -> Draft:
        """The drafter's proposal at the session's end, inside the budget (tokens that may be drafted before the bonus)
        and the session's reach; with ``choose``, what of it is verified.
        """
        context, reach = replace(session.context, grammar=self.matcher), session.reach
        budget = self.room(session) - (session.length - session.prompt_length) - 1
        if budget < 1:
            return Draft.empty(context.root, "only one more token may be written", route="none")
        if reach < 1:
            return Draft.empty(context.root, "the model's rotary positions change behind this token", route="none")
        budget = min(budget, reach)
        if self.length is None:
            draft = self.drafter.propose(context, budget)
        else:
            draft = self.length.propose(self.drafter, context, budget, choose)
        if self.matcher is not None and self.matcher.grammar.drafts == FILTER and not draft.drawn:
            nodes = self.matcher.allows(context.tokens.tolist(), draft.tree.tokens, draft.tree.parents)
            if len(nodes) < len(draft.tree):
                draft = pruned_draft(draft, nodes, [0.0] * len(draft.tree), cause=GRAMMAR)
        name = type(self.drafter).__name__
        if len(draft.tree) - 1 > budget and max(draft.tree.depths) > budget:
            raise ValueError(
                f"{name} drafted {max(draft.tree.depths)} tokens deep; its budget was {budget}: propose() must keep to "
                "it (DraftTree.within_depth cuts a tree)"
            )
        if len(draft.tree) + len(draft.probes) > SPARE_ROWS:
            raise ValueError(f"{name} drafted {len(draft.tree)} nodes; at most {SPARE_ROWS} rows fit one forward")
        return draft

    def attempt(self, session: Session) -> Attempt:
        """Draft at the session's end, score and verify; nothing is committed."""
        clock = functools.partial(mark, self.target.device)
        start_time = clock()
        draft = self.propose(session)
        proposed = clock()
        scored = session.score(draft)
        processed = clock()
        verdict = self.judge(session, draft, scored)
        return Attempt(draft, scored, verdict, start_time, proposed, processed, clock(), self.processed)

    def judge(self, session: Session, draft: Draft, scored: Scored) -> Verdict:
        """The verdict on a draft, cut at a stop token. Raises UserError where the target's logits are not finite."""
        with taking_along(scored.logits.amax(-1)) as highest:  # not finite either where a number of its row is not
            try:
                verdict = self._verify(session, draft, scored)
            except Exception:
                self._check_finite(highest, session, draft)
                raise
        self._check_finite(highest, session, draft)
        return cut_at_stop(draft, verdict, self.stop_ids)

    def _verify(self, session: Session, draft: Draft, scored: Scored) -> Verdict:
        """The verdict by processed scores. Matching visits one path, and only its nodes are processed; any other rule
        may read all of them.
        """
        if self.processing is None or not self.processing.by_text:
            return self.verifier(draft, scored)
        self.processed = step = self.processing.step(session.context.tokens, draft.tree, scored.logits)
        if type(self.verifier) is not MatchVerifier:
            verdict = self.verifier(draft, step.process(scored))
        else:
            self.verifier.chooser.row = step.row
            try:
                verdict = self.verifier(draft, scored)
            finally:
                self.verifier.chooser.row = None
        self.processing.advance(step, verdict)
        return step.explain(draft, verdict)

    def _check_finite(self, highest: Passenger, session: Session, draft: Draft) -> None:
        if not np.isfinite(highest.array).all():
            moment = f"in step {self.index}, behind {session.length} tokens"
            raise not_finite(self.target, session.context.tokens.tolist(), draft, moment)

    def _learn(
        self, draft: Draft, verdict: Verdict, emitted: int, times: tuple[Span, Span, Span], observation: Learned | None
    ) -> Learned:
        """Tell a step to the rule that decides lengths; return the drafter's notes on it, with the time they took."""
        assert self.length is not None
        drafting, verifying, committing = map(float, times)
        rows = len(draft.tree) + len(draft.probes)
        ms = self.length.learn(
            draft, verdict, rows=rows, emitted=emitted, drafting_ms=drafting, target_ms=verifying + committing
        )
        observation = observation or Learned()
        return replace(observation, notes={**observation.notes, "length_ms": ms})


def process_logits(
    target: Target, settings: Mapping[str, Any], extra: Sequence[Any], prompt: Prompt, *, sampling: Sampling,
    stop_ids: Collection[int], max_new_tokens: int,
) -> Processing | None:  # fmt: skip
    """The processing of a run by settings of a generation config, processors besides, and the prompt's grammar; None
    without any.
    """
    vocab, length = target.info["vocab"], len(prompt.tokens)
    if prompt.grammar is not None:
        extra = [*extra, GrammarProcessor(Matcher(prompt.grammar, target.tokenizer, vocab, stop_ids, length))]
    if not settings and not extra:
        return None
    processors = processors_of(
        target.model, settings, extra, prompt=prompt.tokens, sampling=sampling, stop_ids=stop_ids,
        max_new_tokens=max_new_tokens, device=target.device,
    )  # fmt: skip
    return Processing(processors, sampling, vocab, prompt.tokens, target.device)


def read_once(runs: Sequence[Decoding]) -> Session | None:
    """The prompt of several runs, processed once with all that their drafters read; None where each has to read it.

    Runs of the same Prompt on one target, which follow one another: each begins with ``prefill`` of what is given here.
    """
    first = runs[0]
    if first.target.shape.rotary_switch is not None or len(first.prompt.tokens) < 2:
        return None
    needs = functools.reduce(operator.or_, (run.needs for run in runs))
    session = first.target.session(needs, len(first.prompt.tokens) + max(run.max_new_tokens for run in runs))
    session.prefill(first.prompt)
    return session


def decode(
    target: Target, prompt: Prompt, method: str | Method = BASELINE, params: Mapping[str, Any] | None = None, **options
) -> Iterator[Step]:
    """Steps of one run, untraced; their ``emitted`` tokens are the output. Options as in ``Decoding.of``."""
    return iter(Decoding.of(target, prompt, method, params, **options))


def generate(
    target: Target, prompt: Prompt, method: str | Method = BASELINE, params: Mapping[str, Any] | None = None, **options
) -> list[int]:
    """Output token ids of one run."""
    return [token for step in decode(target, prompt, method, params, **options) for token in step.emitted]
