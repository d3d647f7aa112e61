"""llama.cpp server's log: at ``-lv 5`` every token with its time, every draft and what was accepted of it, and of a
draft model its first choices per position; with ``LLAMA_TRACE=1`` alone the counts of each draft.

tools/server/server-context.cpp: "n_gen = k, …, next token: id 'piece'" (n_decoded before), "add accepted tokens:
sampled=id, ids.size=a + 1, n_draft=n" in front of the tokens of a verified draft, "accepted a/n draft tokens" behind
them unless the answer ended there, "new prompt, … task.n_tokens = n", "eval time = … / n tokens", "draft acceptance =
…"; "launching slot : {…}" has the prompt of the request that the slot answered before. common/speculative.cpp: "draft
candidate   k, pos   i: id (  p) 'piece'". A line begins with minutes.seconds.milliseconds.microseconds. A piece may run
over several lines. Slots interleave; lines name theirs ("id  3 | task 17").

Earlier versions print a request's times as a block: a line that names the slot, then "prompt eval time", "eval time"
and "draft acceptance rate" without it. Later ones add "mean acceptance length" ("mean len") and rates per position
behind the acceptance, or a line "acc per pos". common/speculative.cpp: "statistics NAME: #calls = …, #gen drafts = …,
#acc drafts = …, #gen tokens = …, #acc tokens = …", which count since the server started, of each drafter.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import NO_DRAFT, PROMPT_STEP, Choice, Request, ServerStep, Token, check_tokens
from decoders.importers.source import LogSource

from . import benchmarks
from .parts import drafts_of, parts_of

PIECE = r"'(?P<{}>(?:[^\n]|\n(?!\s*- |[^\n]*(?:slot|srv|common_))){{0,200}}?)'(?=\r?\n|$)"
RATE = (
    r"|draft acceptance(?: rate)? = (?P<rate{0}>\d{{1,3}}(?:\.\d{{1,9}})?) "
    r"\(\s*(?P<all{0}>\d{{1,9}}) accepted /\s*(?P<of{0}>\d{{1,9}}) generated\)(?P<more{0}>[^\n]{{0,2000}})"
)
LINE = re.compile(
    r"(?:seq_id (?P<seq>\d{1,9}), )?draft candidate\s+(?P<k>\d{1,4}), pos\s+(?P<pos>\d{1,4}):\s+(?P<id>\d{1,9}) "
    r"\(\s*(?P<p>\d{1,3}(?:\.\d{1,9})?)\) "
    + PIECE.format("piece")
    + r"|load_model: loading model '(?P<model>[^\n']{1,400})'"
    r"|id\s+(?P<slot>\d{1,9}) \| task (?P<task>-?\d{1,9}) \|(?:(?: [a-z_]+:)? (?:"
    r"n_(?:gen|decoded) = (?P<place>\d{1,9}), n_remaining = -?\d{1,9}, next token:\s+(?P<token>\d{1,9}) "
    + PIECE.format("text")
    + r"|add accepted tokens: sampled=(?P<sampled>\d{1,9}), ids\.size=(?P<size>\d{1,4}), n_draft=(?P<n>\d{1,4})"
    r"|accepted\s+(?P<accepted>\d{1,4})/\s*(?P<drafted>\d{1,4}) draft tokens(?P<new>, new n_\w+)?"
    r"|new prompt, [^\n]{0,400}?n_(?:prompt_)?tokens = (?P<prompt>\d{1,9})"
    r"|launching slot : (?P<launch>\{[^\n]*\})"
    r"|stopped by (?P<stop>limit|EOS|word)"
    r"|[ \t]{0,12}acc per pos = \((?P<places>[\d., ]{1,2000})\)"
    r"|(?P<clock>prompt eval|[ \t]{0,12}eval) time =\s+"
    r"(?P<ms>\d{1,12}\.\d{1,3}) ms /\s+(?P<count>\d{1,9}) (?:tokens|runs)"
    + RATE.format("")
    + r")|(?P<block>\s?)(?=\r?\n|$))"
    r"|(?:(?<=\n)|(?<=\n\r)|^)(?:[^\n\r|{]{0,60}? )??[ \t]{0,12}(?:(?P<clock2>prompt eval|eval) time =\s+"
    r"(?P<ms2>\d{1,12}\.\d{1,3}) ms /\s+(?P<count2>\d{1,9}) (?:tokens|runs)"
    + RATE.format("2")
    + r")|\bstatistics\s+(?P<drafter>[\w.-]{1,60}):\s*(?P<counts>#[^\n]{0,2000})"
)
UNREAD = re.compile(
    r"^[^\n{]{0,200}?(?:\baccepted\s[^\n]{0,20}/[^\n]{0,20}draft tokens|draft acceptance(?: rate)?\s*=|"
    r"add accepted tokens:|next token:|draft candidate\s|\bstatistics\s+[\w.-]+:\s*#)", re.MULTILINE,
)  # fmt: skip
LIKE_STEPS = frozenset(("piece", "text", "n", "drafted", "new", "more", "more2", "counts"))  # last groups of such lines
JSON = re.compile(r"\s*(?:\{|\[\s*[\[{])")
STAMP = re.compile(r"(\d{1,7})\.(\d\d)\.(\d\d\d)\.(\d\d\d) [A-Z] ")
LONGEST_START = 400  # characters of a line in front of what is read of it
STOPS = {"limit": "max tokens", "EOS": "eos", "word": "stop word"}
BRIEF = "this log has the drafts alone: at -lv 5 (and LLAMA_TRACE=1) it has every token"


@dataclass(slots=True)
class Slot:
    """A slot of the server while its lines are read: the draft under way, the step whose tokens come next, and
    whether a step was counted already.
    """

    request: Request
    draft: dict[int, list[Choice]] = field(default_factory=dict)
    sampled: int | None = None
    last_counts: tuple[int, int] | None = None
    step: ServerStep | None = None
    at: float | None = None  # of the last step's tokens, ms


def read(source: LogSource) -> Contents | None:
    """A request per slot and task; numbers of those whose drafts are not in the log."""
    text = source.raw
    if not ("draft" in text or "next token:" in text or "#acc tokens" in text) or JSON.match(text):
        return None
    contents, slots, loose = Contents(), dict[str, Slot](), dict[int, list[Choice]]()
    tokens, has_details, model = 0, "next token:" in text, ""
    last, statistics, steps = "", dict[str, dict[str, Any]](), 0
    for match in LINE.finditer(text):
        steps += match.lastgroup in LIKE_STEPS
        begins = text.rfind("\n", max(0, match.start() - LONGEST_START), match.start()) + 1
        prefix = text[begins : match.start()]
        if "{" in prefix or (not begins and match.start() > LONGEST_START):
            continue  # within JSON, such as a chunk of an answer that is logged as it is sent
        if match["model"]:
            model = match["model"].replace("\\", "/").rsplit("/", 1)[-1]
            continue
        if match["k"] is not None:
            draft = slots[match["seq"]].draft if match["seq"] in slots else loose
            choices = draft.setdefault(int(match["pos"]), [])
            if int(match["k"]) == 0:
                choices.clear()
            choices.append((int(match["id"]), _piece(match["piece"]), min(float(match["p"]), 1.0)))
            continue
        if match["drafter"]:
            statistics[match["drafter"]] = parts_of(match["counts"])
            continue
        if match["slot"] is None:  # a line of a block, whose first line names the slot
            if last not in slots:
                slots[last] = Slot(Request("a request", model, steps=[], untimed_tokens=1))
                contents.requests.append(slots[last].request)
            _add_numbers(slots[last].request, match, "2")
            continue
        slot, key = match["slot"], f"slot {match['slot']}, task {match['task']}"
        last = slot
        if match["launch"]:
            _add_prompt(contents.requests, slot, match["launch"])
            continue
        if slot not in slots or slots[slot].request.key != key or (match["prompt"] and slots[slot].request.tokens):
            slots[slot] = Slot(Request(key, model, steps=[], untimed_tokens=1))
            contents.requests.append(slots[slot].request)
        slot_state = slots[slot]
        if match["token"]:
            tokens += 1
            _token(slot_state, int(match["token"]), _piece(match["text"]), int(match["place"]), _ms(prefix))
        elif match["sampled"]:
            if has_details:
                slot_state.step = _step(slot_state.draft or loose, int(match["size"]) - 1, int(match["n"]))
            slot_state.sampled = int(match["sampled"])
        elif match["drafted"]:
            if not has_details:
                tokens += int(match["accepted"]) + 1
                draft = slot_state.draft or loose
                _brief(slot_state, draft, int(match["accepted"]), int(match["drafted"]), match["new"] is not None)
        else:
            _add_numbers(slot_state.request, match)
        check_tokens(tokens)
    for request in contents.requests:
        if request.tokens and not has_details:
            request.notes.append(BRIEF)
        elif not request.tokens and "draft_n" in request.server_fields:
            contents.numbers.append(_numbers(request))
    contents.requests = [request for request in contents.requests if request.tokens]
    has_content = bool(contents.requests or contents.numbers or statistics)
    if has_content and "n_accept" in text and (table := benchmarks.read(source)) is not None:  # llama-speculative's end
        contents.numbers += table.numbers
    has_counts = bool(contents.requests or contents.numbers)
    contents.numbers += [_statistics(drafter, fields, has_counts) for drafter, fields in list(statistics.items())[:64]]
    contents.unread = max(0, len(UNREAD.findall(text)) - steps)
    return contents if contents.requests or contents.numbers else None


def _ms(prefix: str) -> float | None:
    """The time in front of a line; the last one, where a line without an end is there, too."""
    stamps = STAMP.findall(prefix)
    minutes, seconds, ms, us = map(int, stamps[-1]) if stamps else (0, 0, 0, 0)
    return (minutes * 60 + seconds) * 1e3 + ms + us / 1e3 if stamps else None


def _piece(text: str) -> str | bytes:
    """A piece of the log: bytes where it is part of a character."""
    raw = text.encode("utf-8", "surrogateescape")
    return raw if any("\udc80" <= character <= "\udcff" for character in text) else text


def _numbers(request: Request) -> Numbers:
    """A request of which the log has the totals alone."""
    fields = dict(request.server_fields)
    for name, value in (("tokens", request.totals.get("tokens")), ("prompt ms", request.prefill_ms),
                        ("decode ms", request.decode_ms)):  # fmt: skip
        fields |= {} if value is None else {name: value}
    return Numbers.of(request.key, fields, request.totals)


def _statistics(drafter: str, fields: dict[str, Any], has_counts: bool) -> Numbers:
    """A drafter's counts since the server started; ``counted``: its tokens are counted request by request, too."""
    names = {"drafts": "gen drafts", "drafted": "gen tokens", "accepted": "acc tokens"}
    totals = {name: fields[label] for name, label in names.items() if isinstance(fields.get(label), int)}
    numbers = Numbers.of(f"statistics of {drafter}, since the start", fields, totals)
    if has_counts:
        numbers.totals = {}
    return numbers


