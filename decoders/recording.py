"""Recording a run: every step becomes rows of a trace at the moment it was decided."""

from __future__ import annotations

import platform
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from . import metrics
from .engine import Decoding, Step
from .params import controls
from .pieces import Pieces
from .prompt import Prompt
from .protocols import Method
from .sampling import Sampling
from .target import Target, versions
from .trace import Trace

TARGET_CHOICES = 5  # the target's first choices kept after each visited node

Delta = dict[str, dict[str, list[Any]]]


class Run:
    """One traced run: iterate it for deltas (rows per table, one delta per step); ``trace`` holds all rows so far.

    Arguments as in ``Decoding``; ``title`` names the run in lists. When the loop is over, ``trace.run`` has
    ``complete``, ``stop``,
    ``timings`` and ``metrics``, and every candidate its ``would_accept``. A failure inside a step ends the run with
    stop "error" and is raised again after the trace was closed.
    """

    def __init__(
        self,
        target: Target,
        prompt: Prompt,
        method: str | Method,
        params: Mapping[str, Any] | None = None,
        *,
        sampling: Sampling | None = None,
        max_new_tokens: int = 256,
        title: str = "",
        stop_ids: Collection[int] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self.decoding = Decoding(
            target,
            prompt,
            method,
            params,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            cancel=cancel,
        )
        self.pieces = Pieces(target.tokenizer) if target.tokenizer is not None else None
        self._known: set[int] = set()
        self.trace = Trace.new(self._header(title))
        self.trace.extend(self._prompt_rows())
        self.decode_ms = 0.0

    def __iter__(self) -> Iterator[Delta]:
        run = self.trace.run
        try:
            self.decoding.prefill()
            run["timings"]["prefill_ms"] = round(self.decoding.prefill_ms, 3)
            for step in self._timed(iter(self.decoding)):
                delta = self._rows(step)
                self.trace.extend(delta)
                yield delta
            run["stop"] = self.decoding.stop
        except Exception as error:
            run["stop"] = "error"
            run["error"] = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise
        finally:
            self._finish()

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
        if not run["stop"]:
            run["stop"] = self.decoding.stop or "cancelled"
        run["timings"]["decode_ms"] = round(self.decode_ms, 3)
        metrics.fill_would_accept(self.trace)
        run["metrics"] = metrics.compute(self.trace)
        run["complete"] = True

    def _header(self, title: str) -> dict[str, Any]:
        d = self.decoding
        method, sampling = d.method, d.sampling
        shown = controls(method.params)
        return {
            "id": uuid.uuid4().hex[:16],
            "title": title or method.title,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "complete": False,
            "stop": "",
            "error": "",
            "model": dict(d.target.info),
            "method": {
                "name": method.name,
                "title": method.title,
                "paper": method.paper,
                "summary": method.summary,
                "lossless": method.lossless and d.verifier.lossless,
                "params": {c.name: getattr(d.params, c.name) for c in shown},
                "controls": [{"name": c.name, "label": c.label, "help": c.help} for c in shown],
            },
            "terms": [
                {"key": t.key, "label": t.label, "help": t.help, "low": t.low, "high": t.high} for t in method.terms
            ],
            "reads": {"hidden_layer": d.needs.hidden_layer, "heads": [list(h) for h in d.needs.heads]},
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
            "timings": {"prefill_ms": 0.0, "decode_ms": 0.0},
            "metrics": {},
            "metric_help": [
                {"key": m.key, "label": m.label, "formula": m.formula, "unit": m.unit, "help": m.help}
                for m in metrics.METRICS
            ],
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
            "origin": [""] * n, "source": [-1] * n, "prob": [None] * n,
        }  # fmt: skip
        return {"tokens": tokens, "pieces": self._new_pieces(prompt.tokens)}

    def _new_pieces(self, ids: Collection[int]) -> dict[str, list[Any]]:
        new = [i for i in dict.fromkeys(ids) if i not in self._known]
        self._known.update(new)
        described = [self.pieces.of(i) if self.pieces is not None else (f"<{i}>".encode(), False) for i in new]
        return {"id": new, "hex": [b.hex() for b, _ in described], "special": [s for _, s in described]}

    def _rows(self, step: Step) -> Delta:
        draft, verdict, tree = step.draft, step.verdict, step.draft.tree
        index, count = step.index, len(tree)
        judged = _Judged(step)
        depths = tree.depths
        origins = draft.origins or ("root",) + ("main",) * (count - 1)
        sources = draft.sources or (-1,) * count
        drafted = count - 1
        path = verdict.path[1:]
        emitted = step.emitted
        with_bonus = verdict.bonus is not None
        delta: Delta = {
            "nodes": {
                "step": [index] * count,
                "token": list(tree.tokens),
                "parent": list(tree.parents),
                "depth": list(depths),
                "origin": list(origins),
                "source": list(sources),
                "draft_prob": [round(p, 6) for p in draft.probabilities] if draft.probabilities else [None] * count,
                "prob": [None, *judged.node_probs],
                "rank": [-1, *judged.node_ranks],
                "status": list(verdict.status),
                "reason": list(verdict.reasons),
            },
            "targets": {
                "step": [index] * len(judged.target_nodes),
                "node": judged.target_nodes,
                "token": judged.target_tokens,
                "prob": judged.target_probs,
            },
            "tokens": {
                "id": list(emitted),
                "segment": ["output"] * len(emitted),
                "passage": [-1] * len(emitted),
                "step": [index] * len(emitted),
                "kind": ["accepted"] * len(path) + (["bonus" if drafted else "plain"] if with_bonus else []),
                "origin": [origins[n] for n in path] + ([""] if with_bonus else []),
                "source": [sources[n] for n in path] + ([-1] if with_bonus else []),
                "prob": [judged.node_probs[n - 1] for n in path] + ([judged.bonus_prob] if with_bonus else []),
            },
        }  # fmt: skip
        deepest = max(depths)
        accepted = verdict.accepted
        outcome = "plain" if not drafted else "full" if accepted == deepest else "partial" if accepted else "none"
        delta["steps"] = {
            "context": [step.context_length],
            "route": [draft.route],
            "reason": [draft.reason if not drafted else ""],
            "drafted": [drafted],
            "depth": [deepest],
            "accepted": [accepted],
            "emitted": [len(emitted)],
            "bonus": [verdict.bonus if with_bonus else -1],
            "outcome": [outcome],
            "entropy": [judged.entropy],
            "draft_ms": [round(step.draft_ms, 4)],
            "verify_ms": [round(step.verify_ms, 4)],
            "commit_ms": [round(step.commit_ms, 4)],
            "elapsed_ms": [round(self.decode_ms, 4)],
        }
        if draft.candidates is not None:
            delta["candidates"] = self._candidate_rows(index, draft.candidates)
        if draft.probes:
            delta["probes"] = self._probe_rows(step)
        ids = [*tree.tokens, *judged.target_tokens, *emitted, *delta.get("probes", {}).get("token", ())]
        pieces = self._new_pieces(ids)
        if pieces["id"]:
            delta["pieces"] = pieces
        return delta

    def _candidate_rows(self, index: int, c) -> dict[str, list[Any]]:
        n = len(c)
        order = np.argsort(-np.asarray(c.score, dtype=np.float64), kind="stable")
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        chosen = [False] * n
        if c.chosen >= 0:
            chosen[c.chosen] = True
        rows: dict[str, list[Any]] = {
            "step": [index] * n,
            "position": np.asarray(c.position).tolist(),
            "score": np.round(np.asarray(c.score, dtype=np.float64), 6).tolist(),
            "length": np.asarray(c.length).tolist(),
            "rank": rank.tolist(),
            "chosen": chosen,
            "excluded": list(c.excluded) if c.excluded else [""] * n,
            "would_accept": [-1] * n,
        }
        for term in self.decoding.method.terms:
            values = c.terms.get(term.key)
            rows[f"term:{term.key}"] = (
                [None] * n if values is None else np.round(np.asarray(values, dtype=np.float64), 6).tolist()
            )
        return rows

    def _probe_rows(self, step: Step) -> dict[str, list[Any]]:
        probes, logits = step.draft.probes, step.scored.probe_logits
        assert logits is not None
        best, token = logits.max(-1)
        prob = (best - logits.logsumexp(-1)).exp().tolist()
        return {
            "step": [step.index] * len(probes),
            "parent": [p.parent for p in probes],
            "offset": [p.offset for p in probes],
            "kind": [p.kind for p in probes],
            "token": token.tolist(),
            "prob": [round(p, 6) for p in prob],
        }


class _Judged:
    """The numbers a trace keeps of one step's logits: per node the target's probability and rank, its first choices,
    entropy.
    """

    def __init__(self, step: Step) -> None:
        tree, path = step.draft.tree, list(step.verdict.path)
        logits = step.scored.logits
        top, top_ids = logits[path].topk(min(TARGET_CHOICES, logits.shape[-1]), dim=-1)
        values = logits.cpu().numpy()
        greatest = values.max(-1)
        normaliser = np.log(np.exp(values - greatest[:, None]).sum(-1)) + greatest
        parents, tokens = np.asarray(tree.parents[1:], dtype=np.int64), np.asarray(tree.tokens[1:], dtype=np.int64)
        mine = values[parents, tokens]
        self.node_probs: list[float] = np.round(np.exp(mine - normaliser[parents]).astype(np.float64), 6).tolist()
        self.node_ranks: list[int] = (values[parents] > mine[:, None]).sum(-1).tolist()
        probs = np.exp(top.cpu().numpy() - normaliser[path][:, None]).astype(np.float64)
        self.target_nodes: list[int] = [node for node in path for _ in range(probs.shape[1])]
        self.target_tokens: list[int] = top_ids.flatten().tolist()
        self.target_probs: list[float] = np.round(probs, 6).flatten().tolist()
        root = values[0] - normaliser[0]
        self.entropy = round(float(-(np.exp(root) * np.maximum(root, -1e30)).sum()), 6)
        bonus = step.verdict.bonus
        self.bonus_prob = (
            None if bonus is None else round(float(np.exp(values[path[-1], bonus] - normaliser[path[-1]])), 6)
        )


def record(
    target: Target, prompt: Prompt, method: str | Method = "plain", params: Mapping[str, Any] | None = None, **options
) -> Trace:
    """Run a method to its end and return the trace. Options as in ``Run``."""
    run = Run(target, prompt, method, params, **options)
    for _ in run:
        pass
    return run.trace
