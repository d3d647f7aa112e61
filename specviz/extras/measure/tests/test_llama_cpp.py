"""llama.cpp's own server, live: its log and answers as a source, and its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoders.importers import open_log
from decoders.model.files.catalog import missing_smollm2, model_place
from decoders.study.measure.peers import PeerLost
from specviz.extras.measure.peers.llama_cpp import LlamaServer, missing_llama_cpp
from specviz.extras.servers.tests.test_importers import counts
from specviz.extras.servers.tests.test_llama_cpp_logs import read_totals


@pytest.fixture
def gguf() -> Path:
    if reason := missing_llama_cpp() or missing_smollm2():
        pytest.skip(reason)
    return Path(model_place("smollm2"))


@pytest.fixture
def server(gguf: Path, tmp_path: Path) -> Iterator[LlamaServer]:
    live = LlamaServer(
        gguf, threads=1, context=512, drafter="NGRAM_SIMPLE", options={"size_n": 2, "size_m": 6}, verbosity=5,
        log=tmp_path / "server.log",
    )  # fmt: skip
    yield live
    live.close()


@pytest.mark.llama_cpp
@pytest.mark.smollm2
def test_a_live_servers_log_and_answers_are_imported_alike(server: LlamaServer, tmp_path: Path) -> None:
    """Two requests that the drafter can copy for: the log has the steps of the stream, and the server's totals."""
    prompt = "Count: 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3"
    asked = {"stream": True, "timings_per_token": True, "return_tokens": True, "temperature": 0, "n_predict": 24}
    own = server.post("/completion", {**asked, "prompt": prompt}, 300)
    chat = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0}
    whole = server.post("/v1/chat/completions", {**chat, "verbose": True, "return_tokens": True}, 300)
    server.close()
    first, second = open_log((tmp_path / "server.log").read_bytes()).traces
    (stream,), (answer,) = open_log(own).traces, open_log(whole).traces
    assert stream.run["metrics"]["drafted"] > 0 and counts(stream) == counts(first)
    assert stream.output_ids == first.output_ids and answer.output_ids == second.output_ids
    told = json.loads(whole)["timings"]
    assert read_totals(second) == (told.get("draft_n", 0), told.get("draft_n_accepted", 0), told["predicted_n"])
    assert first.text(first.prompt_ids) == prompt == stream.text(stream.prompt_ids)  # the second's launch names it
    assert answer.text(answer.prompt_ids).endswith(f"{prompt}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.llama_cpp
@pytest.mark.smollm2
@pytest.mark.parametrize(("sent", "why"), [("SIGSEGV", "signal 11"), ("SIGSTOP", "no answer within 1 s")])
def test_a_server_that_crashes_or_hangs_is_left_with_a_sentence(gguf: Path, sent: str, why: str) -> None:
    server = LlamaServer(gguf, threads=1, context=512)
    os.kill(server.process.pid, getattr(signal, sent))
    with pytest.raises(PeerLost, match=why):
        server.post("/completion", {"prompt": "a", "n_predict": 2}, 60 if sent == "SIGSEGV" else 1)
    assert server.process.poll() is not None
