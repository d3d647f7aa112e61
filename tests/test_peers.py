"""What a user would pick instead: the same draft model as transformers' assistant, a compiled cache, llama.cpp."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from decoders import Prompt, UserError, generate
from decoders.drafters import chosen
from decoders.model.target import Target
from decoders.parts import load_part
from decoders.study import peers
from decoders.study.peers import ASSISTED, GENERATE, LLAMA_CPP, LOOKUP, STATIC, LlamaCpp, as_llama, peers_of
from decoders.study.stock import StockModel

from .drafts import save_tiny_part
from .models import VOCAB, network, prompt_ids, tiny_target, tiny_tokenizer

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


def test_each_method_has_its_peer(target: Target) -> None:
    stock = StockModel(network())
    assert [peer.name for peer in peers_of(target, stock, {"pld+h": None})] == [GENERATE]
    found = peers_of(target, stock, {"pld": None, "sps": {"gamma": 3}})
    assert [peer.name for peer in found] == [GENERATE, LOOKUP, ASSISTED]
    for peer in found:
        made = peer.generate(TOKENS, NEW, ())
        assert made.tokens == plain(target) and peer.lossless
        assert 0 < made.first_s < made.seconds and 1 <= made.first_tokens <= 11


def test_a_vanilla_drafter_is_the_llama_that_it_is_said_to_be(target: Target) -> None:
    """Its first choices, token by token, are those that sps drafts."""
    method, params = chosen("sps", {"gamma": 4})
    drafter: Any = method.build(target, params)
    session = target.session(method.needs(target, params), 80)
    session.prefill(TOKENS)
    drafter.prepare(session.context)
    drafted = drafter.propose(session.context, 4).tree.tokens[1:]
    llama: Any = as_llama(load_part(target, "drafter"), 512)
    with torch.inference_mode():
        for n in range(4):
            logits = llama(torch.as_tensor([[*TOKENS, *drafted[:n]]])).logits[0, -1]
            assert int(logits.argmax()) == drafted[n]


def test_the_assistant_drafts_as_many_tokens_as_sps(target: Target, tmp_path: Path) -> None:
    fixed = peers.assistant_of(target, {"gamma": 7}).generation_config
    assert (fixed.num_assistant_tokens, fixed.num_assistant_tokens_schedule) == (7, "constant")
    heuristic = peers.assistant_of(target, {"schedule": "heuristic"}).generation_config
    assert heuristic.num_assistant_tokens_schedule == "heuristic_transient"
    assert heuristic.assistant_confidence_threshold == 0
    network(seed=2).save_pretrained(tmp_path / "small")
    tiny_tokenizer().save_pretrained(tmp_path / "small")
    other = peers.assistant_of(target, {"drafter": str(tmp_path / "small")})
    assert torch.equal(other.lm_head.weight, network(seed=2).lm_head.weight)
    made = StockModel(network()).timed(TOKENS, NEW, (), assistant=other)
    assert made.tokens == plain(target)


def test_a_compiled_cache_is_asked_for_and_its_hooks_are_gone(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself is left out: what it would compile is called as it is."""
    stock, hooks = StockModel(network()), list[int]()

    def compiled_call(config: Any) -> Any:
        assert config.mode == "default"
        hooks.append(len(stock.model._forward_hooks) + len(stock.model._forward_pre_hooks))
        return lambda **inputs: (hooks.append(len(stock.model._forward_hooks)), stock.model(**inputs))[1]

    monkeypatch.setattr(stock.model, "get_compiled_call", compiled_call)
    (_, peer) = peers_of(target, stock, {}, compiled_length=100)
    made = peer.generate(TOKENS, NEW, ())
    assert peer.name == STATIC and made.tokens == plain(target) and made.first_tokens == 1
    assert len(hooks) == NEW and hooks[0] == 2 and not any(hooks[1:])
    assert stock.model._previous_max_cache_length == 100


class Llama:
    """llama_cpp.Llama's interface, as far as it is used: it writes the prompt's first token plus one, and so on."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, model_path: str, **options: Any) -> None:
        self.made.append({"model_path": model_path, **options})

    def generate(self, tokens: list[int], **options: Any) -> Any:
        assert options == {"temp": 0.0, "top_k": 1, "repeat_penalty": 1.0, "reset": True}
        token = tokens[0]
        while True:
            token = (token + 1) % VOCAB
            yield token


@pytest.fixture
def llama_cpp(monkeypatch: pytest.MonkeyPatch) -> type[Llama]:
    monkeypatch.setattr(Llama, "made", [])
    monkeypatch.setitem(sys.modules, "llama_cpp", types.SimpleNamespace(Llama=Llama))
    return Llama


def test_llama_cpp_is_greedy_and_stops_where_it_should(target: Target, llama_cpp: type[Llama]) -> None:
    *_, peer = peers_of(target, StockModel(network()), {}, gguf=Path("a.gguf"))
    assert peer.name == LLAMA_CPP and not peer.lossless and peers.missing_llama_cpp() is None
    (about,) = llama_cpp.made
    assert about["model_path"] == "a.gguf" and about["n_ctx"] == 512 and about["n_threads"] == 1
    made = peer.generate([5, 6], 4, ())
    assert made.tokens == [6, 7, 8, 9] and made.first_tokens == 1 and 0 <= made.first_s <= made.seconds
    assert peer.generate([5, 6], 9, (8,)).tokens == [6, 7, 8]


def test_without_its_package_it_says_how_to_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    assert "pip install llama-cpp-python" in str(peers.missing_llama_cpp())
    with pytest.raises(UserError, match="takes no part"):
        LlamaCpp(Path("a.gguf"), 100)
