"""Compression: ratio met, sentences whole and in order, question and numbers kept, pool full; LLMLingua-2's seam."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from decoders import Prompt, UserError
from decoders.prompt import compress as module
from decoders.prompt.compress import Vectors, by_marginal_relevance, centrality, compress, sentences
from decoders.prompt.prompt import Segment

from .models import tiny_tokenizer

FACTS = (
    "The lamp was sold to the museum in March. The station has three clocks. Rain fell on the hills all day. "
    "The museum paid ninety coins for the lamp. Birds sang in the garden. The mayor met the baker at noon. "
    "The lamp is old and made of brass. Nobody saw the cat."
)
CODE = "def total(items):\n    result = 0\n    for item in items:\n        result += item.price\n    return result\n\n\ndef name(x):\n    return x.name"  # noqa: E501


def prompt_of(context, question="Who paid for the lamp?", instruction="Answer."):
    return Prompt.from_segments(tiny_tokenizer(), instruction=instruction, context=context, question=question)


def text_of(prompt, name, passage=None):
    parts = [
        prompt.tokens[s.start : s.stop]
        for s in prompt.segments
        if s.name == name and (passage is None or s.passage == passage)
    ]
    return "".join(tiny_tokenizer().decode(list(part)) for part in parts)


@pytest.mark.parametrize("ratio", [1.5, 3, 5, 10])
@pytest.mark.parametrize("context", [FACTS, [FACTS, CODE, FACTS[::-1]], CODE * 3, "word " * 200, "雨が降る。" * 40])
def test_the_ratio_is_met_and_everything_else_is_left_alone(context, ratio):
    prompt = prompt_of(context)
    short = compress(prompt, tiny_tokenizer(), ratio)
    numbers = short.compression
    total = sum(s.stop - s.start for s in prompt.segments if s.name == "context")
    assert numbers["context_tokens"] == total and numbers["prompt_tokens_full"] == len(prompt.tokens)
    assert numbers["kept_tokens"] == sum(s.stop - s.start for s in short.segments if s.name == "context")
    assert total / ratio * 0.7 - 8 <= numbers["kept_tokens"] <= total / ratio
    assert short.segments[0].start == 0 and short.segments[-1].stop == len(short.tokens)
    assert all(a.stop == b.start for a, b in zip(short.segments, short.segments[1:], strict=False))
    for name in ("instruction", "question"):
        assert text_of(short, name) == text_of(prompt, name)
    assert short.tokens[-8:] == prompt.tokens[-8:]
    np.testing.assert_array_equal(short.pool.tokens, prompt.context_pool().tokens)
    assert short.pool.starts == prompt.context_pool().starts and short.pool.positions is None
    assert compress(prompt, tiny_tokenizer(), ratio).tokens == short.tokens


def test_sentences_stay_whole_in_order_and_on_topic():
    kept = text_of(compress(prompt_of(FACTS), tiny_tokenizer(), 2), "context")
    whole = sentences(FACTS)
    found = [s.strip() for s in whole if s.strip() in kept]
    assert "The museum paid ninety coins for the lamp." in found and "Birds sang in the garden." not in found
    positions = [kept.index(s) for s in found]
    assert positions == sorted(positions) and len(found) >= 3
    rest = kept
    for s in found:
        rest = rest.replace(s, "", 1)
    assert any(s.strip().startswith(rest.strip()) for s in whole)  # at most one sentence is cut, at a word
    assert not rest.strip() or FACTS[FACTS.index(rest.strip()) + len(rest.strip())] in " ."


def test_lines_of_code_keep_their_indentation():
    kept = text_of(compress(prompt_of(CODE, question="what is the price of an item"), tiny_tokenizer(), 2.2), "context")
    assert "        result += item.price" in kept.split("\n")
    for line in kept.split("\n")[:-1]:
        assert not line or line in CODE.split("\n")


def test_passages_keep_their_numbers_and_empty_ones_go():
    others = ["Nothing to see here at all, only wind and rain.", "Birds sang in the old garden by the hill."]
    prompt = prompt_of([others[0], "The museum paid ninety coins for the lamp.", others[1]])
    short = compress(prompt, tiny_tokenizer(), 3)
    assert text_of(short, "context").startswith("[2] The museum paid")
    assert [s.passage for s in short.segments if s.name == "context"] == [1]
    assert "\n[" not in tiny_tokenizer().decode(list(short.tokens)).replace("\n[2]", "")
    two = compress(prompt, tiny_tokenizer(), 1.3)
    text = tiny_tokenizer().decode(list(two.tokens))
    assert "[2] The museum paid ninety coins for the lamp.\n[3] Birds" in text or "\n[2] The museum paid" in text
    assert len(two.pool.starts) == 3


def test_sentences_are_cut_where_they_end():
    text = 'Mr. J. Bhatt said: "No!" He left at 3.5 p.m. today.\n\n- one\n- two 漢字。雨が降る。'
    assert sentences(text) == [
        'Mr. J. Bhatt said: "No!"', " He left at 3.5 p.m.", " today.", "\n\n- one", "\n- two 漢字。", "雨が降る。"
    ]  # fmt: skip
    assert "".join(sentences(FACTS + CODE)) == FACTS + CODE
    assert sentences("  \n \n") == ["  \n \n"]


def test_centrality_equals_the_walk_written_with_matrices():
    texts, topic = [s for s in sentences(FACTS) if s.strip()], "who paid for the lamp"
    score, vectors = centrality(texts, topic)
    n = len(texts)
    cosines = np.stack([vectors.cosines(i) for i in range(n + 1)])
    np.testing.assert_allclose(np.diag(cosines), 1)
    np.testing.assert_allclose(cosines, cosines.T)
    bias = cosines[n, :n] / cosines[n, :n].sum()
    walk = cosines[:n, :n] / cosines[:n, :n].sum(1, keepdims=True)
    by_matrix = np.linalg.solve(np.eye(n) - (1 - module.TOPIC) * walk.T, module.TOPIC * bias)
    np.testing.assert_allclose(score, by_matrix, atol=1e-8)
    plain, _ = centrality(["a b", "a c", "x y", "a b c"], "")
    assert plain.argmax() in (0, 1, 3) and plain.sum() == pytest.approx(1)


def test_marginal_relevance_puts_repetitions_last():
    texts = ["red lamp sold", "red lamp sold", "blue lamp bought"]
    assert next(iter(by_marginal_relevance(np.asarray([0.5, 0.5, 0.45]), Vectors.of(texts)))) == 0
    assert list(by_marginal_relevance(np.asarray([0.5, 0.5, 0.45]), Vectors.of(texts))) == [0, 2, 1]


def test_what_cannot_be_compressed_is_refused():
    tokenizer = tiny_tokenizer()
    with pytest.raises(UserError, match="no context to compress"):
        compress(Prompt.from_text(tokenizer, "the lamp"), tokenizer, 3)
    with pytest.raises(UserError, match="would leave nothing of a context of"):
        compress(prompt_of("extraordinarily"), tokenizer, 10)
    with pytest.raises(UserError, match="ratio of 1 is not allowed"):
        compress(prompt_of(FACTS), tokenizer, 1)
    with pytest.raises(UserError, match="one of extractive, llmlingua-2"):
        compress(prompt_of(FACTS), tokenizer, 3, "zip")


def test_a_pool_of_its_own_stays():
    tokenizer = tiny_tokenizer()
    prompt = prompt_of(FACTS)
    from dataclasses import replace

    from decoders.prompt.prompt import Pool

    own = Pool(np.arange(5), (0,), None, "notes.txt")
    assert compress(replace(prompt, pool=own), tokenizer, 3).pool is own


def test_a_gap_inside_the_contexts_last_token_is_kept():
    """A tokenizer may end the context with the line break that parts it from the question."""
    tokenizer = tiny_tokenizer()
    context, question = tokenizer("the old lamp was sold. it was red. it was blue.\n\n")["input_ids"], [9, 10]
    n = len(context)
    prompt = Prompt((*context, *question), (Segment("context", 0, n, 0), Segment("question", n, n + 2)))
    short = compress(prompt, tokenizer, 2)
    assert text_of(short, "context").endswith("\n\n") and short.tokens[-2:] == (9, 10)


class PromptCompressor:
    """The face of llmlingua 0.2.2: keeps every n-th word of each passage."""

    made = 0

    def __init__(
        self, model_name="NousResearch/Llama-2-7b-hf", device_map="cuda", model_config=None, open_api_config=None,
        use_llmlingua2=False, llmlingua2_config=None,
    ):  # fmt: skip
        if "missing" in model_name:
            raise OSError(f"{model_name} is not a local folder")
        assert use_llmlingua2 and device_map in ("cpu", "cuda")
        PromptCompressor.made += 1

    def compress_prompt_llmlingua2(self, context, rate=0.5, target_token=-1, force_tokens=(), drop_consecutive=False):
        assert isinstance(context, list) and "\n" in force_tokens and drop_consecutive
        shortened = [" ".join(text.split()[:: round(1 / rate)]) for text in context]
        return {
            "compressed_prompt": "\n\n".join(shortened), "compressed_prompt_list": shortened, "origin_tokens": 1,
            "compressed_tokens": 1, "ratio": "1.0x", "rate": "100.0%", "saving": "",
        }  # fmt: skip


@pytest.fixture
def llmlingua(monkeypatch):
    package = ModuleType("llmlingua")
    package.PromptCompressor = PromptCompressor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llmlingua", package)
    module._llmlingua.cache_clear()
    yield
    module._llmlingua.cache_clear()


def test_llmlingua_shortens_the_passages_and_is_loaded_once(llmlingua):
    prompt, before = prompt_of([FACTS, CODE]), PromptCompressor.made
    short = compress(prompt, tiny_tokenizer(), 5, "llmlingua-2")
    assert compress(prompt, tiny_tokenizer(), 5, "llmlingua-2").tokens == short.tokens
    assert PromptCompressor.made == before + 1
    assert text_of(short, "context", 0) == "[1] " + " ".join(FACTS.split()[::5])
    assert text_of(short, "context", 1) == "[2] " + " ".join(CODE.split()[::5])
    assert short.compression["compressor"] == "llmlingua-2"
    assert short.compression["kept_tokens"] < short.compression["context_tokens"] / 3


def test_what_llmlingua_lacks_is_said(monkeypatch, llmlingua):
    monkeypatch.setenv(module.LLMLINGUA_VARIABLE, "missing/model")
    with pytest.raises(UserError, match=r"from 'missing/model': missing/model is not.*SPECVIZ_LLMLINGUA_MODEL"):
        compress(prompt_of(FACTS), tiny_tokenizer(), 3, "llmlingua-2")
    monkeypatch.setitem(sys.modules, "llmlingua", None)
    with pytest.raises(UserError, match="pip install llmlingua"):
        compress(prompt_of(FACTS), tiny_tokenizer(), 3, "llmlingua-2")
