"""llama.cpp server's answers: ``timings`` with ``draft_n`` and ``draft_n_accepted``, in its own form and in OpenAI's.

tools/server/README.md, "Result JSON" of POST /completion (``content``, ``tokens`` with ``return_tokens``,
``completion_probabilities``, ``timings``, ``stop_type``); tools/server/server-task.h, result_timings. Which tokens were
drafted is not told. With drafting on, probabilities of accepted tokens are 1.0 (ggml-org/llama.cpp issue 27972), so
those of an answer with drafts are left out.
"""

from __future__ import annotations

from typing import Any

from .chat import answers, usage
from .importer import Contents, Importer
from .request import MOST_REQUESTS, Request, Token, check_tokens, words
from .source import Source
from .values import from_log, merged, number, numbers, whole

NO_PROBS = "llama.cpp gives accepted tokens the probability 1.0, so its probabilities were left out"


def read(source: Source) -> Contents | None:
    """Requests with llama.cpp's timings."""
    contents, tokens = Contents(), 0
    for answer in answers(source.documents):
        told = merged(part["timings"] for part in answer.parts if isinstance(part.get("timings"), dict))
        if told:
            answer.request.said = {**usage(answer), **told}
            contents.requests.append(_finished(answer.request, told))
    begun: dict[tuple[Any, ...], Request] = {}
    for place, document in enumerate(source.documents):
        value = document.value
        if "choices" in value or "content" not in value or not ({"timings", "stop", "id_slot"} & set(value)):
            continue
        key = whole(value.get("id_slot")), whole(value.get("index"))
        if value.get("stop") is not False and key not in begun:  # an answer in one piece
            key = (place,)
        if key not in begun and len(contents.requests) > MOST_REQUESTS:
            continue
        request = begun.setdefault(key, Request(f"request {place + 1}"))
        tokens += _add(request, value)
        check_tokens(tokens)
        if isinstance(told := value.get("timings"), dict):
            request.said |= told  # timings_per_token tells them with every chunk
        if value.get("stop") is not False:
            contents.requests.append(_finished(begun.pop(key), request.said))
    for request in begun.values():
        request.notes.append("the stream ends before the answer does")
        contents.requests.append(_finished(request, request.said))
    return contents if contents.requests else None


def _add(request: Request, value: dict[str, Any]) -> int:
    """Add what one document says; returns how many tokens it told."""
    request.model = str(value.get("model") or request.model)
    if isinstance(value.get("prompt"), str):
        request.prompt = value["prompt"]
    ids, probs = numbers(value.get("tokens")) or [], value.get("completion_probabilities")
    if isinstance(probs, list) and probs and all(isinstance(one, dict) for one in probs):
        new = [_token(one) for one in probs]
    else:
        text = value.get("content")
        parts = [text] if isinstance(text, str) and value.get("stop") is False else words(str(text or ""))
        new = [Token(one) for one in ids] or [Token(None, part) for part in parts if part]
    request.counted = request.counted and (bool(ids) or isinstance(probs, list))
    for token, one in zip(new, ids if len(ids) == len(new) else [], strict=False):
        token.id = one
    request.tokens += new
    request.stop = {"eos": "eos", "limit": "max tokens"}.get(str(value.get("stop_type")), request.stop)
    return len(new)


def _token(one: dict[str, Any]) -> Token:
    tops, text = one.get("top_logprobs"), one.get("token")
    top = [
        (whole(other.get("id")), other["token"], from_log(other.get("logprob")))
        for other in (tops if isinstance(tops, list) else [])[:20]
        if isinstance(other, dict) and isinstance(other.get("token"), str)
    ]
    return Token(whole(one.get("id")), text if isinstance(text, str) else None, from_log(one.get("logprob")), top)


def _finished(request: Request, told: dict[str, Any]) -> Request:
    request.said |= told
    request.prefill_ms, request.decode_ms = number(told.get("prompt_ms")), number(told.get("predicted_ms"))
    if number(told.get("draft_n")):
        for token in request.tokens:
            token.prob, token.top = None, ()
        request.notes.append(NO_PROBS)
    return request


IMPORTER = Importer("llama.cpp", "llama.cpp server", read, order=15)
