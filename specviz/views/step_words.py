"""A recorded step in words, tokens as figures and tables write them, and an answer in the pieces in which it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from decoders.importers.request_trace import NOT_RECORDED
from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.words import SIGNS, decimal, mark_unseen, plural

STOP = "■ stop"  # in the place of the token that the target would have added
MAX_WRITTEN = 8  # refused tokens of one depth that a sentence writes out


class WordPieces:
    """The texts of a trace's tokens."""

    def __init__(self, trace: Trace) -> None:
        self.texts = trace.texts()

    def text(self, token: int) -> str:
        """A token as it stands in the text."""
        return mark_unseen(self.texts.get(token, f"⟨token {token}⟩"))

    def label(self, token: int) -> str:
        """A token by itself: spaces and line ends can be seen."""
        return STOP if token < 0 else self.text(token).translate(str.maketrans(SIGNS)) or "∅"

    def quote(self, token: int) -> str:
        return "a token that is not recorded" if token == NOT_RECORDED else f"“{self.label(token)}”"


def rows_of(trace: Trace, table: str, step: int) -> list[dict[str, Any]]:
    """A step's rows of a table, each as column → value."""
    columns = trace.tables[table]
    step_rows = [row for row, number in enumerate(columns["step"]) if number == step]
    return [{name: values[row] for name, values in columns.items()} for row in step_rows]


def place_of(trace: Trace, position: int, pool: int = -1) -> str:
    """A position in words: "the context, passage 2, token 31"; "" for none."""
    if position < 0 and pool < 0:
        return ""
    part, token = part_of(trace, position, pool)
    return f"{part}, token {token}"


def part_of(trace: Trace, position: int, pool: int = -1) -> tuple[str, int]:
    """The part of the text that a position lies in, in words, and the number there (from 1); below 0: in the pool."""
    if position < 0:
        return "the pool", pool + 1
    tokens = trace.tables["tokens"]
    segment, passage = tokens["segment"][position], tokens["passage"][position]
    names = {"output": "the output", "template": "the template", "text": "the prompt", "chat": "the conversation"}
    passages = max(tokens["passage"], default=-1) > 0
    passage_words = f", passage {passage + 1}" if passage >= 0 and passages else ""
    first = trace.run["prompt_length"] if segment == "output" else 0
    return f"{names.get(segment, f'the {segment}')}{passage_words}", position - first + 1


def step_sentence(trace: Trace, step: int) -> str:
    """A sentence on a step (from 0)."""
    steps, pieces = trace.tables["steps"], WordPieces(trace)
    step_values = {name: values[step] for name, values in steps.items()}
    if partly := _partly_known(trace, step_values, pieces):
        return partly
    own_words = (
        "a stop token ended the run"
        if step_values["bonus"] < 0
        else f"the target wrote {pieces.quote(step_values['bonus'])}"
    )
    if not step_values["drafted"]:
        reason = str(step_values["reason"] or "the method offered nothing").rstrip(".")
        return (
            f"No draft, because {reason}; {own_words} by itself."
            if step_values["bonus"] >= 0
            else f"No draft: {own_words}."
        )
    nodes = rows_of(trace, "nodes", step)
    end = max((n for n, node in enumerate(nodes) if node["status"] in ("root", "accepted")), default=0)
    rejections = [node for node in nodes if node["status"] == "rejected"]
    sibling_tokens = [node["token"] for node in rejections if node["parent"] == end]  # of the target's own token
    instead = (
        f" instead of {_list(pieces, sibling_tokens, 'or')}" if sibling_tokens and step_values["bonus"] >= 0 else ""
    )
    refusal_note = _refused_before(pieces, [node for node in rejections if node["parent"] != end or not instead])
    accepted, drafted = step_values["accepted"], step_values["drafted"]
    if not accepted:
        verdict = "none was accepted"
    elif accepted == drafted:
        verdict = "it was accepted" if drafted == 1 else f"all {drafted} were accepted"
    elif step_values["depth"] == drafted:
        verdict = "the first was accepted" if accepted == 1 else f"the first {accepted} were accepted"
    else:
        verdict = f"a path of {accepted} was accepted"
    return f"{_offer(trace, step, step_values, nodes[0]['token'])}; {verdict}, then {own_words}{instead}{refusal_note}."


