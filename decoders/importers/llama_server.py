"""llama.cpp server's answers: ``timings`` with ``draft_n`` and ``draft_n_accepted``, in its own form and in OpenAI's.

tools/server/README.md, "Result JSON" of POST /completion (``content``, ``tokens`` with ``return_tokens``,
``completion_probabilities``, ``timings``, ``stop_type``); tools/server/server-task.h, result_timings. Which tokens were
drafted is not told. With drafting on, probabilities of accepted tokens are 1.0 (ggml-org/llama.cpp issue 27972), so
those of an answer with drafts are left out.
"""

from __future__ import annotations

from typing import Any

from .chat import WORD, answers, usage
from .importer import Contents, Importer
from .request import Request, Token, from_log, merged, number, numbers
from .source import Source

NO_PROBS = "llama.cpp gives accepted tokens the probability 1.0, so its probabilities were left out"


def read(source: Source) -> Contents | None:
    """Requests with llama.cpp's timings."""
    contents = Contents()
    for answer in answers(source.documents):
        told = merged(part["timings"] for part in answer.parts if isinstance(part.get("timings"), dict))
        if told:
            answer.request.said = {**usage(answer), **told}
            contents.requests.append(_finished(answer.request, told))
    own: dict[Any, Request] = {}
    for place, document in enumerate(source.documents):
        value = document.value
        if "choices" in value or "content" not in value or not ({"timings", "stop", "id_slot"} & set(value)):
            continue
        streamed = value.get("stop") is False or (value.get("id_slot"), value.get("index")) in own
        key = (value.get("id_slot"), value.get("index")) if streamed else place
        request = own.setdefault(key, Request(f"request {len(own) + 1}"))
        _add(request, value)
        if isinstance(value.get("timings"), dict) and value.get("stop") is not False:
            contents.requests.append(_finished(own.pop(key), value["timings"]))
    contents.requests += [request for request in own.values() if request.tokens and "draft_n" in request.said]
    return contents if contents.requests else None


def _add(request: Request, value: dict[str, Any]) -> None:
    request.model = str(value.get("model") or request.model)
    if isinstance(value.get("prompt"), str):
        request.prompt = value["prompt"]
    ids, probs = numbers(value.get("tokens")) or [], value.get("completion_probabilities")
    if isinstance(probs, list) and probs and all(isinstance(one, dict) for one in probs):
        new = [_token(one) for one in probs]
    else:
        text = value.get("content")
        parts = [text] if isinstance(text, str) and value.get("stop") is False else WORD.findall(str(text or ""))
        new = [Token(one) for one in ids] or [Token(None, part) for part in parts if part]
    request.counted = request.counted and (bool(ids) or isinstance(probs, list))
    for token, one in zip(new, ids if len(ids) == len(new) else [], strict=False):
        token.id = one
    request.tokens += new
    request.stop = {"eos": "eos", "limit": "max tokens"}.get(str(value.get("stop_type")), request.stop)


def _token(one: dict[str, Any]) -> Token:
    tops = one.get("top_logprobs") or []
    top = [
        (t.get("id") if isinstance(t.get("id"), int) else None, t.get("token"), from_log(t.get("logprob")))
        for t in tops[:20]
        if isinstance(t, dict) and isinstance(t.get("token"), str)
    ]
    token, text = one.get("id"), one.get("token")
    return Token(
        token if isinstance(token, int) else None, text if isinstance(text, str) else None,
        from_log(one.get("logprob")), top,
    )  # fmt: skip


def _finished(request: Request, told: dict[str, Any]) -> Request:
    request.said |= told
    request.prefill_ms, request.decode_ms = number(told.get("prompt_ms")), number(told.get("predicted_ms"))
    if number(told.get("draft_n")):
        for token in request.tokens:
            token.prob, token.top = None, ()
        request.notes.append(NO_PROBS)
    return request


IMPORTER = Importer("llama.cpp", "llama.cpp server", read, order=15)
