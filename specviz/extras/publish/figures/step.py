"""A recorded step as a figure: the sentence, the text it was copied from, and the draft tree with every verdict.

The accepted path runs straight down, what was drafted beside it stands to the right: a tree is as wide as it branches,
not as it is deep, and so fits a column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.views.step_words import STOP, WordPieces, part_of, rows_of
from specviz.words import probability

from ..explain.sentences import sentence_of
from .sheet import (
    ACCEPTED,
    BODY,
    INK,
    OFFERED,
    PAPER,
    RULE,
    SMALL,
    SOFT,
    Sheet,
    printable,
    shorten,
    token_face,
    width,
    wrap,
)  # fmt: skip

ROW, BOX, INDENT, GUTTER = 12.0, 10.4, 9.0, 10.0
DEEPEST = 7  # steps to the right, at most
MAX_SIBLINGS = 3  # of the rejected siblings of one node; the rest are counted
SOURCE_LINES, TOKENS_BEFORE, TOKENS_AFTER = 3, 14, 10  # of the text around a copied span: lines, tokens on both sides
MIN_FOLD = 3  # accepted tokens in a row without a branch, from here on: one row
WORDS = {"root": "last token", "accepted": "accepted", "rejected": "rejected"}


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A line of the tree: a node, the target's own token (kind "own"), or nodes that are only counted ("more")."""

    kind: str
    text: str
    column: int
    parent: int  # the row it hangs on; -1 for the root
    prob: float | None = None
    rank: int = -1
    copied: bool = False
    count: int = 1  # tokens: of a chain that is folded, its lowest ``prob`` and its last ``rank`` stand here


def step_figure(trace: Trace, step: int) -> Sheet:
    """A step (from 0) of a run, drawn for one column."""
    total = trace.rows("steps")
    title = f"{trace.run.get('title') or trace.run['id']}, step {step + 1} of {total}"
    sheet = Sheet(title, sentence_of(trace, step))
    y = _source(sheet, trace, step)
    y = _tree(sheet, tree_rows(trace, step), y)
    for n, words in enumerate(wrap(f"Step {step + 1} of {total}. {sheet.about}", sheet.width)):
        sheet.text(0, y + 6 + 1.3 * BODY * n, words)
    sheet.height += 1
    return sheet


# --- the text it was copied from --------------------------------------------------------------------------------------


def _source(sheet: Sheet, trace: Trace, step: int) -> float:
    """The copied span in its text, above an arrow into the tree; returns where the tree begins."""
    nodes = rows_of(trace, "nodes", step)[1:]
    pooled = [node for node in nodes if node["pool"] >= 0 and node["source"] < 0]
    status_by_place = {node["source"]: node["status"] for node in reversed(nodes) if node["source"] >= 0}
    in_pool = bool(pooled) and not status_by_place
    if in_pool:
        status_by_place = {node["pool"]: node["status"] for node in reversed(pooled)}
    if not status_by_place:
        return 0.0
    table = trace.tables["pool"]
    ids = dict(zip(table["position"], table["id"], strict=True)) if in_pool else trace.tables["tokens"]["id"]
    best = max(status_by_place, key=lambda p: (status_by_place[p] == "accepted", -p))
    first = next(p for p in count(best, -1) if p - 1 not in status_by_place)
    last = next(p for p in count(best) if p + 1 not in status_by_place)
    place, token = part_of(trace, -1, first) if in_pool else part_of(trace, first)
    token_words = f"tokens {token}–{token + last - first}" if last > first else f"token {token}"
    sheet.text(0, SMALL, f"Copied from {place}, {token_words}", SMALL, color=SOFT)
    return _span(sheet, WordPieces(trace), ids, status_by_place, (first, last))


def _span(sheet: Sheet, pieces: WordPieces, ids: Any, copied: dict[int, str], span: tuple[int, int]) -> float:
    """A few lines of text around a span, its accepted tokens dark and the other copied ones light."""
    first, last = span
    positions = range(len(ids)) if isinstance(ids, list) else ids
    places = [p for p in range(first - TOKENS_BEFORE, last + TOKENS_AFTER + 1) if p in positions]
    texts = [pieces.text(ids[p]).translate({9: " ", 13: None}) for p in places]
    lines = _set_in_lines(list(zip(places, texts, strict=True)), sheet.width)
    start = next(n for n, line in enumerate(lines) for p, *_ in line if p == first)
    top = SMALL + 4.5
    shown_lines = lines[max(0, start - 1) :][:SOURCE_LINES]
    for line in shown_lines:
        for place, text, x in line:
            wide = width(text, SMALL, token_face(text))
            status = copied.get(place)
            if status and first <= place <= last:
                sheet.box(x, top, wide, BOX, fill=ACCEPTED if status == "accepted" else OFFERED)
            color = PAPER if status == "accepted" and first <= place <= last else INK if status else SOFT
            sheet.text(x, top + 7.6, text, SMALL, face=token_face(text), color=color)
        top += ROW
    sheet.line((0, top + 1), (sheet.width, top + 1), stroke=RULE, line=0.4)
    return top + 5


