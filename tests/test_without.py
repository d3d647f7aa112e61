"""Cause: an answer read without a part of its prompt, and the words for what that says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from decoders import Prompt, UserError
from decoders.study.attribute.evidence import (
    DECISIVE,
    cause,
    copies,
    describe,
    evidence_sources,
    sentences,
    standing,
    weights,
)
from decoders.study.attribute.turns import turns
from decoders.study.attribute.without import ReadAnswer
from decoders.study.look.teacher_forcing import answer_ids, forced_trace
from decoders.trace.trace import Trace

from .models import EVERY_FAMILY, tiny_target
from .test_attribution import trace_of

PASSAGES = ["the old lamp at the station fell", "it was sold to the city museum", "a new one stood there in 1931"]
ANSWER = "The old lamp at the station fell. It was sold to the city museum."


def passages_run(target: Any, passages: list[str] | None = None, answer: str = ANSWER) -> Trace:
    prompt = Prompt.from_segments(target.tokenizer, "Quote.", passages or PASSAGES, "What became of it?")
    return forced_trace(target, prompt, answer_ids(target, answer), "pld")


def plain_logp(target: Any, ids: list[int], positions: list[int], answer: list[int]) -> np.ndarray:
    """log p of the answer by transformers' own attention, at the given positions."""
    with torch.inference_mode(), target.by_own_attention():
        output = target.model(
            input_ids=torch.tensor([ids]), position_ids=torch.tensor([positions]), use_cache=False,
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),  # without it a gap would begin another text
        )  # fmt: skip
    rows = torch.log_softmax(output.logits[0, len(ids) - len(answer) - 1 : -1].double(), -1)
    return rows[torch.arange(len(answer)), torch.tensor(answer)].numpy()


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma", "qwen2", "gpt_neox", "phi"])  # none has windows
def test_masked_is_what_a_plain_forward_says_of_the_text_without_the_part(family: str) -> None:
    """At the same positions; and read again, at those that the shorter text has. Whatever was read in between."""
    target = tiny_target(family)
    trace = passages_run(target)
    prompt, answer = trace.prompt_ids, trace.output_ids
    read = ReadAnswer(target, prompt, answer)
    every = [*prompt, *answer]
    assert read.logp == pytest.approx(plain_logp(target, every, [*range(len(every))], answer), abs=1e-4)
    parts = [source.at for source in evidence_sources(trace)]
    for part in [*parts, [*parts[0], *parts[2]], parts[1][2:4]]:
        rest = [at for at in range(len(every)) if at not in part]
        kept = [every[at] for at in rest]
        found = read.without(part)
        assert found.fall == pytest.approx(read.logp - plain_logp(target, kept, rest, answer), abs=1e-4)
        assert found.reread == pytest.approx(
            read.logp - plain_logp(target, kept, [*range(len(kept))], answer), abs=1e-4
        )
    assert max(map(abs, read.without(parts[0]).fall or ())) > 0.01


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_masked_and_read_again_agree_where_nothing_stands_behind_but_the_answer(family: str) -> None:
    """A part at the end of a text: what is left out moves only the answer, and a model of relative positions sees the
    same; all families can be read both ways, and a second question finds the cache as the first did.
    """
    target = tiny_target(family)
    trace = passages_run(target)
    read = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    first = read.without(evidence_sources(trace)[0].at)
    read.without(range(3, len(trace.prompt_ids)))
    again = read.without(evidence_sources(trace)[0].at)
    assert first.fall is not None and first.reread is not None
    assert again.fall == pytest.approx(first.fall, abs=1e-5) and again.reread == pytest.approx(first.reread, abs=1e-5)


def test_a_model_that_cannot_be_masked_is_read_again(monkeypatch) -> None:
    target = tiny_target("llama")
    trace = passages_run(target)
    part = evidence_sources(trace)[1].at
    whole = ReadAnswer(target, trace.prompt_ids, trace.output_ids).without(part)
    read = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    read.mask_fault = "its layers are recurrent"
    found = read.without(part, reread=False)
    assert found.fall is None and found.falls == pytest.approx(whole.reread, abs=1e-4)


@pytest.mark.parametrize("part", [[], [-1], [10_000], [0, 10_000]])
def test_what_cannot_be_left_out(part: list[int]) -> None:
    target = tiny_target("llama")
    trace = passages_run(target)
    with pytest.raises(UserError, match="give positions of the prompt, from 0 to"):
        ReadAnswer(target, trace.prompt_ids, trace.output_ids).without(part)


# --- words ------------------------------------------------------------------------------------------------------------


def test_contributed_and_corroborates_are_kept_apart() -> None:
    grid = [(fall, quoted) for fall in (DECISIVE, 0.0, -DECISIVE) for quoted in (True, False)]
    assert [standing(*row) for row in grid] == ["contributed"] * 2 + ["corroborates", "none"] + ["against"] * 2


