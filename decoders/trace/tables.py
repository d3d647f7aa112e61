"""The tables of ``spectrace/1`` and what every column holds: the one list of columns, of which all else is made.

A trace outlives its columns. The version stays ``spectrace/1``: columns and tables are only ever added. The columns of
the first version are required; one that is added later carries a default (``name type=default``), which is read where a
file has no such column. Columns and tables that this program does not know, of a later version, are kept as they are
and shown as plain values. ``tests/frozen`` holds files of earlier versions, and a test opens every one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = "spectrace/1"
MAX_COLUMNS = 64  # of one table
NO_TABLES = ("schema", "run", "report")  # parts of a trace's JSON; a report is made anew, and never read
MAX_MORE_TABLES = 8  # that this program does not know
REQUIRED = object()  # the default of a column that every file has


class TraceError(ValueError):
    """What is wrong with a trace or its file, in one sentence."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type and what it holds.

    The types are int, float (None: not measured), str and bool; any, of a column that this program does not know, is
    each of them. ``default`` stands in every row of a file that was written before there was the column.
    """

    name: str
    type: str
    help: str
    default: Any = REQUIRED


def _columns(text: str) -> tuple[Column, ...]:
    """A column per line: name, type (with a default as JSON: ``int=-1``) and what it holds."""
    columns = []
    for line in text.strip().splitlines():
        name, kind, help = line.split(None, 2)
        kind, _, default = kind.partition("=")
        columns.append(Column(name, kind, help, json.loads(default) if default else REQUIRED))
    return tuple(columns)


TABLES: dict[str, tuple[Column, ...]] = {
    # every token id that occurs anywhere in the trace, once
    "pieces": _columns("""
        id       int    token id
        hex      str    the token's bytes, in hexadecimal (may be part of a UTF-8 character)
        special  bool   a special token (role marker, end of text): its bytes are its name
    """),
    # one row per position: the prompt, then the output
    "tokens": _columns("""
        id       int    token id
        segment  str    template, instruction, context, question, chat or output
        passage  int    passage number inside the context (from 0), -1 elsewhere
        step     int    step that emitted it, -1 for the prompt
        kind     str    prompt, accepted, bonus or plain (a step without a draft)
        origin   str    where the drafted token came from (one of the run's origins), "" otherwise
        source   int    position it was copied from, -1 if not copied
        pool     int    place in the pool it was copied from, -1 if not from there
        prob     float  the target's probability of it when it was decided (temperature 1)
        rank     int    its rank in the target's distribution then (0 = the target's first choice), -1 for the prompt
    """),
    # one row per verify step; the method's numbers follow as columns "term:<key>", see run["step_terms"]
    "steps": _columns("""
        context      int    committed tokens before the step, the root included (the root is at context - 1)
        route        str    the way the method took (lexical, none, ...)
        reason       str    why there is no draft, "" if there is one
        drafted      int    proposed tokens (root excluded)
        depth        int    deepest proposed token
        accepted     int    accepted draft tokens (bonus excluded)
        emitted      int    tokens added to the output
        bonus        int    the target's own token after the accepted path, -1 if a stop token ended the run
        outcome      str    full (deepest path accepted), partial, none (all rejected) or plain (no draft)
        origins      str    origins of the accepted nodes, each once, in order, joined by "+"; "" if none was accepted
        entropy      float  of the target's distribution at the root, in nats
        draft_ms     float  proposing (the drafter's propose and observe)
        verify_ms    float  the target's forward over root, draft and probes, and the decision
        commit_ms    float  keeping the accepted rows
        elapsed_ms   float  since decoding began (prefill excluded), at the end of the step
    """),
    # one row per tree node, root first, in tree order; the method's numbers follow as columns "term:<key>", see
    # run["node_terms"]
    "nodes": _columns("""
        step        int    step
        token       int    token id
        parent      int    node number inside the step, -1 for the root
        depth       int    distance from the root
        origin      str    root, or one of the run's origins: where the token came from
        source      int    position the token was copied from, -1 if not copied
        pool        int    place in the pool it was copied from, -1 if not from there
        draft_prob  float  the drafter's probability, where it has one
        prob        float  the target's probability of the token after its parent (temperature 1), None for the root
        rank        int    its rank in the target's distribution after its parent (0 = first choice), -1 for the root
        status      str    root, accepted, rejected or unreached
        reason      str    match, mismatch, parent rejected, after stop, ...
    """),
    # what the target would have said after each visited node (the root and the accepted path): its first choices
    "targets": _columns("""
        step   int    step
        node   int    node the choice follows
        token  int    token id
        prob   float  probability (temperature 1)
    """),
    # the ranking behind each draft, losers included; score terms follow as columns "term:<key>", see run["terms"]
    "candidates": _columns("""
        step          int    step
        position      int    anchor: earlier position with the root's token, its draft follows; -1 if only in the pool
        pool          int    the anchor's place in the pool, -1 if it is not from there
        score         float  what the method ranks by
        length        int    tokens it offers
        rank          int    0 = best
        chosen        bool   the draft was copied from it
        excluded      str    why it could not win, "" if it could
        would_accept  int    tokens of its offer that equal the output that followed; -1 until the run is over
    """),
    # a draft model's own say after each node it went on from, beside the target's: the first choices of both, the
    # drafted tokens and what was emitted, as compared: at temperature 1, or after the run's warpers where tokens were
    # drawn; in the order of the drafter's ranks
    "guesses": _columns("""
        step        int    step
        node        int    node the token would follow
        token       int    token id
        rank        int    its rank in the drafter's distribution (0 = the drafter's first choice)
        draft_prob  float  q, the drafter's probability of it
        prob        float  p, the target's probability of it
        residual    float  its share of (p - q)+, where that replaced a rejected draw
    """),
    # where a draft model's queries, or those of probes, looked in the target's cache; small weights are left out
    "attention": _columns("""
        step      int    step
        node      int    node whose query it is; from the step's drafted + 1 on its probes, in their order
        layer     int    the target's layer whose keys were read, from 0
        head      int    the target's head, from 0; -1 for the mean over all heads
        position  int    position looked at
        weight    float  attention weight
    """),
    # extra rows that were scored but never committed
    "probes": _columns("""
        step    int    step
        parent  int    node it hangs on
        offset  int    its position id minus its parent's
        kind    str    what it is for; "joint": no row of its own, what those of this place guess together
        token   int    the target's first choice after it
        prob    float  that choice's probability
    """),
    # the text a method drafts from where it does not stand in the prompt: all of it, or (if long) what was referred to
    "pool": _columns("""
        position  int   place in the pool
        id        int   token id
        passage   int   passage number, from 0
    """),
    # what plain greedy decoding wrote for the same prompt, where it was run for comparison
    "plain": _columns("""
        id  int  token id
    """),
}

OPTIONAL_TABLES = {"guesses", "attention"}  # added later: a file without them is read as if they were empty

# the run's lists of declared numbers, and the table whose columns "term:<key>" hold them
TERMS = {"terms": "candidates", "node_terms": "nodes", "step_terms": "steps"}


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:+-]{0,79}")


def may_be_named(name: object) -> bool:
    """Whether a column or table of a later version may have this name: it begins a cell of a CSV, and names a file."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def columns_of(table: str, run: Mapping[str, Any]) -> dict[str, Column]:
    """The columns that this program knows of a run's table, by name: its own, then the numbers the method declared.

    >>> list(columns_of("targets", {}))
    ['step', 'node', 'token', 'prob']
    >>> list(columns_of("candidates", {"terms": [{"key": "cosine", "help": "of both states"}]}))[-1]
    'term:cosine'
    """
    columns = {column.name: column for column in TABLES.get(table, ())}
    for declared, owner in TERMS.items():
        if owner == table:
            for term in run.get(declared, ()):
                columns[f"term:{term['key']}"] = Column(f"term:{term['key']}", "float", term.get("help", ""))
    return columns


def with_defaults(table: str, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns, and the defaults of those that were added to the table since they were written."""
    rows = len(next(iter(columns.values()), ()))
    added = {c.name: c.default for c in TABLES.get(table, ()) if c.default is not REQUIRED and c.name not in columns}
    return {**columns, **{name: [default] * rows for name, default in added.items()}}


def type_of(values: Collection[Any]) -> str:
    """The type of a column that no table lists, by its values.

    >>> type_of([1, 2]), type_of([1, None]), type_of([True]), type_of(["a"]), type_of(["a", 1]), type_of([])
    ('int', 'float', 'bool', 'str', 'any', 'float')
    """
    types = set(map(type, values))
    if types in ({int}, {bool}, {str}):
        return types.pop().__name__
    return "float" if types <= {int, float, type(None)} else "any"
