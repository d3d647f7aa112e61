"""Training data of the bundled target, as token batches: tasks, repetitions and lookup drills."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from decoders.prompt.tasks import stream
from decoders.prompt.tasks.example import Family
from specviz.extras.training.batches import IGNORED, RESPONSE, Batch, TrainingDocument, bucket, pad
from specviz.extras.training.data import encode

from .drills import lookup


def repetition(rng: random.Random, pieces: int, real: Sequence[int], tokenizer: Any) -> TrainingDocument:
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
        return TrainingDocument(tuple(head + body), (IGNORED,) * len(head) + (RESPONSE,) * len(body))
    start = rng.randrange(max(1, len(real) - length))
    segment = noise if kind == 0 else list(real[start : start + length])
    times = rng.randint(2, 4)
    return TrainingDocument(
        tuple(segment * times), (IGNORED,) * len(segment) + (RESPONSE,) * len(segment) * (times - 1)
    )


def training_batches(
    tokenizer: Any,
    *,
    seed: int,
    chunk: int,
    examples: int,
    budget: int,
    repeat_share: float,
    looked_up: float = 0.0,
    mixture: dict[Family, float] | None = None,
) -> Iterator[Batch]:
    """The batches of one chunk, in shuffled order: `examples` tasks, `repeated` × `examples` repetitions and
    `looked_up` × `examples` lookup drills.

    A pure function of its arguments, so a resumed run sees the batches that the interrupted one would have
    seen.
    """
    rng = random.Random(f"specviz batches {seed} {chunk}")
    training_examples = islice(stream("train", seed, chunk, mixture), examples)
    documents = [encode(tokenizer, example.messages) for example in training_examples]
    for _ in range(round(repeat_share * examples)):
        real = rng.choice(documents[:examples]).ids
        documents.append(repetition(rng, len(tokenizer), real, tokenizer))
    documents += [encode(tokenizer, lookup(rng)) for _ in range(round(looked_up * examples))]
    groups = bucket(documents, budget)
    rng.shuffle(groups)
    padding = tokenizer.pad_token_id
    return (pad(group, padding) for group in groups)
