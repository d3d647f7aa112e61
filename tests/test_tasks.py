"""Tasks with known answers: what they hold, and that their answers can be had from their text."""

from __future__ import annotations

import ast
import random
import re
from itertools import islice

import pytest

from decoders.prompt.message import user_message
from decoders.prompt.tasks import GENERATORS, stream
from decoders.prompt.tasks.example import FAMILIES, TaskExample
from decoders.prompt.tasks.snippets import javascript


def examples_of(family: str, count: int = 60) -> list[TaskExample]:
    return [GENERATORS[family](random.Random(f"test {family} {i}")) for i in range(count)]


def test_a_stream_is_decided_by_its_seed_and_splits_are_disjoint():
    def draw(split: str, seed: int, chunk: int = 0) -> list[TaskExample]:
        return list(islice(stream(split, seed, chunk), 40))

    assert draw("train", 3) == draw("train", 3)
    seen = {str(e.messages) for e in draw("train", 3)}
    for other in (draw("held_out", 3), draw("train", 4), draw("train", 3, 1)):
        assert seen.isdisjoint(str(e.messages) for e in other)
    with pytest.raises(ValueError, match="held_out"):
        next(stream("test", 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_user_message_is_made_of_its_segments(family: str):
    for example in examples_of(family, 25):
        assert example.family == family
        assert [m["role"] for m in example.messages] == ["user", "assistant"] * (len(example.messages) // 2)
        user, answer = example.messages[-2:]
        assert user["content"] == user_message(example.instruction, example.context, example.question)
        assert answer["content"] == example.reference
        assert example.reference.strip() == example.reference != ""
        for part in (example.instruction, example.question, *example.context):
            assert part in user["content"]


def test_summaries_hold_only_words_of_the_text():
    for example in examples_of("summary"):
        words = set(re.findall(r"\w+", example.context[0]))
        assert set(re.findall(r"\w+", example.reference)) <= words
        assert len(example.reference) < len(example.context[0])


def test_quotes_stand_word_for_word_in_the_passage_they_name():
    for example in examples_of("quote"):
        assert example.span is not None
        passage = example.context[example.span.passage]
        answer = passage[example.span.start : example.span.end]
        for quoted in re.findall(r'"(.*)"', example.reference):
            assert quoted in passage and answer in quoted
        if not example.reference.startswith('"'):
            assert example.reference.startswith(answer)
        for name in re.findall(r"\b[A-Z]\w+ [A-Z]\w+\b", answer):  # people are named once
            assert sum(name in other for other in example.context) == 1


def python_in(text: str) -> str:
    return re.search(r"```python\n(.*?)\n```", text, re.S).group(1)


def test_edited_code_is_python_and_renames_are_complete():
    renames = 0
    for example in examples_of("code_edit", 150):
        if example.reference.startswith("```javascript"):
            assert example.reference.count("{") == example.reference.count("}")
            continue
        code = python_in(example.reference)
        ast.parse(code)
        if example.instruction.split(". ")[-1].startswith("Rename"):
            old, new = re.search(r"`?(\w+)`? to `?(\w+)`?\.", example.instruction).groups()
            names = set(re.findall(r"\w+", code))
            assert new in names and old not in names
            before = python_in(example.context[0])
            assert len(re.findall(rf"\b{old}\b", before)) == len(re.findall(rf"\b{new}\b", code))
            renames += 1
    assert renames > 10


def test_javascript_closes_blocks_and_declares_variables_once():
    code = "def f(a, b):\n    if a > b:\n        c = len(a)\n    else:\n        c = None\n    return c"
    assert javascript(code) == (
        "function f(a, b) {\n    if (a > b) {\n        var c = a.length;\n    } else {\n        c = null;\n"
        "    }\n    return c;\n}"
    )


def test_text_edits_replace_what_was_asked():
    checked = 0
    for example in examples_of("text_edit", 150):
        for old, new in re.findall(r'"([^"]+)" with "([^"]+)"', example.instruction):
            assert new in example.reference and not re.search(rf"\b{re.escape(old)}\b", example.reference)
            checked += 1
    assert checked > 15


def test_sums_add_up():
    for example in examples_of("sums"):
        *steps, last = example.reference.split("\n")
        for step in steps:
            left, right = step.split(" = ")
            a, sign, b = left.split(" ")
            assert int(right) == (int(a) + int(b) if sign == "+" else int(a) - int(b)) >= 0
        assert steps[-1].split(" = ")[1] in last


def test_chats_rewrite_the_earlier_answer():
    for example in examples_of("chat"):
        assert len(example.history) == 2 and example.context == () and example.question == ""
        assert example.history[1]["content"] != example.reference