def _set_in_lines(tokens: Sequence[tuple[int, str]], wide: float) -> list[list[tuple[int, str, float]]]:
    """Tokens with their x, in lines as wide as the sheet."""
    lines: list[list[tuple[int, str, float]]] = [[]]
    x = 0.0
    for place, raw in tokens:
        text, face = printable(raw), token_face(raw)
        if x and x + width(text, SMALL, face) > wide:
            lines.append([])
            x, text = 0.0, text.lstrip()
        text = shorten(text, wide, SMALL, face)
        lines[-1].append((place, text, x))
        x += width(text, SMALL, face)
    return lines


# --- the draft tree ---------------------------------------------------------------------------------------------------


def tree_rows(trace: Trace, step: int) -> list[TreeRow]:
    """The tree from the root down: beside the main line what was drafted otherwise, in order of the target's choice."""
    nodes, pieces = rows_of(trace, "nodes", step), WordPieces(trace)
    children = group((node["parent"], number) for number, node in enumerate(nodes))
    bonus = trace.tables["steps"]["bonus"][step]
    path = [number for number, node in enumerate(nodes) if node["status"] in ("root", "accepted")]
    end = path[-1] if path else 0
    chances = {t["token"]: t["prob"] for t in rows_of(trace, "targets", step) if t["node"] == end}  # likeliest first
    sizes = [1] * len(nodes)  # of each node and what hangs on it
    for number in range(len(nodes) - 1, 0, -1):
        sizes[nodes[number]["parent"]] += sizes[number]

    def rows_below(number: int, status: str) -> list[int]:
        return [child for child in children.get(number, ()) if nodes[child]["status"] == status]

    rows: list[TreeRow] = []
    coming: list[TreeRow | tuple[int, int, int]] = (
        [(0, 0, -1)] if nodes else []
    )  # rows, and nodes with column and parent
    while coming:
        item = coming.pop()
        if isinstance(item, TreeRow):
            rows.append(item)
            continue
        number, column, parent = item
        node, row_number, right = nodes[number], len(rows), min(column + 1, DEEPEST)
        kind = node["status"] if number else "root"
        is_copy = max(node["source"], node["pool"]) >= 0
        rows.append(TreeRow(kind, pieces.label(node["token"]), column, parent, node["prob"], node["rank"], is_copy))
        rejections = sorted(rows_below(number, "rejected"), key=lambda c: nodes[c]["rank"])
        next_rows: list[TreeRow | tuple[int, int, int]] = [
            (child, right, row_number) for child in rejections[:MAX_SIBLINGS]
        ]
        for hidden, word in ((rejections[MAX_SIBLINGS:], "rejected"), (rows_below(number, "unreached"), "not reached")):
            if hidden:
                next_rows.append(TreeRow("more", f"+{sum(sizes[c] for c in hidden)} {word}", right, row_number))
        next_rows += [(child, column, row_number) for child in rows_below(number, "accepted")]
        if number == end:
            rank = list(chances).index(bonus) if bonus in chances else -1
            next_rows.append(TreeRow("own", pieces.label(bonus), column, row_number, chances.get(bonus), rank))
        coming += reversed(next_rows)
    return _fold(rows)


def _fold(rows: Sequence[TreeRow]) -> list[TreeRow]:
    """The rows with every long chain of accepted tokens that has no branch as one row of all its text."""
    hanging = Counter(row.parent for row in rows)
    chains: list[list[int]] = []
    for n, row in enumerate(rows):
        previous_index = chains[-1][-1] if chains else -1
        last = rows[previous_index]
        joins = (
            row.parent == previous_index >= 0
            and hanging[previous_index] == 1
            and (last.kind, last.copied) == (row.kind, row.copied)
        )
        if joins and row.kind == "accepted":
            chains[-1].append(n)
        else:
            chains.append([n])
    chains = [part for chain in chains for part in ([chain] if len(chain) >= MIN_FOLD else ([n] for n in chain))]
    chain_index = {n: k for k, chain in enumerate(chains) for n in chain}
    whole = []
    for chain in chains:
        part = [rows[n] for n in chain]
        known_probs = [row.prob for row in part if row.prob is not None]
        prob = min(known_probs) if len(known_probs) == len(part) else None
        rank = max(row.rank for row in part) if all(row.rank >= 0 for row in part) else -1
        text, parent = "".join(row.text for row in part), chain_index.get(part[0].parent, -1)
        whole.append(replace(part[0], text=text, parent=parent, prob=prob, rank=rank, count=len(part)))
    return whole


