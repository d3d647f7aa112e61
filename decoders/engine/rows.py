"""Rows of every table of a trace, from a run's prompt and steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from decoders.draft.draft import Candidates, Draft, Later
from decoders.draft.lattice import Lattice
from decoders.draft.pruning import RANK
from decoders.model.state.transfer import fetch
from decoders.prompt.pieces import Pieces
from decoders.prompt.prompt import Pool, Prompt
from decoders.trace.check import MAX_CELLS
from decoders.trace.rows import Delta, TraceRows, columns_with_defaults
from decoders.trace.tables import TERMS
from decoders.trace.trace import Trace
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import DISTANCE, Verifier

from .decoding import Step
from .numbers import TargetNumbers, finite, guesses, looked_at

log = logging.getLogger(__name__)
JOINT = "joint"  # kind of a row of the table probes that stands for several: what they guess together
EDGES = 8  # first candidates of a lattice's position whose transitions are recorded
WHOLE_POOL, POOL_AROUND = 20_000, 32  # tokens: a longer pool is recorded around what was used alone

STEP_TABLES = (
    "nodes", "targets", "tokens", "steps", "candidates", "guesses", "attention", "probes", "pruned", "lattice",
    "transitions", "assistant",
)  # fmt: skip
MAX_CANDIDATES = 256  # candidates of a step that are recorded besides the chosen one: the best
FEWER = (0.25, 16), (0.4, 0)  # so many, where the trace holds this share of the values that a file may have
FULL = 0.95  # where the run has to end
NEAR = 0.6  # from this share on nothing is recorded that a trace can do without
DISPENSABLE = ("attention", "guesses", "pruned", "lattice", "transitions", "assistant")
WITH_TOKENS = ("nodes", "targets", "guesses", "probes", "pruned", "lattice")


class Recording:
    """Writes the rows of one run into its trace, in the order in which things were decided."""

    def __init__(self, trace: Trace, pieces: Pieces | None, warpers: Chooser, verifier: Verifier | None = None) -> None:
        self.trace = trace
        self._pieces, self._warpers = pieces, warpers
        self._pieces_written: set[int] = set()
        self._columns = columns_with_defaults(trace.run)
        self._terms = {table: [t["key"] for t in trace.run.get(term_field, ())] for term_field, table in TERMS.items()}
        self._verifier = verifier if DISTANCE.key in self._terms["nodes"] else None  # of a lossy run
        self._pool: Pool | None = None  # where its tokens have to be recorded
        self._pool_written = np.zeros(0, dtype=bool)
        self._cells = 0  # values written

    def prompt(self, prompt: Prompt) -> None:
        """The prompt's tokens with their segments."""
        segments, passages = ["text"] * len(prompt.tokens), [-1] * len(prompt.tokens)
        for s in prompt.segments:
            segments[s.start : s.stop] = [s.name] * (s.stop - s.start)
            passages[s.start : s.stop] = [s.passage] * (s.stop - s.start)
        self.read(prompt.tokens, segments, passages)

    def read(self, ids: Sequence[int], segment: str | list[str], passage: int | list[int] = -1) -> None:
        """Tokens that were there before the first step."""
        rows = self._rows("tokens")
        rows.add("tokens", len(ids), {
            "id": list(ids), "segment": segment, "passage": passage, "step": -1, "kind": "prompt", "origin": "",
            "source": -1, "pool": -1, "prob": None, "rank": -1,
        })  # fmt: skip
        self._write(rows, ids)

    def plain(self, ids: list[int]) -> Delta:
        """Record plain decoding's output for the same prompt."""
        rows = self._rows("plain")
        rows.add("plain", len(ids), {"id": ids})
        return self._write(rows, ids)

    def pool(self, pool: Pool) -> None:
        """The pool that drafts are copied from: its tokens are recorded only if they do not stand in the prompt."""
        if pool.positions is None:
            self._pool, self._pool_written = pool, np.zeros(len(pool.tokens), dtype=bool)

    def steps(self, steps: list[Step], elapsed_ms: list[float]) -> Delta:
        """Rows of some steps together, as most of the cost is per call, not per row; ``elapsed_ms`` is per step."""
        rows = self._rows(*STEP_TABLES, *(["pool"] if self._pool is not None else []))
        near = self._near(steps[0].index)
        numbers = TargetNumbers(steps, self.trace.run.get("first_choices"))
        guess_columns, betas = guesses(steps, self._warpers, numbers)
        ids: list[int] = []
        for i, (step, elapsed) in enumerate(zip(steps, elapsed_ms, strict=True)):
            self._add_step(rows, step, numbers, i, elapsed, betas)
            if (ranking := step.draft.candidates) is not None:
                rows.delta["steps"]["unlisted"][-1] = self._add_candidates(rows, step.index, ranking)
            if near:
                ids += step.emitted
                if step.draft.probes:
                    self._add_probes(rows, step)
                continue
            for looks in (step.draft.looks, step.observation and step.observation.looks):
                if looks is not None:
                    for look_columns in looked_at(looks):
                        rows.add("attention", len(look_columns["node"]), {"step": step.index, **look_columns})
            if step.draft.probes:
                self._add_probes(rows, step)
            if (cut := step.draft.left_out) is not None:
                rows.add("pruned", len(cut.tokens), {
                    "step": step.index, "token": cut.tokens, "parent": cut.parents,
                    "draft_prob": finite(np.asarray(cut.probabilities)), "score": finite(np.asarray(cut.scores)),
                    "why": [*cut.reasons, *[RANK] * (len(cut.tokens) - len(cut.reasons))],
                })  # fmt: skip
            if step.draft.lattice is not None:
                _add_lattice(rows, step.index, step.draft.lattice())
            if (translation := step.draft.translated) is not None:
                rows.add("assistant", len(translation.tokens), {
                    "step": step.index, "token": translation.tokens,
                    "hex": [piece.hex() for piece in translation.pieces],
                    "draft_prob": finite(np.asarray(translation.probabilities)), "first": translation.first,
                    "last": translation.last,
                })  # fmt: skip
            ids += step.emitted
        for table, columns in (("targets", numbers.targets), ("guesses", {} if near else guess_columns)):
            if not columns:
                continue
            rows.add(table, len(columns["step"]), columns)
        ids += [token for table in WITH_TOKENS for token in rows.delta[table]["token"]]
        if self._pool is not None:
            self._add_pool(rows, self._pool, [step.draft for step in steps])
            ids += rows.delta["pool"]["id"]
        return self._write(rows, ids)

    def _rows(self, *tables: str) -> TraceRows:
        return TraceRows(self._columns, (*tables, "pieces"))

    def _write(self, rows: TraceRows, ids: Collection[int]) -> Delta:
        """The rows, added to the trace with the pieces of tokens that occur for the first time."""
        new = [i for i in dict.fromkeys(ids) if i not in self._pieces_written]
        self._pieces_written.update(new)
        pieces = [self._pieces.of(i) if self._pieces is not None else (f"<{i}>".encode(), False) for i in new]
        columns = {"id": new, "hex": [b.hex() for b, _ in pieces], "special": [s for _, s in pieces]}
        rows.add("pieces", len(new), columns)
        self.trace.extend(rows.delta)
        self._cells += sum(len(values) for columns in rows.delta.values() for values in columns.values())
        return rows.delta

    @property
    def full(self) -> bool:
        """True where no more fits into a file; said in the run."""
        if self._cells < FULL * MAX_CELLS:
            return False
        self.trace.run.setdefault("left_out", []).append(
            f"The run was ended here, behind {len(self.trace.tables['steps']['context']):,} steps: its trace holds "
            f"{self._cells:,} of the {MAX_CELLS:,} values that a file may have, and more could not be saved."
        )
        return True

    def _near(self, step: int) -> bool:
        """True where the trace is near the values that a file may hold; said once, to the log and in the run."""
        run = self.trace.run
        if self._cells < NEAR * MAX_CELLS:
            return False
        if not run.get("left_out"):
            words = (
                f"From step {step} on only what was drafted, judged and written is recorded ({', '.join(DISPENSABLE)} "
                f"and all candidates but the chosen one are not): the trace holds {self._cells:,} of the "
                f"{MAX_CELLS:,} values that a file may have."
            )
            run["left_out"] = [words]
            log.warning("%s", words)
        return True

    def _add_step(
        self, rows: TraceRows, step: Step, numbers: TargetNumbers, i: int, elapsed_ms: float,
        betas: Mapping[tuple[int, int], float],
    ) -> None:  # fmt: skip
        """A step's tree, its row in steps, and the tokens it emitted: the accepted path's, then the target's own."""
        draft, tree, verdict, bonus = step.draft, step.draft.tree, step.verdict, step.verdict.bonus
        count, drafted, deepest, accepted = len(tree), tree.drafted, max(tree.depths), step.accepted
        shared = {  # node → what its token keeps when it is emitted
            "origin": draft.origins or ("root",) + ("drafter",) * drafted,
            "source": draft.sources or (-1,) * count,
            "pool": draft.pool if draft.pool and self._pool is not None else (-1,) * count,
            "prob": numbers.probs[i],
            "rank": numbers.ranks[i],
        }
        verified: Mapping[str, Any] = verdict.terms
        if isinstance(verified, Later):  # not computed yet: it is known of all these steps together
            verified = {"overlap": [betas.get((step.index, parent), math.nan) for parent in tree.parents]}
        if self._verifier is not None:
            scored = step.scored if step.processed is None else step.processed.process(step.scored)
            verified = {**verified, DISTANCE.key: self._verifier.distances(draft, scored, accepted + 1)}
        verified = {**verified, **numbers.node_terms[i]}
        of_nodes = {key: draft.terms.get(key, verified.get(key)) for key in self._terms["nodes"]}
        rows.add("nodes", count, {
            **shared, **_terms(of_nodes), "step": step.index, "token": tree.tokens, "parent": tree.parents,
            "depth": tree.depths, "status": verdict.status, "reason": verdict.reasons,
            "draft_prob": finite(np.asarray(draft.probabilities)) if draft.probabilities else None,
        })  # fmt: skip
        emitted = {name: [values[node] for node in verdict.path[1:]] for name, values in shared.items()}
        origins = dict.fromkeys(emitted["origin"])
        if bonus is not None:
            bonus_values = ("", -1, -1, numbers.bonus_prob[i], numbers.bonus_rank[i])
            for values, value in zip(emitted.values(), bonus_values, strict=True):
                values.append(value)
        kinds = ["accepted"] * accepted + ([] if bonus is None else ["bonus" if drafted else "plain"])
        rows.add("tokens", len(step.emitted), {
            **emitted, "id": step.emitted, "segment": "output", "passage": -1, "step": step.index, "kind": kinds,
        })  # fmt: skip
        learned_notes = step.observation.notes if step.observation else {}
        forbidden = float(np.nansum(numbers.node_terms[i]["forbidden"])) if numbers.node_terms[i] else math.nan
        all_notes = {**draft.notes, **learned_notes, "forbidden": forbidden}
        notes = {key: all_notes.get(key, math.nan) for key in self._terms["steps"]}
        rows.add("steps", 1, {
            "context": step.context_length, "route": draft.route, "reason": "" if drafted else draft.reason,
            "drafted": drafted, "depth": deepest, "accepted": accepted, "emitted": len(step.emitted),
            "bonus": -1 if bonus is None else bonus,
            "outcome": "plain" if not drafted else "full" if accepted == deepest else "partial" if accepted else "none",
            "origins": "+".join(origins),
            "entropy": numbers.entropy[i],
            **{name: round(float(getattr(step, name)), 4) for name in ("draft_ms", "verify_ms", "commit_ms")},
            "decide_ms": None if step.decide_ms is None else round(float(step.decide_ms), 4),
            "engine": step.scored.ran.engine, "engine_rows": float(step.scored.ran.rows or count + len(draft.probes)),
            "engine_keys": float(step.scored.ran.keys) or None, "elapsed_ms": round(elapsed_ms, 4),
            **{f"term:{key}": round(float(n), 6) if math.isfinite(n) else None for key, n in notes.items()},
        })  # fmt: skip

    def _add_candidates(self, rows: TraceRows, index: int, ranking: Candidates) -> int:
        """The chosen candidate and the best others; the number of those that are not recorded."""
        share = self._cells / MAX_CELLS
        row_limit = min([limit for bound, limit in FEWER if share >= bound], default=MAX_CANDIDATES)
        ranking, rank = ranking.best(row_limit)
        count, score = len(ranking), np.asarray(ranking.score, dtype=np.float64)
        is_chosen = (np.arange(count) == ranking.chosen).tolist()
        rows.add("candidates", count, {
            "step": index, "position": np.asarray(ranking.position).tolist(), "score": finite(score),
            "pool": -1 if ranking.pool is None or self._pool is None else np.asarray(ranking.pool).tolist(),
            "length": np.asarray(ranking.length).tolist(), "rank": rank.tolist(), "chosen": is_chosen,
            "excluded": ranking.excluded or "", "would_accept": -1,
            **_terms({key: ranking.terms.get(key) for key in self._terms["candidates"]}),
        })  # fmt: skip
        return ranking.unlisted

    @staticmethod
    def _add_probes(rows: TraceRows, step: Step) -> None:
        probes, logits, joint = (
            step.draft.probes,
            step.scored.probe_logits,
            step.observation.joint if step.observation else (),
        )
        assert logits is not None
        best, token = logits.max(-1)
        prob = (best - logits.logsumexp(-1)).exp().tolist()
        rows.add("probes", len(probes) + len(joint), {
            "step": step.index,
            "parent": [p.parent for p in (*probes, *joint)],
            "offset": [p.offset for p in (*probes, *joint)],
            "kind": [p.kind for p in probes] + [JOINT] * len(joint),
            "token": token.tolist() + [guess.token for guess in joint],
            "prob": [round(p, 6) for p in prob + [guess.probability for guess in joint]],
        })  # fmt: skip

    def _add_pool(self, rows: TraceRows, pool: Pool, drafts: list[Draft]) -> None:
        """The pool's tokens not yet recorded: all of them at first, or (of a long pool) those around what was used."""
        count = len(pool.tokens)
        positions = np.arange(0)
        if count > WHOLE_POOL:
            places = [np.asarray(draft.pool, dtype=np.int64) for draft in drafts]
            places += [d.candidates.pool for d in drafts if d.candidates is not None and d.candidates.pool is not None]
            used_places = np.unique(np.concatenate(places))
            windows = used_places[used_places >= 0][:, None] + np.arange(-POOL_AROUND, POOL_AROUND + 1)
            positions = np.unique(np.clip(windows, 0, count - 1))
        elif not self._pool_written.any():
            positions = np.arange(count)
        new = positions[~self._pool_written[positions]]
        self._pool_written[new] = True
        rows.add("pool", len(new), {
            "position": new.tolist(), "id": pool.tokens[new].tolist(), "passage": pool.passages[new].tolist(),
        })  # fmt: skip


