"""Alternatives to this engine: the same draft model as transformers' assistant, a compiled cache, llama.cpp."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from decoders import Prompt, UserError, generate, methods
from decoders.drafters import select_method
from decoders.model.target_model.target import Target
from decoders.parts import load_part
from decoders.study.measure.peers import GENERATE, Peer, PeerLost, PeerSetup, peer_pairs, peers_of
from decoders.study.measure.stock import StockModel
from decoders.sweep.bench import bench
from specviz.cli import main
from specviz.extras.measure.peers import alternatives as ways
from specviz.extras.measure.peers import llama_cpp
from specviz.extras.measure.peers.alternatives import (
    ASSISTED,
    LLAMA_CPP,
    LLAMA_NGRAM,
    LOOKUP,
    STATIC,
    alternatives,
    as_llama,
)
from specviz.extras.measure.peers.llama_cpp import LlamaCpp
from tests.drafts import save_tiny_part
from tests.models import network, prompt_ids, save_model, session_behind, tiny_target
from tests.test_universal import strangers  # noqa: F401

torch.set_num_threads(1)
TOKENS = prompt_ids(1, 40, 12)
NEW = 12


@pytest.fixture
def target(home: Path) -> Target:
    made = tiny_target()
    save_tiny_part(made, "drafter")
    return made


def plain(target: Target) -> list[int]:
    return generate(target, Prompt.from_ids(TOKENS), max_new_tokens=NEW)


def test_each_method_has_its_peer(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.machine, "compiler", lambda: None)
    setup = PeerSetup(target, StockModel(network()), Path("x"), {"pld+h": None}, 60)
    found, notes = peers_of(setup)
    assert [peer.name for peer in found] == [GENERATE] and "no C++ compiler was found" in notes[0]
    found, _ = peers_of(replace(setup, methods={"pld": None, "sps": {"gamma": 3}}))
    assert [peer.name for peer in found] == [GENERATE, LOOKUP, ASSISTED]
    monkeypatch.setattr(ways.machine, "compiler", lambda: "c++")
    found, notes = peers_of(setup)
    assert [peer.name for peer in found] == [GENERATE, STATIC] and notes == []


def test_the_ratios_of_peers_stand_behind_that_of_generate() -> None:
    labels = [label for _, _, label in peer_pairs()]
    assert labels == [
        "plain ÷ generate()", "pld ÷ prompt lookup", "sps ÷ assisted generation", "plain ÷ compiled generate()",
        "plain ÷ llama.cpp", "pld ÷ llama.cpp n-gram", "pld+h ÷ llama.cpp", "pld+h ÷ llama.cpp n-gram",
    ]  # fmt: skip
    assert {name for name, _, _ in peer_pairs()} <= set(methods())


def test_looked_up_drafts_give_the_tokens_of_plain_decoding(target: Target) -> None:
    for peer in alternatives(target, StockModel(network()), {"pld": None, "sps": {"gamma": 3}}):
        made = peer.generate(TOKENS, NEW, ())
        assert made.tokens == plain(target) and peer.lossless
        assert 0 < made.first_s < made.seconds and 1 <= made.first_tokens <= 11


def test_a_vanilla_drafter_is_the_llama_that_it_is_said_to_be(target: Target) -> None:
    """Its first choices, token by token, are those that sps drafts."""
    method, params = select_method("sps", {"gamma": 4})
    drafter: Any = method.build(target, params)
    session = session_behind(target, TOKENS, 80, method.needs(target, params))
    drafter.prepare(session.context)
    drafted = drafter.propose(session.context, 4).tree.tokens[1:]
    llama: Any = as_llama(load_part(target, "drafter"), target)
    with torch.inference_mode():
        for n in range(4):
            logits = llama(torch.as_tensor([[*TOKENS, *drafted[:n]]])).logits[0, -1]
            assert int(logits.argmax()) == drafted[n]


def test_the_assistant_drafts_as_many_tokens_as_sps(target: Target, tmp_path: Path) -> None:
    fixed = ways.assistant_of(target, {"gamma": 7}).generation_config
    assert (fixed.num_assistant_tokens, fixed.num_assistant_tokens_schedule) == (7, "constant")
    heuristic = ways.assistant_of(target, {"schedule": "heuristic"}).generation_config
    assert heuristic.num_assistant_tokens_schedule == "heuristic_transient"
    assert heuristic.assistant_confidence_threshold == 0
    other = ways.assistant_of(target, {"drafter": save_model(tmp_path / "small", seed=2)})
    assert torch.equal(other.lm_head.weight, network(seed=2).lm_head.weight)
    made = StockModel(network()).time_run(TOKENS, NEW, (), assistant=other)
    assert made.tokens == plain(target)


def test_a_compiled_cache_is_asked_for_and_its_hooks_are_gone(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself is left out: what it would compile is called as it is."""
    stock, hooks = StockModel(network()), list[int]()

    def compiled_call(config: Any) -> Any:
        assert config.mode == "default"
        hooks.append(len(stock.model._forward_hooks) + len(stock.model._forward_pre_hooks))
        return lambda **inputs: (hooks.append(len(stock.model._forward_hooks)), stock.model(**inputs))[1]

    monkeypatch.setattr(stock.model, "get_compiled_call", compiled_call)
    (peer,) = alternatives(target, stock, {}, compiled_length=100)
    made = peer.generate(TOKENS, NEW, ())
    assert peer.name == STATIC and made.tokens == plain(target) and made.first_tokens == 1
    assert len(hooks) == NEW and hooks[0] == 2 and not any(hooks[1:])
    assert stock.model._previous_max_cache_length == 100


