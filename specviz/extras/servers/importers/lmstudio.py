"""LM Studio's predictions: fragments that say whether the draft model wrote them, and four counts.

lmstudio-js: LLMPredictionFragment (``content``, ``tokensCount``, ``isDrafted`` or, on the wire, ``fromDraftModel``;
packages/lms-shared-types, ProcessingUpdate.ts) and LLMPredictionStats (``totalDraftTokensCount``, ``accepted…``,
``rejected…``, ``ignored…``). A fragment of the target's own ends a step; what was rejected in it is not told.
LM Studio's REST API v0 (``POST /api/v0/chat/completions``) gives an answer in OpenAI's form beside ``stats`` with the
same counts (``total_draft_tokens_count``, …) and ``draft_model``, and its SDKs print a prediction's text beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decoders.importers.fields import merge_fields, snake
from decoders.importers.importer import Contents, Importer
from decoders.importers.request import Request, ServerStep, Token, check_tokens, words
from decoders.importers.source import LogSource
from decoders.importers.values import number, whole

from .chat import answers

DRAFTED = ("fromDraftModel", "isDrafted")
DRAFT_COUNT = "total_draft_tokens_count"


def read(source: LogSource) -> Contents | None:
    """A request per prediction: fragments up to the next statistics."""
    contents, request, drafted, tokens = Contents(), None, [], 0
    for document in source.documents:
        for fragment in _fragments(document.value):
            request = request or Request(f"prediction {len(contents.requests) + 1}")
            is_drafted = next(fragment[name] for name in DRAFTED if isinstance(fragment.get(name), bool))
            text = next((fragment[name] for name in ("text", "content") if isinstance(fragment.get(name), str)), "")
            count = whole(fragment.get("tokensCount"), 4096) or 1
            tokens += count
            check_tokens(tokens)
            request.tokens += [Token(None, text if place == 0 else "") for place in range(count)]
            drafted += [is_drafted] * count
        stats = document.value.get("stats")
        if request is not None and isinstance(stats, dict):
            request.server_fields = dict(stats)
            names = {"eosFound": "eos", "maxPredictedTokensReached": "max tokens"}
            request.stop = names.get(str(stats.get("stopReason")), str(stats.get("stopReason") or ""))
            info = document.value.get("modelInfo")
            request.model = str(info.get("modelKey") or info.get("path") or "") if isinstance(info, dict) else ""
            contents.requests.append(_finish(request, drafted))
            request, drafted = None, []
    if request is not None:
        contents.requests.append(_finish(request, drafted))
        request.notes.append("the stream ends without statistics")
    if not contents.requests:
        contents.requests += _in_one_piece(source)
    return contents if contents.requests else None


def _in_one_piece(source: LogSource) -> Iterator[Request]:
    """Requests whose statistics stand beside the whole answer."""
    for answer in answers(source.documents):
        counted_stats = [part["stats"] for part in answer.parts if _counts(part.get("stats"))]
        if counted_stats:
            answer.request.server_fields = merge_fields(answer.request.server_fields, counted_stats[-1])
            yield answer.request
    for place, document in enumerate(source.documents):
        value = document.value
        stats, text = value.get("stats"), value.get("content")
        if "choices" not in value and isinstance(stats, dict) and _counts(stats):
            request = Request(f"prediction {place + 1}", server_fields=dict(stats), is_counted=False)
            request.tokens = [Token(None, word) for word in words(text if isinstance(text, str) else "")]
            yield request


def _counts(stats: Any) -> bool:
    return isinstance(stats, dict) and any(snake(str(name)) == DRAFT_COUNT for name in stats)


def _fragments(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fragments in a document: itself, or in the lists that hold them."""
    if any(isinstance(value.get(name), bool) for name in DRAFTED):
        yield value
        return
    for inner in value.values():
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict) and any(isinstance(item.get(name), bool) for name in DRAFTED):
                yield item


def _finish(request: Request, drafted: list[bool]) -> Request:
    steps, accepted = list[ServerStep](), 0
    drafts = any(drafted) or bool(number(request.server_fields.get("totalDraftTokensCount")))
    draft_count = None if drafts else 0  # a step whose draft was rejected looks like one without a draft
    for is_drafted in drafted:
        if is_drafted:
            accepted += 1
        else:
            steps.append(ServerStep(accepted + 1, accepted, draft_count))
            accepted = 0
    if accepted:
        steps.append(ServerStep(accepted, accepted))
    request.steps = steps
    if drafts:
        request.notes.append("a step whose draft was rejected looks like one without a draft")
    return request


IMPORTER = Importer("lmstudio", "LM Studio", read, order=14)
