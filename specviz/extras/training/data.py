"""Training data of parts: text files, conversations in JSON lines, and the target's own answers.

A source is a sequence of chunks of documents, each a pure function of its number, so that a resumed run sees the
documents that the interrupted one would have seen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from decoders.errors import UserError
from decoders.prompt.chat import render_chat
from decoders.prompt.files import parse_record
from decoders.prompt.message import Message, turns, user_message

from .answers import greedy_answers
from .batches import PROMPT, RESPONSE, TrainingDocument

LEAST_TOKENS = 2000  # to be learnt; less teaches nothing
LEAST_DOCUMENTS = 4
HELD_OUT = 48  # documents for validation, at most a tenth of a file's
FORMS = (
    'allowed are {"text": "..."}, {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]} and '
    'the forms of prompt files with a "reference"'
)


class TrainingSource(Protocol):
    """Training documents in chunks; ``label`` tells one set of data from another."""

    label: str

    def chunk(self, index: int) -> list[TrainingDocument]: ...

    def held_out(self) -> list[TrainingDocument]:
        """Documents for validation that no chunk holds."""
        ...


class FileSource:
    """Files of text (cut into pieces of ``length`` tokens) and of conversations (one per line of JSON).

    ``answered`` says that the target will write the answers, so that records need none. Held out are documents that
    say so; where none does, the first of a shuffle.
    """

    def __init__(
        self, tokenizer: Any, files: Sequence[Path], seed: int, *, length: int = 512, documents: int = 256,
        target_answers: bool = False,
    ) -> None:  # fmt: skip
        self.seed, self.documents = seed, documents
        self.label = ", ".join(path.name for path in files)
        read = [document for path in files for document in read_documents(tokenizer, path, length, target_answers)]
        learnt = sum(document.kinds.count(RESPONSE) for document in read)
        if len(read) < LEAST_DOCUMENTS or (learnt < LEAST_TOKENS and not target_answers):
            raise UserError(
                f"{self.label} is too little to learn from: {len(read):,} documents with {learnt:,} tokens to learn; "
                f"at least {LEAST_DOCUMENTS} documents and {LEAST_TOKENS:,} tokens are needed"
            )
        random.Random(f"specviz data {seed}").shuffle(read)
        count = max(1, min(HELD_OUT, len(read) // 10))
        held_out = [document for document in read if document.held_out]
        self._held_out = held_out[:HELD_OUT] or read[:count]
        self.learnt = [document for document in read if not document.held_out] if held_out else read[count:]
        if not self.learnt:
            raise UserError(f"all documents of {self.label} are held out for validation: nothing is left to learn")

    def chunk(self, index: int) -> list[TrainingDocument]:
        """The next documents of endless epochs, each in an order of its own."""
        orders: dict[int, list[TrainingDocument]] = {}
        picks = []
        for i in range(index * self.documents, (index + 1) * self.documents):
            epoch, place = divmod(i, len(self.learnt))
            if epoch not in orders:
                orders[epoch] = list(self.learnt)
                random.Random(f"specviz epoch {self.seed} {epoch}").shuffle(orders[epoch])
            picks.append(orders[epoch][place])
        return picks

    def held_out(self) -> list[TrainingDocument]:
        return self._held_out

    @property
    def epoch(self) -> int:
        """Documents of one epoch."""
        return len(self.learnt)


class DistilledSource:
    """Another source's prompts with the target's own greedy answers (sequence-level distillation, Kim & Rush 2016)."""

    def __init__(self, source: TrainingSource, model: Any, tokenizer: Any, rows: int = 0) -> None:
        self.source, self.model = source, model
        self.rows = rows or (16 if model.device.type == "cpu" else 128)  # a GPU takes as long for a few as for many
        self.padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.label = f"{source.label}, answered by the target"

    def chunk(self, index: int) -> list[TrainingDocument]:
        return self._answer(self.source.chunk(index))

    def held_out(self) -> list[TrainingDocument]:
        return self._answer(self.source.held_out())

    @property
    def epoch(self) -> int | None:
        """Documents of one epoch of the prompts' source; None where it has no end."""
        return getattr(self.source, "epoch", None)

    def _answer(self, documents: list[TrainingDocument]) -> list[TrainingDocument]:
        prompts = [_prompt_of(document) for document in documents]
        lengths = [len(document.ids) - len(prompt) for document, prompt in zip(documents, prompts, strict=True)]
        answers = greedy_answers(self.model, prompts, lengths, spare=8, padding=self.padding, rows=self.rows)
        return [
            TrainingDocument((*prompt, *answer), (*document.kinds[: len(prompt)], *[RESPONSE] * len(answer)))
            for document, prompt, answer in zip(documents, prompts, answers, strict=True)
        ]


def vocabulary_documents(source: TrainingSource) -> list[TrainingDocument]:
    """The documents that a draft vocabulary is chosen by: all that files teach; the first chunk of what has no end, or
    has to be answered.
    """
    return source.learnt if isinstance(source, FileSource) else source.chunk(0)


