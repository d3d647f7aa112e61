"""A server's requests as trace files: gathered step by step, written as each request ends.

The server's own thread hands over batches of small tensors (``Batch``) and goes on; one thread of ours waits for their
copies, makes rows of them and writes the files. Nothing here waits for a device in the server's thread.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoders.importers.request import NO_DRAFT, Choice, Request, ServerStep, Token
from decoders.importers.request_trace import trace_of
from decoders.trace.files import SUFFIX, save
from decoders.trace.tables import TraceError
from decoders.trace.trace import Trace

log = logging.getLogger("specviz.recorder")

TOP = 5  # of the target's choices per verified row, as in this engine's own runs
MOST_REQUESTS = 256  # recorded at a time; further ones are served and not recorded
MOST_TOKENS = 20_000  # of a request, prompt and output; a longer one is recorded up to there
MOST_WAITING = 512  # batches that wait for the thread; beyond, steps are lost and their requests say so
MOST_LIVE = 4 << 20  # bytes of the file of running requests, which then begins anew
LIVE = "live-{host}-{pid}.jsonl"  # in containers every server may have the same process id
ROWS_AT_A_TIME = 8  # of logits and a thread, whose log-probabilities are in memory together
FULL = "the recorder was {reason}: the steps after the first {steps} are not recorded"


@dataclass(slots=True)
class RequestRecording:
    """A request that is being recorded. ``stop_ids`` end it, and ``most`` is how many tokens it may have."""

    key: str
    prompt_ids: list[int]
    max_steps: int
    stop_ids: frozenset[int]
    settings: dict[str, Any]
    begun: float = field(default_factory=time.time)
    steps: list[ServerStep] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    stop: str = ""
    last: float | None = None
    truncated: str = ""


@dataclass(slots=True)
class RecordedBatch:
    """One forward over several requests, as tensors of the host. ``ready`` is waited for before they are read.

    Rows are those of the recorded requests in turn: each has as many as it drafted tokens, and one more. ``drafted``,
    ``logprobs`` (of the target, temperature 1), ``ranks``, ``served`` (after temperature and the like) and ``q`` have
    one number per drafted token; ``tokens`` has what each request wrote, padded with -1.
    """

    recordings: list[RequestRecording]
    counts: list[int]
    top_ids: Tensor
    top_logprobs: Tensor
    drafted: Tensor
    logprobs: Tensor
    ranks: Tensor
    tokens: Tensor
    served: Tensor | None = None
    q: Tensor | None = None
    batch: int = 1  # requests of the forward, those that are not recorded included
    at: float = 0.0
    draft_ms: Callable[[], float | None] = lambda: None
    verify_ms: Callable[[], float | None] = lambda: None
    ready: Callable[[], None] = lambda: None


def logprobs_of(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities [rows, k] of some ids of every row.

    On a CPU a few rows at a time: all at once are another block of memory of the logits' size, taken and given back in
    every step.
    """
    if logits.device.type != "cpu":
        return logits.log_softmax(-1).gather(1, ids)
    block, vocab = ROWS_AT_A_TIME * torch.get_num_threads(), logits.shape[1]
    room, result = logits.new_empty((block, vocab)), logits.new_empty(ids.shape)
    for start in range(0, len(logits), block):
        chunk = slice(start, start + block)
        rows = logits[chunk]
        logprobs = room[: len(rows)]
        torch.ops.aten._log_softmax.out(rows, -1, False, out=logprobs)
        torch.gather(logprobs, 1, ids[chunk], out=result[chunk])
    return result


def ranks_of(logits: Tensor, rows: Tensor, tokens: Tensor, best: Tensor | None = None) -> Tensor:
    """Ranks of tokens in their rows, from 0: how many are likelier [tokens]. ``best`` are the rows' largest logits,
    largest first: of a token among them no row is read. On a CPU numpy counts without copying rows.
    """
    token_logits = logits[rows, tokens]
    if logits.device.type != "cpu":
        return (logits[rows] > token_logits[:, None]).sum(-1)
    values, ranks = logits.detach().numpy(), torch.zeros(len(tokens), dtype=torch.long)
    read = range(len(tokens))
    if best is not None:
        ranks = (best[rows] > token_logits[:, None]).sum(-1)
        read = (ranks == best.shape[1]).nonzero()[:, 0].tolist()
    at, thresholds = rows.tolist(), token_logits.tolist()
    for place in read:
        ranks[place] = int(np.count_nonzero(values[at[place]] > thresholds[place]))
    return ranks


