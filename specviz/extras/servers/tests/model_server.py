"""A server that answers as it is told to: real chunks of vLLM and llama.cpp, and what goes wrong with servers."""

from __future__ import annotations

import json
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_S

SERVERS = Path(__file__).parent / "samples"
UNPACKED = tempfile.TemporaryDirectory(prefix="specviz-llama-")
LLAMA = Path(UNPACKED.name)  # logs and answers of a real llama.cpp, version 2026.10.11549
with tarfile.open(SERVERS / "llama.tar.xz") as packed:
    packed.extractall(LLAMA, filter="data")
METRICS = """vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {accepted}
vllm:generation_tokens_total{{engine="0"}} {tokens}
"""


def vllm_chunks(name: str = "vllm_numbers.jsonl") -> list[dict[str, Any]]:
    """The chunks of a real stream of vLLM."""
    return [json.loads(line)["data"] for line in (SERVERS / name).read_text(encoding="utf-8").splitlines()]


def llama_chunks(name: str = "simple_tpt_stream.json") -> list[dict[str, Any]]:
    """The chunks of a real stream of llama.cpp's POST /completion."""
    from decoders.importers.source import LogSource

    return [document.value for document in LogSource((LLAMA / name).read_bytes()).documents]


class ModelServer(ThreadingHTTPServer):
    """``kind`` is its owned_by. It streams ``chunks``; behind number ``pause`` it waits for ``gate``; behind number
    ``dies`` it closes the connection. ``answers`` are its other answers by path: status and body. ``asked`` has the
    bodies it was sent.
    """

    daemon_threads = True

    def __init__(self, kind: str, chunks: list[Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind, self.chunks = kind, chunks
        self.pause = self.dies = -1
        self.gate = threading.Event()
        self.counts = {"drafts": 10, "drafted": 50, "accepted": 12, "tokens": 40}
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.keys.append(self.headers.get("authorization", ""))
        if self.path in self.server.answers:
            return self._say(*self.server.answers[self.path])
        if self.path == "/v1/models":
            return self._say(200, json.dumps({"data": [{"id": "toy", "owned_by": self.server.kind}]}))
        if self.path == "/metrics":
            return self._say(200, METRICS.format(**self.server.counts))
        self._say(404, "not here")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({"path": self.path, **body})
        if self.path in self.server.answers:
            return self._say(*self.server.answers[self.path])
        if self.path == "/apply-template":
            return self._say(200, json.dumps({"prompt": f"<|{body['messages'][-1]['content']}|>"}))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number, chunk in enumerate(self.server.chunks):
            if number == self.server.pause:
                assert self.server.gate.wait(WAIT_S)
            if number == self.server.dies:
                return
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        if "choices" in self.server.chunks[0]:
            self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, status: int, body: str) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("location", body)
        self.end_headers()
        self.wfile.write(body.encode())


@contextmanager
def model_server(kind: str = "vllm", chunks: list[Any] | None = None) -> Iterator[ModelServer]:
    """A running server; its threads end with it."""
    made = ModelServer(kind, chunks if chunks is not None else vllm_chunks())
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.gate.set()
        made.shutdown()
        made.server_close()
        thread.join()