def _prompt_of(document: TrainingDocument) -> tuple[int, ...]:
    """The text before a document's last answer; of plain text, its first quarter."""
    if PROMPT not in document.kinds:
        return document.ids[: max(1, len(document.ids) // 4)]
    last = len(document.kinds) - 1 - document.kinds[::-1].index(PROMPT)
    return document.ids[: last + 1]


def read_documents(tokenizer: Any, path: Path, length: int, target_answers: bool) -> list[TrainingDocument]:
    """One file's documents. Raises UserError naming the file and the line for what is missing, empty or not text."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read the training file {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: not text in UTF-8, so it cannot be learnt from") from None
    if "\0" in text:
        raise UserError(f"{path}, line {text[: text.index(chr(0))].count(chr(10)) + 1}: holds a NUL: not text")
    if not text.strip():
        raise UserError(f"the training file {path} is empty")
    if path.suffix.lower() not in {".jsonl", ".ndjson"}:
        return _pieces(tokenizer, text, length)
    documents: list[TrainingDocument] = []
    skipped_records = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            record = _conversation(item, f"{path.stem}-{number}")
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg}); {FORMS}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: {error}; {FORMS}") from None
        if isinstance(record, str):
            documents += _pieces(tokenizer, record, length)
        elif record[-1]["role"] == "assistant" or target_answers:
            document = encode(tokenizer, record)
            if item.get("cut") is True:
                document = _without_end(document, tokenizer)
            documents.append(replace(document, held_out=item.get("held_out") is True))
        else:
            skipped_records += 1
    if not documents:
        raise UserError(
            f"none of the {skipped_records} records of {path} has an answer to learn: let the target answer with "
            "--distill"
        )
    return documents


def _conversation(item: Any, name: str) -> str | list[Message]:
    """A record's text, or its messages. Raises ValueError saying what is wrong."""
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        if not item["text"].strip():
            raise ValueError("'text' is empty")
        return item["text"]
    if isinstance(item, dict) and "messages" in item:
        messages = item["messages"]
        if not isinstance(messages, list) or not messages:
            raise ValueError("'messages' must be a list of at least one message")
        for number, m in enumerate(messages, 1):
            if not isinstance(m, dict) or not isinstance(m.get("role"), str) or not isinstance(m.get("content"), str):
                raise ValueError(f"message {number} needs a 'role' and a text 'content'")
        return [{"role": m["role"], "content": m["content"]} for m in messages]
    record = parse_record(item, name)
    user = record.turns[0] if record.turns else user_message(record.instruction, record.context, record.question)
    turn_pair = turns(user, record.reference)
    return [*turn_pair] if record.reference.strip() else [turn_pair[0]]


def _pieces(tokenizer: Any, text: str, length: int) -> list[TrainingDocument]:
    """Text in pieces of at most ``length`` tokens, all to be learnt; a short rest is left out."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    cut = [tuple(ids[i : i + length]) for i in range(0, len(ids), length)]
    return [TrainingDocument(piece, (RESPONSE,) * len(piece)) for piece in cut if len(piece) >= min(length, 16)]


def encode(tokenizer: Any, messages: Sequence[Any]) -> TrainingDocument:
    """A conversation as the chat template renders it; the assistant's words, and what ends them, are to be learnt."""
    text, spans = _render(tokenizer, messages)
    out = tokenizer(text, add_special_tokens=not tokenizer.chat_template, return_offsets_mapping=True)
    kinds, special = [], set(tokenizer.all_special_ids)
    for token, (start, stop) in zip(out["input_ids"], out["offset_mapping"], strict=True):
        kind = spans[start] if start < stop else PROMPT
        after_answer = bool(kinds) and kinds[-1] == RESPONSE and start > 0 and spans[start - 1] == RESPONSE
        kinds.append(RESPONSE if after_answer and token in special else kind)  # what ends an answer belongs to it
    return TrainingDocument(tuple(out["input_ids"]), tuple(kinds))


def _without_end(document: TrainingDocument, tokenizer: Any) -> TrainingDocument:
    """A conversation whose last answer was cut before its end: so is the document."""
    special = set(tokenizer.all_special_ids)
    stop = len(document.ids)
    while stop and (document.kinds[stop - 1] != RESPONSE or document.ids[stop - 1] in special):
        stop -= 1
    return TrainingDocument(document.ids[:stop], document.kinds[:stop])


def _render(tokenizer: Any, messages: Sequence[Any]) -> tuple[str, list[int]]:
    """The conversation's text, and what each of its characters is."""
    kinds = [RESPONSE if m["role"] == "assistant" else PROMPT for m in messages]
    contents = [m["content"] for m in messages]
    if not tokenizer.chat_template:
        parts = [part for text, kind in zip(contents, kinds, strict=True) for part in ((text, kind), ("\n\n", PROMPT))]
        return "".join(text for text, _ in parts), [kind for text, kind in parts for _ in text]
    text, places = render_chat(tokenizer, messages, ask=kinds[-1] == PROMPT)
    of_contents = np.repeat(kinds, [len(content) for content in contents])
    return text, np.append(of_contents, PROMPT)[places].tolist()  # the last is the template's own
