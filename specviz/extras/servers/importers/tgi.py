"""Text Generation Inference: answers of ``POST /generate`` with ``details``, and the chunks of ``/generate_stream``.

Its documentation, "Generate": ``generated_text``, ``details.tokens[]`` with ``id``, ``text``, ``logprob``, ``special``,
``details.prefill[]`` for the prompt, ``generated_tokens``, ``finish_reason``; a chunk has one ``token``. Which tokens
were drafted is not told: the server counts that in ``tgi_request_skipped_tokens`` of ``GET /metrics``.
"""

from __future__ import annotations

from typing import Any

from decoders.importers.importer import Contents, Importer
from decoders.importers.request import MOST_REQUESTS, Request, Token, check_tokens
from decoders.importers.source import LogSource
from decoders.importers.values import dicts, from_log, whole

STOPS = {"length": "max tokens", "eos_token": "eos", "stop_sequence": "stop word"}
NOT_TOLD = "this server does not tell which tokens were drafted: its /metrics counts them (tgi_request_skipped_tokens)"


def read(source: LogSource) -> Contents | None:
    """The requests in the file."""
    contents, stream, tokens = Contents(), None, 0
    for place, document in enumerate(source.documents):
        value, details = document.value, document.value.get("details")
        if "generated_text" not in value or len(contents.requests) > MOST_REQUESTS:
            continue
        details = details if isinstance(details, dict) else {}
        if isinstance(value.get("token"), dict):
            stream = stream or Request(f"request {place + 1}", notes=[NOT_TOLD])
            stream.tokens.append(_token(value["token"]))
            request = stream
            if not isinstance(value["generated_text"], str):
                continue
            stream = None
        elif dicts(details.get("tokens")):
            request = Request(f"request {place + 1}", notes=[NOT_TOLD])
            request.tokens = [_token(token) for token in dicts(details["tokens"])]
        else:
            continue
        tokens += len(request.tokens)
        check_tokens(tokens)
        contents.requests.append(_finish(request, details))
    if stream is not None:
        stream.notes.append("the stream ends before the answer does")
        contents.requests.append(stream)
    return contents if contents.requests else None


def _token(value: dict[str, Any]) -> Token:
    text = value.get("text")
    return Token(whole(value.get("id")), text if isinstance(text, str) else None, from_log(value.get("logprob")))


def _finish(request: Request, details: dict[str, Any]) -> Request:
    prefill = dicts(details.get("prefill"))
    ids = [whole(token.get("id")) for token in prefill]
    if ids and None not in ids:
        request.prompt_ids = [token for token in ids if token is not None]
    request.stop = STOPS.get(str(details.get("finish_reason")), "")
    if (count := whole(details.get("generated_tokens"))) is not None:
        request.server_fields["generated_tokens"] = count
    return request


IMPORTER = Importer("tgi", "Text Generation Inference", read, order=16)
