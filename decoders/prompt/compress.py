"""Prompt compression (CASD §3): the target reads a shorter context, the pool keeps the full one.

Only context segments are shortened; instruction, question and template stay token for token. Two compressors:

``extractive``, built in: sentences (lines, in code) are ranked by topic-sensitive LexRank (Otterbacher, Erkan and
Radev, 2005) over tf-idf cosines, with the instruction and the question as the topic, and taken by maximal marginal
relevance (Carbonell and Goldstein, 1998) until the budget is filled; they stay whole and in order, the last one taken
may be cut.

``llmlingua-2``, the paper's: the package ``llmlingua`` with its own weights.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from decoders.errors import UserError, first_line

from .prompt import Pool, Prompt, Segment

EXTRACTIVE, LLMLINGUA = "extractive", "llmlingua-2"
COMPRESSORS = (EXTRACTIVE, LLMLINGUA)
LLMLINGUA_MODEL = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
LLMLINGUA_VARIABLE = "SPECVIZ_LLMLINGUA_MODEL"  # a folder or hub id instead of LLMLINGUA_MODEL
TOPIC = 0.7  # share of a sentence's score that its likeness to the question has; the rest comes from its neighbours
RELEVANCE = 0.7  # of maximal marginal relevance; the rest is novelty
Counter = Callable[[Sequence[str]], list[int]]  # how many tokens each of some texts has
ROUNDS = 100  # of the power iteration, at most

_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TERM = re.compile(rf"[{_IDEOGRAPHS}]|(?:(?![{_IDEOGRAPHS}])[^\W_])+")
_WORD = re.compile(rf"\s*(?:[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+)")
_ABBREVIATION = r"(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bvs\.)(?<!\be\.g\.)"
_SENTENCE_END = re.compile(rf"(?<=[.!?…]){_ABBREVIATION}[\"'”’)\]]*(?=[ \t])|(?<=[。！？])|(?=(?<!\n)\n)")


@dataclass(frozen=True, slots=True)
class Passage:
    """A context segment as text: ``head`` is the number that the prompt put before it ("[2] "), ``tail`` the white
    space at its end.
    """

    head: str
    body: str
    tail: str


def compress(prompt: Prompt, tokenizer: Any, ratio: float, compressor: str = EXTRACTIVE) -> Prompt:
    """The prompt with its context shortened to 1/``ratio`` of its tokens, and the full context as its pool.

    A pool that the prompt brought itself is kept. ``Prompt.compression`` says what was done in numbers. Raises
    UserError where there is no context or nothing of it would be left.
    """
    if compressor not in COMPRESSORS:
        raise UserError(f"compressor={compressor!r} is not allowed: one of {', '.join(COMPRESSORS)}")
    if not ratio > 1:
        raise UserError(f"a compression ratio of {ratio:g} is not allowed: a number above 1")
    start_time = time.perf_counter()
    full = prompt.context_pool()
    if full is None:
        raise UserError("there is no context to compress: the prompt has none, so leave compression off")
    context = [s for s in prompt.segments if s.name == "context"]
    passages = _passages(prompt, tokenizer, context)
    total = sum(s.stop - s.start for s in context)
    if compressor == EXTRACTIVE:
        bodies = _extract(passages, int(total / ratio), _topic(prompt, tokenizer), _counter(tokenizer))
    else:
        bodies = _by_llmlingua(passages, ratio)
    if not any(body.strip() for body in bodies):
        raise UserError(
            f"compression to 1/{ratio:g} would leave nothing of a context of {total} tokens: choose a smaller ratio, "
            "or turn compression off"
        )
    tokens, segments = _assemble(prompt, tokenizer, passages, bodies)
    pool = prompt.pool or Pool(full.tokens, full.starts, None, "the full context")
    numbers = {
        "compressor": compressor,
        "ratio_asked": ratio,
        "context_tokens": total,
        "kept_tokens": sum(s.stop - s.start for s in segments if s.name == "context"),
        "prompt_tokens_full": len(prompt.tokens),
        "compress_ms": round((time.perf_counter() - start_time) * 1e3, 3),
    }
    return replace(prompt, tokens=tuple(tokens), segments=tuple(segments), pool=pool, compression=numbers)


def _passages(prompt: Prompt, tokenizer: Any, context: Sequence[Segment]) -> list[Passage]:
    has_numbers = len({s.passage for s in context}) > 1
    passages = []
    for segment in context:
        text = _decode(prompt, tokenizer, segment)
        head = re.match(rf"\[?{segment.passage + 1}\] ", text) if has_numbers else None
        start = head.end() if head else 0
        body = text[start:].rstrip()
        passages.append(Passage(text[:start], body, text[start + len(body) :]))
    return passages


def _topic(prompt: Prompt, tokenizer: Any) -> str:
    topic_segments = [s for s in prompt.segments if s.name in ("instruction", "question")]
    return "\n".join(_decode(prompt, tokenizer, s) for s in topic_segments)


def _decode(prompt: Prompt, tokenizer: Any, segment: Segment) -> str:
    return tokenizer.decode(list(prompt.tokens[segment.start : segment.stop]), clean_up_tokenization_spaces=False)


def _counter(tokenizer: Any) -> Counter:
    return lambda texts: [len(i) for i in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]


def _assemble(
    prompt: Prompt, tokenizer: Any, passages: Sequence[Passage], bodies: Sequence[str]
) -> tuple[list[int], list[Segment]]:
    """The prompt's tokens with the bodies in place of its context; a passage without a body goes, and the gap before
    it.
    """
    at = [i for i, s in enumerate(prompt.segments) if s.name == "context"]
    texts = {i: p.head + body + p.tail for i, p, body in zip(at, passages, bodies, strict=True) if body.strip()}
    first, last = min(texts), max(texts)
    texts[last] = texts[last].removesuffix(passages[at.index(last)].tail) + passages[-1].tail
    removals = {i for a, b in pairwise(at) if b == first or b not in texts for i in range(a + 1, b)}
    removals.update(i for i in at if i not in texts)
    tokens: list[int] = []
    segments: list[Segment] = []
    for i, segment in enumerate(prompt.segments):
        if i not in removals:
            old = prompt.tokens[segment.start : segment.stop]
            ids = tokenizer(texts[i], add_special_tokens=False)["input_ids"] if i in texts else old
            segments.append(Segment(segment.name, len(tokens), len(tokens) + len(ids), segment.passage))
            tokens += ids
    return tokens, segments


def sentences(text: str) -> list[str]:
    """A text cut into sentences and lines, which joined give the text again; white space begins a sentence.

    >>> sentences('Dr. Ito said "yes." Then he left.\\n  x = 1\\n\\n  y = 2')
    ['Dr. Ito said "yes."', ' Then he left.', '\\n  x = 1', '\\n\\n  y = 2']
    """
    cuts = sorted({0, *(m.end() for m in _SENTENCE_END.finditer(text)), len(text)})
    parts: list[str] = []
    for a, b in pairwise(cuts):
        if parts and not text[a:b].strip():
            parts[-1] += text[a:b]
        else:
            parts.append(text[a:b])
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Unit tf-idf vectors of sentences, the non-zero entries only: ``values[i]`` of sentence ``rows[i]`` and term
    ``columns[i]``. A sentence's entries begin at ``row_starts``, a term's in ``by_column`` at ``column_starts``.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    row_starts: np.ndarray
    by_column: np.ndarray
    column_starts: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> Vectors:
        column_of: dict[str, int] = {}
        rows, columns, values = [], [], []
        for row, text in enumerate(texts):
            counts: dict[int, int] = {}
            for term in _TERM.findall(text.lower()):
                column = column_of.setdefault(term, len(column_of))
                counts[column] = counts.get(column, 0) + 1
            rows += [row] * len(counts)
            columns += counts.keys()
            values += counts.values()
        r, c = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
        v, sentences_with = np.asarray(values, dtype=np.float64), np.bincount(c, minlength=len(column_of))
        v *= np.log1p(len(texts) / sentences_with)[c]
        v /= np.sqrt(np.bincount(r, v * v, minlength=len(texts)))[r]
        starts = np.concatenate([[0], np.cumsum(np.bincount(r, minlength=len(texts)))])
        return cls(r, c, v, starts, np.argsort(c, kind="stable"), np.concatenate([[0], np.cumsum(sentences_with)]))

    def neighbours(self, weights: np.ndarray) -> np.ndarray:
        """For every sentence, the sum over sentences of their cosine times their weight ``[sentences]``."""
        terms = np.bincount(self.columns, self.values * weights[self.rows], minlength=len(self.column_starts) - 1)
        return np.bincount(self.rows, self.values * terms[self.columns], minlength=len(weights))

    def cosines(self, sentence: int) -> np.ndarray:
        """Of one sentence with every sentence ``[sentences]``."""
        span = slice(self.row_starts[sentence], self.row_starts[sentence + 1])
        lists = [self.by_column[self.column_starts[c] : self.column_starts[c + 1]] for c in self.columns[span].tolist()]
        count = len(self.row_starts) - 1
        if not lists:
            return np.zeros(count)
        entries = np.concatenate(lists)
        weights = np.repeat(self.values[span], [len(entries_of_term) for entries_of_term in lists])
        return np.bincount(self.rows[entries], self.values[entries] * weights, minlength=count)


def centrality(texts: Sequence[str], topic: str = "") -> tuple[np.ndarray, Vectors]:
    """Topic-sensitive LexRank of sentences, ``[texts]``, sums to 1; without a topic (or any word of it) plain LexRank.

    The stationary distribution of a walk that goes to a sentence like the topic with probability ``TOPIC``, else to one
    like the present one. Sums go through the terms, so that no matrix of all pairs of sentences is ever made.
    """
    n = len(texts)
    vectors = Vectors.of([*texts, topic])
    is_sentence = np.arange(n + 1) < n  # the topic is no sentence
    like_topic = np.where(is_sentence, vectors.cosines(n), 0.0)
    bias = like_topic / like_topic.sum() if like_topic.any() else is_sentence / n
    degree = vectors.neighbours(is_sentence.astype(np.float64))
    degree = np.where(degree > 0, degree, 1.0)
    score = bias
    for _ in range(ROUNDS):
        new = TOPIC * bias + (1 - TOPIC) * np.where(is_sentence, vectors.neighbours(score / degree), 0.0)
        new /= new.sum()
        has_converged = np.abs(new - score).sum() < 1e-9
        score = new
        if has_converged:
            break
    return score[:n], vectors


def by_marginal_relevance(score: np.ndarray, vectors: Vectors) -> Iterator[int]:
    """Sentences in the order of maximal marginal relevance: central, and unlike those taken before."""
    relevance = score / max(float(score.max()), 1e-300)
    nearest = np.zeros(len(score))
    open_ = np.ones(len(score), dtype=bool)
    while open_.any():
        worth = np.where(open_, RELEVANCE * relevance - (1 - RELEVANCE) * nearest, -np.inf)
        best = int(worth.argmax())
        yield best
        open_[best] = False
        nearest = np.maximum(nearest, vectors.cosines(best)[: len(score)])


def _extract(passages: Sequence[Passage], budget: int, topic: str, count: Counter) -> list[str]:
    """The bodies of the passages, shortened to ``budget`` tokens in all (heads and tails included)."""
    owner, units = [], []
    for number, passage in enumerate(passages):
        cut = sentences(passage.body)
        units += cut
        owner += [number] * len(cut)
    if not units:
        return [""] * len(passages)
    costs = count(units)
    frame = count([p.head for p in passages])
    room = budget - count([passages[-1].tail])[0]
    score, vectors = centrality(units, topic)
    kept_units: dict[int, str] = {}
    frame_owners: set[int] = set()
    last = -1
    for unit in by_marginal_relevance(score, vectors):
        cost = costs[unit] + (0 if owner[unit] in frame_owners else frame[owner[unit]])
        if cost > room:
            part = _first_words(units[unit], room - (cost - costs[unit]), count)
            if part:
                kept_units[unit], last = part, unit
            break
        kept_units[unit], last = units[unit], unit
        frame_owners.add(owner[unit])
        room -= cost
    while (
        kept_units and (over := _tokens_of(passages, owner, kept_units, count) - budget) > 0
    ):  # joined, they may cost more
        kept_units[last] = _first_words(kept_units[last], count([kept_units[last]])[0] - over, count)
        if not kept_units[last]:
            del kept_units[last]
            last = next(reversed(kept_units), -1)
    return _join(passages, owner, kept_units)


def _join(passages: Sequence[Passage], owner: Sequence[int], kept_units: dict[int, str]) -> list[str]:
    """The kept sentences of each passage in their order; the space before the first one goes, its indent stays."""
    bodies = ["" for _ in passages]
    for unit in sorted(kept_units):
        opens = not bodies[owner[unit]] and unit > 0 and owner[unit - 1] == owner[unit]
        bodies[owner[unit]] += re.sub(r"^(?:[\r\n]+|[ \t]+)", "", kept_units[unit]) if opens else kept_units[unit]
    return bodies


def _tokens_of(passages: Sequence[Passage], owner: Sequence[int], kept_units: dict[int, str], count: Counter) -> int:
    bodies = _join(passages, owner, kept_units)
    return sum(count([p.head + body + p.tail for p, body in zip(passages, bodies, strict=True) if body]))


def _first_words(text: str, budget: int, count: Counter) -> str:
    """As many whole words of a text as ``budget`` tokens hold, "" if not even one."""
    ends = [m.end() for m in _WORD.finditer(text)]
    words = bisect_right(ends, budget, key=lambda end: count([text[:end]])[0])
    return text[: ends[words - 1]] if words else ""


def _by_llmlingua(passages: Sequence[Passage], ratio: float) -> list[str]:
    """The bodies as LLMLingua-2 shortens them (Pan et al. 2024): it drops words, by a rate and without a topic."""
    name = os.environ.get(LLMLINGUA_VARIABLE, LLMLINGUA_MODEL)
    bodies = [p.body for p in passages if p.body]
    if not bodies:
        return [""] * len(passages)
    answer = _llmlingua(name).compress_prompt_llmlingua2(
        bodies, rate=1 / ratio, force_tokens=["\n", "?"], drop_consecutive=True
    )
    short_texts = iter(answer["compressed_prompt_list"])
    return [next(short_texts).strip() if p.body else "" for p in passages]


@lru_cache(maxsize=1)
def _llmlingua(name: str) -> Any:
    """The compressor, loaded once."""
    try:
        from llmlingua import PromptCompressor  # type: ignore[import-not-found]
    except ImportError as error:
        raise UserError(
            f"LLMLingua-2 needs its package ({error}): run `pip install llmlingua`, or choose the compressor "
            f"{EXTRACTIVE!r}, which is built in"
        ) from error
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return PromptCompressor(model_name=name, device_map=device, use_llmlingua2=True)
    except Exception as error:
        raise UserError(
            f"LLMLingua-2 could not be loaded from {name!r}: {first_line(error, 200)}. It needs its weights and "
            "tiktoken's vocabulary for gpt-3.5-turbo (both are fetched once); "
            f"{LLMLINGUA_VARIABLE} names a local folder. The compressor {EXTRACTIVE!r} is built in"
        ) from error
