"""Training text as token batches: whole documents, bucketed by length, weighted by position."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from decoders.training.demo.tasks import Family, stream
from decoders.training.demo.tasks.drills import lookup
from decoders.training.demo.tasks.example import Message

PROMPT, RESPONSE, IGNORED = 0, 1, 2


@dataclass(frozen=True)
class Document:
    """Token ids and, per token, what it is: PROMPT, RESPONSE (to be learnt) or IGNORED."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """`ids` and `kinds`, both (rows, length), padded at the right with IGNORED."""

    ids: Tensor
    kinds: Tensor

    @property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return int((self.kinds != IGNORED).sum())


def encode_chats(tokenizer: Any, chats: Sequence[Sequence[Message]]) -> list[Document]:
    """Each conversation as the chat template renders it; the assistant's turns are RESPONSE."""
    contents = [m["content"] for chat in chats for m in chat]
    encoded = iter(tokenizer(contents, add_special_tokens=False)["input_ids"])
    out: list[Document] = []
    for chat in chats:
        ids, kinds = [tokenizer.bos_token_id], [PROMPT]
        for message in chat:
            body = [*next(encoded), tokenizer.eos_token_id]
            ids += [tokenizer.convert_tokens_to_ids(f"<|{message['role']}|>"), *body]
            kinds += [PROMPT] + [RESPONSE if message["role"] == "assistant" else PROMPT] * len(body)
        out.append(Document(tuple(ids), tuple(kinds)))
    return out


def repetition(rng: random.Random, pieces: int, real: Sequence[int], tokenizer: Any) -> Document:
    """A segment said again: what teaches a small model to copy before the tasks can.

    A third repeats random tokens, a third repeats real text, a third is a chat that asks for random tokens
    back.
    """
    length = rng.randint(8, 80)
    first = len(tokenizer.all_special_ids)
    noise = [rng.randrange(first, pieces) for _ in range(length)]
    kind = rng.randrange(3)
    if kind == 2:
        roles = tokenizer.convert_tokens_to_ids(["<|user|>", "<|assistant|>"])
        head = [tokenizer.bos_token_id, roles[0], *noise, tokenizer.eos_token_id, roles[1]]
        body = [*noise, tokenizer.eos_token_id]
        return Document(tuple(head + body), (IGNORED,) * len(head) + (RESPONSE,) * len(body))
    start = rng.randrange(max(1, len(real) - length))
    segment = noise if kind == 0 else list(real[start : start + length])
    times = rng.randint(2, 4)
    return Document(tuple(segment * times), (IGNORED,) * len(segment) + (RESPONSE,) * len(segment) * (times - 1))


def batches_of(documents: Sequence[Document], budget: int, shuffle: str = "") -> list[Batch]:
    """Documents of like length together, at most ``budget`` tokens a batch, padding included; in an order that depends
    on the text ``shuffle`` alone where one is given.
    """
    groups = bucket(documents, budget)
    if shuffle:
        random.Random(shuffle).shuffle(groups)
    return [pad(group, 0) for group in groups]


def pad(documents: Sequence[Document], padding: int, multiple: int = 8) -> Batch:
    """`documents` as one batch whose length is a multiple of `multiple`."""
    longest = max(len(d.ids) for d in documents)
    length = -(-longest // multiple) * multiple
    ids = torch.full((len(documents), length), padding)
    kinds = torch.full((len(documents), length), IGNORED)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = torch.tensor(document.ids)
        kinds[row, : len(document.kinds)] = torch.tensor(document.kinds)
    return Batch(ids, kinds)


def bucket(documents: Sequence[Document], budget: int) -> list[list[Document]]:
    """Documents of like length together, each group at most `budget` tokens with its padding."""
    groups: list[list[Document]] = []
    for document in sorted(documents, key=lambda d: len(d.ids)):
        if groups and (len(groups[-1]) + 1) * len(document.ids) <= budget:
            groups[-1].append(document)
        else:
            groups.append([document])
    return groups


def training_batches(
    tokenizer: Any,
    *,
    seed: int,
    chunk: int,
    examples: int,
    budget: int,
    repeated: float,
    looked_up: float = 0.0,
    mixture: dict[Family, float] | None = None,
) -> Iterator[Batch]:
    """The batches of one chunk, in shuffled order: `examples` tasks, `repeated` × `examples` repetitions and
    `looked_up` × `examples` lookup drills.

    A pure function of its arguments, so a resumed run sees the batches that the interrupted one would have
    seen.
    """
    rng = random.Random(f"specviz batches {seed} {chunk}")
    drawn = islice(stream("train", seed, chunk, mixture), examples)
    documents = encode_chats(tokenizer, [e.messages for e in drawn])
    for _ in range(round(repeated * examples)):
        real = rng.choice(documents[:examples]).ids
        documents.append(repetition(rng, len(tokenizer), real, tokenizer))
    if drills := round(looked_up * examples):
        documents += encode_chats(tokenizer, [lookup(rng) for _ in range(drills)])
    groups = bucket(documents, budget)
    rng.shuffle(groups)
    padding = tokenizer.pad_token_id
    return (pad(group, padding) for group in groups)
