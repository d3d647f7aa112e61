"""Recording a run: every step becomes rows of a trace at the moment it was decided."""

from __future__ import annotations

import math
import platform
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Candidates, Draft
from decoders.draft.params import controls
from decoders.drafters import chosen
from decoders.method.method import Method
from decoders.model.load import versions
from decoders.model.target import Target
from decoders.prompt.prompt import Pool, Prompt
from decoders.trace import metrics
from decoders.trace.trace import Trace
from decoders.verifiers.residual import residual
from decoders.verifiers.sampling import Chooser

from .decoding import Decoding, Step
from .memory_use import held_bytes
from .rows import TARGET_CHOICES, _add_looks, _described, _finite, _Numbers, _resolved, recorded_params

DRAFTER_CHOICES = 8  # those of a draft model

JOINT = "joint"  # kind of a row of the table probes that stands for several: what they guess together

WHOLE_POOL, POOL_AROUND = 20_000, 32  # tokens: a longer pool is recorded around what was used alone
RECORD_STEPS, RECORD_CELLS, RECORD_SECONDS = 32, 2_000_000, 0.25  # steps wait for one another at most so long

STEP_TABLES = ("nodes", "targets", "tokens", "steps", "candidates", "guesses", "attention", "probes")
Delta = dict[str, dict[str, list[Any]]]


