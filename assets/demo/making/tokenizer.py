"""The demo model's tokenizer: byte-level BPE with a token for every chat role."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from decoders.prompt.tasks import stream
from decoders.prompt.tasks.words import WORDS

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
ROLES = ("system", "user", "assistant")
SPECIAL = (BOS, EOS, PAD, *(f"<|{role}|>" for role in ROLES))

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(*, pieces: int = 2048, examples: int = 12_000, seed: int = 0) -> PreTrainedTokenizerFast:
    """A tokenizer of `pieces` tokens, learnt from task text and common words.

    Every byte has a token, so any text survives a round trip; digits stand alone, so numbers copy digit by
    digit.

    >>> tokenizer = train_tokenizer(pieces=400, examples=50)
    >>> tokenizer.decode(tokenizer.encode("naïve 42", add_special_tokens=False))
    'naïve 42'
    """
    smallest = 256 + len(SPECIAL)
    if pieces <= smallest:
        raise ValueError(f"pieces={pieces} leaves no room for merges: give more than {smallest}")
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        _texts(examples, seed),
        trainers.BpeTrainer(
            vocab_size=pieces,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, core.token_to_id(BOS))]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _texts(examples: int, seed: int) -> Iterator[str]:
    """Messages of the tasks, and a fifth as many lines of common words in plain order of frequency."""
    rng = random.Random(f"specviz words {seed}")
    words = [*WORDS["english"], *WORDS["python"]]
    shares = [1 / (rank + 20) for rank in range(len(words))]
    for number, example in enumerate(islice(stream("tokenizer", seed), examples)):
        for message in example.messages:
            yield message["content"]
        if number % 5 == 0:
            line = rng.choices(words, shares, k=60)
            yield " ".join(word.capitalize() if rng.random() < 0.1 else word for word in line) + "."
