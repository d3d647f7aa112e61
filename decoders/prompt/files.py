"""Prompt files: plain text, or JSON lines or Parquet in the form of Spec-Bench and SPEED-Bench, of the examples, of
chat messages, or of GSM8K, HumanEval and MBPP as published.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.folders import pointer_words

from .templates import templates

if TYPE_CHECKING:
    from .prompt import Prompt

ROLES = ("system", "user", "assistant")
FORMATS_HELP = (
    'allowed are {"turns": ["text", ...]} (Spec-Bench), {"instruction": "...", "context": "..." or ["...", ...], '
    '"question": "..."}, {"template": "...", "context": ..., "question": "..."}, '
    '{"messages": [{"role": "user", "content": "..."}]}, or rows of GSM8K, HumanEval or MBPP as they are published'
)
# what SPEED-Bench's file has in the place of prompts that its authors may not pass on
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """One prompt of a file. Exactly one of ``text``, ``turns``, ``messages`` or the segments is filled.

    ``text`` is continued as it stands; of ``turns`` (Spec-Bench) the first is the user's message, and each further one
    follows the model's answer to the one before; ``instruction``, ``context`` (passages) and ``question`` are the
    segments of one user message; the instruction may be a template, which a file may name instead (``templates``).
    ``reference`` is the gold answer, where the file has one, ``further_references`` are those of the further turns.
    """

    id: str
    category: str = ""
    text: str = ""
    turns: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    instruction: str = ""
    context: tuple[str, ...] = ()
    question: str = ""
    reference: str = ""
    further_references: tuple[str, ...] = ()

    def prompt(self, tokenizer: Any, *, chat: bool = False) -> Prompt:
        """The tokens, as the target reads them.

        Everything but ``text`` goes through the tokenizer's chat template where it has one; ``chat`` sends ``text``
        through it too, as one user message.
        """
        from .prompt import Dialogue, Prompt

        if self.messages:
            return Prompt.from_messages(tokenizer, [{"role": r, "content": c} for r, c in self.messages])
        if self.turns:
            first = Prompt.from_text(tokenizer, self.turns[0], chat=bool(tokenizer.chat_template))
            if len(self.turns) == 1:
                return first
            opening = (("user", self.turns[0]),)
            return replace(first, dialogue=Dialogue(opening, self.turns[1:], self.further_references))
        if self.text:
            return Prompt.from_text(tokenizer, self.text, chat=chat)
        return Prompt.from_segments(
            tokenizer, instruction=self.instruction, context=list(self.context), question=self.question
        )


def by_category(records: Sequence[PromptRecord]) -> list[PromptRecord]:
    """The records in another order: the first of each category, then the second of each, and so on.

    >>> [r.id for r in by_category([PromptRecord("a", "qa"), PromptRecord("b", "qa"), PromptRecord("c", "math")])]
    ['a', 'c', 'b']
    """
    places: Counter[str] = Counter()
    turns = []
    for record in records:
        turns.append(places[record.category])
        places[record.category] += 1
    order = {category: number for number, category in enumerate(places)}
    sorted_pairs = sorted(zip(turns, records, strict=True), key=lambda pair: (pair[0], order[pair[1].category]))
    return [record for _, record in sorted_pairs]


def read_prompts(path: str | Path, limit: int | None = None) -> list[PromptRecord]:
    """The prompts of a file, in order; at most ``limit``.

    ``.jsonl`` and ``.ndjson`` hold one record per line, ``.parquet`` one per row, ``.json`` one record or a list of
    them; any other file is one plain-text prompt. Blank lines are skipped. Raises UserError naming the file, the line
    and what is allowed.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise UserError(f"the limit is {limit}; at least one prompt must be read")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"there is no prompt file {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a prompt file") from None
    except OSError as error:
        raise UserError(f"cannot read the prompt file {path}: {error.strerror}") from None
    if words := pointer_words(path, data):
        raise UserError(words)
    data, suffix = data.removeprefix(b"\xef\xbb\xbf"), path.suffix.lower()
    if suffix not in READERS:
        text = _decode(data, path)
        if not text.strip():
            raise UserError(f"the prompt file {path} is empty")
        return [PromptRecord(id=path.stem, text=text)]
    records: list[PromptRecord] = []
    for place, number, item in islice(READERS[suffix](data, path), limit):
        try:
            records.append(parse_record(item, f"{path.stem}-{number}"))
        except ValueError as error:
            raise UserError(f"{place}: {error}; {FORMATS_HELP}") from None
    if not records:
        raise UserError(f"the prompt file {path} holds no prompt; {FORMATS_HELP}")
    return records


