"""Recording a run: every step becomes rows of a trace at the moment it was decided."""

from __future__ import annotations

import functools
import os
import platform
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from decoders.draft.needs import Needs
from decoders.draft.params import controls
from decoders.draft.settings import AUTO
from decoders.drafters import select_method
from decoders.method.method import Method
from decoders.model.engines.machine import machine
from decoders.model.state.storage import drafter_bytes
from decoders.model.target_model.load import versions
from decoders.model.target_model.own_settings import NEUTRAL, passed_over, recorded_settings
from decoders.model.target_model.target import Target
from decoders.names import BASELINE, TRACE_FULL
from decoders.prompt.prompt import Prompt
from decoders.trace import metrics
from decoders.trace.baseline import baseline
from decoders.trace.rows import Delta
from decoders.trace.run import (
    RunAttention,
    RunCompression,
    RunGrammar,
    RunMachine,
    RunModel,
    RunOneRow,
    RunProcessing,
    RunRecord,
    RunSampling,
    RunState,
)
from decoders.trace.tables import TERMS
from decoders.trace.trace import Trace, prompt_key
from decoders.verifiers.processors import NODE_TERMS as PROCESSED_NODES
from decoders.verifiers.processors import STEP_TERMS as PROCESSED_STEPS
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import DISTANCE

from .decoding import Decoding, Step
from .length import TERMS as LENGTH_TERMS
from .one_row import OneRow
from .rows import Recording

FORWARDS = "term:forward_ms"  # a draft model's
RECORD_STEPS, RECORD_SECONDS = 32, 0.25  # steps wait for one another at most so long
RECORD_BYTES = {"cpu": 8 << 20, "cuda": 256 << 20}  # and while their logits take less
EVENT_SECONDS = 1 / 30  # between two deltas at least
LEAST_CHOICES = 8  # of first choices that are asked for