def on_device(places: Sequence[int], device: torch.device) -> Tensor:
    """Row numbers as a tensor of the device; a GPU is not waited for, as it would be for memory that is not pinned."""
    index = torch.tensor(places, dtype=torch.long)
    return index.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else index.to(device)


def to_host(tensors: Sequence[Tensor | None]) -> tuple[list[Any], Callable[[], None]]:
    """Copies in the host's memory, and a function that waits for them. A device copies on a stream of its own."""
    first = next(t for t in tensors if t is not None)
    if first.device.type != "cuda":
        return [None if t is None else t.cpu() for t in tensors], lambda: None
    stream = _side_stream(first.device)
    stream.wait_stream(torch.cuda.current_stream(first.device))
    host: list[Any] = []
    with torch.cuda.stream(stream):
        for tensor in tensors:
            if tensor is None:
                host.append(None)
                continue
            host.append(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True))
            tensor.record_stream(stream)
        event = torch.cuda.Event()
        event.record(stream)
    return host, event.synchronize


@cache
def _side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


class ServerRecorder:
    """The recordings of one server process. ``texts`` gives the bytes of a token id and whether it is special.

    ``begin`` and ``step`` and ``end`` are called by the server's thread and never raise.
    """

    def __init__(self, folder: Path, source: str, title: str, texts: Callable[[], Any] | None = None) -> None:
        self.folder, self.source, self.title, self.texts = folder, source, title, texts
        self.running: dict[str, RequestRecording] = {}
        self.lost_count = 0
        self._pieces: Any = None
        self._failed = ""
        self._queue: queue.Queue[Any] = queue.Queue(MOST_WAITING)
        self._live = MOST_LIVE  # bytes of that file: one of an earlier process begins anew
        self._thread = threading.Thread(target=self._work, name="specviz-recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def begin(self, recording: RequestRecording) -> bool:
        """Record a request from now on; False where too many are."""
        if len(self.running) >= MOST_REQUESTS:
            self.lost_count += 1
            if self.lost_count == 1:
                log.warning("more than %d requests at a time: further ones are not recorded", MOST_REQUESTS)
            return False
        if len(recording.prompt_ids) >= MOST_TOKENS:
            recording.truncated = FULL.format(reason=f"given {len(recording.prompt_ids):,} prompt tokens", steps=0)
        self.running[recording.key] = recording
        return True

    def step(self, batch: RecordedBatch) -> None:
        """Record the decisions of one forward."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            for recording in batch.recordings:
                recording.truncated = recording.truncated or FULL.format(
                    reason="behind the server", steps=len(recording.steps)
                )

    def end(self, keys: Iterable[str]) -> None:
        """Requests that the server is done with, those it does not record included."""
        for key in keys:
            recording = self.running.pop(key, None)
            if recording is not None:
                self._queue.put(recording)  # waits for a full queue: only here, once a request

    def close(self, seconds: float = 20.0) -> None:
        """Write what runs as it is, and wait for the thread."""
        self.end(list(self.running))
        self._queue.put(None)
        self._thread.join(seconds)

    def flush(self) -> None:
        """Wait until everything handed over is in its recording or file."""
        self._queue.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if isinstance(item, RecordedBatch):
                    self._add(item)
                else:
                    self._write(item)
            except Exception as error:  # a server must never end for its recorder
                self._say(f"{type(error).__name__}: {error}")
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _say(self, reason: str) -> None:
        if reason != self._failed:
            self._failed = reason
            log.error("a request was not recorded: %s", reason)

    def _add(self, batch: RecordedBatch) -> None:
        batch.ready()
        tops = choices_of(batch.top_ids, batch.top_logprobs)
        drafted, tokens = batch.drafted.tolist(), batch.tokens.tolist()
        probs = batch.logprobs.double().exp().tolist()
        ranks = batch.ranks.tolist()
        served_rows = None if batch.served is None else batch.served.tolist()
        q = None if batch.q is None else batch.q.tolist()
        draft_ms, verify_ms = batch.draft_ms(), batch.verify_ms()
        row = at = 0
        for recording, count, wrote in zip(batch.recordings, batch.counts, tokens, strict=True):
            rows, drafts = tops[row : row + count + 1], range(at, at + count)
            row, at = row + count + 1, at + count
            if recording.truncated or recording.stop:
                continue
            new_tokens = [token for token in wrote if token >= 0]
            if not new_tokens:  # part of a prompt: nothing was sampled
                continue
            step = ServerStep(len(new_tokens), len(new_tokens) - 1, count, reason="" if count else NO_DRAFT)
            step.draft = [[(drafted[i], None, None if q is None else q[i])] for i in drafts]
            step.draft_choices = [(probs[i], ranks[i]) for i in drafts]
            step.served = None if served_rows is None else [served_rows[i] for i in drafts]
            step.tops = rows
            step.draft_ms, step.verify_ms = draft_ms, verify_ms
            self._extend(recording, batch, step, new_tokens, rows)
        self._note_live(batch)

    def _extend(
        self,
        recording: RequestRecording,
        batch: RecordedBatch,
        step: ServerStep,
        new_tokens: list[int],
        rows: Sequence[Sequence[Choice]],
    ) -> None:
        """Add a step of a forward, with its tokens up to where the server stops the request."""
        for name, count in (("num_draft_tokens", step.drafted), ("num_accepted_tokens", step.accepted)):
            recording.settings[name] = recording.settings.get(name, 0) + count
        step.batch, step.ms = batch.batch, None if recording.last is None else (batch.at - recording.last) * 1000
        recording.last = batch.at
        room = recording.max_steps - len(recording.tokens)
        for place, token in enumerate(new_tokens[:room]):
            top = rows[min(place, len(rows) - 1)]
            prob = next((p for choice, _, p in top if choice == token), None)
            if prob is None and place < len(step.draft_choices):
                prob = step.draft_choices[place][0]
            recording.tokens.append(Token(token, None, prob, top))
            if token in recording.stop_ids:
                recording.stop = "stop token"
                new_tokens = new_tokens[: place + 1]
                break
        else:
            if len(new_tokens) >= room:
                recording.stop, new_tokens = "length", new_tokens[:room]
        step.emitted = len(new_tokens)
        recording.steps.append(step)
        if len(recording.prompt_ids) + len(recording.tokens) >= MOST_TOKENS:
            recording.truncated = FULL.format(reason=f"full at {MOST_TOKENS:,} tokens", steps=len(recording.steps))

    def _note_live(self, batch: RecordedBatch) -> None:
        """A line per request and step in the file that `specviz watch` reads."""
        lines = [
            json.dumps({
                "t": round(time.time(), 3), "request": recording.key, "drafted": step.drafted,
                "accepted": step.accepted, "emitted": step.emitted, "ms": step.ms, "batch": step.batch,
            })
            for recording in batch.recordings if recording.steps for step in recording.steps[-1:]
        ]  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^A-Za-z0-9-]", "_", platform.node())[:40]
        path = self.folder / LIVE.format(host=host, pid=os.getpid())
        flags = os.O_APPEND if self._live < MOST_LIVE else os.O_TRUNC
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            self._live = file.tell()

    def _write(self, recording: RequestRecording) -> None:
        if not recording.tokens:
            return
        name = re.sub(r"[^A-Za-z0-9._-]", "_", recording.key)[:80].lstrip(".") or "request"
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(recording.begun))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{stamp}-{name}-{secrets.token_hex(3)}{SUFFIX}"
        try:
            save(self.trace(recording), path)
        except TraceError as fault:
            self._say(str(fault))

    def trace(self, recording: RequestRecording) -> Trace:
        """The trace of a recording as far as it went."""
        notes = [recording.truncated] if recording.truncated else []
        request = Request(
            key=recording.key, model=str(recording.settings.get("model", "")), prompt_ids=recording.prompt_ids,
            tokens=recording.tokens, steps=recording.steps, server_fields=dict(recording.settings), notes=notes,
            stop=recording.stop or "ended by the server: aborted, or by a stop string",
            decode_ms=sum(step.ms or 0.0 for step in recording.steps) or None,
        )  # fmt: skip
        pieces = self._bytes()
        if pieces is not None:
            for token in request.tokens:
                token.text = pieces.of(token.id)[0]
        trace = trace_of(request, self.source, self.title)
        if pieces is not None:
            columns = trace.tables["pieces"]
            for place, token in enumerate(columns["id"]):
                raw, special = pieces.of(token)
                columns["hex"][place], columns["special"][place] = raw.hex(), special
        return trace

    def _bytes(self) -> Any:
        """The tokenizer's pieces; None, said once, where there is no tokenizer."""
        if self._pieces is None and self.texts is not None:
            try:
                self._pieces = self.texts()
            except Exception as error:
                log.warning("recorded without texts, since the tokenizer did not open: %s", error)
                self.texts = None
        return self._pieces


def choices_of(ids: Tensor, logprobs: Tensor) -> list[list[Choice]]:
    """First choices [rows][k] of their ids and log-probabilities [rows, k]."""
    probs = logprobs.double().exp().tolist()
    return [[(i, None, p) for i, p in zip(*row, strict=True)] for row in zip(ids.tolist(), probs, strict=True)]
