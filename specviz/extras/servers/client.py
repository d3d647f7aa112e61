"""A client of model servers: which kind one is, and one request streamed into the lines that the importers read.

vLLM and whatever speaks OpenAI's API: ``GET /v1/models``, ``POST /v1/chat/completions`` and ``/v1/completions`` with
vLLM's ``return_token_ids`` and ``vllm_xargs``. llama.cpp: ``POST /apply-template`` and ``/completion`` with
``timings_per_token`` and ``return_tokens`` (tools/server/README.md), which tell its steps.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from decoders.importers.values import dicts, number, whole

from .answer import ANSWER_S, CONNECT_S, MOST_ANSWER, STREAM_S, WHOLE_S, HttpAnswer, ServerFault, error_text
from .importers.chat import text_of
from .importers.llama_server import steps_of
from .watching import ServerAcceptance

MOST_STREAM, MOST_FILE = 32 << 20, 16 << 20  # bytes of a stream that are read, and of its file that are kept
MOST_CHUNKS = MOST_TOKENS = 20_000  # of a stream that are kept: far more than are asked for
CHOICES = 5  # of the target's per token
KINDS = {"vllm": "vLLM", "llamacpp": "llama.cpp", "sglang": "SGLang"}  # by owned_by in GET /v1/models
Chat = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answered: its address without a path's end, its kind (a value of KINDS, or "OpenAI-like"), the
    first model that it serves, and the key that it is asked with.
    """

    address: str
    kind: str
    model: str
    key: str = field(default="", repr=False)

    def post(self, path: str, body: Any, seconds: float = CONNECT_S, whole: float = WHOLE_S) -> HttpAnswer:
        """Its answer to JSON, not yet read. Raises ServerFault."""
        return HttpAnswer(self.address, "POST", path, body, self.key, seconds, whole)


def checked_address(text: str) -> str:
    """``http://HOST:PORT`` out of what was typed. Raises ServerFault.

    >>> checked_address(" http://127.0.0.1:8000/v1/ ")
    'http://127.0.0.1:8000'
    """
    address = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        good = False
    if not good or not address.isascii() or not address.isprintable() or " " in address:
        raise ServerFault(f"{text.strip()[:80]!r} is no address of a server: give http://HOST:PORT")
    return address


def find_server(address: str, key: str = "") -> Server:
    """The server at an address. Raises ServerFault where none answers, or none that lists models."""
    address = checked_address(address)
    model_listing = HttpAnswer(address, "GET", "/v1/models", key=key).json()
    models = dicts(model_listing.get("data")) if isinstance(model_listing, dict) else []
    if not models:
        raise ServerFault(f"{address}/v1/models names no model: is it vLLM, llama.cpp or their like?")
    kind = KINDS.get(str(models[0].get("owned_by")), "OpenAI-like")
    return Server(address, kind, str(models[0].get("id") or "")[:300], key)