class Run:
    """One traced run: iterate it for deltas (rows per table, of one or a few steps); ``trace`` holds all rows so far.

    Arguments as in ``Decoding.of``; ``title`` names the run in lists. ``compare`` also runs plain greedy decoding on
    the same prompt when the method is done: its output goes into the table ``plain`` and its speed into the timings.
    When the loop is over, ``trace.run`` has ``complete``, ``stop``, ``timings`` and ``metrics``, and every candidate
    its ``would_accept``. A failure inside a step ends the run with stop "error" and is raised again after the trace
    was closed.
    """

    def __init__(
        self,
        target: Target,
        prompt: Prompt,
        method: str | Method,
        params: Mapping[str, Any] | Any = None,
        *,
        title: str = "",
        compare: bool = False,
        **options: Any,
    ) -> None:
        entry, values = chosen(method, params)
        decoding = Decoding.of(target, prompt, entry, values, **options)
        self._open(decoding, described(entry, values, decoding), title, compare)

    @classmethod
    def of(cls, decoding: Decoding, about: Mapping[str, Any], title: str = "") -> Run:
        """A traced run of a decoding that was made before; ``about`` is what ``described`` gives of its method."""
        run = cls.__new__(cls)
        run._open(decoding, about, title, False)
        return run

    def _open(self, decoding: Decoding, about: Mapping[str, Any], title: str, compare: bool) -> None:
        self.decoding, self.about, self.compare = decoding, about, compare
        self.pieces = decoding.target.pieces
        self._warpers = Chooser(self.decoding.sampling)  # for its distributions alone
        self._known: set[int] = set()
        self.trace = Trace.new(self._header(title))
        self.trace.extend(self._prompt_rows())
        self.decode_ms = 0.0
        self._pool: Pool | None = None  # where it has to be recorded
        self._waiting: list[tuple[Step, float]] = []
        self._waiting_cells = 0
        self._recorded_at = 0.0

    def __iter__(self) -> Iterator[Delta]:
        run = self.trace.run
        try:
            self.decoding.prefill()
            run["timings"]["prefill_ms"] = round(self.decoding.prefill_ms, 3)
            run["timings"]["prepare_ms"] = round(self.decoding.prepare_ms, 3)
            self._begin_pool()
            if self.decoding.drafter.looks_at:
                run["attention"] = self.decoding.drafter.looks_at
            self._recorded_at = time.perf_counter()
            for step in self._timed(iter(self.decoding)):
                self._waiting.append((step, self.decode_ms))
                self._waiting_cells += step.scored.logits.numel()
                late = time.perf_counter() - self._recorded_at > RECORD_SECONDS
                if late or len(self._waiting) >= RECORD_STEPS or self._waiting_cells >= RECORD_CELLS:
                    yield self._record()
            run["stop"] = self.decoding.stop
            if self._waiting:
                yield self._record()
            if self.compare and run["stop"] != "cancelled":
                yield self._compared()
        except Exception as error:
            run["stop"] = "error"
            run["error"] = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            if self._waiting:
                yield self._record()
            raise
        finally:
            self._finish()

    def alone(self, step: Step, followed: Sequence[int] = ()) -> Trace:
        """The trace of one step that was taken where the decoding's session stands; what was written before it counts
        as prompt. ``followed`` is the output that came after it, where candidates are to be held against that.
        """
        trace, run = self.trace, self.trace.run
        written = self.decoding.context.tokens[run["prompt_length"] :].tolist()
        count = len(written)
        trace.extend({
            "tokens": {
                "id": written, "segment": ["output"] * count, "passage": [-1] * count, "step": [-1] * count,
                "kind": ["prompt"] * count, "origin": [""] * count, "source": [-1] * count, "pool": [-1] * count,
                "prob": [None] * count, "rank": [-1] * count,
            },
            "pieces": self._new_pieces(written),
        })  # fmt: skip
        run["prompt_length"] += count
        self._begin_pool()
        if self.decoding.drafter.looks_at:
            run["attention"] = self.decoding.drafter.looks_at
        self._waiting.append((replace(step, index=0), step.draft_ms + step.verify_ms))
        self._record()
        known = list(followed) if tuple(followed[: len(step.emitted)]) == step.emitted else list(step.emitted)
        before = {"id": trace.tables["tokens"]["id"][: run["prompt_length"]] + known}
        metrics.fill_would_accept(Trace(run, {**trace.tables, "tokens": before}))
        run["metrics"] = metrics.compute(trace)
        run["complete"] = True
        return trace

    def _compared(self) -> Delta:
        """Plain greedy decoding of the same prompt, as rows of the table ``plain``."""
        d = self.decoding
        plain = Decoding.of(
            d.target, d.prompt, "plain", max_new_tokens=d.max_new_tokens, stop_ids=d.stop_ids, cancel=d.cancel
        )
        plain.prefill()
        started = time.perf_counter()
        ids = [token for step in plain for token in step.emitted]
        seconds = time.perf_counter() - started
        if plain.stop == "cancelled":
            return {}
        self.trace.run["timings"]["plain_tokens_per_s"] = round(len(ids) / seconds, 3)
        delta: Delta = {"plain": {"id": ids}, "pieces": self._new_pieces(ids)}
        self.trace.extend(delta)
        return delta

    def _timed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Steps, with the time spent decoding them (recording excluded) added up in ``decode_ms``."""
        while True:
            started = time.perf_counter()
            step = next(steps, None)
            self.decode_ms += (time.perf_counter() - started) * 1e3
            if step is None:
                return
            yield step

    def _finish(self) -> None:
        run = self.trace.run
        if self._waiting:  # whoever iterated has left
            self._record()
        if not run["stop"]:
            run["stop"] = self.decoding.stop or "cancelled"
        run["timings"]["decode_ms"] = round(self.decode_ms, 3)
        session = self.decoding.session
        if session is not None and session.cache.store is not None:
            store = session.cache.store
            per_token = store.numel() // session.cache.capacity * store.element_size()
            drafting = held_bytes(self.decoding.drafter, self.decoding.target, session)
            drafting += session.memory.bytes(session.length - 1)
            run["memory"] = {
                "kv_bytes_per_token": per_token,
                "kv_bytes": per_token * session.length,
                "draft_bytes": drafting,
            }
        metrics.fill_would_accept(self.trace)
        run["metrics"] = metrics.compute(self.trace, run["timings"].get("plain_tokens_per_s"))
        run["complete"] = True

    def _header(self, title: str) -> dict[str, Any]:
        d, sampling = self.decoding, self.decoding.sampling
        return {
            "id": uuid.uuid4().hex[:16],
            "title": title or self.about["method"]["title"],
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "complete": False,
            "stop": "",
            "error": "",
            "model": {**d.target.info, "key": d.target.key},
            **self.about,
            "reads": {"hidden_layer": max(d.needs.layers, default=None), "heads": [list(h) for h in d.needs.heads]},
            "sampling": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "seed": sampling.seed,
            },
            "max_new_tokens": d.max_new_tokens,
            "prompt_length": len(d.prompt.tokens),
            "stop_ids": sorted(d.stop_ids),
            "versions": {**versions(), "python": platform.python_version()},
            "timings": {"prefill_ms": 0.0, "prepare_ms": 0.0, "decode_ms": 0.0},
            "reference": d.prompt.reference[:20_000],
            **({} if d.prompt.compression is None else {"compression": dict(d.prompt.compression)}),
            "metrics": {},
            "metric_help": metrics.metric_help(),
        }

    def _begin_pool(self) -> None:
        """Name the pool in the run's record; its tokens are recorded only if they do not stand in the prompt."""
        pool = self.decoding.context.pool if self.decoding.needs.pool else None
        if pool is None:
            return
        if pool.positions is None:
            self._pool, self._pool_passages = pool, pool.passages
            self._pool_known = np.zeros(len(pool.tokens), dtype=bool)
        self.trace.run["pool"] = {
            "label": pool.label,
            "tokens": len(pool.tokens),
            "passages": len(pool.starts),
            "in_prompt": pool.positions is not None,
        }

    def _pool_rows(self, drafts: list[Draft]) -> dict[str, list[Any]]:
        """The pool's tokens not yet recorded: all of them at first, or (of a long pool) those around what was used."""
        assert self._pool is not None
        count = len(self._pool.tokens)
        wanted = np.arange(0)
        if count > WHOLE_POOL:
            places = [np.asarray(draft.pool, dtype=np.int64) for draft in drafts]
            places += [d.candidates.pool for d in drafts if d.candidates is not None and d.candidates.pool is not None]
            used = np.unique(np.concatenate(places))
            around = used[used >= 0][:, None] + np.arange(-POOL_AROUND, POOL_AROUND + 1)
            wanted = np.unique(np.clip(around, 0, count - 1))
        elif not self._pool_known.any():
            wanted = np.arange(count)
        found = wanted[~self._pool_known[wanted]]
        self._pool_known[found] = True
        return {
            "position": found.tolist(),
            "id": self._pool.tokens[found].tolist(),
            "passage": self._pool_passages[found].tolist(),
        }

    def _prompt_rows(self) -> Delta:
        prompt = self.decoding.prompt
        n = len(prompt.tokens)
        names, passages = ["text"] * n, [-1] * n
        for s in prompt.segments:
            names[s.start : s.stop] = [s.name] * (s.stop - s.start)
            passages[s.start : s.stop] = [s.passage] * (s.stop - s.start)
        tokens = {
            "id": list(prompt.tokens), "segment": names, "passage": passages, "step": [-1] * n, "kind": ["prompt"] * n,
            "origin": [""] * n, "source": [-1] * n, "pool": [-1] * n, "prob": [None] * n, "rank": [-1] * n,
        }  # fmt: skip
        return {"tokens": tokens, "pieces": self._new_pieces(prompt.tokens)}

    def _new_pieces(self, ids: Collection[int]) -> dict[str, list[Any]]:
        new = [i for i in dict.fromkeys(ids) if i not in self._known]
        self._known.update(new)
        described = [self.pieces.of(i) if self.pieces is not None else (f"<{i}>".encode(), False) for i in new]
        return {"id": new, "hex": [b.hex() for b, _ in described], "special": [s for _, s in described]}

    def _record(self) -> Delta:
        """Rows of the steps that wait, added to the trace: together, as most of the cost is per call, not per row."""
        steps, ends = [step for step, _ in self._waiting], [end for _, end in self._waiting]
        self._waiting, self._waiting_cells = [], 0
        numbers = _Numbers(steps)
        delta: Delta = {table: {column: [] for column in self.trace.tables[table]} for table in STEP_TABLES}
        ids: list[int] = []
        for i, (step, end) in enumerate(zip(steps, ends, strict=True)):
            self._add_nodes(delta["nodes"], step, numbers, i)
            self._add_tokens(delta["tokens"], step, numbers, i)
            self._add_step(delta["steps"], step, numbers, i, end)
            if step.draft.candidates is not None:
                self._add_candidates(delta["candidates"], step.index, step.draft.candidates)
            for looks in (step.draft.looks, step.learned and step.learned.looks):
                if looks is not None:
                    _add_looks(delta["attention"], step.index, looks)
            if step.draft.probes:
                self._add_probes(delta["probes"], step)
            ids += step.emitted
        delta["targets"] = numbers.targets
        self._add_guesses(delta["guesses"], steps)
        ids += [token for table in ("nodes", "targets", "guesses", "probes") for token in delta[table]["token"]]
        if self._pool is not None:
            delta["pool"] = self._pool_rows([step.draft for step in steps])
            ids += delta["pool"]["id"]
        delta["pieces"] = self._new_pieces(ids)
        self.trace.extend(delta)
        self._recorded_at = time.perf_counter()
        return delta

    def _add_nodes(self, rows: dict[str, list[Any]], step: Step, numbers: _Numbers, i: int) -> None:
        draft, tree, count = step.draft, step.draft.tree, len(step.draft.tree)
        rows["step"] += [step.index] * count
        rows["token"] += tree.tokens
        rows["parent"] += tree.parents
        rows["depth"] += tree.depths
        rows["origin"] += draft.origins or ("root",) + ("drafter",) * (count - 1)
        rows["source"] += draft.sources or (-1,) * count
        rows["pool"] += draft.pool if draft.pool and self._pool is not None else (-1,) * count
        rows["draft_prob"] += _finite(np.asarray(draft.probabilities)) if draft.probabilities else [None] * count
        rows["prob"] += numbers.probs[i]
        rows["rank"] += numbers.ranks[i]
        rows["status"] += step.verdict.status
        rows["reason"] += step.verdict.reasons
        for term in self.about["node_terms"]:
            key = term["key"]
            values = draft.terms.get(key, step.verdict.terms.get(key))
            rows[f"term:{key}"] += [None] * count if values is None else _finite(np.asarray(values, dtype=float))

    def _add_tokens(self, rows: dict[str, list[Any]], step: Step, numbers: _Numbers, i: int) -> None:
        draft, path, count = step.draft, step.verdict.path[1:], len(step.emitted)
        rows["id"] += step.emitted
        rows["segment"] += ["output"] * count
        rows["passage"] += [-1] * count
        rows["step"] += [step.index] * count
        rows["kind"] += ["accepted"] * len(path)
        rows["origin"] += [draft.origins[node] for node in path] if draft.origins else ["drafter"] * len(path)
        rows["source"] += [draft.sources[node] for node in path] if draft.sources else [-1] * len(path)
        pooled = draft.pool if self._pool is not None else ()
        rows["pool"] += [pooled[node] for node in path] if pooled else [-1] * len(path)
        rows["prob"] += [numbers.probs[i][node] for node in path]
        rows["rank"] += [numbers.ranks[i][node] for node in path]
        if step.verdict.bonus is not None:
            rows["kind"].append("bonus" if draft.tree.drafted else "plain")
            rows["origin"].append("")
            rows["source"].append(-1)
            rows["pool"].append(-1)
            rows["prob"].append(numbers.bonus_prob[i])
            rows["rank"].append(numbers.bonus_rank[i])

    def _add_step(self, rows: dict[str, list[Any]], step: Step, numbers: _Numbers, i: int, end: float) -> None:
        origins = step.draft.origins
        won = dict.fromkeys(origins[node] if origins else "drafter" for node in step.verdict.path[1:])
        drafted, deepest, accepted = step.draft.tree.drafted, max(step.draft.tree.depths), step.accepted
        outcome = "plain" if not drafted else "full" if accepted == deepest else "partial" if accepted else "none"
        values = {
            "context": step.context_length,
            "route": step.draft.route,
            "reason": "" if drafted else step.draft.reason,
            "drafted": drafted,
            "depth": deepest,
            "accepted": accepted,
            "emitted": len(step.emitted),
            "bonus": -1 if step.verdict.bonus is None else step.verdict.bonus,
            "outcome": outcome,
            "origins": "+".join(won),
            "entropy": numbers.entropy[i],
            "draft_ms": round(step.draft_ms, 4),
            "verify_ms": round(step.verify_ms, 4),
            "commit_ms": round(step.commit_ms, 4),
            "elapsed_ms": round(end, 4),
        }
        notes = {**step.draft.notes, **(step.learned.notes if step.learned else {})}
        for term in self.about["step_terms"]:
            note = notes.get(term["key"])
            values[f"term:{term['key']}"] = None if note is None or not math.isfinite(note) else round(float(note), 6)
        for column, value in values.items():
            rows[column].append(value)

    def _add_candidates(self, rows: dict[str, list[Any]], index: int, c: Candidates) -> None:
        n = len(c)
        score = np.asarray(c.score, dtype=np.float64)
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(-score, kind="stable")] = np.arange(n)
        chosen = [False] * n
        if c.chosen >= 0:
            chosen[c.chosen] = True
        rows["step"] += [index] * n
        rows["position"] += np.asarray(c.position).tolist()
        rows["pool"] += [-1] * n if c.pool is None or self._pool is None else np.asarray(c.pool).tolist()
        rows["score"] += _finite(score)
        rows["length"] += np.asarray(c.length).tolist()
        rows["rank"] += rank.tolist()
        rows["chosen"] += chosen
        rows["excluded"] += c.excluded or [""] * n
        rows["would_accept"] += [-1] * n
        for term in self.about["terms"]:
            values = c.terms.get(term["key"])
            given = [None] * n if values is None else _finite(np.asarray(values, dtype=np.float64))
            rows[f"term:{term['key']}"] += given

    def _add_guesses(self, rows: dict[str, list[Any]], steps: list[Step]) -> None:
        """What the drafter and the target would say after each node that brings a distribution, side by side."""
        places = [(step, node) for step in steps for node in step.draft.distributions or ()]
        if not places:
            return
        drawn = places[0][0].draft.drawn  # of a run, all drafts or none
        q = torch.stack([step.draft.distributions[node] for step, node in places]).float()  # type: ignore[index]
        logits = torch.cat([s.scored.logits[list(s.draft.distributions)] for s in steps if s.draft.distributions])
        p = (self._warpers.probabilities(logits) if drawn else logits.softmax(-1)).float()
        best, first = q.topk(min(DRAFTER_CHOICES, q.shape[1]))
        firsts: list[list[int]] = first.tolist()
        theirs: list[list[int]] = p.topk(min(TARGET_CHOICES, p.shape[1])).indices.tolist()
        among = (best[:, None, :] > best[:, :, None]).sum(-1).tolist()  # ranks of the drafter's first; equals share one
        children = {step.index: step.draft.tree.children() for step in steps}
        at: list[int] = []
        token: list[int] = []
        rank: list[int] = []
        rest: list[int] = []  # rows whose rank is not known from the drafter's first
        redrawn: list[tuple[int, int, int]] = []  # place, and its rows, of a draw that was replaced
        for i, (step, node) in enumerate(places):
            path, bonus = step.verdict.path, step.verdict.bonus
            wanted = dict(zip(firsts[i], among[i], strict=True))
            others = [*theirs[i], *children[step.index][node]]
            if node == path[-1] and bonus is not None:
                others.append(bonus)
            for other in others:
                wanted.setdefault(other, -1)
            if node == path[-1] and bonus is not None and drawn and len(path) < len(step.draft.tree):
                redrawn.append((i, len(token), len(token) + len(wanted)))
            rest += range(len(token) + len(firsts[i]), len(token) + len(wanted))
            at += [i] * len(wanted)
            token += wanted
            rank += wanted.values()
        where, ids = torch.tensor(at, device=q.device), torch.tensor(token, device=q.device)
        chosen = q[where, ids]
        ahead = q[where[rest]] > chosen[rest][:, None]
        for row, found in zip(rest, ahead.sum(-1, dtype=torch.int32).tolist(), strict=True):
            rank[row] = found
        left: list[float | None] = [None] * len(at)
        for i, start, stop in redrawn:
            left[start:stop] = _finite(residual(p[i], q[i])[ids[start:stop]].double().numpy(force=True))
        order = sorted(range(len(at)), key=lambda row: (at[row], rank[row]))
        columns = {
            "step": [places[i][0].index for i in at],
            "node": [places[i][1] for i in at],
            "token": token,
            "rank": rank,
            "draft_prob": _finite(chosen.double().numpy(force=True)),
            "prob": _finite(p[where, ids].double().numpy(force=True)),
            "residual": left,
        }
        for name, values in columns.items():
            rows[name] += [values[row] for row in order]

    @staticmethod
    def _add_probes(rows: dict[str, list[Any]], step: Step) -> None:
        probes, logits = step.draft.probes, step.scored.probe_logits
        assert logits is not None
        best, token = logits.max(-1)
        rows["step"] += [step.index] * len(probes)
        rows["parent"] += [p.parent for p in probes]
        rows["offset"] += [p.offset for p in probes]
        rows["kind"] += [p.kind for p in probes]
        rows["token"] += token.tolist()
        rows["prob"] += [round(p, 6) for p in (best - logits.logsumexp(-1)).exp().tolist()]
        for guess in step.learned.joint if step.learned else ():
            for column, value in (
                ("step", step.index), ("parent", guess.parent), ("offset", guess.offset), ("kind", JOINT),
                ("token", guess.token), ("prob", round(guess.probability, 6)),
            ):  # fmt: skip
                rows[column].append(value)


def described(method: Method, params: Any, decoding: Decoding) -> dict[str, Any]:
    """What a run's record says of its method: parameters, origins and declared numbers."""
    return {
        "method": {
            "name": method.name,
            "title": method.title,
            "paper": method.paper,
            "summary": method.summary,
            "lossless": method.lossless and decoding.verifier.lossless,
            "params": recorded_params(params),
            "resolved": _resolved(params, decoding.needs),
            "controls": [{"name": c.name, "label": c.label, "help": c.help} for c in controls(method.params)],
        },
        "origins": [asdict(origin) for origin in method.origins],
        "terms": [_described(t) for t in method.terms],
        "node_terms": [_described(t) for t in method.node_terms],
        "step_terms": [_described(t) for t in method.step_terms],
    }


def record(
    target: Target, prompt: Prompt, method: str | Method = "plain", params: Mapping[str, Any] | None = None, **options
) -> Trace:
    """Run a method to its end and return the trace. Options as in ``Run``."""
    run = Run(target, prompt, method, params, **options)
    for _ in run:
        pass
    return run.trace
