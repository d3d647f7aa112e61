"""A plug-in's method, guarded: what it raises or drafts wrongly becomes one sentence that names it."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from decoders.draft.draft import Candidates, Draft, Later, Learned, Past, Probe, Scored, Verdict
from decoders.errors import UserError, first_line
from decoders.model.state.memory import Context, ReadingStopped
from decoders.model.target_model.target import SPARE_ROWS
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import Verifier, VerifierCard

from .drafter import Drafter
from .method import Method

log = logging.getLogger(__name__)
CARD_FUNCTIONS = (
    "needs",
    "verifier",
    "prompt",
    "brings",
    "applies",
    "cold",
    "joins",
    "declares",
)  # a card's functions, but build and available


class PluginError(UserError):
    """A fault of a plug-in's method, in one sentence; the error behind it is the cause."""


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """Calls a plug-in's code. ``place`` is its file, ``own`` the file or folder that is its own."""

    name: str
    place: str
    own_folder: str

    def call(self, duty: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function. Its own UserError and a run's cancelling stay; any other error becomes the plug-in's."""
        start_time = time.perf_counter()
        try:
            return function(*arguments)
        except (UserError, ReadingStopped, KeyboardInterrupt, GeneratorExit, MemoryError):
            raise
        except BaseException as problem:  # SystemExit too: a plug-in does not end the app
            log.info("%s: %s failed", self.name, duty, exc_info=problem)
            at = place_of(traceback.extract_tb(problem.__traceback__), self.own_folder)
            reason = f"{type(problem).__name__}: {first_line(problem)}{at and ', '}{at}"
            seconds = time.perf_counter() - start_time
            raise self.fault(duty, reason, f" after {seconds:,.0f} s" if seconds >= 1 else "") from problem

    def check(self, context: Context, draft: Any, budget: int, origins: Sequence[str]) -> None:
        """Raise PluginError for what is no draft, or one that the engine cannot take."""
        try:
            problem = draft_fault(context, draft, budget, origins)
        except Exception as error:  # its parts are of no kind that a draft has
            problem = f"its draft cannot be read: {type(error).__name__}: {first_line(error)}"
        if problem:
            raise self.fault("propose", problem)

    def fault(self, duty: str, reason: str, late: str = "") -> PluginError:
        """That the plug-in failed at a duty, how late, and why."""
        return PluginError(f"the plug-in {self.name} ({self.place}) failed in {duty}{late}: {reason}")

    def build(self, kind: type, make: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the plug-in's ``build``. PluginError where it is not of the kind that is wanted."""
        instance = self.call("build", make, *arguments)
        if not isinstance(instance, kind):
            raise self.fault("build", f"it made a {type(instance).__name__}, not a {kind.__name__}")
        return instance


def draft_fault(context: Context, draft: Any, budget: int, origins: Sequence[str]) -> str:
    """The fault of a draft after a context, in plain words; "" where the engine can take it. What has no parts
    of a draft raises anything.
    """
    if not isinstance(draft, Draft):
        return f"it returned {type(draft).__name__}, and a Draft is wanted"
    tokens, vocab = draft.tree.tokens, context.shape.vocab
    if tokens[0] != context.root:
        return f"its draft begins with token {tokens[0]}, and the last token of the context is {context.root}"
    if odd := [token for token in tokens if type(token) is not int or not 0 <= token < vocab]:
        token_rule = f"Python's whole numbers from 0 to {vocab - 1:,} (.tolist() makes them)"
        return f"it drafted {odd[0]!r}, and tokens are {token_rule}"
    if len(tokens) - 1 > budget and (deep := max(draft.tree.depths)) > budget:
        return f"it drafted {deep} tokens deep, and its budget was {budget}: propose() keeps to it"
    if len(tokens) + len(draft.probes) > SPARE_ROWS:
        return f"it drafted {len(tokens) - 1} tokens, and at most {SPARE_ROWS - 1} fit one forward"
    if not len(tokens) == len(draft.origins) == len(draft.sources):
        return (
            f"its draft has {len(tokens)} nodes, {len(draft.origins)} origins and {len(draft.sources)} sources: each "
            "node has one of both"
        )
    if strays := [source for source in draft.sources if not -1 <= source < context.length]:
        return f"its draft names the source {strays[0]!r}, and the context has positions 0 to {context.length - 1:,}"
    if unknown := set(draft.origins[1:]) - set(origins):
        return f"its draft names the origin {min(unknown)!r}, and the method declares {', '.join(origins) or 'none'}"
    return record_fault(context, draft)


def record_fault(context: Context, draft: Draft) -> str:
    """The fault of what a draft says for the record, in plain words; "" where it can be recorded. Numbers that are
    computed when a traced run asks (``Later``) are left alone; what is no number raises.
    """
    if odd := [value for value in (draft.route, draft.reason) if not isinstance(value, str)]:
        return f"its draft's route or reason is {odd[0]!r}, and text is wanted"
    if odd := [source for source in draft.sources if type(source) is not int]:
        return f"its draft names the source {odd[0]!r}, and sources are Python's whole numbers (.tolist() makes them)"
    if odd := [probe for probe in draft.probes if not isinstance(probe, Probe)]:
        return f"a probe of its draft is of the type {type(odd[0]).__name__}, and a Probe is wanted"
    columns = [("nodes", len(draft.tree), {"probabilities": draft.probabilities, **_without_later(draft.terms)})]
    if (candidates := draft.candidates) is not None:
        if not isinstance(candidates, Candidates):
            return f"its draft's candidates are of the type {type(candidates).__name__}, and Candidates are wanted"
        base_columns = {"score": candidates.score, "length": candidates.length, "places in the pool": candidates.pool}
        columns.append(("candidates", len(candidates), {**base_columns, **_without_later(candidates.terms)}))
        lowest = 0 if candidates.pool is None else -1
        for name, low, high in (("position", lowest, context.length - 1), ("length", 0, math.inf)):
            column = np.asarray(getattr(candidates, name))
            if len(column) and (column.dtype.kind not in "iu" or column.min() < low or column.max() > high):
                value_range = f"whole numbers from {low}" + ("" if high == math.inf else f" to {high:,}")
                return f"its candidates' {name} is {column.tolist()}, and {value_range} are allowed"
        if len(candidates.excluded) not in (0, len(candidates)):
            return (
                f"it has {len(candidates)} candidates and {len(candidates.excluded)} of excluded: one for each, or none"
            )
    for kind, count, numbers in columns:
        for name, values in numbers.items():
            if values is not None and np.asarray(values, dtype=float).shape not in ((), (count,)):
                return f"its draft has {count} {kind} and {np.size(values)} numbers of {name}: one for each"
    tables, vocab = draft.distributions, context.shape.vocab
    if isinstance(tables, dict) and any(getattr(table, "shape", ()) != (vocab,) for table in tables.values()):
        return f"a distribution of its draft is none: tensors of {vocab:,} numbers are wanted"
    for value in _without_later(draft.notes).values():
        float(value)
    return ""


def _without_later(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name, but for those that are computed when they are asked for."""
    return {} if isinstance(numbers, Later) else dict(numbers)


class GuardedDrafter(Drafter):
    """A plug-in's drafter: every duty is called by the guard, every draft checked."""

    def __init__(self, inner: Drafter, guard: Guard, origins: Sequence[str]) -> None:
        self.inner, self.guard, self.origins = inner, guard, origins

    looks_at: Any = property(attrgetter("inner.looks_at"))
    keeps: Any = property(attrgetter("inner.keeps"))
    warm: Any = property(attrgetter("inner.warm"))
    learns: Any = property(attrgetter("inner.learns"))
    learns_from_any_draft: Any = property(attrgetter("inner.learns_from_any_draft"))

    def _call(self, duty: str, *arguments: Any) -> Any:
        return self.guard.call(duty, getattr(self.inner, duty), *arguments)

    def propose(self, context: Context, budget: int) -> Draft:
        draft = self._call("propose", context, budget)
        self.guard.check(context, draft, budget, self.origins)
        return draft

    def sample_with(self, chooser: Chooser) -> None:
        self._call("sample_with", chooser)

    def prepare(self, context: Context) -> None:
        self._call("prepare", context)

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        observation = self._call("observe", draft, scored, verdict)
        if observation is not None and not isinstance(observation, Learned):
            raise self.guard.fault(
                "observe", f"it returned {type(observation).__name__}, and None or a Learned is wanted"
            )
        return observation

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        if type(self.inner).resume is not Drafter.resume or type(self.inner).observe is not Drafter.observe:
            self._call("resume", context, past)


def place_of(lines: Iterable[traceback.FrameSummary], code_path: str) -> str:
    """The innermost line that stands in the file or folder ``code_path``: "line 12 of my_method.py"; "" where none
    does.
    """
    code_lines = [line for line in lines if code_path and line.filename.startswith(code_path)]
    return (
        f"line {code_lines[-1].lineno} of {code_lines[-1].filename.replace(chr(92), '/').rpartition('/')[2]}"
        if code_lines
        else ""
    )


def guard(method: Method, place: str, code_path: str) -> Method:
    """The method as a plug-in is registered: ``place`` says where it stands, ``code_path`` is the path of its code."""
    place_name = Path(place).name if place == code_path else place  # a server's users need not know its folders
    guard = Guard(method.name, place_name, code_path)
    origins = tuple(origin.name for origin in method.origins)

    def wrap(duty: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: guard.call(duty, function, *arguments)

    def build(target: Any, params: Any) -> Drafter:
        drafter = guard.build(Drafter, method.build, target, params)
        if type(drafter).propose is Drafter.propose:
            raise guard.fault("build", f"{type(drafter).__name__} has no propose(context, budget), which drafts")
        return GuardedDrafter(drafter, guard, origins)

    def available(target: Any) -> str | None:
        try:
            return guard.call("available", method.available, target)
        except PluginError as problem:
            return str(problem)

    duties = {name: getattr(method, name) for name in CARD_FUNCTIONS}
    duty_wrappers: dict[str, Any] = {name: wrap(name, function) for name, function in duties.items() if function}
    return dataclasses.replace(method, build=build, available=available, **duty_wrappers)


class GuardedVerifier(Verifier):
    """A plug-in's verifier: every duty is called by the guard, every verdict checked."""

    def __init__(self, inner: Verifier, guard: Guard, chooser: Chooser) -> None:
        self.inner, self.guard, self.chooser = inner, guard, chooser
        self.lossless, self.exact_chances = inner.lossless, inner.exact_chances

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        verdict = self.guard.call("its verifier", self.inner, draft, scored)
        if fault := verdict_fault(draft, verdict):
            raise self.guard.fault("its verifier", fault)
        return verdict

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        return self.guard.call("draws", self.inner.draws, route, drafted, accepted)

    def chances(self, draft: Draft, scored: Scored) -> Any:
        if type(self.inner).chances is Verifier.chances:
            self.inner.chooser = self.chooser
        return self.guard.call("chances", self.inner.chances, draft, scored)

    def emits(self, p: Any, q: Any) -> Any:
        return self.guard.call("emits", self.inner.emits, p, q)


def verdict_fault(draft: Draft, verdict: Any) -> str:
    """The fault of a verdict on a draft, in plain words; "" where the engine can take it."""
    if not isinstance(verdict, Verdict):
        return f"it returned {type(verdict).__name__}, and a Verdict is wanted (verifiers.match.judged makes one)"
    parents, path, count = draft.tree.parents, tuple(verdict.path), len(draft.tree)
    if path[:1] != (0,) or any(not 0 < b < count or parents[b] != a for a, b in pairwise(path)):
        return f"its path {path} is no path of the draft: it begins at node 0, and each node follows its parent"
    if type(verdict.bonus) is not int:
        return f"its bonus is {verdict.bonus!r}, and the token after the path is wanted, a whole number"
    if not len(verdict.status) == len(verdict.reasons) == count:
        return f"it has {len(verdict.status)} status and {len(verdict.reasons)} reasons for {count} nodes: one for each"
    return ""


def guarded_verifier(card: VerifierCard, place: str, code_path: str) -> VerifierCard:
    """The verifier as a plug-in's is registered; ``place`` and ``code_path`` as of ``guard``."""
    guard = Guard(card.name, Path(place).name if place == code_path else place, code_path)

    def build(params: Any, chooser: Chooser, stop_ids: frozenset[int]) -> Verifier:
        return GuardedVerifier(guard.build(Verifier, card.build, params, chooser, stop_ids), guard, chooser)

    return dataclasses.replace(card, build=build)