def _list(pieces: WordPieces, tokens: Sequence[int], last: str) -> str:
    """Tokens in a row, the first ``MAX_WRITTEN`` by their texts: "“a”, “b” or 3 others"."""
    names = [pieces.quote(token) for token in tokens[:MAX_WRITTEN]]
    if len(tokens) > MAX_WRITTEN:
        names.append(plural(len(tokens) - MAX_WRITTEN, "other"))
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _refused_before(pieces: WordPieces, nodes: Sequence[dict[str, Any]]) -> str:
    """Rejected nodes that do not stand beside the target's own token, by their depth (1: the draft's first token)."""
    depths = group((node["depth"], node["token"]) for node in nodes)
    places = [f"{_list(pieces, tokens, 'and')} at depth {depth}" for depth, tokens in sorted(depths.items())]
    return f"; refused: {'; '.join(places)}" if places else ""


def _partly_known(trace: Trace, step_values: dict[str, Any], pieces: WordPieces) -> str:
    """The sentence of a step of which an imported run does not know all; "" where it does."""
    unknown, tokens = set(trace.run.get("unknown", ())), plural(step_values["emitted"], "token")
    if "steps" in unknown:
        return f"{tokens} of the answer; which tokens came together is not recorded."
    if "steps.accepted" in unknown:
        return f"{tokens} came together; what was drafted of them is not recorded."
    if "steps.drafted" not in unknown:
        return ""
    accepted_words = f"{plural(step_values['accepted'], 'drafted token')} stood" if step_values["accepted"] else ""
    bonus_words = f"the target wrote {pieces.quote(step_values['bonus'])}" if step_values["bonus"] >= 0 else ""
    return f"{', then '.join(filter(None, (accepted_words, bonus_words)))}; what was drafted beside is not recorded."


def _offer(trace: Trace, step: int, step_row: dict[str, Any], root: int) -> str:
    """The source of the draft, in words."""
    quotation, drafted = WordPieces(trace).quote(root), plural(step_row["drafted"], "token")
    candidates = rows_of(trace, "candidates", step)
    candidate = next((row for row in candidates if row["chosen"]), None)
    if candidate is None:
        return f"After {quotation} the drafter offered {drafted}"
    term = next((t for t in trace.run.get("terms") or [] if candidate.get(f"term:{t['key']}") is not None), None)
    score = f" ({term.get('label') or term['key']} {decimal(candidate['term:' + term['key']])})" if term else ""
    ids = trace.tables["tokens"]["id"]
    is_exact = all(row["position"] < 0 or ids[row["position"]] == root for row in candidates)
    places = plural(len(candidates), "earlier place")
    origin = f"{quotation} was seen at {places}" if is_exact else f"{places} resembled {quotation}"
    place, copy_length = place_of(trace, candidate["position"], candidate["pool"]), candidate["length"]
    if not copy_length:
        return f"{origin}; the branches at {place}{score} offered {drafted}"
    if step_row["drafted"] <= copy_length:
        return f"{origin}; the copy from {place}{score} offered {drafted}"
    breakdown = f"{drafted} ({copy_length} and {step_row['drafted'] - copy_length})"
    return f"{origin}; the copy from {place}{score} and its branches offered {breakdown}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that a step brought; ``at``: ms from the first step on."""

    text: str
    accepted: bool
    at: float


def pieces(trace: Trace) -> Iterator[Piece]:
    """A run's answer by step and by how its tokens came; a character whose bytes are partly drafted stands with the
    last of them.
    """
    table, start, steps = trace.tables["tokens"], int(trace.run["prompt_length"]), trace.tables["steps"]
    stop = frozenset(trace.run.get("stop_ids") or ())
    columns = (table[name][start:] for name in ("id", "step", "kind"))
    output = [(i, step, kind == "accepted") for i, step, kind in zip(*columns, strict=True) if i not in stop]
    ids = [token for token, *_ in output]
    whole, begun, offset = trace.text(ids), 0, 0
    for (step, accepted), tokens in groupby(output, key=lambda item: item[1:]):
        begun += len(list(tokens))
        so_far = first_difference(trace.text(ids[:begun]), whole)
        yield Piece(whole[offset:so_far], accepted, float(steps["elapsed_ms"][step] or 0.0))
        offset = max(offset, so_far)
