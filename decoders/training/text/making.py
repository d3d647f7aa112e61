"""`specviz train text`: a chat model's own answers, written to a file once, for all its parts to learn from.

``answers.jsonl`` grows by a chunk at a time. A chunk depends on the seed, its number and the text on the machine alone;
chunk 0 is for validation, over sources that no other chunk uses.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.folders import write_text
from decoders.prompt.prompt import rendered

from .passages import Passage, found_passages
from .prompts import Passages, Prompt, draw_prompt
from .references import draw_reference
from .writer import Conversation, Writer

ANSWERS, REFERENCES = "answers.jsonl", "references.jsonl"
CHUNK = 64  # conversations
ROWS = 64  # that are written together
MOST_ANSWER = 160  # tokens of an answer
LITTLE = "too little text was found on this machine: Python's library or manual pages are wanted"
MOST_PROMPT = 500  # tokens before the first answer


@dataclass(frozen=True)
class Written:
    """How far it has come; ``tokens`` are of answers, ``seconds`` and the rate are this run's alone."""

    conversations: int
    tokens: int
    seconds: float
    tokens_per_second: float


def write_answers(
    model: Any, tokenizer: Any, out: Path, *, conversations: int | None = None, minutes: float | None = None,
    seed: int = 0, passages: Sequence[Passage] | None = None, progress: Callable[[Written], None] | None = None,
) -> Path:  # fmt: skip
    """Write chunks until there are so many ``conversations``, or for so many ``minutes``; an interrupted chunk is
    written again when it is asked for again. Gives the file.

    Raises UserError for a model without chat template, for a machine without text, and for another seed's file.
    """
    if not tokenizer.chat_template:
        raise UserError("this model has no chat template, so there is no way to ask it")
    out.mkdir(parents=True, exist_ok=True)
    path = out / ANSWERS
    done = _whole_chunks(path, seed)
    found = found_passages() if passages is None else passages
    held_out = Passages([passage for passage in found if passage.held_out])
    learnt = Passages([passage for passage in found if not passage.held_out])
    if not held_out.by_origin or not learnt.by_origin:
        raise UserError(LITTLE)
    writer, count, total, begun = Writer(model), done * CHUNK, 0, time.monotonic()
    while conversations is None or count < conversations:
        if minutes is not None and time.monotonic() - begun >= minutes * 60:
            break
        records, tokens = _chunk(writer, tokenizer, held_out if done == 0 else learnt, done, seed)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))
        done, count, total = done + 1, count + len(records), total + tokens
        if progress is not None:
            seconds = time.monotonic() - begun
            progress(Written(count, total, seconds, total / seconds))
    return path


def write_references(out: Path, conversations: int, seed: int = 0, passages: Sequence[Passage] | None = None) -> Path:
    """Write conversations with answers made by rule, none of them over what is held out; gives the file."""
    found = found_passages() if passages is None else passages
    learnt = Passages([passage for passage in found if not passage.held_out])
    if not learnt.by_origin:
        raise UserError(LITTLE)
    draw, records = random.Random(f"specviz references {seed}"), list[dict[str, Any]]()
    for _ in range(conversations):
        user, answer, origin = draw_reference(draw, learnt)
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
        records.append({"messages": messages, "held_out": False, "origin": origin, "seed": seed})
    return write_text(out / REFERENCES, "".join(json.dumps(record) + "\n" for record in records))


def _whole_chunks(path: Path, seed: int) -> int:
    """How many chunks the file holds; what an interrupted one left is cut off."""
    if not path.exists():
        return 0
    lines, counts = path.read_text("utf-8").splitlines(keepends=True), {}
    kept = 0
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            made = record["seed"], int(record["chunk"])
        except (ValueError, KeyError, TypeError):
            break
        if made[0] != seed:
            raise UserError(f"{path} was written with seed {made[0]}, not {seed}: give another folder with --out")
        counts[made[1]] = counts.get(made[1], 0) + 1
        if counts[made[1]] == CHUNK:
            kept = number
    if kept < len(lines):
        write_text(path, "".join(lines[:kept]))
    return kept // CHUNK


def _chunk(
    writer: Writer, tokenizer: Any, passages: Passages, number: int, seed: int
) -> tuple[list[dict[str, Any]], int]:
    """The conversations of one chunk, and how many tokens of answers they hold."""
    draw = random.Random(f"specviz text {seed} {number}")
    asked: list[tuple[Prompt, Conversation]] = []
    while len(asked) < CHUNK:
        prompt = draw_prompt(draw, passages, greedy=number == 0)
        conversation = begun(tokenizer, prompt)
        if len(conversation.prompt) <= MOST_PROMPT:
            asked.append((prompt, conversation))
    order = sorted(range(CHUNK), key=lambda i: (len(asked[i][1].following), len(asked[i][1].prompt)))
    for start in range(0, CHUNK, ROWS):
        rows = [asked[i][1] for i in order[start : start + ROWS]]
        writer.write(rows, MOST_ANSWER, seed * 1_000_003 + number * CHUNK + start)
    records, tokens = [], 0
    for prompt, conversation in asked:
        tokens += sum(map(len, conversation.answers))
        answers = [tokenizer.decode(answer, skip_special_tokens=True) for answer in conversation.answers]
        messages = [
            message
            for user, answer in zip(prompt.users, answers, strict=False)
            for message in ({"role": "user", "content": user}, {"role": "assistant", "content": answer})
        ]
        records.append(
            {
                "messages": messages, "cut": conversation.cut, "held_out": number == 0, "origin": prompt.origin,
                "temperature": prompt.temperature, "seed": seed, "chunk": number,
            }
        )  # fmt: skip
    return records, tokens


def begun(tokenizer: Any, prompt: Prompt) -> Conversation:
    """A conversation that waits for its first answer: the template's tokens around what the user says."""
    fed: list[list[int]] = []
    for turn in range(len(prompt.users)):
        pieces = rendered(tokenizer, ["user", "assistant"] * turn + ["user"], ask=True)
        after = pieces.index(2 * turn - 1) + 1 if turn else 0  # what comes after the answer before
        said = "".join(prompt.users[piece // 2] if isinstance(piece, int) else piece for piece in pieces[after:])
        fed.append(tokenizer(said, add_special_tokens=False)["input_ids"])
    return Conversation(fed[0], fed[1:], prompt.temperature)
