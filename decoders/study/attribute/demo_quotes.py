"""Answers whose quotes are known by construction: the demo's quote task."""

from __future__ import annotations

from itertools import islice

from decoders.prompt.tasks import stream
from decoders.prompt.tasks.example import TaskExample
from decoders.study.attribute.quotes import Quote, QuotedAnswer

DEMO_SEED = 2027  # of the held-out stream: not the one that the target was judged with


def demo_quotes(count: int, seed: int = DEMO_SEED, *, brief: bool = False) -> list[QuotedAnswer]:
    """Held-out examples of the demo's quote task, whose quotes are known by construction: answers with a sentence in
    quotation marks and, with ``brief``, also those that are nothing but a name or a few words of the passages.
    """
    examples = stream("held_out", seed, 0, {"quote": 1.0})
    kept_examples = islice((e for e in examples if brief or e.reference.endswith('"')), count)
    return [_quote(example, f"quote-{number}") for number, example in enumerate(kept_examples)]


def _quote(example: TaskExample, name: str) -> QuotedAnswer:
    """The short answer, where the answer begins with it, and the sentence between quotation marks, if there is one."""
    span, text = example.span, example.reference
    assert span is not None, "examples of the quote task know where their answer stands"
    passage = example.context[span.passage]
    short = passage[span.start : span.end]
    quotes = []
    if text.startswith(short):
        quotes.append(Quote(0, len(short), span.passage, span.start, span.end))
    if text.endswith('"'):
        start = text.index('"') + 1
        at = passage.index(text[start:-1])
        quotes.append(Quote(start, len(text) - 1, span.passage, at, at + len(text) - 1 - start))
    return QuotedAnswer(name, example.instruction, example.context, example.question, text, tuple(quotes))
