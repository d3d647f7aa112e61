"""The real model, SmolLM2-135M-Instruct from its wheel: it opens, talks, and every method writes what it would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from decoders import Prompt, load, methods
from decoders.model.files.catalog import SMOLLM2, default_model, model_place
from decoders.model.files.gguf import is_converted
from decoders.prompt.files import PromptRecord
from decoders.study.attribute.evidence import cause, evidence_sources
from decoders.study.attribute.quotes import parse_quotesum, sweep
from decoders.study.attribute.without import ReadAnswer
from decoders.study.look.teacher_forcing import answer_ids, forced_trace
from decoders.study.measure.stock import StockModel
from decoders.sweep.lossless import check_lossless
from specviz.places import GALLERY

from .test_without import plain_logp

pytestmark = pytest.mark.smollm2

NEW = 16
NOTICE = (
    "The library on Mill Street closes at six in the evening from Monday to Thursday. On Fridays it stays open until "
    "eight, and volunteers read stories to children in the reading room on the first floor."
)


def test_it_opens_from_the_wheel_and_is_converted_once(smollm2, monkeypatch):
    info = smollm2.info
    assert (info["family"], info["layers"], info["heads"], info["kv_heads"]) == ("llama", 30, 9, 3)
    assert info["vocab"] == 49_152 and info["parameters"] == 134_515_008 and info["dtype"] == "float32"
    assert info["dequantised"]["file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert info["dequantised"]["types"]["Q4_1"] > 200
    assert is_converted(Path(model_place(SMOLLM2)), torch.float32)
    monkeypatch.delenv("SPECVIZ_MODEL")
    assert default_model() == SMOLLM2


def test_its_chat_template_is_the_files_own(smollm2):
    prompt = Prompt.from_text(smollm2.tokenizer, "Which day is it in 2026?", chat=True)
    assert smollm2.tokenizer.decode(list(prompt.tokens)) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhich day is it in 2026?<|im_end|>\n<|im_start|>assistant\n"
    )
    pieces = [smollm2.tokenizer.decode([token]) for token in prompt.tokens]
    assert [piece for piece in pieces if piece.isdigit()] == list("2026")  # as the model learnt to read numbers
    (stop,) = smollm2.stop_ids
    assert smollm2.tokenizer.decode([stop]) == "<|im_end|>"


@pytest.mark.parametrize(
    "names", [("plain", "pld", "pld+h"), pytest.param(None, marks=pytest.mark.slow("every method with its parts"))]
)
def test_every_method_writes_what_the_model_would_and_copying_pays(smollm2, names):
    copy = PromptRecord(
        "copy", instruction="Write the notice again, word for word.", context=(NOTICE,), question="The notice:"
    )
    texts = [copy.prompt(smollm2.tokenizer), Prompt.from_text(smollm2.tokenizer, "The capital of France is", chat=True)]
    lossless = [name for name, method in methods().items() if method.lossless]
    able = names or [name for name in lossless if methods()[name].missing(smollm2) is None]
    stock = StockModel.load(SMOLLM2, smollm2.dtype, smollm2.device)
    outcomes = {
        o.method: o for o in check_lossless(smollm2, texts, dict.fromkeys(able), max_new_tokens=NEW, stock=stock)
    }
    assert set(outcomes) >= {*(names or ("plain", "pld", "pld+h", "pld+a", "adapld"))}
    assert all(o.total == o.identical == len(texts) for o in outcomes.values())  # plain against generate()
    copied = outcomes["pld+h"].runs[0]
    assert copied.tokens == NEW and copied.accepted >= 3  # 1.45 tokens per step, of 16 with words of its own before


def test_a_quote_is_found_in_its_passage(smollm2):
    other = "The bakery next door sells bread, rolls and cakes, and opens at seven on every day but Sunday."
    said = "The notice says that [ 2 volunteers read stories to children in the reading room ] ."
    row = {"question": "Who reads stories?", "summary": said, "source1": other, "source2": NOTICE}
    gold = parse_quotesum(row, "quote")
    prompt = gold.record().prompt(smollm2.tokenizer)
    trace = forced_trace(smollm2, prompt, answer_ids(smollm2, gold.answer), "pld+h")
    (scored,) = sweep([(trace, gold)], (2,), whole=True)
    assert scored.score.f1 > 0.9 and scored.score.right_passage == 1


@pytest.mark.slow("test_without.py has it on small models")
def test_an_answer_read_without_a_passage_is_within_the_bound(smollm2):
    """Masked, log p is that of a plain forward over the text without it at the same positions, within 1e-4."""
    trace = load(GALLERY / "13-hotel-notes-pld-h.spectrace")
    read = ReadAnswer(smollm2, trace.prompt_ids, trace.output_ids)
    part = evidence_sources(trace)[3].at
    every = [*trace.prompt_ids, *trace.output_ids]
    rest = [at for at in range(len(every)) if at not in part]
    plain = plain_logp(smollm2, [every[at] for at in rest], rest, trace.output_ids)
    found = read.without(part)
    assert found.fall == pytest.approx(read.logp - plain, abs=1e-4)
    said = [cause(trace, read, source.name, source.at)["weights"][1]["standing"] for source in evidence_sources(trace)]
    assert said == ["contributed", "none", "none", "contributed"]