def _add_numbers(request: Request, match: re.Match[str], form: str = "") -> None:
    """Add the server's own numbers of a request; ``form`` names the groups of a line without its slot."""
    clock = match[f"clock{form}"]
    if not form and match["prompt"]:
        request.server_fields["prompt tokens"] = int(match["prompt"])
    elif not form and match["stop"]:
        request.stop = STOPS[match["stop"]]
    elif not form and match["places"]:
        request.server_fields |= parts_of(f"acc per pos = ({match['places']})")
    elif match[f"rate{form}"]:
        drafted, accepted = int(match[f"of{form}"]), int(match[f"all{form}"])
        request.server_fields |= {"draft_n": drafted, "draft_n_accepted": accepted}
        request.server_fields["draft acceptance rate"] = float(match[f"rate{form}"])
        request.totals |= {"drafted": drafted, "accepted": accepted}
        parts = parts_of(match[f"more{form}"])
        request.server_fields |= parts
        request.totals["drafts"] = next((drafts_of(accepted, parts[name]) for name in MEANS if name in parts), None)
    elif clock and clock.startswith("prompt"):
        request.prefill_ms = float(match[f"ms{form}"])
    elif clock:
        request.decode_ms, request.totals["tokens"] = float(match[f"ms{form}"]), int(match[f"count{form}"])
        request.totals = {"drafted": 0, "accepted": 0, **request.totals}  # without a draft no other line follows