def _tree(sheet: Sheet, rows: Sequence[TreeRow], top: float) -> float:
    """Draws the rows and their numbers; returns where they end."""
    verdict, rank, prob = sheet.width, sheet.width - 50, sheet.width - 74
    sheet.text(GUTTER, top + SMALL, "Draft tree", SMALL, color=SOFT)
    for x, head in ((prob, "p(target)"), (rank, "rank"), (verdict, "verdict")):
        sheet.text(x, top + SMALL, head, SMALL, color=SOFT, right=True)
    top += SMALL + 4
    middles = [top + (n + 0.5) * ROW for n in range(len(rows))]
    for n, row in enumerate(rows):
        if row.parent >= 0:
            _edge(sheet, rows, middles, n)
    for row, middle in zip(rows, middles, strict=True):
        _box(sheet, row, middle, prob - 34)
        base = middle + 2.8
        word = WORDS.get(row.kind, "")
        if row.kind == "own":
            word = "the end" if row.text == STOP else "target’s own"
        if row.count > 1:
            word = f"{row.count} {word}"
        lower_sign, upper_sign = ("≥ ", "≤ ") if row.count > 1 else ("", "")
        strong = row.kind in ("accepted", "own")
        sheet.text(verdict, base, word, SMALL, color=INK if strong else SOFT, right=True)
        if row.kind not in ("more", "root"):
            first = f"{upper_sign if row.rank else ''}#{row.rank + 1}" if row.rank >= 0 else "–"
            sheet.text(rank, base, first, SMALL, color=SOFT, right=True)
            value = probability(row.prob) if row.prob is None else lower_sign + probability(row.prob)
            sheet.text(prob, base, value, SMALL, color=SOFT, right=True)
    _bracket(sheet, rows, middles)
    return top + len(rows) * ROW + BODY


def _x(row: TreeRow) -> float:
    return GUTTER + row.column * INDENT


def _edge(sheet: Sheet, rows: Sequence[TreeRow], middles: Sequence[float], n: int) -> None:
    row, parent = rows[n], rows[rows[n].parent]
    x = _x(parent) + 4
    strong = row.kind in ("accepted", "own")
    look: dict[str, Any] = {"stroke": INK if strong else RULE, "line": 1.0 if strong else 0.6}
    from_y = middles[row.parent] + BOX / 2
    if row.column == parent.column:
        sheet.line((x, from_y), (x, middles[n] - BOX / 2), **look)
    else:
        sheet.line((x, from_y), (x, middles[n]), (_x(row), middles[n]), **look)


def _box(sheet: Sheet, row: TreeRow, middle: float, right: float) -> None:
    """A node by its verdict: filled, outlined or double, so that no colour is needed."""
    x = _x(row)
    if row.kind == "more":
        sheet.text(x + 3, middle + 2.8, shorten(row.text, right - x - 6, SMALL), SMALL, color=SOFT)
        return
    face = token_face(row.text)
    label = shorten(row.text, right - x - 6, SMALL, face)
    wide = max(14.0, width(label, SMALL, face) + 6)
    top = middle - BOX / 2
    if row.kind == "accepted":
        sheet.box(x, top, wide, BOX, fill=ACCEPTED, stroke=ACCEPTED)
    elif row.kind == "own":
        sheet.box(x, top, wide + 2, BOX, stroke=INK, fill=PAPER, line=0.8)
        sheet.box(x + 1.5, top + 1.5, wide - 1, BOX - 3, stroke=INK, line=0.4)
    else:
        sheet.box(x, top, wide, BOX, stroke=RULE if row.kind != "root" else INK, fill=PAPER)
    color = PAPER if row.kind == "accepted" else SOFT if row.kind == "rejected" else INK
    sheet.text(x + (4 if row.kind == "own" else 3), middle + 2.5, label, SMALL, face=face, color=color)


def _bracket(sheet: Sheet, rows: Sequence[TreeRow], middles: Sequence[float]) -> None:
    """From the text above to the rows that were copied from it: along the margin, with an arrow into the first."""
    copy_rows = [n for n, row in enumerate(rows) if row.copied and row.kind == "accepted"]
    if not copy_rows:  # the first that was rejected
        copy_rows = [n for n, row in enumerate(rows) if row.copied and row.kind != "more"][:1]
    if not copy_rows:
        return
    x, first, last = 3.0, middles[copy_rows[0]], middles[copy_rows[-1]]
    top = middles[0] - ROW / 2 - SMALL - 8.5  # the line under the text
    sheet.line((x, top), (x, last), stroke=ACCEPTED, line=0.9)
    for n in copy_rows:
        sheet.line((x, middles[n]), (_x(rows[n]), middles[n]), stroke=ACCEPTED, line=0.9 if n == copy_rows[0] else 0.5)
    tip = _x(rows[copy_rows[0]])
    sheet.line((tip - 3, first - 2), (tip, first), (tip - 3, first + 2), stroke=ACCEPTED, line=0.9)
