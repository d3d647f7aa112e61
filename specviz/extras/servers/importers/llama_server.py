"""llama.cpp server's answers: ``timings`` with ``draft_n`` and ``draft_n_accepted``, in its own form and in OpenAI's.

tools/server/README.md, "Result JSON" of POST /completion (``content``, ``tokens`` with ``return_tokens``,
``completion_probabilities``, ``timings``, ``stop_type``); tools/server/server-task.h, result_timings;
``__verbose.prompt`` with ``"verbose": true``. A stream with ``"timings_per_token": true`` tells its steps: all tokens
of a verified draft carry the counts behind it. Without, which tokens were drafted is not told.

Chunks of a stream say ``id_slot`` −1, and the last one the slot. A character of several tokens is one chunk, and a text
that may be the start of a stop word waits for the next token's: such texts are of no single token. Tokens of a verified
draft have the probability 1.0 and no first choices (ggml-org/llama.cpp issue 27972): their probabilities are left out.
``predicted_ms`` starts with the first token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from decoders.importers.fields import merge_fields
from decoders.importers.importer import Contents, Importer
from decoders.importers.request import (
    MOST_REQUESTS,
    NO_DRAFT,
    PROMPT_STEP,
    Request,
    ServerStep,
    Token,
    check_tokens,
    words,
)
from decoders.importers.source import LogSource
from decoders.importers.values import dicts, merge, number, numbers, whole

from .chat import Answer, answers, chat_token

NO_PROBS = "llama.cpp writes 1.0 for every token of a verified draft: these probabilities were left out"
HIDDEN = "characters of several tokens hide where the steps of this stream begin"
STOPS = {"eos": "eos", "limit": "max tokens", "word": "stop word"}
MOST_HIDDEN = 64  # tokens of one chunk


@dataclass(slots=True)
class Stream:
    """A stream while it is read: its request, its numbers that tell it from others, and of each chunk the counts of
    tokens, drafted and accepted ones, and the milliseconds since the first token; ``counts`` is None where a chunk does
    not tell them.
    """

    request: Request
    marks: tuple[int | None, ...] = ()
    counts: list[tuple[int, int, int, float | None]] | None = field(default_factory=list)
    is_joined: bool = False  # a text waits for the next token's

    def goes_on(self, marks: tuple[int | None, ...], total: int | None) -> bool:
        """True where a document of these numbers, behind so many tokens, may be of this stream."""
        marks_match = all(
            mark == new_mark or mark is None or new_mark is None
            for mark, new_mark in zip(self.marks, marks, strict=True)
        )
        return marks_match and (total is None or total >= len(self.request.tokens))

    def add(self, new: list[Token], total: int | None, timings: dict[str, Any]) -> None:
        """The next chunk: its tokens, and how many the server has written so far."""
        tokens = self.request.tokens
        hidden = 0 if total is None else total - len(tokens) - len(new)
        if total is not None and len(new) > 1 and total == len(tokens) + 1:  # one token of several words
            new, hidden = [Token(None, "".join(str(token.text or "") for token in new))], 0
        if 0 < hidden <= MOST_HIDDEN:
            for token in new[:1]:
                token.id = None  # its text is theirs, too
            new = [*(Token() for _ in range(hidden)), *new]
        tokens += new
        counts = [whole(timings.get(name)) for name in ("predicted_n", "draft_n", "draft_n_accepted")]
        if self.counts is not None and (counts[0] is not None or new):
            self.counts.append((counts[0] or 0, counts[1] or 0, counts[2] or 0, number(timings.get("predicted_ms"))))
            if new and counts[0] != len(tokens):
                self.counts = None

    def close(self) -> Request:
        """The request, with its steps where every chunk told its counts."""
        request = self.request
        total = request.totals.get("tokens")
        if request.stop == "eos" and total == len(request.tokens) + 1:
            request.tokens.append(Token())  # the token that ended the answer has no text
        if total is not None and total == len(request.tokens):
            request.is_counted = True
        if self.counts:
            request.steps = steps_of(self.counts)
            if request.steps is None or sum(step.emitted for step in request.steps) != len(request.tokens):
                request.steps = None
                request.notes.append(HIDDEN)
        return request


def steps_of(counts: list[tuple[int, int, int, float | None]]) -> list[ServerStep] | None:
    """The steps of a stream by its counts; None where a chunk may be of several.

    >>> steps_of([(1, 0, 0, 0.0), (2, 4, 1, 9.0), (3, 4, 1, 9.1), (4, 4, 1, 14.0)])  # doctest: +ELLIPSIS
    [ServerStep(emitted=1, ...), ServerStep(emitted=2, accepted=1, drafted=4, ...), ServerStep(emitted=1, ...)]
    """
    steps: list[ServerStep] = []
    tokens, drafted, accepted, remainder, last_ms = 0, 0, 0, 0, 0.0
    for total, all_drafted, all_accepted, ms in counts:
        new = total - tokens
        if min(new, all_drafted - drafted, all_accepted - accepted) < 0:
            return None
        step_ms = None if ms is None else round(max(0.0, ms - last_ms), 3)
        if remainder and new:
            emitted_count = min(remainder, new)
            steps[-1].emitted += emitted_count
            remainder, new = remainder - emitted_count, new - emitted_count
        if all_drafted > drafted:
            if not tokens and new > 1:
                steps.append(ServerStep(1, 0, 0, reason=PROMPT_STEP))
                new -= 1
            if new != 1:
                return None
            remainder = all_accepted - accepted
            steps.append(ServerStep(1, remainder, all_drafted - drafted, ms=step_ms))
            new, last_ms = 0, ms or last_ms
        for _ in range(new):
            steps.append(ServerStep(1, 0, 0, ms=step_ms, reason=NO_DRAFT if steps else PROMPT_STEP))
            step_ms, last_ms = 0.0 if step_ms is not None else None, ms or last_ms
        tokens, drafted, accepted = total, all_drafted, all_accepted
    return steps


def read(source: LogSource) -> Contents | None:
    """Requests with llama.cpp's timings."""
    contents = Contents()
    for answer in answers(source.documents):
        timings = merge(part["timings"] for part in answer.parts if isinstance(part.get("timings"), dict))
        if timings:
            contents.requests.append(_finish(_of_chat(answer, timings), timings))
    count, begun = 0, list[Stream]()
    for place, document in enumerate(source.documents):
        value = document.value
        if "choices" in value or "content" not in value or not ({"timings", "stop", "id_slot"} & set(value)):
            continue
        total = whole(value.get("tokens_predicted"))
        marks = tuple(whole(value.get(name)) for name in ("index", "tokens_evaluated", "id_slot"))
        stream = next((candidate for candidate in begun if candidate.goes_on(marks, total)), None)
        is_stream = stream is not None or value.get("stop") is False
        if stream is None:
            if len(contents.requests) + len(begun) > MOST_REQUESTS:
                continue
            stream = Stream(Request(f"request {place + 1}"), marks)
            begun.append(stream)
        count += _add(stream, value, total, is_stream)
        check_tokens(count)
        if value.get("stop") is not False:
            begun = [candidate for candidate in begun if candidate is not stream]
            contents.requests.append(
                _finish(stream.close() if is_stream else stream.request, stream.request.server_fields)
            )
    for place, document in enumerate(source.documents):  # timings alone
        if {"predicted_ms", "predicted_n"} <= set(document.value) and len(contents.requests) <= MOST_REQUESTS:
            count = whole(document.value.get("predicted_n"))
            contents.requests.append(_finish(Request(f"request {place + 1}", totals={"tokens": count}), document.value))
    for stream in begun:
        stream.request.notes.append("the stream ends before the answer does")
        contents.requests.append(_finish(stream.close(), stream.request.server_fields))
    return contents if contents.requests else None