class Run:
    """One traced run: iterate it for deltas (rows per table, of one or a few steps); ``trace`` holds all rows so far.

    Arguments and errors as of ``Decoding.of``; ``title`` names the run in lists. ``compare`` also runs plain
    decoding of the given prompt, by the same sampling, when the method is done: its output goes into the table
    ``plain`` and its speed into the timings. ``first_choices``: so many of the target's and the drafter's first
    choices are recorded at every position, by which other verifiers judge the run more exactly
    (``decoders.study.judge.judge``). When the loop is over, ``trace.run`` has ``complete``, ``stop``, ``timings`` and
    ``metrics``, and every candidate its ``would_accept``. A failure inside a step ends the run with stop "error"
    and is raised again after the trace was closed.
    """

    first_choices: int | None = None

    def __init__(
        self,
        target: Target,
        prompt: Prompt,
        method: str | Method,
        params: Mapping[str, Any] | None = None,
        *,
        title: str = "",
        compare: bool = False,
        first_choices: int | None = None,
        **options: Any,
    ) -> None:
        entry, values = select_method(method, params)
        decoding = Decoding.of(target, prompt, entry, values, **options)
        self.first_choices = first_choices and min(max(first_choices, LEAST_CHOICES), target.info["vocab"])
        self._open(decoding, describe(entry, values, decoding), title, compare)

    @classmethod
    def of(cls, decoding: Decoding, about: Mapping[str, Any], title: str = "") -> Run:
        """A traced run of a decoding that was made before; ``about`` is what ``describe`` gives of its method."""
        run = cls.__new__(cls)
        run._open(decoding, about, title, False)
        return run

    def _open(self, decoding: Decoding, about: Mapping[str, Any], title: str, compare: bool) -> None:
        self.decoding, self.compare = decoding, compare
        self.trace = Trace.new(header(decoding, about, title))
        if self.first_choices:
            self.trace.run["first_choices"] = self.first_choices
        warpers = decoding.processing and decoding.processing.warpers
        chooser = Chooser(decoding.sampling, warpers)
        self.rows = Recording(self.trace, decoding.target.pieces, chooser, decoding.verifier)
        self.rows.prompt(decoding.prompt)
        self.decode_ms = 0.0
        self._waiting: list[tuple[Step, float]] = []
        self._waiting_bytes = 0
        self._recorded_at = 0.0

    def __iter__(self) -> Iterator[Delta]:
        run = self.trace.run
        try:
            self.decoding.prefill()
            run["timings"]["prefill_ms"] = round(self.decoding.prefill_ms, 3)
            run["timings"]["prepare_ms"] = round(self.decoding.prepare_ms, 3)
            if self.decoding.stop:  # while the prompt was read
                return
            self._begin()
            self._recorded_at = time.perf_counter()
            for step in self._time(iter(self.decoding)):
                self._waiting.append((step, self.decode_ms))
                self._waiting_bytes += step.scored.logits.nbytes
                if self._is_time():
                    yield self._record()
                    if self.rows.full:
                        run["stop"] = TRACE_FULL
                        break
            run["stop"] = run["stop"] or self.decoding.stop
            if self._waiting:
                yield self._record()
            if run["stop"] != "cancelled" and FORWARDS in self.trace.tables["steps"]:
                assert self.decoding.session is not None
                one_row = OneRow.of(self.decoding.target).time(self.decoding.session, self.decode_ms, run["id"])
                run["timings"]["one_row_ms"] = round(one_row.ms, 4)
                run["one_row"] = RunOneRow(**{**asdict(one_row), "context": list(one_row.context)})
            if self.compare and run["stop"] != "cancelled":
                yield self._compare()
        except Exception as error:
            run["stop"] = "error"
            run["error"] = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            if self._waiting:
                yield self._record()
            raise
        finally:
            self._finish()

    def _is_time(self) -> bool:
        """True where the steps that wait are to be recorded now."""
        elapsed_s = time.perf_counter() - self._recorded_at
        byte_limit = RECORD_BYTES.get(self.decoding.target.device.type, 0)
        if elapsed_s > RECORD_SECONDS or self._waiting_bytes >= 2 * byte_limit:
            return True
        return elapsed_s >= EVENT_SECONDS and (len(self._waiting) >= RECORD_STEPS or self._waiting_bytes >= byte_limit)

    def finish(self) -> Trace:
        """The trace, once the run has come to its end."""
        for _ in self:
            pass
        return self.trace

    def one_step(self, step: Step, output_tail: Sequence[int] = ()) -> Trace:
        """The trace of one step that was taken where the decoding's session stands; what was written before it counts
        as prompt. ``output_tail`` is the output that came after it, by which candidates are judged.
        """
        trace, run = self.trace, self.trace.run
        output_tokens = self.decoding.context.tokens[run["prompt_length"] :].tolist()
        self.rows.read(output_tokens, "output")
        run["prompt_length"] += len(output_tokens)
        self._begin()
        self._waiting.append((replace(step, index=0), float(step.draft_ms) + float(step.verify_ms)))
        self._record()
        continuation = (
            list(output_tail) if tuple(output_tail[: len(step.emitted)]) == step.emitted else list(step.emitted)
        )
        text = {"id": trace.tables["tokens"]["id"][: run["prompt_length"]] + continuation}
        metrics.fill_would_accept(Trace(run, {**trace.tables, "tokens": text}))
        run["metrics"] = metrics.compute(trace)
        run["complete"] = True
        return trace

    def _begin(self) -> None:
        """Record the facts that are known once the prompt is read: the pool, and where a draft model looks."""
        pool = self.decoding.context.pool if self.decoding.needs.pool else None
        if pool is not None:
            self.rows.pool(pool)
            self.trace.run["pool"] = {
                "label": pool.label,
                "tokens": len(pool.tokens),
                "passages": len(pool.starts),
                "in_prompt": pool.positions is not None,
            }
        if (run_state := self.decoding.drafter.kept) is not None:
            self.trace.run["kept"] = RunState(**run_state, before=run_state["count"])
        if self.decoding.drafter.looks_at:
            self.trace.run["attention"] = RunAttention(**self.decoding.drafter.looks_at)

    def _compare(self) -> Delta:
        """Plain decoding of the given prompt by the same sampling, as rows of the table ``plain``. It goes on behind
        the prompt that the run has read, over its keys and values, where that is the given one and the model reads a
        prompt once.
        """
        d = self.decoding
        names = ("sampling", "max_new_tokens", "stop_ids", "cancel", "processors")
        options = {**{name: getattr(d, name) for name in names}, "generation": {**NEUTRAL, **d.generation}}
        plain = Decoding.of(d.target, d.user_prompt, BASELINE, **options)
        is_repeat = len(d.prompt.tokens) > 1 and d.prompt.tokens == d.user_prompt.tokens
        read = d.session is not None and is_repeat and d.target.shape.rotary_switch is None
        plain.prefill(d.session if read else None)
        start_time = time.perf_counter()
        ids = [token for step in plain for token in step.emitted]  # known here: nothing is left to wait for
        seconds = time.perf_counter() - start_time
        if plain.stop == "cancelled":
            return {}
        self.trace.run["timings"]["plain_tokens_per_s"] = round(len(ids) / seconds, 3)
        self.trace.run["plain_sampling"] = RunSampling(**asdict(d.sampling))
        return self.rows.plain(ids)

    def _time(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Steps, with the time spent decoding them (recording excluded) added up in ``decode_ms``."""
        while True:
            start_time = time.perf_counter()
            step = next(steps, None)
            self.decode_ms += (time.perf_counter() - start_time) * 1e3
            if step is None:
                return
            yield step

    def _record(self) -> Delta:
        """The rows of the steps that wait."""
        steps, elapsed_ms = [step for step, _ in self._waiting], [elapsed for _, elapsed in self._waiting]
        self._waiting, self._waiting_bytes = [], 0
        delta = self.rows.steps(steps, elapsed_ms)
        self._recorded_at = time.perf_counter()
        return delta

    def _finish(self) -> None:
        run = self.trace.run
        if self._waiting:  # whoever iterated has left
            self._record()
        if not run["stop"]:
            run["stop"] = self.decoding.stop or "cancelled"
        run["timings"]["decode_ms"] = round(self.decode_ms, 3)
        if self.decoding.length is not None:
            run["length"] = self.decoding.length.to_json()
        if (run_state := self.decoding.drafter.kept) is not None:
            run["kept"] = RunState(**{**run.get("kept", {}), **run_state})
        session = self.decoding.session
        if session is not None and (store := session.cache.store) is not None:
            per_token = store.numel() // session.cache.capacity * store.element_size()
            drafting = drafter_bytes(self.decoding.drafter, self.decoding.target, session)
            drafting += session.memory.bytes(session.length - 1)
            run["memory"] = {
                "kv_bytes_per_token": per_token,
                "kv_bytes": per_token * session.length,
                "draft_bytes": drafting,
            }
        metrics.fill_would_accept(self.trace)
        run["metrics"] = metrics.compute(self.trace, baseline(self.trace).tokens_per_s)
        run["complete"] = True


def record(
    target: Target, prompt: Prompt, method: str | Method = BASELINE, params: Mapping[str, Any] | None = None, **options
) -> Trace:
    """Run a method to its end and return the trace. Options as in ``Run``."""
    return Run(target, prompt, method, params, **options).finish()


def describe(method: Method, params: Any, decoding: Decoding) -> dict[str, Any]:
    """The method's part of a run's record: parameters, code, part, origins and declared numbers."""
    part, method = method.part_about(decoding.target, params), method.for_params(params)
    extra_terms = {name: [*terms] for name, terms in LENGTH_TERMS.items()} if decoding.length else {}
    if not decoding.verifier.lossless and not decoding.sampling.greedy:
        extra_terms.setdefault("node_terms", []).append(DISTANCE)
    if decoding.processing is not None and decoding.processing.by_text:
        extra_terms.setdefault("node_terms", []).extend(PROCESSED_NODES)
        extra_terms.setdefault("step_terms", []).extend(PROCESSED_STEPS)
    return {
        "method": {
            **{name: getattr(method, name) for name in ("name", "title", "paper", "summary")},
            "lossless": method.lossless and decoding.verifier.lossless,
            "params": recorded_params(params),
            "resolved": _resolve(params, decoding.needs),
            **({"drafters": [joined.title for joined, _ in joins]} if (joins := method.joins(params)) else {}),
            "controls": [{"name": c.name, "label": c.label, "help": c.help} for c in controls(method.params)],
            "code": {"drafts": _code(decoding.drafter, "propose"), "verifies": _code(decoding.verifier, "__call__")},
        },
        **({"part": part} if part else {}),
        **{
            name: [asdict(term) for term in (*getattr(method, name), *extra_terms.get(name, ()))]
            for name in ("origins", *TERMS)
        },
    }


def header(decoding: Decoding, about: Mapping[str, Any], title: str = "") -> RunRecord:
    """The run's record as it begins; ``about`` is what ``describe`` gives of its method."""
    d = decoding
    run = RunRecord(
        id=uuid.uuid4().hex[:16],
        title=title or about["method"]["title"],
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        complete=False,
        stop="",
        error="",
        model=RunModel(**d.target.info, key=d.target.key),
        machine=machine_of(d.target),
        **about,
        reads={"hidden_layer": max(d.needs.layers, default=None), "heads": [list(h) for h in d.needs.heads]},
        sampling=RunSampling(**asdict(d.sampling)),
        max_new_tokens=d.max_new_tokens,
        prompt_length=len(d.prompt.tokens),
        stop_ids=sorted(d.stop_ids),
        versions={**versions(), "python": platform.python_version()},
        timings={"prefill_ms": 0.0, "prepare_ms": 0.0, "decode_ms": 0.0},
        reference=d.prompt.reference[:20_000],
        metrics={},
        metric_help=metrics.metric_help(),
    )
    if d.length is not None:
        run["length"] = {"policy": AUTO}
    if d.user_prompt.dialogue:
        run["turn"] = d.user_prompt.turn
    if settings := passed_over(getattr(d.target.model, "generation_config", None)):
        run["passed_over"] = settings
    if d.prompt.grammar is not None:
        run["grammar"] = RunGrammar(**asdict(d.prompt.grammar))
    if d.processing is not None:
        run["processing"] = RunProcessing(
            settings=recorded_settings(d.generation), extra=[type(processor).__name__ for processor in d.processors],
            names=d.processing.names,
        )  # fmt: skip
    if d.user_prompt.tokens != d.prompt.tokens:
        run["given_prompt"] = prompt_key(d.target.name, d.user_prompt.tokens)
    if d.prompt.reference_of:
        run["reference_of"] = d.prompt.reference_of
    if d.prompt.compression is not None:
        run["compression"] = RunCompression(**d.prompt.compression)
    if d.prompt.unplaced:
        run["unplaced"] = list(d.prompt.unplaced)
    return run


processor = functools.cache(machine)


def machine_of(target: Target) -> RunMachine:
    """The facts besides the model that a target's speed depends on: the processor, the engine and torch's threads."""
    device, torch_version = target.device, torch.__version__
    name = f"{torch.cuda.get_device_name(device)}, torch {torch_version}" if device.type == "cuda" else processor()
    return {"processor": name, "engine": target.engines.engine, "threads": torch.get_num_threads()}


def recorded_params(params: Any) -> dict[str, Any]:
    """A method's parameters as a trace keeps them: of paths their last name alone."""
    return {c.name: _without_folder(getattr(params, c.name)) for c in controls(type(params))}


def _without_folder(value: Any) -> Any:
    """A parameter as it is recorded: of a path its last name alone, as a trace may be given away. Hub ids stay.

    >>> _without_folder("/models/draft"), _without_folder("org/name"), _without_folder(4)
    ('draft', 'org/name', 4)
    """
    if not isinstance(value, str) or not any(mark in value for mark in "/\\"):
        return value
    path = os.path.expanduser(value)
    exists = os.path.exists(path)  # False for a text that can be no path
    local = value.startswith((".", "/", "~")) or "\\" in value or value.count("/") > 1 or exists
    return re.split(r"[/\\]", os.path.realpath(path) if exists else value.rstrip("/\\"))[-1] if local else value


def _code(part: object, name: str) -> str:
    """The file and function that decides, as ``decoders/drafters/pld.py PldDrafter.propose``."""
    owner = next(c for c in type(part).__mro__ if name in vars(c))
    return f"{owner.__module__.replace('.', '/')}.py {owner.__qualname__}.{name}"


def _resolve(params: Any, needs: Needs) -> dict[str, int]:
    """The layer and heads in use where the parameters left them open."""
    came_to = {"layer": max(needs.layers, default=None), "heads": len(needs.heads) or None}
    return {name: n for name, n in came_to.items() if n is not None and getattr(params, name, 0) is None}
