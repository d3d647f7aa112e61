"""llama.cpp server's debug log (``-lv 5`` or ``--verbose``, ``LLAMA_TRACE=1``): the drafter's first choices per
position, and what was accepted.

common/speculative.cpp: " - draft candidate   k, pos   i: id (  p) 'piece'", with "seq_id s, " before it in later
versions. tools/server/server-context.cpp: "accepted a/n draft tokens, new n_tokens = …" (n_past before), "add accepted
tokens: sampled=id, ids.size=…, n_draft=…", "new prompt, … task.n_tokens = n", "draft acceptance rate = …". A piece may
run over several lines. Slots interleave; lines name theirs ("id  3 | task 17").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .importer import Contents, Importer
from .request import Choice, Request, ServerStep, Token, check_tokens
from .source import Source

LINE = re.compile(
    r"(?:seq_id (?P<seq>\d{1,9}), )?draft candidate\s+(?P<k>\d{1,4}), pos\s+(?P<pos>\d{1,4}):\s+(?P<id>\d{1,9}) "
    r"\(\s*(?P<p>\d{1,3}(?:\.\d{1,9})?)\) "
    r"'(?P<piece>(?:[^\n]|\n(?!\s*- |[^\n]*(?:slot|srv|common_))){0,200}?)'(?=\n|$)"
    r"|id\s+(?P<slot>\d{1,9}) \| task (?P<task>-?\d{1,9}) \|(?: [a-z_]+:)? (?:"
    r"add accepted tokens: sampled=(?P<sampled>\d{1,9}), ids\.size=\d+, n_draft=\d+"
    r"|accepted\s+(?P<accepted>\d{1,4})/\s*(?P<drafted>\d{1,4}) draft tokens(?P<new>, new n_\w+)?"
    r"|new prompt, [^\n]{0,400}?n_(?:prompt_)?tokens = (?P<prompt>\d{1,9})"
    r"|draft acceptance(?: rate)? = (?P<rate>\d{1,3}(?:\.\d{1,9})?) "
    r"\(\s*(?P<all>\d{1,9}) accepted /\s*(?P<of>\d{1,9}) generated\))"
)


@dataclass(slots=True)
class Slot:
    """A slot of the server while its lines are read: the draft under way, and whether its step was counted."""

    request: Request
    draft: dict[int, list[Choice]] = field(default_factory=dict)
    sampled: int | None = None
    counted: tuple[int, int] | None = None


def read(source: Source) -> Contents | None:
    """A request per slot and task."""
    if "draft" not in source.text or "{" in source.text[:1]:
        return None
    contents, slots, loose = Contents(), dict[str, Slot](), dict[int, list[Choice]]()
    tokens = 0
    for match in LINE.finditer(source.text):
        if match["k"] is not None:
            draft = loose
            if match["seq"] is not None and match["seq"] in slots:
                draft = slots[match["seq"]].draft
            choices = draft.setdefault(int(match["pos"]), [])
            if int(match["k"]) == 0:
                choices.clear()
            choices.append((int(match["id"]), match["piece"], min(float(match["p"]), 1.0)))
            continue
        slot, task = match["slot"], match["task"]
        if slot not in slots or slots[slot].request.key != f"slot {slot}, task {task}":
            if slot in slots:
                slots[slot].draft.clear()
            slots[slot] = Slot(Request(f"slot {slot}, task {task}", steps=[]))
            contents.requests.append(slots[slot].request)
        here = slots[slot]
        if match["prompt"]:
            here.request.said["prompt tokens"] = int(match["prompt"])
        elif match["sampled"]:
            here.sampled = int(match["sampled"])
        elif match["rate"]:
            here.request.said |= {"draft_n": int(match["of"]), "draft_n_accepted": int(match["all"])}
            here.request.said["draft acceptance rate"] = float(match["rate"])
        elif match["drafted"]:
            tokens += int(match["accepted"]) + 1
            check_tokens(tokens)
            _step(here, here.draft or loose, int(match["accepted"]), int(match["drafted"]), match["new"] is not None)
            loose.clear()
    contents.requests = [request for request in contents.requests if request.tokens or request.said]
    for request in contents.requests:
        if request.tokens:
            request.notes.append("the log names drafted tokens; the prompt, and steps without a draft, are not in it")
    return contents if contents.requests else None


def _step(slot: Slot, draft: dict[int, list[Choice]], accepted: int, drafted: int, repeated: bool) -> None:
    """One verified draft. The same step may be told twice, in brief and with the new length."""
    if repeated and slot.counted == (accepted, drafted) and not draft:
        slot.counted = None
        return
    slot.counted = None if repeated else (accepted, drafted)
    accepted = min(accepted, drafted)
    choices = [sorted(draft[place], key=lambda one: -(one[2] or 0.0)) for place in range(drafted) if place in draft]
    if any(place not in draft for place in range(len(choices))):
        choices = []  # a piece of the draft is missing: which token stands where is not known
    for place in range(accepted):
        token, text, _ = choices[place][0] if place < len(choices) else (None, None, None)
        slot.request.tokens.append(Token(token, text))
    slot.request.tokens.append(Token(slot.sampled))
    assert slot.request.steps is not None
    slot.request.steps.append(ServerStep(accepted + 1, accepted, drafted, choices))
    slot.sampled = None
    draft.clear()


IMPORTER = Importer("llama.cpp-log", "llama.cpp server's log", read, order=30)