MEANS = ("mean acceptance length", "mean acc len", "mean len")


def _add_prompt(requests: list[Request], slot: str, text: str) -> None:
    """The prompt of the request that a slot answered before."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    key = f"slot {slot}, task {value.get('id_task')}"
    request = next((candidate for candidate in reversed(requests) if candidate.key == key), None)
    if request is not None and isinstance(value.get("prompt"), str):
        request.prompt = value["prompt"]


def _step(draft: dict[int, list[Choice]], accepted: int, drafted: int) -> ServerStep:
    """A verified draft whose tokens are still to come."""
    choices = [
        sorted(draft[place], key=lambda choice: -(choice[2] or 0.0)) for place in range(drafted) if place in draft
    ]
    if any(place not in draft for place in range(len(choices))):
        choices = []  # a piece of the draft is missing: which token stands where is not known
    draft.clear()
    return ServerStep(0, max(0, min(accepted, drafted)), drafted, choices)


def _token(slot: Slot, token: int, text: str | bytes, place: int, at: float | None) -> None:
    """A token: of the verified draft under way, or of a step of its own."""
    request, step = slot.request, slot.step
    assert request.steps is not None
    if place != len(request.tokens) + 1 and not any("not in this log" in note for note in request.notes):
        request.notes.append(f"tokens {len(request.tokens) + 1} to {place - 1} are not in this log")
    request.tokens.append(Token(token, text))
    if step is None or step.accepted is None or step.emitted > step.accepted:
        request.steps.append(ServerStep(1, 0, 0, reason=NO_DRAFT if request.tokens[1:] else PROMPT_STEP))
        slot.step = None
    else:
        if step.emitted < step.accepted and step.emitted < len(step.draft):  # the drafted one first, also if drawn
            choices = step.draft[step.emitted]
            assert isinstance(choices, list)
            choices.sort(key=lambda choice: choice[0] != token)
        step.emitted += 1
        if step.emitted > 1:
            return
        request.steps.append(step)
    if at is not None and slot.at is not None:
        request.steps[-1].ms = round(max(0.0, at - slot.at), 3)
    slot.at = at


def _brief(slot: Slot, draft: dict[int, list[Choice]], accepted: int, drafted: int, is_repeat: bool) -> None:
    """One verified draft of a log without tokens. The same step may be told twice, in brief and with the new length."""
    if is_repeat and slot.last_counts == (accepted, drafted) and not draft:
        slot.last_counts = None
        return
    slot.last_counts = None if is_repeat else (accepted, drafted)
    step = _step(draft, accepted, drafted)
    for place in range(step.accepted or 0):
        token, text, _ = step.draft[place][0] if place < len(step.draft) else (None, None, None)
        slot.request.tokens.append(Token(token, text))
    slot.request.tokens.append(Token(slot.sampled))
    step.emitted = (step.accepted or 0) + 1
    assert slot.request.steps is not None
    slot.request.steps.append(step)
    slot.sampled = None


IMPORTER = Importer("llama.cpp-log", "llama.cpp server's log", read, order=5)
