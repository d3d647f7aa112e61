"""Answers and streams in OpenAI's form, which most servers speak, gathered request by request.

Fields: ``choices[].message.content`` or ``.text``, ``.delta.content``, ``.logprobs`` of chat (``content[].token, bytes,
logprob, top_logprobs``) and of completions (``tokens, token_logprobs, top_logprobs``): OpenAI's API reference, "Chat
completion object" and "chat completion chunk object". ``token_ids`` and ``prompt_token_ids``: vLLM's
``return_token_ids``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from decoders.importers.fields import about_drafts, flat
from decoders.importers.request import MOST_REQUESTS, Choice, Request, Token, check_tokens, words
from decoders.importers.source import LogDocument
from decoders.importers.values import dicts, from_log, number, numbers, whole

TOKEN_ID = re.compile(r"token_id:(\d+)")
REASONING_FIELDS, ANSWER_FIELDS = (
    ("reasoning_content", "reasoning", "thinking"),
    ("content", "text"),
)  # each the same text by other names
ECHO_NOTE = "the answer began with its prompt (echo): that part is the prompt's, and no output"


@dataclass(slots=True)
class Answer:
    """A request as it was gathered: ``chunks`` has the tokens per document and when it arrived; ``parts`` all
    documents, for the fields that only one server has; ``texts`` those that stand beside tokens without their own.
    """

    request: Request
    chunks: list[tuple[int, float | None]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)  # place of each chunk's document in parts
    parts: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_stream: bool = False


def answers(documents: Iterable[LogDocument]) -> list[Answer]:
    """The requests in a file, in the order in which they began; chunks of several may be mixed. A request with several
    choices is as many answers. Behind the first few hundred requests no other is begun.

    Raises ImportFault as ``check_tokens`` does.
    """
    partial_answers: dict[tuple[str, int], Answer] = {}
    last, tokens = "", 0
    for number_, document in enumerate(documents):
        value = document.value
        if not isinstance(value.get("choices"), list):
            continue
        key = value.get("id")
        if not isinstance(key, str) or not key:
            goes_on = any(isinstance(choice, dict) and "delta" in choice for choice in value["choices"])
            key = last if goes_on and last else f"request {number_ + 1}"
        last = key
        for choice in dicts(value["choices"]) or [{}]:
            place = whole(choice.get("index")) or 0
            if (key, place) not in partial_answers:
                if len(partial_answers) > MOST_REQUESTS:
                    continue
                partial_answers[key, place] = Answer(Request(f"{key} ({place})" if place else key))
            tokens += _add(partial_answers[key, place], value, choice, document.at)
            check_tokens(tokens)
    for answer in partial_answers.values():
        answer.request.text = "".join(answer.texts)
        answer.request.server_fields = usage(answer) | {
            path: value for part in answer.parts for path, value in about_drafts(part).items()
        }
        _take_echo(answer)
    return list(partial_answers.values())


def _take_echo(answer: Answer) -> None:
    """Take an echoed prompt out of the output: by its count of tokens, or by its text."""
    request, fields = answer.request, answer.request.server_fields
    prompt, output_count = (whole(fields.get(f"usage.{name}_tokens")) for name in ("prompt", "completion"))
    tokens, count = request.tokens, 0
    if prompt and request.is_counted and output_count is not None and len(tokens) == prompt + output_count:
        count = prompt
    elif request.prompt and not request.is_counted and len(answer.chunks) == 1:
        text = "".join(str(token.text or "") for token in tokens)
        if text.startswith(request.prompt) and len(text) > len(request.prompt):
            written_words = words(text[len(request.prompt) :])
            count, tokens = 1, [Token(), *(Token(None, word) for word in written_words)]
    if not count:
        return
    if all(token.id is not None for token in tokens[:count]):
        request.prompt_ids = request.prompt_ids or [token.id or 0 for token in tokens[:count]]
    if request.is_counted and all(isinstance(token.text, str) for token in tokens[:count]):
        request.prompt = request.prompt or "".join(str(token.text) for token in tokens[:count])
    request.tokens = tokens[count:]
    if len(answer.chunks) == 1:
        answer.chunks[0] = len(request.tokens), answer.chunks[0][1]
    request.notes.append(ECHO_NOTE)


def _add(answer: Answer, value: dict[str, Any], choice: dict[str, Any], at: float | None) -> int:
    """Add what one document says to its request; returns how many tokens it told."""
    request = answer.request
    answer.parts.append(value)
    if isinstance(value.get("model"), str):
        request.model = value["model"]
    if isinstance(reason := choice.get("finish_reason"), str):
        request.stop = {"stop": "eos", "length": "max tokens"}.get(reason, str(reason))
    for holder in (value, choice):
        request.prompt_ids = numbers(holder.get("prompt_token_ids")) or request.prompt_ids
        if isinstance(holder.get("prompt"), str):
            request.prompt = holder["prompt"]
    part = choice.get("delta") if isinstance(choice.get("delta"), dict) else choice.get("message")
    answer.is_stream |= isinstance(choice.get("delta"), dict) or str(value.get("object", "")).endswith("chunk")
    holder = part if isinstance(part, dict) else choice
    new = tokens_of(choice, holder)
    if new and all(token.text is None for token in new):
        text = text_of(holder)
        if len(new) == 1:
            new[0].text = text or None
        answer.texts.append(text)
    lead = len(new) > 1 and not request.tokens and new[0].prob is None and new[1].prob is not None  # echoed: no p
    request.is_counted = request.is_counted and all(t.id is not None or t.prob is not None for t in new[int(lead) :])
    if new:
        request.tokens += new
        answer.chunks.append((len(new), at))
        answer.at.append(len(answer.parts) - 1)
    return len(new)


def tokens_of(choice: dict[str, Any], part: dict[str, Any]) -> list[Token]:
    """The tokens of one choice, as exactly as it tells them: by log-probabilities, by ids, or (a text alone) in words
    of an answer and as one token of a stream's chunk.
    """
    ids = numbers(choice.get("token_ids")) or []
    logprobs = choice.get("logprobs")
    tokens: list[Token] = []
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        tokens = [chat_token(entry) for entry in dicts(logprobs["content"])]
    elif isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list):
        tokens = _completion_tokens(logprobs)
    if ids and len(tokens) != len(ids):
        tokens = [Token(token_id) for token_id in ids]
    for token, known_id in zip(tokens, ids, strict=False):
        token.id = known_id
    if tokens:
        return tokens
    text = text_of(part)
    if not text:
        return []
    if "delta" in choice:
        return [Token(None, text)]
    return [Token(None, word) for word in words(text)]


def text_of(part: dict[str, Any]) -> str:
    """The text of a message, a chunk or a completion."""
    return "".join(_first_text(part, names) for names in (REASONING_FIELDS, ANSWER_FIELDS))


def _first_text(part: dict[str, Any], names: tuple[str, ...]) -> str:
    """The first of some fields that has a text; of a list of parts all their texts."""
    for name in names:
        value = part.get(name)
        if isinstance(value, list):
            value = "".join(fragment["text"] for fragment in dicts(value) if isinstance(fragment.get("text"), str))
        if isinstance(value, str) and value:
            return value
    return ""


def _choice(token: Any, raw: Any, logprob: Any, token_id: Any = None) -> Choice:
    text = bytes(raw) if isinstance(raw, list) and all(type(b) is int and 0 <= b < 256 for b in raw) else token
    if isinstance(token, str) and (match := TOKEN_ID.fullmatch(token)):
        return int(match[1]), None, from_log(logprob)
    return whole(token_id), text if isinstance(text, str | bytes) else None, from_log(logprob)  # type: ignore[return-value]


def chat_token(entry: dict[str, Any]) -> Token:
    """A token of ``logprobs.content``, or of llama.cpp's ``completion_probabilities``, which tells its id, too."""
    main_choice, *top = (
        _choice(choice.get("token"), choice.get("bytes"), choice.get("logprob"), choice.get("id"))
        for choice in (entry, *dicts(entry.get("top_logprobs"))[:20])
    )
    return Token(*main_choice, top)


def _completion_tokens(record: dict[str, Any]) -> list[Token]:
    names, logprobs, tops = (record.get(name) or [] for name in ("tokens", "token_logprobs", "top_logprobs"))
    tokens = []
    for place, name in enumerate(names):
        logprob = logprobs[place] if isinstance(logprobs, list) and place < len(logprobs) else None
        top = tops[place] if isinstance(tops, list) and place < len(tops) and isinstance(tops[place], dict) else {}
        tokens.append(Token(*_choice(name, None, logprob), [_choice(t, None, p) for t, p in list(top.items())[:20]]))
    return tokens


def timings(answer: Answer) -> list[float | None]:
    """Milliseconds between the chunks' arrivals; None where the file does not say when one arrived."""
    stamps = [None, *(at for _, at in answer.chunks)]
    return [None if a is None or b is None else max(0.0, round((b - a) * 1e3, 3)) for a, b in pairwise(stamps)]


def usage(answer: Answer) -> dict[str, Any]:
    """The token counts that the answer names, those within others by their paths."""
    counts = [part["usage"] for part in answer.parts if isinstance(part.get("usage"), dict)]
    return {f"usage.{path}": value for count in counts for path, value in flat(count) if number(value) is not None}
