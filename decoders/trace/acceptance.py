"""Acceptance, every way it is defined, of one run or a set: who uses which is in ``acceptance.toml`` (numpy only).

Conditional acceptance at a depth is stood ÷ decided there (EAGLE's n-α); unconditional acceptance is
stood ÷ steps with a draft (vLLM's and llama.cpp's "acceptance rate per position": the share of drafts that got so far).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .decisions import Decisions, decisions, knows_verdicts
from .metrics import accepted_lengths, declarations, overlaps, ratio
from .origins import recorded_origins
from .trace import Trace


@dataclass(frozen=True, slots=True)
class Definition:
    """One way to say how much is accepted. ``used`` names who reports it so."""

    key: str
    label: str
    formula: str
    unit: str
    used: str
    help: str
    worked: str


DEFINITIONS: tuple[Definition, ...] = declarations(Definition, __file__)
FIRST_LENGTH = 64  # tokens of context; each further range of lengths is twice as long


@dataclass(slots=True)
class AcceptanceSums:
    """The sums that every definition is a quotient of; they add up over runs.

    A run counts as far as it is known: an imported one may know its steps and what they ``accepted``, but not what was
    drafted, or a server's totals alone. ``stood`` counts the accepted tokens of runs that know both step by step,
    ``rate_accepted`` those of all ``drafted`` tokens, ``length_accepted`` those of all ``drafts``; ``first_drafts`` are
    the drafts whose first position is known.
    """

    steps: int = 0
    accepted: int = 0
    emitted: int = 0
    drafts: int = 0
    drafted: int = 0
    depth: int = 0
    stood: int = 0
    tested: int = 0
    first: int = 0
    overlap: float = 0.0
    positions: int = 0
    rate_accepted: int = 0
    length_accepted: int = 0
    first_drafts: int = 0

    def __add__(self, other_sums: AcceptanceSums) -> AcceptanceSums:
        return AcceptanceSums(*(getattr(self, name) + getattr(other_sums, name) for name in self.__slots__))

    @classmethod
    def of(cls, trace: Trace, decisions: Decisions) -> AcceptanceSums:
        steps, overlap_values = trace.tables["steps"], overlaps(trace)
        sums = cls(overlap=sum(overlap_values), positions=len(overlap_values))
        if not {"steps", "steps.accepted"}.intersection(trace.run.get("unknown", ())):
            sums.steps, sums.accepted = len(steps["accepted"]), sum(steps["accepted"])
            sums.emitted = sum(steps["emitted"])
        if knows_verdicts(trace):
            sums.drafts = sum(count > 0 for count in steps["drafted"])
            sums.drafted, sums.depth = sum(steps["drafted"]), sum(steps["depth"])
            sums.stood, sums.tested = int(decisions.is_accepted.sum()), len(decisions.is_accepted)
            sums.first = int(decisions.is_accepted[decisions.depth == 1].sum())
            sums.rate_accepted = sums.length_accepted = sums.stood
            sums.first_drafts = sums.drafts
        elif totals := (trace.run.get("imported") or {}).get("totals"):
            sums += cls.of_totals({name: n for name, n in totals.items() if not sums.steps or name != "steps"})
        return sums

    @classmethod
    def of_totals(cls, totals: Mapping[str, Any]) -> AcceptanceSums:
        """Of a server's totals: ``tokens``, ``steps``, ``drafts``, ``drafted``, ``accepted``, as far as it tells them.

        >>> AcceptanceSums.of_totals({"drafted": 8, "accepted": 3}).values()["draft_acceptance"]
        0.375
        """
        tokens, steps, drafts, drafted, accepted = (
            totals.get(name) for name in ("tokens", "steps", "drafts", "drafted", "accepted")
        )
        sums = cls()
        if drafted is not None and accepted is not None:
            sums.drafted, sums.rate_accepted = drafted, accepted
        if drafts and accepted is not None:
            sums.drafts, sums.length_accepted = drafts, accepted
        if steps and tokens is not None and (accepted is not None or tokens >= steps):
            sums.steps, sums.emitted = steps, tokens
            sums.accepted = tokens - steps if accepted is None else accepted
        return sums

    def values(self) -> dict[str, float | None]:
        """Every definition by key; None where nothing was drafted (or, for β, nothing was compared)."""
        length = ratio(self.length_accepted, self.drafts)
        return {
            "tokens_per_step": ratio(self.accepted + self.steps, self.steps),
            "emitted_per_step": ratio(self.emitted, self.steps),
            "acceptance_length": None if length is None else 1 + length,
            "draft_acceptance": ratio(self.rate_accepted, self.drafted),
            "depth_acceptance": ratio(self.stood, self.depth),
            "tested_acceptance": ratio(self.stood, self.tested),
            "first_acceptance": ratio(self.first, self.first_drafts),
            "beta": ratio(self.overlap, self.positions),
        }


@dataclass(slots=True)
class Acceptance:
    """Of a set of runs: the pooled sums, each run's own, and where drafted positions stood.

    ``groups`` holds, per way to group the decided positions (context, class, segment, origin), how many stood and how
    many were decided: {group: [stood, decided]}. ``lengths`` counts steps with a draft by accepted tokens.
    """

    pooled: AcceptanceSums = field(default_factory=AcceptanceSums)
    runs: list[AcceptanceSums] = field(default_factory=list)
    stood: Counter[int] = field(default_factory=Counter)
    decided: Counter[int] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    groups: dict[str, dict[Any, list[int]]] = field(default_factory=lambda: {name: {} for name in GROUPS})

    @classmethod
    def of(cls, trace: Trace) -> Acceptance:
        """Of one run."""
        choices = decisions(trace)
        sums = AcceptanceSums.of(trace, choices)
        accepted_counts, decision_counts = (
            Counter(choices.depth[choices.is_accepted].tolist()),
            Counter(choices.depth.tolist()),
        )
        acceptance = cls(sums, [sums], accepted_counts, decision_counts, Counter(accepted_lengths(trace)))
        for name, group in zip(GROUPS, _group(trace, choices), strict=True):
            counts = acceptance.groups[name]
            for key, good in zip(group, choices.is_accepted.tolist(), strict=True):
                pair = counts.setdefault(key, [0, 0])
                pair[0] += good
                pair[1] += 1
        return acceptance

    def __iadd__(self, addend: Acceptance) -> Acceptance:
        """The runs of both."""
        self.pooled += addend.pooled
        self.runs += addend.runs
        for own_counts, other_counts in (
            (self.stood, addend.stood),
            (self.decided, addend.decided),
            (self.lengths, addend.lengths),
        ):
            own_counts.update(other_counts)
        for name, counts in addend.groups.items():
            for key, (accepted_count, decision_count) in counts.items():
                pair = self.groups[name].setdefault(key, [0, 0])
                pair[0] += accepted_count
                pair[1] += decision_count
        return self

    @property
    def means(self) -> dict[str, float | None]:
        """Every definition as the mean over runs of each run's own value, those without one left out (SpecForge)."""
        run_values = [run.values() for run in self.runs]
        return {key: _mean(values[key] for values in run_values) for key in self.pooled.values()}

    def depths(self) -> list[dict[str, Any]]:
        """Per depth from 1 on: how many were decided and stood, and both rates."""
        drafts = self.pooled.first_drafts
        return [
            {
                "depth": depth, "decided": self.decided[depth], "stood": self.stood[depth], "drafts": drafts,
                "conditional": ratio(self.stood[depth], self.decided[depth]),
                "unconditional": ratio(self.stood[depth], drafts),
            }
            for depth in sorted(self.decided)
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """All of it as a page draws it; groups with their largest first, contexts by length."""
        parts = {name: getattr(self.pooled, name) for name in AcceptanceSums.__slots__}
        sorted_tables = {
            name: sorted(counts.items(), key=(lambda item: item[0]) if name == "context" else lambda item: -item[1][1])
            for name, counts in self.groups.items()
        }
        return {
            "runs": len(self.runs), "parts": parts, "pooled": self.pooled.values(), "means": self.means,
            "depths": self.depths(), "lengths": sorted(self.lengths.items()),
            "groups": {
                name: [{"key": key, "stood": s, "decided": d, "rate": s / d} for key, (s, d) in rows]
                for name, rows in sorted_tables.items()
            },
        }  # fmt: skip


# how decided positions are grouped: the context's length (the range's first token), what the drafted token is, which
# part of the prompt (or the output, or a pool) it was copied from, and the label of its origin
GROUPS = ("context", "class", "segment", "origin")


WORD = re.compile(r"\s*[^\W\d_]\w*$")
NUMBER = re.compile(r"\s*\d[\d.,]*$")


def token_class(text: str) -> str:
    """Name the kind of a token by its text.

    >>> [token_class(text) for text in (" name", "_x1", "12", "  ", "):", " += 1")]
    ['word', 'word', 'number', 'space', 'punctuation', 'mixed']
    """
    bare = text.strip()
    if not bare:
        return "space"
    if WORD.match(text) or WORD.match(bare.lstrip("_")):
        return "word"
    if NUMBER.match(text):
        return "number"
    return "mixed" if any(c.isalnum() for c in bare) else "punctuation"


def context_range(tokens: int) -> int:
    """The first length of the range that a context of so many tokens falls into: 0, 64, 128, 256, …

    >>> [context_range(n) for n in (1, 63, 64, 200, 5000)]
    [0, 0, 64, 128, 4096]
    """
    return 0 if tokens < FIRST_LENGTH else FIRST_LENGTH << ((tokens // FIRST_LENGTH).bit_length() - 1)


def _group(trace: Trace, choices: Decisions) -> Sequence[list[Any]]:
    """Of every decided position, its key in each of ``GROUPS``."""
    nodes, rows = trace.tables["nodes"], choices.node.tolist()
    context, segment = trace.tables["steps"]["context"], trace.tables["tokens"]["segment"]
    pieces = trace.tables["pieces"]
    classes = {token: token_class(text) for token, text in trace.texts().items()}
    special = (token for token, is_special in zip(pieces["id"], pieces["special"], strict=True) if is_special)
    labels = {origin["name"]: origin.get("label") for origin in recorded_origins(trace.run)}
    classes |= dict.fromkeys(special, "no text")  # a special token, or one that was not recorded

    def place(row: int) -> str:
        source, pool = nodes["source"][row], nodes["pool"][row]
        if 0 <= source < len(segment):
            return segment[source]
        return "pool" if pool >= 0 else "not copied"

    return (
        [context_range(context[step]) for step in choices.step.tolist()],
        [classes[nodes["token"][row]] for row in rows],
        [place(row) for row in rows],
        [labels.get(nodes["origin"][row]) or nodes["origin"][row] for row in rows],
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return ratio(sum(known_values), len(known_values))
