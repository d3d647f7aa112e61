"""Cause on the page "Attribution": an answer read without a source, a turn, or the words of a link."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from typing import Any

from cachetools import LRUCache
from pydantic import Field

from decoders.errors import UserError, capital
from decoders.study.attribute.evidence import cause, evidence_sources, sentences
from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz.places import is_id
from specviz.server.backend_host import Holder
from specviz.server.bodies import Body
from specviz.server.desk import Desk, Service, post
from specviz.server.forms import Refusal
from specviz.views.gallery import gallery_causes
from specviz.views.prompts import check_tokens

MEMORY = "attribution"  # the answer that was read last, in a Holder's memory
MOST_ASKED, RETRY_S = 8, 3  # questions that wait at a time; seconds after which a further one may be asked again


class Part(Body):
    """A part of the prompt to leave out: a source (``kind`` and ``passage``), or the positions ``link`` of some words
    in one, for the output tokens ``span``.
    """

    kind: str = ""
    passage: int = -1
    link: list[int] | None = Field(None, min_length=2, max_length=2)
    span: list[int] | None = Field(None, min_length=2, max_length=2)


def read_without(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the run ``key`` without the positions ``part``: ``evidence.cause``."""
    from decoders.study.attribute.without import ReadAnswer

    trace = request["trace"]
    trace = trace if isinstance(trace, Trace) else tracefile.load(base64.b64decode(trace))
    key, answer = holder.memory.get(MEMORY, ("", None))
    if key != request["key"] or answer is None or answer.target is not holder.target:
        answer = ReadAnswer(holder.target, trace.prompt_ids, trace.output_ids)
        holder.memory[MEMORY] = request["key"], answer
    return cause(trace, answer, request["name"], request["part"], request["spans"])


class Causes(Service):
    """The part of a page that reads answers without a source; what was found is kept, and exported."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._slots = threading.BoundedSemaphore(MOST_ASKED)
        self._change_causes = threading.Lock()
        self._known_causes: LRUCache[tuple[str, str, int], dict[str, Any]] = LRUCache(500)  # run, source → weights

    def causes(self, key: str) -> list[dict[str, Any]]:
        """List what is known of a run's sources so far; of a gallery run what was recorded with it."""
        with self._change_causes:
            entries = [(home[1:], cause) for home, cause in self._known_causes.items() if home[0] == key]
        own_causes = [{"kind": kind, "passage": number, **cause} for (kind, number), cause in entries]
        return own_causes or (gallery_causes(key) if is_id(key) else [])

    @post("runs/{key}/without")
    def without(self, key: str, request: Part) -> dict[str, Any]:
        """A run's answer without a part of its prompt: ``read_without``, for the answer as a whole and each of its
        sentences, or for the tokens of a span. Raises UserError, Refusal and UnknownTrace.
        """
        if self.desk.runner.job(key) is not None:
            raise UserError("this run is not over yet: wait until it is")
        trace = self.desk.trace(key)
        if not sentences(trace):
            raise UserError("this run wrote no words, so there is nothing to read again")
        if {"text", "tokens", "tokens.id"} & {*trace.run.get("unknown", ())}:
            raise UserError("the source of this run does not say its tokens: read it again with the model in use first")
        name, part = _part(trace, request)
        target = self.desk.target_of(trace.run)
        check_tokens(target, trace)
        spans = [(request.span[0], request.span[1])] if request.span else []
        is_away = self.desk.uses_backends(target)
        trace_data = base64.b64encode(tracefile.save(trace, None) or b"").decode() if is_away else trace
        if not self._slots.acquire(blocking=False):
            raise Refusal("queue", "Many answers wait to be read again: try again in a moment.", RETRY_S)
        try:
            question = {"key": key, "trace": trace_data, "part": part, "name": name, "spans": spans}
            cause = self.desk.work_on(target, read_without, question, key)
        finally:
            self._slots.release()
        if request.link is None:
            with self._change_causes:
                self._known_causes[key, request.kind, request.passage] = cause
        return {"kind": request.kind, "passage": request.passage, **cause}


def _part(trace: Trace, request: Part) -> tuple[str, list[int]]:
    """The name and the positions of what is asked for. Raises UserError where there is none, or for a span outside of
    the answer.
    """
    length, end = trace.run["prompt_length"], len(trace.output_ids)
    if request.span and not 0 <= request.span[0] < request.span[1] <= end:
        raise UserError(f"there are no tokens {request.span}: the answer has tokens 0 to {end}")
    if request.link is not None:
        start, stop = request.link
        if not 0 <= start < stop <= length:
            raise UserError("only words of the prompt can be left out: the model never read a pool, and wrote the rest")
        return "This place", list(range(start, stop))
    for source in evidence_sources(trace):
        if source.home == (request.kind, request.passage):
            return capital(source.name), list(source.at)
    raise UserError("the model read no such source: choose a passage of its prompt, or a turn")