class Answers:
    """The server's interface, as far as it is used: tokens 6, 7, 8, … and its times."""

    def __init__(self, file: Path, **settings: Any) -> None:
        self.settings = settings

    def post(self, path: str, body: dict[str, Any], seconds: float) -> bytes:
        assert path == "/completion" and body["temperature"] == 0 and body["cache_prompt"] is False and seconds > 60
        tokens = [body["prompt"][-1] + place for place in range(body["n_predict"])]
        return json.dumps({"tokens": tokens, "timings": {"prompt_ms": 20.0, "predicted_ms": 30.0}}).encode()


def test_llama_cpp_is_greedy_and_stops_where_it_should(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "missing_llama_cpp", lambda: None)
    monkeypatch.setattr(llama_cpp, "LlamaServer", Answers)
    plain_peer, peer = alternatives(target, StockModel(network()), {}, gguf=Path("a.gguf"))
    assert [plain_peer.name, peer.name] == [LLAMA_CPP, LLAMA_NGRAM] and not peer.lossless
    made = peer.generate([5, 6], 4, ())
    assert made.tokens == [6, 7, 8, 9] and (made.first_s, made.seconds) == (0.02, pytest.approx(0.05))
    assert made.tokens_per_s == pytest.approx(3 / 0.03)  # the first token comes with the prompt
    assert peer.generate([5, 6], 9, (8,)).tokens == [6, 7, 8]
    settings = peer.generate.__self__.server.settings  # type: ignore[attr-defined]
    assert settings == {"threads": 1, "context": 512, "drafter": "NGRAM_SIMPLE", "options": {"size_n": 2, "size_m": 10}}


def test_without_its_package_it_says_how_to_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "[llama-cpp]" in str(llama_cpp.missing_llama_cpp())
    with pytest.raises(UserError, match="takes no part"):
        LlamaCpp(Path("a.gguf"), 100)


def test_a_peer_that_crashes_leaves_and_the_others_go_on(target: Target) -> None:
    calls: list[int] = []

    def crashes(tokens: Any, most: int, stop_ids: Any) -> Any:
        calls.append(most)
        if len(calls) < 3:  # the warm-up and one run
            return StockModel(network()).time_run(tokens, most, stop_ids)
        raise PeerLost("llama.cpp takes no part: its process ended with signal 11")

    report = bench(
        target, [Prompt.from_ids(TOKENS)], {}, max_new_tokens=4, repeats=3, with_traces=False,
        peers=[Peer(LLAMA_CPP, crashes, lossless=False)],
    )  # fmt: skip
    rows = {row.name: row.tokens for row in report.rows}
    assert rows["plain"] >= 12 and rows[LLAMA_CPP] == 4
    assert report.settings["lost"] == {LLAMA_CPP: "llama.cpp takes no part: its process ended with signal 11"}


def test_a_drafter_of_another_tokenizer_is_no_assistant(strangers: Any) -> None:
    stranger, place = strangers
    with pytest.raises(UserError, match="peers are compared with drafters of the target's own"):
        ways.assistant_of(stranger, {"drafter": place})


@pytest.mark.slow("a benchmark by its command")
def test_the_command_measures_peers(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways.machine, "compiler", lambda: None)  # compiling takes minutes
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": 0, "turns": ["the old lamp and the old lamp"]}\n', "utf-8")
    args = ["--model", model, "--prompts", str(prompts), "--methods", "pld", "--max-new-tokens", "6", "--repeats", "1"]
    assert main(["bench", *args, "--peers"]) == 0
    printed = capsys.readouterr().out
    for words in ("plain ÷ generate()", "pld ÷ prompt lookup", "generate() prompt lookup", "no C++ compiler was found"):
        assert words in printed
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "also what you could use instead: transformers' generate(), llama.cpp" in words
