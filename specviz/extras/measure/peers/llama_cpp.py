"""llama.cpp's own server beside this engine, through the package xllamacpp, in a process of its own: a crash of its C++
ends neither a benchmark nor a test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from decoders.errors import UserError
from decoders.study.measure.peers import PeerLost
from decoders.study.measure.stock import Generation

START_S, ANSWER_S, TOKEN_S = 120.0, 60.0, 2.0  # most seconds to load; for an answer, and more for each of its tokens
NGRAM = ("NGRAM_SIMPLE", {"size_n": 2, "size_m": 10})  # matches two tokens, drafts ten
INSTALL = 'pip install "specviz-drafts[llama-cpp]"'


def missing_llama_cpp() -> str | None:
    """The reason why llama.cpp does not take part, in one sentence; None where its package is installed."""
    if importlib.util.find_spec("xllamacpp") is not None:
        return None
    return f"llama.cpp takes no part: xllamacpp is not installed ({INSTALL}, a wheel of 34 MB)"


class LlamaServer:
    """llama.cpp's HTTP server on a GGUF file, in a child process that ends with this object, or with this process.

    ``drafter``: a name of common_speculative_type without its prefix, such as ``NGRAM_SIMPLE``, with its ``options``.
    ``log``: the file for what it prints. Raises PeerLost where it does not start within ``START_S``.
    """

    def __init__(
        self, model: Path, *, threads: int, context: int, drafter: str = "", options: Mapping[str, Any] | None = None,
        verbosity: int = 1, log: Path | None = None,
    ) -> None:  # fmt: skip
        settings = {
            "model": str(model), "threads": threads, "context": context, "verbosity": verbosity, "drafter": drafter,
            "options": dict(options or {}),
        }  # fmt: skip
        command = [sys.executable, "-I", str(Path(__file__).with_name("llama_child.py")), json.dumps(settings)]
        with open(log or os.devnull, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._finish = weakref.finalize(self, _end, self.process)
        lines, output = queue.Queue[str](), self.process.stdout
        assert output is not None
        threading.Thread(target=lambda: lines.put(output.readline()), daemon=True).start()
        try:
            self.address = lines.get(timeout=START_S).strip()
        except queue.Empty:
            self.address = ""
        if not self.address:
            raise self._peer_lost(f"did not start within {START_S:.0f} s")

    def post(self, path: str, body: Mapping[str, Any], seconds: float = ANSWER_S) -> bytes:
        """Its answer to a request. Raises PeerLost where it crashed, or gave none within the time."""
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        answer: queue.Queue[bytes | Exception] = queue.Queue()

        def ask() -> None:
            try:
                with urllib.request.urlopen(urllib.request.Request(self.address + path, data, kind)) as response:
                    answer.put(response.read())
            except Exception as problem:  # whatever it is, it is said where the answer is waited for
                answer.put(problem)

        threading.Thread(target=ask, daemon=True).start()  # a socket's own limit would begin anew with every chunk
        try:
            result = answer.get(timeout=seconds)
        except queue.Empty:
            raise self._peer_lost(f"gave no answer within {seconds:.0f} s") from None
        if isinstance(result, Exception):
            raise self._peer_lost(f"gave no answer ({type(result).__name__}: {result})"[:300]) from result
        return result

    def close(self) -> None:
        """End the process."""
        self._finish()

    def _peer_lost(self, reason: str) -> PeerLost:
        try:
            status: int | None = self.process.wait(1)  # a crash is noticed by its socket first
        except subprocess.TimeoutExpired:
            status = None
            self.process.kill()
        self.close()
        ending = "" if status is None else f": its process ended with signal {-status}" if status < 0 else (
            f": its process ended with status {status}"
        )  # fmt: skip
        return PeerLost(f"llama.cpp takes no part: it {reason}{ending}")


def _end(process: subprocess.Popen[str]) -> None:
    """End a child: it leaves when its input ends, and is killed where it does not."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.close()
        process.wait(5)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
    process.stdout.close()


class LlamaCpp:
    """llama.cpp on a GGUF file, greedy, with as many threads as torch has; with ``drafts`` its n-gram drafting (NGRAM).
    It computes on the quantised weights and quantises what they are multiplied with, so that its text may leave plain
    decoding's. Times are the server's own: those of HTTP are no part of them.
    """

    def __init__(self, file: Path, context_length: int, drafts: bool = False) -> None:
        if reason := missing_llama_cpp():
            raise UserError(reason)
        self.file, self.context, self.drafts = file, context_length, drafts
        self.server: LlamaServer | None = None
        self.loss: PeerLost | None = None

    def time_run(self, tokens: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int]) -> Generation:
        """Its output after a prompt's token ids, which it reads anew each time. Raises PeerLost, from the first time it
        crashed or took too long.
        """
        if self.loss:
            raise self.loss
        try:
            answer = self._answer(tokens, max_new_tokens, stop_ids)
        except PeerLost as problem:
            self.loss = problem
            raise
        output = list(answer["tokens"])[:max_new_tokens]
        ends = [place for place, token in enumerate(output) if token in stop_ids]
        times = answer["timings"]
        first_s = times["prompt_ms"] / 1e3
        return Generation(output[: ends[0] + 1] if ends else output, first_s + times["predicted_ms"] / 1e3, first_s, 1)

    def _answer(self, tokens: Sequence[int], limit: int, stop_ids: Sequence[int]) -> dict[str, Any]:
        if self.server is None:
            drafter, options = NGRAM if self.drafts else ("", {})
            threads = torch.get_num_threads()
            self.server = LlamaServer(
                self.file, threads=threads, context=self.context, drafter=drafter, options=options
            )
        body = {
            "prompt": list(tokens), "n_predict": limit, "temperature": 0, "top_k": 1, "samplers": ["top_k"],
            "cache_prompt": False, "return_tokens": True, "ignore_eos": not stop_ids,
        }  # fmt: skip
        return json.loads(self.server.post("/completion", body, ANSWER_S + TOKEN_S * (limit + len(tokens) / 50)))