def _of_chat(answer: Answer, server_timings: dict[str, Any]) -> Request:
    """A request in OpenAI's form, with what llama.cpp alone tells of it."""
    request = answer.request
    verbose = merge(part["__verbose"] for part in answer.parts if isinstance(part.get("__verbose"), dict))
    if isinstance(verbose.get("prompt"), str):
        request.prompt = verbose["prompt"]
    request.totals["tokens"] = whole(server_timings.get("predicted_n"))
    if len(answer.chunks) < 2:
        if verbose.get("tokens") or verbose.get("completion_probabilities"):
            request.tokens = _tokens(request, verbose)
        return request
    stream, at = Stream(request), 0
    ends = {part: count for part, (count, _) in zip(answer.at, answer.chunks, strict=True)}
    tokens, request.tokens = request.tokens, []
    for place, part in enumerate(answer.parts):
        timings, new = part.get("timings"), tokens[at : at + ends.get(place, 0)]
        at += len(new)
        timings = timings if isinstance(timings, dict) else {}
        if new or timings:
            stream.add(new, whole(timings.get("predicted_n")), timings)
    return stream.close()


def _add(stream: Stream, value: dict[str, Any], total: int | None, is_stream: bool) -> int:
    """Add what one document says; returns how many tokens it told."""
    request = stream.request
    start_count = len(request.tokens)
    request.model = str(value.get("model") or request.model)
    if isinstance(value.get("prompt"), str):
        request.prompt = value["prompt"]
    timings = value["timings"] if isinstance(value.get("timings"), dict) else {}
    request.server_fields |= timings
    request.stop = STOPS.get(str(value.get("stop_type")), request.stop)
    if value.get("stop") is not False:
        request.totals["tokens"] = total if total is not None else whole(timings.get("predicted_n"))
    if not is_stream:
        request.tokens = _tokens(request, value)
        return len(request.tokens)
    text, ids, entries = (
        value.get("content"),
        numbers(value.get("tokens")),
        dicts(value.get("completion_probabilities")),
    )
    text = text if isinstance(text, str) else ""
    request.text += text
    new = (
        [chat_token(entry) for entry in entries]
        or [Token(token_id) for token_id in ids or ()]
        or [Token(None, text)][: len(text)]
    )
    request.is_counted = request.is_counted and all(token.id is not None for token in new)
    if len(new) == 1:
        top_text = next((name for token_id, name, _ in new[0].top if token_id == new[0].id), None)
        waits = not text and new[0].id is not None
        new[0].text = top_text or (None if waits or (stream.is_joined and new[0].id is not None) else text or None)
        stream.is_joined = waits
    stream.add(new, total, timings)
    return len(request.tokens) - start_count


