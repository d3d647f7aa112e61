"""The trace that a request becomes, as a source states it; all else stays unknown.

A trace's columns always have values. Those that an imported run does not know hold placeholders and are named in
``run["unknown"]`` ("steps.drafted", "tokens.kind", …): metrics made of them are None, and views say "not recorded".
Tokens without an id get one from ``LOCAL`` on, one per text; ``NOT_RECORDED`` stands for a token of which nothing is
known, such as a rejected draft. Neither is an id of any model.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decoders.trace import metrics
from decoders.trace.origins import DRAFTER
from decoders.trace.rows import TraceRows, columns_with_defaults
from decoders.trace.trace import Trace

from .request import Choice, Request, ServerStep, words
from .values import clean, plain, share

NOT_RECORDED = 2**31
LOCAL = 2**31 + 1
MOST_PIECE = 900  # bytes of a piece that a trace holds
UNKNOWN_STEPS = ("steps", "steps.accepted", "steps.drafted", "tokens.kind")
REASONS = {"rejected": "the server rejected it", "accepted": "the server accepted it"}


@dataclass(slots=True)
class TextPieces:
    """Ids and bytes of the tokens of one run, those without an id included."""

    hexes: dict[int, tuple[str, bool]] = field(default_factory=dict)
    local: dict[bytes, int] = field(default_factory=dict)

    def id(self, token: int | None, text: str | bytes | None) -> int:
        """The id that stands for a token in the trace."""
        raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
        if token is not None and 0 <= token < NOT_RECORDED:
            if token not in self.hexes or (raw and self.hexes[token][1]):
                self.hexes[token] = (raw[:MOST_PIECE].hex(), False) if raw else (f"<{token}>".encode().hex(), True)
            return token
        if raw is None:
            self.hexes.setdefault(NOT_RECORDED, (b"?".hex(), True))
            return NOT_RECORDED
        raw = raw[:MOST_PIECE]
        if raw not in self.local:
            self.local[raw] = LOCAL + len(self.local)
            self.hexes[self.local[raw]] = (raw.hex(), False)
        return self.local[raw]


def trace_of(request: Request, source: str, title: str) -> Trace:
    """The trace of a request from a source (an importer's name); ``title`` names the source for people."""
    pieces, unknown = TextPieces(), set[str]()
    prompt = _prompt(request, pieces, unknown)
    output = [pieces.id(token.id, token.text) for token in request.tokens]
    unknown.add("tokens.source")
    if not request.is_counted:
        unknown.add("tokens")
    steps = _steps(request, unknown)
    warnings = [*request.warnings, *differences(request)]
    rows = _Rows(request, pieces, prompt, output, unknown)
    for step in steps:
        rows.add_step(step)
    if not any(token.text for token in request.tokens) and request.text == "":
        unknown.add("text")
    if any(token >= NOT_RECORDED for token in (*prompt, *output)):
        unknown.add("tokens.id")
    run = _run(request, source, title, len(prompt), sorted(unknown))
    run["imported"] |= {"warnings": warnings} if warnings else {}
    totals = {name: count for name, count in request.totals.items() if count is not None}
    run["imported"] |= {"totals": totals} if totals else {}
    trace = Trace.new(run)
    for table, columns in rows.delta.items():
        trace.tables[table].update(columns)
    columns = trace.tables["pieces"]
    columns["id"], columns["hex"] = list(pieces.hexes), [piece for piece, _ in pieces.hexes.values()]
    columns["special"] = [special for _, special in pieces.hexes.values()]
    trace.run["metrics"] = metrics.compute(trace)
    return trace


def _run(request: Request, source: str, title: str, prompt_length: int, unknown: list[str]) -> dict[str, Any]:
    identity = (request.key, request.model, prompt_length, [token.id or token.text for token in request.tokens[:64]])
    method = clean(str(request.server_fields.get("method", ""))[:80])
    return {
        "id": hashlib.sha256(repr((source, identity)).encode("utf-8", "replace")).hexdigest()[:16],
        "title": clean(f"{title}: {request.key or request.model or 'a request'}"[:200]),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "complete": True, "stop": clean(request.stop[:200]), "error": "",
        "model": {"name": clean(request.model[:200]) or "not recorded"},
        "method": {
            "name": "imported", "title": f"{title}{f', {method}' if method else ''}"[:200], "paper": "",
            "summary": f"Decoded by a server and imported: {title}.", "params": {}, "resolved": {}, "controls": [],
            "code": {"drafts": "", "verifies": ""},
        },
        "origins": [{
            "name": DRAFTER.name, "letter": "", "label": "drafted", "sentence": "Drafted by the server's drafter.",
            "outline": "round", "hue": 0,
        }],
        "terms": [], "node_terms": [], "step_terms": [],
        "sampling": {}, "max_new_tokens": len(request.tokens), "prompt_length": prompt_length, "stop_ids": [],
        "versions": {}, "timings": {
            "prefill_ms": request.prefill_ms, "decode_ms": request.decode_ms,
            **({"untimed_tokens": request.untimed_tokens} if request.untimed_tokens else {}),
        },
        "metrics": {}, "metric_help": metrics.metric_help(), "unknown": unknown,
        "imported": {
            "source": source, "title": title, "said": plain(request.server_fields),
            "notes": [clean(note[:600]) for note in request.notes[:20]],
            **({"text": clean(request.text[:19_000])} if request.text else {}),
        },
    }  # fmt: skip


def differences(request: Request) -> list[str]:
    """Sentences on each total of the server that is not the sum of what was read; none where nothing can be summed.

    >>> from decoders.importers.request import Token
    >>> request = Request(tokens=[Token(5)], steps=[ServerStep(1, 0, 4)], totals={"drafted": 6, "accepted": 0})
    >>> differences(request)
    ['the server counts 6 drafted tokens, and its steps as they were read 4']
    """
    result = []
    steps = [step for step in request.steps or () if step.accepted is not None and step.drafted is not None]
    sums = {"tokens": len(request.tokens)} if request.is_counted else {}
    if request.steps is not None and len(steps) == len(request.steps):
        sums |= {"drafted": sum(step.drafted or 0 for step in steps)}
        sums |= {"accepted": sum(step.accepted or 0 for step in steps)}
        if surplus := sum(max(0, (step.accepted or 0) - step.emitted) for step in steps):
            result.append(f"the server accepted {surplus} more drafted tokens than it wrote: the answer ended before")
    for name, read in sums.items():
        if isinstance(count := request.totals.get(name), int) and count != read:
            unit = "tokens" if name == "tokens" else f"{name} tokens"
            result.append(f"the server counts {count:,} {unit}, and its steps as they were read {read:,}")
    return result


def _prompt(request: Request, pieces: TextPieces, unknown: set[str]) -> list[int]:
    """Ids that stand for the prompt: its own, those of its words, or one that says it is not recorded."""
    if request.prompt_ids:
        return [pieces.id(token, None) for token in request.prompt_ids]
    if request.prompt:
        parts = (word[at : at + 200] for word in words(request.prompt) for at in range(0, len(word), 200))
        return [pieces.id(None, part) for part in parts]
    unknown.add("prompt")
    return [pieces.id(None, None)]


def _steps(request: Request, unknown: set[str]) -> list[ServerStep]:
    """The steps, made to cover the output exactly; a step per token where nothing is told."""
    count, steps = len(request.tokens), []
    if request.steps is None:
        unknown.update(UNKNOWN_STEPS)
        return [ServerStep(1) for _ in range(count)]
    for step in request.steps:
        step.emitted = min(step.emitted, count)
        if step.emitted > 0:
            steps.append(step)
            count -= step.emitted
    if count:
        request.notes.append(f"the last {count} tokens belong to no step that the source tells of")
        steps += [ServerStep(1) for _ in range(count)]
    if any(step.accepted is None for step in steps):
        unknown.update(UNKNOWN_STEPS[1:])
    if any(step.drafted is None for step in steps):
        unknown.add("steps.drafted")
    return steps


class _Rows(TraceRows):
    """The tables' columns, step after step."""

    def __init__(
        self, request: Request, pieces: TextPieces, prompt: Sequence[int], output: Sequence[int], unknown: set[str]
    ) -> None:
        self.request, self.pieces, self.output, self.unknown = request, pieces, output, unknown
        self.prompt, steps = len(prompt), request.steps or ()
        self.root, self.at, self.step, self.elapsed = prompt[-1], 0, 0, 0.0
        self.is_timed = any(step.ms is not None for step in steps)
        columns = columns_with_defaults({})
        for table, name, is_recorded in (
            ("nodes", "served_prob", any(step.served is not None for step in steps)),  # after temperature and the like
            ("nodes", "confidence", any(step.confidence is not None for step in steps)),
            ("steps", "batch", any(step.batch for step in steps)),  # requests of the forward: its times are of all
        ):
            columns[table] += [(name, None)] * is_recorded
        super().__init__(columns, ("tokens", "steps", "nodes", "targets", "guesses"))
        self.add("tokens", len(prompt), {
            "id": list(prompt), "segment": "text", "passage": -1, "step": -1, "kind": "prompt", "origin": "",
            "source": -1, "pool": -1, "prob": None, "rank": -1,
        })  # fmt: skip

    def add_step(self, step: ServerStep) -> None:
        """Rows of the next step."""
        emitted = range(self.at, self.at + step.emitted)
        accepted = len(emitted) - 1 if step.accepted is None else min(step.accepted, len(emitted))
        drafted = max(accepted, step.drafted or 0)
        if accepted < len(emitted) - 1:  # more tokens than one behind the accepted ones: not a step of one verification
            accepted = drafted = len(emitted) - 1
            self.unknown.update(UNKNOWN_STEPS[1:])
        has_bonus = len(emitted) > accepted  # the target's own token is there
        judgements = [self._probability_and_rank(i) for i in emitted]
        if any(rank < 0 for _, rank in judgements):
            self.unknown.add("tokens.rank")
        self._add_nodes(step, accepted, drafted, judgements)
        self.add("tokens", len(emitted), {
            "id": self.output[emitted.start : emitted.stop], "segment": "output", "passage": -1, "step": self.step,
            "kind": ["accepted"] * accepted + (["bonus" if drafted else "plain"] if has_bonus else []),
            "origin": [DRAFTER.name] * accepted + [""] * has_bonus, "source": -1, "pool": -1,
            "prob": [prob for prob, _ in judgements], "rank": [rank for _, rank in judgements],
        })  # fmt: skip
        self.elapsed += step.ms or 0.0
        full = "full" if accepted == drafted else "partial" if accepted else "none"
        self.add("steps", 1, {
            "context": self.prompt + self.at, "route": "", "drafted": drafted, "depth": drafted, "accepted": accepted,
            "reason": "" if drafted else step.reason, "emitted": len(emitted),
            "bonus": self.output[emitted.stop - 1] if has_bonus else -1, "outcome": full if drafted else "plain",
            "origins": DRAFTER.name if accepted else "", "entropy": None, "draft_ms": step.draft_ms,
            "verify_ms": step.verify_ms, "commit_ms": None, "elapsed_ms": self.elapsed if self.is_timed else None,
            "batch": step.batch,
        })  # fmt: skip
        self.at, self.step, self.root = emitted.stop, self.step + 1, self.output[emitted.stop - 1]

    def _add_nodes(
        self, step: ServerStep, accepted: int, drafted: int, judgements: Sequence[tuple[float | None, int]]
    ) -> None:
        count, ids, hexes = drafted + 1, self.pieces.id, self.pieces.hexes
        offers = [() if depth > len(step.draft) else step.draft[depth - 1] for depth in range(1, count)]
        verdicts = [judgements[i] if i < accepted else (None, -1) for i in range(drafted)]
        tokens = [ids(*(offer[0][:2] if offer else (None, None))) for offer in offers[accepted:]]
        tokens = [*self.output[self.at : self.at + accepted], *tokens]
        reject_count = min(drafted - accepted, int(len(judgements) > accepted))
        unreached_count = drafted - accepted - reject_count
        status = ["accepted"] * accepted + ["rejected"] * reject_count + ["unreached"] * unreached_count
        verdicts[: len(step.draft_choices)] = [(share(prob), rank) for prob, rank in step.draft_choices[:drafted]]

        def shares(values: Sequence[float | None]) -> list[float | None]:
            known_shares = [share(value) for value in values[:drafted]]
            return [None, *known_shares, *[None] * (drafted - len(known_shares))]

        self.add("nodes", count, {
            "step": self.step, "token": [self.root, *tokens],
            "parent": list(range(-1, drafted)), "depth": list(range(count)),
            "origin": ["root", *[DRAFTER.name] * drafted], "source": -1, "pool": -1,
            "draft_prob": [None, *[share(o[0][2]) if o else None for o in offers]],
            "prob": [None, *[prob for prob, _ in verdicts]], "rank": [-1, *[rank for _, rank in verdicts]],
            "status": ["root", *status], "reason": ["", *[REASONS.get(word, "") for word in status]],
            "served_prob": None if step.served is None else shares(step.served),
            "confidence": None if step.confidence is None else shares(step.confidence),
        })  # fmt: skip
        guesses = [(depth, rank, *choice) for depth, o in enumerate(offers) for rank, choice in enumerate(o)]
        self.add("guesses", len(guesses), {
            "step": self.step, "node": [depth for depth, *_ in guesses], "rank": [rank for _, rank, *_ in guesses],
            "token": [ids(token, text) for _, _, token, text, _ in guesses],
            "draft_prob": [share(q) for *_, q in guesses], "prob": None, "residual": None,
        })  # fmt: skip
        nodes, choices = list[int](), list[Choice]()
        for depth in range(count):
            top: Sequence[Choice] = ()
            if depth < len(step.tops):
                top = step.tops[depth]
            elif depth <= accepted and self.at + depth < len(self.request.tokens) and depth < len(judgements):
                top = self.request.tokens[self.at + depth].top
            nodes += [depth] * len(top)
            choices += top
        self.add("targets", len(nodes), {
            "step": self.step, "node": nodes, "prob": [share(p) for _, _, p in choices],
            "token": [token if text is None and token in hexes else ids(token, text) for token, text, _ in choices],
        })  # fmt: skip
        if drafted > accepted + len(step.draft[accepted:]):
            self.unknown.add("nodes.token")

    def _probability_and_rank(self, place: int) -> tuple[float | None, int]:
        """The target's probability of an output token and its rank, where its first choices tell it."""
        token = self.request.tokens[place]
        prob = share(token.prob)
        if prob is None or not token.top:
            return prob, -1
        rank = sum(p is not None and token.prob is not None and p > token.prob + 1e-9 for _, _, p in token.top)
        return prob, rank if rank < len(token.top) else -1
