"""A recorded step in words, and tokens as a figure writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decoders.importers.request_trace import NOT_RECORDED
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.words import SIGNS, decimal, mark_unseen, plural

STOP = "■ stop"  # in the place of the token that the target would have added
NAMED = 8  # refused tokens of one depth that a sentence writes out


class Pieces:
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
    mine = [row for row, number in enumerate(columns["step"]) if number == step]
    return [{name: values[row] for name, values in columns.items()} for row in mine]


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
    steps, pieces = trace.tables["steps"], Pieces(trace)
    told = {name: values[step] for name, values in steps.items()}
    if partly := _partly_known(trace, told, pieces):
        return partly
    own = "a stop token ended the run" if told["bonus"] < 0 else f"the target wrote {pieces.quote(told['bonus'])}"
    if not told["drafted"]:
        reason = str(told["reason"] or "the method offered nothing").rstrip(".")
        return f"No draft, because {reason}; {own} by itself." if told["bonus"] >= 0 else f"No draft: {own}."
    nodes = rows_of(trace, "nodes", step)
    end = max((n for n, node in enumerate(nodes) if node["status"] in ("root", "accepted")), default=0)
    refused = [node for node in nodes if node["status"] == "rejected"]
    beside = [node["token"] for node in refused if node["parent"] == end]  # of the target's own token
    instead = f" instead of {_list(pieces, beside, 'or')}" if beside and told["bonus"] >= 0 else ""
    before = _refused_before(pieces, [node for node in refused if node["parent"] != end or not instead])
    accepted, drafted = told["accepted"], told["drafted"]
    if not accepted:
        verdict = "none was accepted"
    elif accepted == drafted:
        verdict = "it was accepted" if drafted == 1 else f"all {drafted} were accepted"
    elif told["depth"] == drafted:
        verdict = "the first was accepted" if accepted == 1 else f"the first {accepted} were accepted"
    else:
        verdict = f"a path of {accepted} was accepted"
    return f"{_offer(trace, step, told, nodes[0]['token'])}; {verdict}, then {own}{instead}{before}."


def _list(pieces: Pieces, tokens: Sequence[int], last: str) -> str:
    """Tokens in a row, the first ``NAMED`` by their texts: "“a”, “b” or 3 others"."""
    names = [pieces.quote(token) for token in tokens[:NAMED]]
    if len(tokens) > NAMED:
        names.append(plural(len(tokens) - NAMED, "other"))
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _refused_before(pieces: Pieces, nodes: Sequence[dict[str, Any]]) -> str:
    """Rejected nodes that do not stand beside the target's own token, by their depth (1: the draft's first token)."""
    depths = group((node["depth"], node["token"]) for node in nodes)
    places = [f"{_list(pieces, tokens, 'and')} at depth {depth}" for depth, tokens in sorted(depths.items())]
    return f"; refused: {'; '.join(places)}" if places else ""


def _partly_known(trace: Trace, told: dict[str, Any], pieces: Pieces) -> str:
    """The sentence of a step of which an imported run does not know all; "" where it does."""
    unknown, tokens = set(trace.run.get("unknown", ())), plural(told["emitted"], "token")
    if "steps" in unknown:
        return f"{tokens} of the answer; which tokens came together is not recorded."
    if "steps.accepted" in unknown:
        return f"{tokens} came together; what was drafted of them is not recorded."
    if "steps.drafted" not in unknown:
        return ""
    stood = f"{plural(told['accepted'], 'drafted token')} stood" if told["accepted"] else ""
    own = f"the target wrote {pieces.quote(told['bonus'])}" if told["bonus"] >= 0 else ""
    return f"{', then '.join(filter(None, (stood, own)))}; what was drafted beside is not recorded."


def _offer(trace: Trace, step: int, told: dict[str, Any], root: int) -> str:
    """The source of the draft, in words."""
    quoted, drafted = Pieces(trace).quote(root), plural(told["drafted"], "token")
    candidates = rows_of(trace, "candidates", step)
    chosen = next((one for one in candidates if one["chosen"]), None)
    if chosen is None:
        return f"After {quoted} the drafter offered {drafted}"
    term = next((t for t in trace.run.get("terms") or [] if chosen.get(f"term:{t['key']}") is not None), None)
    score = f" ({term.get('label') or term['key']} {decimal(chosen['term:' + term['key']])})" if term else ""
    ids = trace.tables["tokens"]["id"]
    same = all(one["position"] < 0 or ids[one["position"]] == root for one in candidates)
    places = plural(len(candidates), "earlier place")
    seen = f"{quoted} was seen at {places}" if same else f"{places} resembled {quoted}"
    place, copied = place_of(trace, chosen["position"], chosen["pool"]), chosen["length"]
    if not copied:
        return f"{seen}; the branches at {place}{score} offered {drafted}"
    if told["drafted"] <= copied:
        return f"{seen}; the copy from {place}{score} offered {drafted}"
    both = f"{drafted} ({copied} and {told['drafted'] - copied})"
    return f"{seen}; the copy from {place}{score} and its branches offered {both}"
