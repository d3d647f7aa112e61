"""Prompt files: every form, and one clear sentence with the line for everything else."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.errors import UserError
from decoders.prompt.codec import from_json, to_json
from decoders.prompt.files import PromptRecord, parse_record, read_prompts
from decoders.prompt.prompt import Prompt
from decoders.prompt.templates import templates
from specviz.views.examples import SAMPLES, examples, listed_examples, sample_file

from .models import tiny_tokenizer


def write(tmp_path, lines, name="prompts.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_plain_text_is_one_prompt_as_it_stands(tmp_path):
    text = "Line one\n\n  line <b>two</b> ☃\r\n"
    (tmp_path / "note.txt").write_bytes(text.encode())
    assert read_prompts(tmp_path / "note.txt") == [PromptRecord(id="note", text=text)]
    (tmp_path / "bom.md").write_bytes(b"\xef\xbb\xbfhello")
    assert read_prompts(tmp_path / "bom.md")[0].text == "hello"


def test_every_form_of_record(tmp_path):
    path = write(
        tmp_path,
        [
            {"question_id": 81, "category": "writing", "turns": ["First", "Second"], "reference": ["gold", "later"]},
            "",
            {"instruction": "Do", "context": "One passage", "question": "Which?", "reference": "That"},
            {"id": "x", "family": "quote", "instruction": "", "context": ["A", "B"], "question": "Who?"},
            {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]},
            {"instruction": "Only this", "context": None, "question": None},
            {"template": "hotpotqa", "context": ["A", "B"], "question": "Who?"},
        ],
    )
    spec_bench, segments, passages, chat, bare, templated = read_prompts(path)
    assert templated.instruction == templates()["hotpotqa"].text and templated.context == ("A", "B")
    later = ("later",)
    two = {"turns": ("First", "Second"), "reference": "gold", "further_references": later}
    assert spec_bench == PromptRecord("81", "writing", **two)
    assert (segments.id, segments.context, segments.reference) == ("prompts-3", ("One passage",), "That")
    assert (passages.id, passages.category, passages.context) == ("x", "quote", ("A", "B"))
    assert chat.messages == (("system", ""), ("user", "Hi"))
    assert (bare.instruction, bare.context, bare.question) == ("Only this", (), "")
    assert [r.id for r in read_prompts(path, limit=2)] == ["81", "prompts-3"]


def test_a_limit_stops_before_a_later_bad_line(tmp_path):
    path = write(tmp_path, [{"turns": ["a"]}, "not json"])
    assert len(read_prompts(path, limit=1)) == 1
    with pytest.raises(UserError, match="line 2"):
        read_prompts(path)


def test_blank_further_turns_are_left_out(tmp_path):
    line = {"turns": ["a", " ", "b"], "reference": ["1", "2", "3", "4"]}
    (record,) = read_prompts(write(tmp_path, [line]))
    assert (record.turns, record.reference, record.further_references) == (("a", "b"), "1", ("3",))


def test_the_next_user_turn_follows_an_answer():
    tokenizer = tiny_tokenizer()
    prompt = PromptRecord("x", turns=("the old lamp", "the red door"), reference="1", further_references=("2",)).prompt(
        tokenizer
    )
    assert (prompt.turn, prompt.turns) == (1, 2) and from_json(json.loads(json.dumps(to_json(prompt)))) == prompt
    answer = tokenizer("a museum", add_special_tokens=False)["input_ids"]
    later = prompt.following(tokenizer, answer)
    talk = [("user", "the old lamp"), ("assistant", "a museum"), ("user", "the red door")]
    same = Prompt.from_messages(tokenizer, [{"role": role, "content": text} for role, text in talk])
    assert (later.tokens, later.turn, later.turns, later.reference) == (same.tokens, 2, 1, "2")
    with pytest.raises(ValueError, match="turn 2 is the last one"):
        later.following(tokenizer, answer)


def test_json_files_hold_one_record_or_a_list(tmp_path):
    assert read_prompts(write(tmp_path, ['{"turns": ["a"]}'], "one.json"))[0].id == "one-1"
    assert len(read_prompts(write(tmp_path, ['[{"turns": ["a"]},', '{"turns": ["b"]}]'], "two.json"))) == 2
    with pytest.raises(UserError, match="record 2: .*not a number"):
        read_prompts(write(tmp_path, ['[{"turns": ["a"]}, 5]'], "bad.json"))
    with pytest.raises(UserError, match=r"line 2: not JSON"):
        read_prompts(write(tmp_path, ["{", "x}"], "bad.json"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{oops", "not JSON (Expecting property name"),
        ("[1, 2]", "a JSON object, not a list"),
        ("null", "a JSON object, not null"),
        ({"question": "Who?", "source1": "x"}, "and 'messages' is there (its fields: question, source1)"),
        ({}, "its fields: none"),
        ({"turns": ["a"], "messages": []}, "'turns' and 'messages' are both there"),
        ({"turns": "a"}, "'turns' must be a list"),
        ({"turns": []}, "'turns' must be a list of at least one text"),
        ({"turns": [1]}, "'turns' must be a list"),
        ({"turns": ["  "]}, "the first of 'turns' is empty"),
        ({"instruction": 5}, "'instruction' must be text, not a number"),
        ({"instruction": "a", "context": {"b": 1}}, "'context' must be text or a list of texts"),
        ({"instruction": "a", "context": ["b", 2]}, "'context' must be text or a list of texts"),
        ({"instruction": "a", "question": ["b"]}, "'question' must be text, not a list"),
        ({"instruction": " ", "context": "", "question": ""}, "all empty"),
        ({"messages": "hi"}, "'messages' must be a list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "message 1 needs a 'role' (system, user, assistant)"),
        ({"messages": [{"role": "user", "content": None}]}, "message 1 needs a 'role'"),
        ({"messages": [{"role": "assistant", "content": "b"}]}, "must be the user's, not the assistant's"),
        ({"messages": [{"role": "user", "content": " "}]}, "the last message is empty"),
        ("[" * 100_000, "not JSON"),
        ('{"turns": ["a"], "question_id": 1' + "0" * 5000 + "}", "not JSON (a number of too many digits)"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_what_is_allowed(tmp_path, line, words):
    path = write(tmp_path, [{"turns": ["fine"]}, "", line])
    with pytest.raises(UserError) as caught:
        read_prompts(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: ") and words in message and '{"turns": ["text", ...]}' in message
    assert "\n" not in message and len(message) < 600


def test_bytes_that_are_not_text(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"turns": ["a"]}\n{"turns": ["\xff"]}\n')
    (tmp_path / "a.txt").write_bytes(b"fine\nfine\n\xff\xfe")
    with pytest.raises(UserError, match="line 2: not UTF-8"):
        read_prompts(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match="line 3: not UTF-8"):
        read_prompts(tmp_path / "a.txt")


def test_files_that_are_not_there_or_empty(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    cases = {
        "none.txt": "no prompt file",
        ".": "is a folder",
        "empty.txt": "is empty",
        "empty.jsonl": "holds no prompt",
    }
    for name, words in cases.items():
        with pytest.raises(UserError, match=words):
            read_prompts(tmp_path / name)
    with pytest.raises(UserError, match="limit is 0"):
        read_prompts(tmp_path / "empty.txt", limit=0)


KEYS = ["turns", "messages", "instruction", "context", "question", "role", "content", "id", "reference"]
LEAVES = st.none() | st.booleans() | st.floats() | st.text()


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(st.sampled_from(KEYS) | st.text(), x), max_leaves=12)
)
def test_any_json_gives_a_record_or_a_sentence(item):
    try:
        record = parse_record(item, "x")
    except ValueError as error:
        assert str(error)
    else:
        assert (
            bool(record.turns) + bool(record.messages) + bool(record.instruction or record.context or record.question)
            == 1
        )


def test_prompts_go_through_the_chat_template_where_there_is_one():
    toy_tokenizer = copy.deepcopy(tiny_tokenizer())
    turns, text = PromptRecord("a", turns=("Hi", "Later")), PromptRecord("b", text="Hi")
    segments = PromptRecord("d", instruction="Do", context=("One", "Two"), question="Q")
    decoded = {}
    for template in (None, "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %} [assistant]"):
        toy_tokenizer.chat_template = template
        for name, prompt in (
            ("turns", turns.prompt(toy_tokenizer)),
            ("text", text.prompt(toy_tokenizer)),
            ("chat", text.prompt(toy_tokenizer, chat=True)),
            ("messages", PromptRecord("c", messages=(("user", "Hi"),)).prompt(toy_tokenizer)),
            ("segments", segments.prompt(toy_tokenizer)),
        ):
            decoded[name, bool(template)] = toy_tokenizer.decode(list(prompt.tokens))
    assert decoded["turns", True] == decoded["chat", True] == decoded["messages", True] == "[user] Hi [assistant]"
    assert decoded["turns", False] == decoded["text", False] == decoded["text", True] == decoded["chat", False] == "Hi"
    assert decoded["segments", True] == "[user] Do\n\n[1] One\n[2] Two\n\nQ [assistant]"


def test_speed_benchs_form_is_read(tmp_path):
    """Fields of SPEED-Bench (arXiv 2604.09557), whose texts are not ours to ship: as JSON and as Parquet; a file whose
    placeholders were not filled is refused.
    """
    line = {
        "question_id": "a1", "category": "coding", "sub_category": "python", "turns": ["Write it.", "Shorter."],
        "source": "x", "src_id": "9", "difficulty": "easy", "multiturn": True,
    }  # fmt: skip
    record = parse_record(line, "line")
    assert (record.id, record.category, record.turns) == ("a1", "coding", ("Write it.", "Shorter."))
    import pandas

    pandas.DataFrame([line, {**line, "question_id": "a2", "sub_category": None}]).to_parquet(tmp_path / "b.parquet")
    first, second = read_prompts(tmp_path / "b.parquet")
    assert first == record and second == replace(record, id="a2")
    masked = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    pandas.DataFrame([line, {**line, "turns": [masked]}]).to_parquet(tmp_path / "c.parquet")
    assert read_prompts(tmp_path / "c.parquet", 1) == [record]
    with pytest.raises(UserError, match="row 2: SPEED-Bench has a placeholder here.*prepare_data.py"):
        read_prompts(tmp_path / "c.parquet")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match="d.parquet is no Parquet file that can be read"):
        read_prompts(tmp_path / "d.parquet")


@pytest.mark.parametrize(
    ("row", "name", "category", "turn"),
    [
        ({"question": "How many?", "answer": "So 2\n#### 2"}, "line", "gsm8k", "How many?"),
        ({"task_id": "HumanEval/3", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "x", "test": "y"},
         "HumanEval/3", "humaneval", "def f():\n"),
        ({"task_id": 11, "text": "Add.", "code": "x", "test_list": ["assert a(1) == 2"], "test_setup_code": ""},
         "11", "mbpp", "Add.\n\nIt has to pass these tests:\n\nassert a(1) == 2"),
        ({"task_id": 11, "prompt": "Add.", "code": "x", "test_imports": [], "test_list": ["assert a(1) == 2"]},
         "11", "mbpp", "Add.\n\nIt has to pass these tests:\n\nassert a(1) == 2"),
    ],
)  # fmt: skip
def test_rows_are_read_as_datasets_publish_them(row, name, category, turn):
    record = parse_record(row, "line")
    assert (record.id, record.category, record.turns) == (name, category, (turn,))
    assert record.reference == row.get("answer", "")


def test_samples_of_published_sets_are_shipped_with_their_licences():
    licences = (sample_file("gsm8k").parent / "LICENCES.txt").read_text("utf-8")
    for name in SAMPLES:
        records = read_prompts(sample_file(name))
        assert len({record.id for record in records}) == len(records) == 16 and f"{name}.jsonl" in licences
        assert all(record.category and record.turns[0].strip() for record in records)
    assert sum(path.stat().st_size for path in sample_file("gsm8k").parent.iterdir()) < 60_000
    shown = {example.label.partition(":")[0] for example in listed_examples()}
    assert shown >= {"GSM8K", "HumanEval", "MT-Bench"} and listed_examples(True) == examples(True)