def _add_lattice(rows: TraceRows, index: int, lattice: Lattice) -> None:
    """A lattice's candidates and, between the first ``EDGES`` of neighbouring positions and the walk, transitions."""
    tokens, logprobs, walk = fetch(lattice.tokens, lattice.logprobs, lattice.walk)
    count = tokens.shape[1]
    walk_mask = np.arange(count) == walk[:, None]
    depth, rank = (axis.ravel() for axis in np.indices(tokens.shape))
    rows.add("lattice", tokens.size, {
        "step": index, "depth": (depth + 1).tolist(), "rank": rank.tolist(), "token": tokens.ravel().tolist(),
        "logprob": finite(logprobs.ravel()), "walked": walk_mask.ravel().tolist(),
    })  # fmt: skip
    if lattice.transitions is None:
        return
    (scores,) = fetch(lattice.transitions)
    node_mask = walk_mask | (np.arange(count) < EDGES)
    pairs = node_mask[:, None, :] & np.concatenate([np.arange(count)[None] == 0, node_mask[:-1]])[:, :, None]
    at, parent_ranks, child_ranks = np.nonzero(pairs)
    rows.add("transitions", len(at), {
        "step": index, "depth": (at + 1).tolist(), "before": parent_ranks.tolist(), "rank": child_ranks.tolist(),
        "score": finite(scores[pairs]),
    })  # fmt: skip


def _terms(values: Mapping[str, Any]) -> dict[str, list[float | None] | None]:
    """A method's own numbers as columns; None where it did not give one."""
    return {f"term:{k}": None if v is None else finite(np.asarray(v, dtype=np.float64)) for k, v in values.items()}
