"""The example prompts: input-guided tasks, where an answer can be copied, and one where it cannot.

They live in ``assets/examples``, in prompt files like any other (``specviz bench --prompts`` takes them):
``bundled.jsonl`` for the bundled target, which knows the tasks it was trained on and no others, ``examples.jsonl`` for
every other model. A line may add ``title`` and ``note`` for the page. ``sets`` has samples of the field's own prompt
sets, with their licences.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.folders import ASSETS
from decoders.prompt.files import PromptRecord, parse_record, read_prompts

if TYPE_CHECKING:
    from decoders.prompt.prompt import Prompt

FOLDER = ASSETS / "examples"
SAMPLES = {"gsm8k": "GSM8K", "humaneval": "HumanEval", "mt-bench": "MT-Bench"}  # of prompt sets: files in ``sets``
SAMPLED, TITLE = 4, 48  # examples of each on the page, and the characters of a title
TASKS = {
    "summary": "Summarize",
    "quote": "Answer with a quote",
    "text_edit": "Edit text",
    "code_edit": "Edit code",
    "chat": "Rewrite in a chat",
    "translation": "Translate",
    "retrieval": "Answer from passages",
    "document": "Ask a document",
    "sums": "Little to copy",
    "open": "Little to copy",
}
TEXTS = ("Say it twice: the old lamp at the station. The old lamp at the", "a")  # much to copy; nothing to copy
SEPARATOR = "---"  # a line of its own between two passages of a context


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt with a title; ``note`` says what to look at."""

    record: PromptRecord
    title: str
    note: str = ""

    @property
    def label(self) -> str:
        return f"{TASKS.get(self.record.category, self.record.category)}: {self.title}"

    @property
    def prompt(self) -> dict[str, Any]:
        """The prompt as the browser's form has it, as ``PromptForm.to_json``."""
        record = self.record
        fields: dict[str, Any] = {"mode": "segments", "instruction": record.instruction, "question": record.question,
                                  "context": f"\n{SEPARATOR}\n".join(record.context), "text": "", "messages": [],
                                  "reference": record.reference}  # fmt: skip
        if record.messages or record.turns:
            messages = record.messages or (("user", record.turns[0]),)
            fields |= {"mode": "chat", "messages": [{"role": role, "content": text} for role, text in messages]}
        elif record.text:
            fields |= {"mode": "text", "text": record.text}
        return fields


def file(toy: bool = False) -> Path:
    """The prompt file of the examples for a model; ``toy``: for the bundled target."""
    return FOLDER / ("bundled.jsonl" if toy else "examples.jsonl")


@cache
def examples(toy: bool = False) -> tuple[Example, ...]:
    """All examples for a model, in the file's order; ``toy``: for the bundled target."""
    path = file(toy)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            item: dict[str, Any] = json.loads(line)
            record = parse_record(item, f"example-{number}")
            entries.append(Example(record, str(item.get("title") or record.id), str(item.get("note") or "")))
    return tuple(entries)


def sample_file(name: str) -> Path:
    """The prompt file of a sample (``SAMPLES``)."""
    return FOLDER / "sets" / f"{name}.jsonl"


@cache
def listed_examples(toy: bool = False) -> tuple[Example, ...]:
    """The examples that a page lists: all for the model, and but for the bundled target some of every sample."""
    if toy:
        return examples(toy)
    samples = []
    for name, title in SAMPLES.items():
        for record in read_prompts(sample_file(name), SAMPLED):
            first = textwrap.shorten(record.turns[0], TITLE, placeholder=" …")
            samples.append(Example(replace(record, category=title), first))
    return (*examples(toy), *samples)


def titled_prompts(tokenizer: Any, count: int, *, toy: bool = False) -> list[tuple[str, Prompt]]:
    """The first examples as a model's prompts, with their titles."""
    return [(example.label, example.record.prompt(tokenizer)) for example in examples(toy)[:count]]


def check_prompts(tokenizer: Any) -> list[Prompt]:
    """Prompts for checking a method's contract: two examples, and two prompts made for it."""
    from decoders.prompt.prompt import Prompt

    sample_prompts = [prompt for _, prompt in titled_prompts(tokenizer, 2, toy=True)]
    return [*sample_prompts, *(Prompt.from_text(tokenizer, text) for text in TEXTS)]


def passages(text: str) -> list[str]:
    """A context as it is typed: passages stand between lines of three hyphens.

    >>> passages("Ada left.\\n---\\nBo came.")
    ['Ada left.', 'Bo came.']
    """
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    return [p for p in ("\n".join(lines).strip("\n") for lines in parts) if p.strip()]


def marked_turns(text: str) -> list[dict[str, str]]:
    """A conversation in one text: ``User:`` and ``Assistant:`` at the start of a line begin a turn, without them it is
    one.

    >>> [t["role"] for t in marked_turns("User: Hi\\nAssistant: Hello!\\nUser: Bye")]
    ['user', 'assistant', 'user']
    """
    dialogue: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        head, colon, content = line.partition(":")
        role = head.strip().lower()
        if colon and role in ("user", "assistant", "system") and head == head.strip():
            dialogue.append((role, [content.removeprefix(" ")]))
        elif dialogue:
            dialogue[-1][1].append(line)
        else:
            dialogue.append(("user", [line]))
    return [{"role": role, "content": "\n".join(lines).strip("\n")} for role, lines in dialogue]


def checked_turns(messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The messages of a conversation that are not empty. Raises ValueError where the last is not the user's."""
    messages = [message for message in messages if message["content"].strip()]
    if messages and messages[-1]["role"] != "user":
        raise ValueError("The last message is not the user's: end the conversation with a message of the user.")
    return messages