def test_a_passage_that_stands_twice_is_the_cause_of_half() -> None:
    target = tiny_target("llama")
    trace = passages_run(target, [PASSAGES[0], PASSAGES[1], PASSAGES[0]])
    first, _, last = evidence_sources(trace)
    answer = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    both = cause(trace, answer, "Passage 1", first.at)
    assert (
        both["places"] == 2
        and "They stand 2 times in the sources: each is the cause of 1/2." in both["weights"][0]["said"]
    )
    places = copies(trace, first.at)
    assert [at for at in last.at if at in places[1]] == places[1] and places[0] == [*first.at]
    whole = answer.without([*places[0], *places[1]])
    assert both["weights"][0]["fall"] == pytest.approx(sum(whole.falls[: both["weights"][0]["stop"]]) / 2, abs=1e-3)
    assert cause(trace, answer, "Passage 2", evidence_sources(trace)[1].at)["places"] == 1
    assert weights(trace, places, whole, [(0, 5)])[0].has_words


def test_words_inside_other_words_are_no_copies() -> None:
    trace = trace_of([("context", 0, ["art", " is"]), ("context", 1, ["parties", " art", " is", " art"])], [("a", -1)])
    assert copies(trace, [0]) == [[0], [3], [5]]
    assert copies(trace, [0, 1]) == [[0, 1], [3, 4]]


def test_sentences_end_where_a_reader_ends_them() -> None:
    text = [
        "Dr.",
        " A.",
        " Ray",
        " paid",
        " 3",
        ".",
        "5",
        " euros",
        ".",
        " Why",
        "?",
        "\n",
        "\n",
        "- so",
        "\n",
        "中文。",
        "好",
        "\n",
        "2",
        ".",
        " An",
        " item",
        "\n",
        "13",
        ")",
        "\n",
    ]
    trace = trace_of([("text", -1, ["x"])], [(piece, -1) for piece in text])
    found = ["".join(text[a:b]).strip() for a, b in sentences(trace)]
    assert found == ["Dr. A. Ray paid 3.5 euros.", "Why?", "- so", "中文。", "好", "An item"]


def test_turns_of_a_chat_are_sources_and_so_is_the_templates_system_prompt() -> None:
    system = ["<|im_start|>", "system", "\n", "You", " help", " all", " people", " who", " ask", "<|im_end|>", "\n"]
    user, assistant = ["<|im_start|>", "user", "\n"], ["<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    parts = [
        ("template", -1, [*system, *user]), ("chat", -1, ["one", " two"]), ("template", -1, assistant),
        ("chat", -1, ["three"]), ("template", -1, ["<|im_end|>", "\n", *user]), ("chat", -1, ["four"]),
        ("template", -1, assistant),
    ]  # fmt: skip
    found = turns(trace_of(parts, [("a", -1)]))
    assert [turn.name for turn in found] == ["system prompt", "user turn 1", "assistant turn", "user turn 2"]
    assert [(turn.start, turn.stop) for turn in found] == [(3, 9), (14, 16), (21, 22), (27, 28)]
    assert turns(trace_of([("context", 0, ["a"]), ("chat", -1, ["b"])], [])) == []
    assert [turn.name for turn in turns(trace_of([("text", -1, ["a", " b"])], []))] == ["prompt"]


@pytest.mark.parametrize(
    ("fall", "quoted", "places", "said"),
    [
        (5.0, True, 1, "P contributed: without it these words are 148 times less likely (log₁₀ p falls by 2.2"),
        (10.0, False, 1, " read again without it). It has fewer than half of these words word for word."),
        (-3.0, False, 1, "P speaks against: without it these words are 20 times likelier (log₁₀ p rises by 1.3"),
        (0.5, True, 1, "P corroborates: it has these words, and without it these are about as likely"),
        (2.1, True, 1, "P corroborates: it has these words, and without it these are 8.2 times less likely (log"),
        (-1.4, False, 1, "P took no decisive part: it has fewer than half of these words, and without it these are 4"),
        (5.0, True, 2, "without all 2 of them these words are 148 times less likely"),
    ],
)
def test_a_weight_in_words(fall: float, quoted: bool, places: int, said: str) -> None:
    from decoders.study.attribute.evidence import Weight

    weight = Weight(0, 4, fall / places, (fall - 0.7) / places, quoted, standing(fall, quoted))
    assert said in describe(weight, "P", places)
    powers = f"{'falls' if fall > 0.7 else 'rises'} by {abs(fall - 0.7) / math.log(10):.1f}"
    assert f"it {powers} where the prompt is read again" in describe(weight, "P", places)
    assert "read again" not in describe(replace(weight, reread=None), "P", places)
    alike = describe(replace(weight, reread=weight.fall), "P", places)
    assert f"by {abs(fall) / math.log(10):.1f}, also where the prompt is read again without" in alike