def parse_record(item: Any, name: str) -> PromptRecord:
    """One record from parsed JSON; ``name`` is its id if it has none. Raises ValueError saying what is wrong.

    >>> parse_record({"question_id": 7, "category": "qa", "turns": ["Who?"]}, "x").id
    '7'
    """
    if not isinstance(item, dict):
        raise ValueError(f"a prompt is a JSON object, not {_kind(item)}")
    item = _of_dataset(item)
    forms = [form for form in ("turns", "messages", "instruction", "template") if form in item]
    if not forms:
        raise ValueError(
            f"none of 'turns', 'instruction', 'template' and 'messages' is there (its fields: {_fields(item)})"
        )
    if len(forms) > 1:
        raise ValueError(f"'{forms[0]}' and '{forms[1]}' are both there, so it is unclear which is the prompt")
    record = PromptRecord(
        id=_label(item, ("question_id", "id"), name),
        category=_label(item, ("category", "family"), ""),
        reference=next(iter(_references(item)), ""),
    )
    if forms == ["turns"]:
        turns = item["turns"]
        if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
            raise ValueError("'turns' must be a list of at least one text")
        if not turns[0].strip():
            raise ValueError("the first of 'turns' is empty")
        if turns[0].startswith(PLACEHOLDER):
            raise ValueError(
                "SPEED-Bench has a placeholder here, in the place of a prompt of other authors: let its own script "
                "(prepare_data.py in examples/specdec_bench of NVIDIA's Model-Optimizer) fill the file first"
            )
        pairs = zip_longest(turns[1:], _references(item)[1 : len(turns)])
        follow_ups = [(turn, answer) for turn, answer in pairs if turn.strip()]
        answers = tuple(answer or "" for _, answer in follow_ups)
        return replace(
            record,
            turns=(turns[0], *(turn for turn, _ in follow_ups)),
            further_references=answers if any(answers) else (),
        )
    if forms == ["messages"]:
        return replace(record, messages=_messages(item["messages"]))
    context = item.get("context") or []
    passages = [context] if isinstance(context, str) else context
    if not isinstance(passages, list) or not all(isinstance(p, str) for p in passages):
        raise ValueError("'context' must be text or a list of texts")
    instruction, question = item.get("instruction") or _template(item), item.get("question") or ""
    for key, value in (("instruction", instruction), ("question", question)):
        if not isinstance(value, str):
            raise ValueError(f"'{key}' must be text, not {_kind(value)}")
    if not (instruction.strip() or question.strip() or any(p.strip() for p in passages)):
        raise ValueError("instruction, context and question are all empty")
    return replace(record, instruction=instruction, context=tuple(passages), question=question)


def _of_dataset(item: dict[str, Any]) -> dict[str, Any]:
    """A row of GSM8K, HumanEval or MBPP, as its authors publish it, in Spec-Bench's form; any other as it is.

    >>> _of_dataset({"question": "1 + 1?", "answer": "2 #### 2"})
    {'category': 'gsm8k', 'turns': ['1 + 1?'], 'reference': '2 #### 2'}
    >>> _of_dataset({"task_id": 2, "text": "Add.", "test_list": ["assert add(1, 2) == 3"]})["turns"]
    ['Add.\\n\\nIt has to pass these tests:\\n\\nassert add(1, 2) == 3']
    """
    if item.keys() == {"question", "answer"}:
        return {"category": "gsm8k", "turns": [item["question"]], "reference": item["answer"]}
    if "task_id" not in item:
        return item
    if {"prompt", "entry_point"} <= item.keys():
        return {"id": item["task_id"], "category": "humaneval", "turns": [item["prompt"]]}
    text, tests = item.get("text", item.get("prompt")), item.get("test_list")
    if isinstance(text, str) and isinstance(tests, list):
        whole = "\n".join([text, "", "It has to pass these tests:", "", *map(str, tests)])
        return {"id": item["task_id"], "category": "mbpp", "turns": [whole]}
    return item


def _template(item: dict[str, Any]) -> str:
    """The text of the template that a record names; "" where it names none."""
    template_name = item.get("template")
    if template_name is None or (isinstance(template_name, str) and template_name in templates()):
        return "" if template_name is None else templates()[template_name].text
    raise ValueError(f"there is no 'template' {template_name!r:.60}: choose one of {', '.join(templates())}")


def _messages(items: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(items, list) or not items:
        raise ValueError("'messages' must be a list of at least one message")
    messages = []
    for number, message in enumerate(items, 1):
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"message {number} needs a 'role' ({', '.join(ROLES)}) and a text 'content'")
        messages.append((role, content))
    if messages[-1][0] != "user":
        raise ValueError(f"the last message must be the user's, not the {messages[-1][0]}'s")
    if not messages[-1][1].strip():
        raise ValueError("the last message is empty")
    return tuple(messages)


def _references(item: dict[str, Any]) -> list[str]:
    """The answer that is hoped for in each turn, as Spec-Bench gives them, or the only one."""
    reference = item.get("reference")
    references = reference if isinstance(reference, list) else [reference]
    return [answer if isinstance(answer, str) else "" for answer in references]


def _label(item: dict[str, Any], keys: tuple[str, ...], default: str) -> str:
    return next((str(item[k]) for k in keys if isinstance(item.get(k), str | int)), default)


def _lines(data: bytes, path: Path) -> Iterator[tuple[str, int, Any]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, number, json.loads(line.decode("utf-8"))
            except UnicodeDecodeError:
                raise UserError(f"{place}: not UTF-8 text; {FORMATS_HELP}") from None
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON ({_reason(error)}); {FORMATS_HELP}") from None


def _whole(data: bytes, path: Path) -> Iterator[tuple[str, int, Any]]:
    try:
        document = json.loads(_decode(data, path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {FORMATS_HELP}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({_reason(error)}); {FORMATS_HELP}") from None
    for number, item in enumerate(document if isinstance(document, list) else [document], 1):
        yield f"{path}, record {number}", number, item


def _rows(data: bytes, path: Path) -> Iterator[tuple[str, int, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        items = (item for batch in file.iter_batches(256) for item in batch.to_pylist())
        for number, item in enumerate(items, 1):
            yield f"{path}, row {number}", number, {name: value for name, value in item.items() if value is not None}
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is no Parquet file that can be read: {error}; {FORMATS_HELP}") from None


READERS = {".jsonl": _lines, ".ndjson": _lines, ".json": _whole, ".parquet": _rows}


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text") from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _fields(item: dict[str, Any]) -> str:
    names = [str(k)[:40] for k in item]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"