class AnswerStream:
    """One streamed request. Iterating yields the pieces of the answer's text as they arrive; ``file`` is what the
    importers read, at any time; ``close`` ends it from any thread.

    ``prompt`` is a text, which is continued, or the messages of a chat. ``key`` is the request's id, once it is known.
    """

    def __init__(self, server: Server, prompt: str | Chat, *, max_tokens: int, temperature: float = 0.0) -> None:
        self.server, self.prompt = server, prompt
        self.settings = {"temperature": temperature, "seed": 0, "stream": True}
        self.max_tokens = max_tokens
        self.key, self.lines = "", list[str]()
        self.began: float | None = None  # when the first token came, and the last
        self.last = 0.0
        self.closed = False
        self._tokens = self._size = self._kept_bytes = 0
        self._counts: list[tuple[int, int, int, float | None]] = []  # of llama.cpp's chunks, as ``steps_of`` takes them
        self._answer: HttpAnswer | None = None

    def __iter__(self) -> Iterator[str]:
        """Pieces of text. Raises ServerFault where the server ends in the middle; ``file`` has what came until then."""
        path, body = self._request()
        self._answer = answer = self.server.post(path, body, ANSWER_S, STREAM_S)
        try:
            yield from self._pieces(answer)
        finally:
            answer.end()

    def _pieces(self, answer: HttpAnswer) -> Iterator[str]:
        is_done, cause = False, ""
        while not self.closed:
            try:
                line = answer.response.readline(MOST_ANSWER)
            except (OSError, http.client.HTTPException, ValueError) as problem:
                line, cause = b"", f" ({answer.reason(problem)})"
            if not line:
                break
            self._size += len(line)
            if self._size > MOST_STREAM:
                raise ServerFault(f"the answer has more than {MOST_STREAM >> 20} MiB, and no more are read")
            if len(self.lines) >= MOST_CHUNKS or self._kept_bytes > MOST_FILE:
                raise ServerFault(f"the answer has more than {len(self.lines):,} chunks, and no more are read")
            is_done = is_done or line.strip() == b"data: [DONE]"
            if (value := _event(line)) is None:
                continue
            if fault := value.get("error"):
                raise ServerFault(f"{self.server.address} answers: {error_text(fault)}")
            text, over = self._add(value)
            is_done = is_done or over
            if text:
                yield text
        if answer.is_expired:
            cause = f" (it was not done within {answer.whole:,.0f} s)"
        if (not is_done or answer.is_expired) and not self.closed:
            raise ServerFault(f"{self.server.address} ended in the middle of its answer{cause}")

    @property
    def file(self) -> bytes:
        """The chunks so far, a line each, with the seconds at which they arrived."""
        return "\n".join(self.lines).encode()

    def close(self) -> None:
        """End the request; the server notices that nobody reads on."""
        self.closed = True
        if self._answer is not None:
            self._answer.close()

    def look(self) -> ServerAcceptance:
        """The numbers of this request: acceptance where the chunks tell it (llama.cpp), tokens per second always."""
        acceptance = ServerAcceptance(requests=int(bool(self.lines)))
        for step in steps_of(list(self._counts)) or ():
            acceptance.add(step.drafted or 0, min(step.accepted or 0, step.drafted or 0), step.emitted)
        acceptance.tokens = self._tokens
        if self.began is not None and self.last > self.began and self._tokens > 1:
            acceptance.per_second = (self._tokens - 1) / (self.last - self.began)
        return acceptance

    def _request(self) -> tuple[str, dict[str, Any]]:
        """The path and the body of the request."""
        prompt, chat = self.prompt, not isinstance(self.prompt, str)
        if self.server.kind == "llama.cpp":
            if chat:
                answer = self.server.post("/apply-template", {"messages": prompt}).json()
                prompt = answer.get("prompt") if isinstance(answer, dict) else None
                if not isinstance(prompt, str):
                    raise ServerFault(f"{self.server.address}/apply-template answers without a prompt")
            options = {
                "n_predict": self.max_tokens,
                "return_tokens": True,
                "timings_per_token": True,
                "n_probs": CHOICES,
            }
            return "/completion", {"prompt": prompt, **options, **self.settings}
        body: dict[str, Any] = {
            "model": self.server.model, "max_tokens": self.max_tokens, "stream_options": {"include_usage": True},
            **self.settings,
        }  # fmt: skip
        if self.server.kind == "vLLM":
            body |= {"return_token_ids": True, "vllm_xargs": {"specviz": 1}}
        if chat:
            return "/v1/chat/completions", {"messages": prompt, "logprobs": True, "top_logprobs": CHOICES, **body}
        return "/v1/completions", {"prompt": prompt, "logprobs": CHOICES, **body}

    def _add(self, value: dict[str, Any]) -> tuple[str, bool]:
        """Take in a chunk: its text, and whether it is the last."""
        moment = time.perf_counter()
        if self._tokens + (new := _count_tokens(value)) > MOST_TOKENS:
            raise ServerFault(f"the answer has more than {MOST_TOKENS:,} tokens, and no more are read")
        self.lines.append(json.dumps({"t": round(moment, 6), "data": value}, ensure_ascii=False))
        self._kept_bytes += len(self.lines[-1])
        if isinstance(key := value.get("id"), str):
            self.key = self.key or key
        choice = next(iter(dicts(value.get("choices"))), {})
        delta = choice.get("delta")
        text = text_of(delta if isinstance(delta, dict) else choice or value)
        timings = value.get("timings")
        if isinstance(timings, dict):
            counts = [whole(timings.get(name)) or 0 for name in ("predicted_n", "draft_n", "draft_n_accepted")]
            self._counts.append((*counts, number(timings.get("predicted_ms"))))  # type: ignore[arg-type]
        if new:
            self.began, self.last = self.began or moment, moment
            self._tokens += new
        return text, value.get("stop") is True


def _count_tokens(value: dict[str, Any]) -> int:
    """Number of tokens that a chunk tells, by the longest of its lists."""
    choice = next(iter(dicts(value.get("choices"))), {})
    logprobs = choice.get("logprobs")
    logprobs = logprobs if isinstance(logprobs, dict) else {}
    lists = (choice.get("token_ids"), value.get("tokens"), logprobs.get("content"), logprobs.get("tokens"))
    delta = choice.get("delta")
    text = text_of(delta if isinstance(delta, dict) else choice or value)
    ids = choice.get("token_ids") or value.get("tokens")
    if isinstance(ids, list) and not any(isinstance(entries, list) and len(entries) > len(ids) for entries in lists):
        return len(ids)
    return max([int(bool(text)), *(len(entries) for entries in lists if isinstance(entries, list))])


def _event(line: bytes) -> dict[str, Any] | None:
    """The object of a server-sent event; None for other lines."""
    data = line.strip().removeprefix(b"data:").strip()
    if not data.startswith(b"{"):
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