def _tokens(request: Request, value: dict[str, Any]) -> list[Token]:
    """The tokens of an answer in one piece: by probabilities, by ids, or its words."""
    ids, tokens = numbers(value.get("tokens")) or [], list[Token]()
    text, waits = value.get("content") if isinstance(value.get("content"), str) else "", False
    for entry in dicts(value.get("completion_probabilities")):
        token = chat_token(entry)
        top_text = next((name for token_id, name, _ in token.top if token_id == token.id and name), None)
        waits, is_continuation = not token.text, waits
        token.text = top_text or (None if waits or is_continuation else token.text)
        tokens.append(token)
    if ids and len(tokens) != len(ids):  # probabilities are of characters where these are of several tokens
        tokens = [Token(token_id) for token_id in ids]
    if any(token.text is None for token in tokens):
        request.text = text or ""
    request.is_counted = bool(tokens)
    return tokens or [Token(None, part) for part in words(text or "")]


def _finish(request: Request, timings: dict[str, Any]) -> Request:
    request.server_fields = merge_fields(request.server_fields, timings)
    request.prefill_ms, request.decode_ms = number(timings.get("prompt_ms")), number(timings.get("predicted_ms"))
    request.untimed_tokens = 1
    request.totals |= {
        "drafted": whole(timings.get("draft_n")) or 0,
        "accepted": whole(timings.get("draft_n_accepted")) or 0,
    }
    without = [token for token in request.tokens if token.prob is not None and (not token.top or token.prob == 1)]
    if request.totals["drafted"] and without:
        for token in without:
            token.prob = None
        request.notes.append(NO_PROBS)
    return request


IMPORTER = Importer("llama.cpp", "llama.cpp server", read, order=15)
