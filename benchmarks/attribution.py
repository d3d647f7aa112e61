"""Rarity and cause on answers with known quotes: ``python -m benchmarks.attribution QUOTESUM --causes 12``.

**Rarity**: of two runs of words, a gold quotation and a stop phrase (words outside of the gold quotations that stand in
a source too), how often is the quotation the rarer (AUC); beside it the number of tokens alone. It reads no model but
its tokenizer. **Cause**, for so many of the answers: of each sentence whose gold quotations are of one passage, how
often is that passage the one whose removal lowers its probability most; beside it the passage with the longest common
run of words, and BM25's first. ``--model`` as the commands take it.

Without a file, the time that leaving out takes: an answer of 100 tokens, without each of five passages.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from decoders import Prompt, load_target
from decoders.study.attribute.evidence import evidence_sources, sentences
from decoders.study.attribute.quotes import QuotedAnswer, gold_tokens, read_quotesum
from decoders.study.attribute.rarity import token_bits
from decoders.study.attribute.text import TokenText
from decoders.study.attribute.without import ReadAnswer
from decoders.study.look.teacher_forcing import answer_ids
from decoders.trace.trace import Trace

WORD = re.compile(r"\w+|[^\w\s]")
K1, B = 1.2, 0.75  # BM25's usual constants


def text_trace(target: Any, gold: QuotedAnswer) -> Trace:
    """The prompt and the gold answer as a trace's tokens; nothing was decoded."""
    prompt, answer = gold.record().prompt(target.tokenizer), answer_ids(target, gold.answer)
    trace = Trace.new({
        "id": gold.id, "prompt_length": len(prompt.tokens), "method": {"name": "plain"}, "model": target.info
    })  # fmt: skip
    parts = [(s.name, s.passage) for s in prompt.segments for _ in range(s.start, s.stop)]
    parts += [("output", -1)] * len(answer)
    ids = [*prompt.tokens, *answer]
    names, passages = zip(*parts, strict=True)
    nowhere = [-1] * len(ids)
    trace.tables["tokens"] |= {
        "id": ids, "segment": [*names], "passage": [*passages], "source": nowhere, "pool": nowhere
    }  # fmt: skip
    pieces = {token: target.pieces.of(token) for token in ids}
    trace.tables["pieces"] = {
        "id": [*pieces], "hex": [data.hex() for data, _ in pieces.values()], "special": [s for _, s in pieces.values()]
    }  # fmt: skip
    return trace


def stop_phrases(gold: QuotedAnswer) -> Iterator[tuple[int, int]]:
    """Characters [start, stop) of the answer's runs of words outside of the quotes that stand in a source too."""
    edges = [0, *(edge for quote in gold.quotes for edge in (quote.start, quote.stop)), len(gold.answer)]
    sources = [f" {' '.join(WORD.findall(passage.casefold()))} " for passage in gold.passages]
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        words = [*WORD.finditer(gold.answer, low, high)]
        at = 0
        while at < len(words):
            length = next(
                (n for n in range(len(words) - at, 0, -1)
                 if any(f" {' '.join(w[0].casefold() for w in words[at : at + n])} " in text for text in sources)), 0,
            )  # fmt: skip
            if length:
                yield words[at].start(), words[at + length - 1].end()
            at += max(1, length)


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The share of pairs whose positive is the larger, ties counted half."""
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    return wins / (len(positive) * len(negative))


def rarity_rows(target: Any, examples: Sequence[QuotedAnswer]) -> list[tuple[str, float]]:
    """AUC of rarity and of the number of tokens, and how many runs of each kind there were."""
    numbers: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for gold in examples:
        trace = text_trace(target, gold)
        bits, text = token_bits(trace, trace.output_ids), TokenText(trace, trace.output_ids)
        quotes = [(quote.start, quote.stop) for quote in gold.quotes]
        for is_gold, spans in ((True, quotes), (False, [*stop_phrases(gold)])):
            for a, b in spans:
                tokens = [i for i in range(len(bits)) if text.starts[i] < b and text.stops[i] > a]
                numbers[is_gold].append((sum(bits[i] for i in tokens), len(tokens)))
    columns = [[[row[k] for row in numbers[is_gold]] for is_gold in (True, False)] for k in (0, 1)]
    return [
        ("gold quotations", len(numbers[True])), ("stop phrases", len(numbers[False])),
        ("AUC, rarity in bits", auc(*columns[0])), ("AUC, number of tokens", auc(*columns[1])),
    ]  # fmt: skip


def bm25(words: Sequence[str], passages: Sequence[Sequence[str]]) -> list[float]:
    """The score of each passage for some words."""
    mean = sum(map(len, passages)) / len(passages)
    counts = [Counter(passage) for passage in passages]
    scores = [0.0] * len(passages)
    for word in words:
        holding = sum(word in count for count in counts)
        weight = math.log(1 + (len(passages) - holding + 0.5) / (holding + 0.5))
        for k, count in enumerate(counts):
            scores[k] += weight * count[word] * (K1 + 1) / (count[word] + K1 * (1 - B + B * len(passages[k]) / mean))
    return scores


def cause_rows(target: Any, examples: Sequence[QuotedAnswer]) -> list[tuple[str, float]]:
    """The share of sentences whose gold passage each way names first."""
    hits, count, forwards = Counter[str](), 0, 0
    start = time.process_time()
    for gold in examples:
        trace = text_trace(target, gold)
        passage = gold_tokens(trace, gold)
        assert passage is not None, "a gold answer holds its own quotes"
        answer = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
        falls = [answer.without(source.at, reread=False).falls for source in evidence_sources(trace)]
        forwards += len(falls)
        words = [WORD.findall(text.casefold()) for text in gold.passages]
        for a, b in sentences(trace):
            homes = {int(n) for n in passage[a:b] if n >= 0}
            if len(homes) != 1 or len(falls) < 2:
                continue
            count += 1
            own = WORD.findall(trace.text(trace.output_ids[a:b]).casefold())
            runs = [SequenceMatcher(None, own, text, autojunk=False).find_longest_match().size for text in words]
            ways = {
                "largest fall without it": [sum(fall[a:b]) for fall in falls], "longest common run": runs,
                "BM25": bm25(own, words),
            }  # fmt: skip
            for name, scores in ways.items():
                hits[name] += scores.index(max(scores)) in homes
    seconds = (time.process_time() - start) / max(1, forwards)
    return [
        ("sentences quoting one passage", count), *((name, hits[name] / max(1, count)) for name in hits),
        ("processor seconds per passage left out", seconds),
    ]  # fmt: skip


def time_rows(target: Any, passages: int = 5, tokens: int = 100) -> list[tuple[str, float]]:
    """Seconds for an answer of so many tokens without each of so many passages, its first reading apart."""
    words = "the old lamp at the station was sold to the city museum where a new one stood for many years and".split()  # noqa: SIM905
    context = [" ".join(words[k:] * 8) for k in range(passages)]
    prompt = Prompt.from_segments(target.tokenizer, "Quote.", context, "What became of it?")
    answer_tokens = (answer_ids(target, " ".join(words * 8)) * 2)[:tokens]
    parts = [[at for s in prompt.segments if s.passage == k for at in range(s.start, s.stop)] for k in range(passages)]
    start = time.perf_counter()
    answer = ReadAnswer(target, prompt.tokens, answer_tokens)
    rows: list[tuple[str, float]] = [("prompt tokens", len(prompt.tokens)), ("answer tokens", len(answer_tokens))]
    rows.append(("seconds, read with all passages", time.perf_counter() - start))
    for name, reread in ((f"without each of {passages} passages: masked", False), ("… and read again", True)):
        start, processor_start = time.perf_counter(), time.process_time()
        for part in parts:
            answer.without(part, reread=reread)
        rows.append((f"seconds, {name}", time.perf_counter() - start))
        rows.append(("… of the processor", time.process_time() - processor_start))
    return rows


def main() -> int:
    parser = parser_of("attribution", __doc__)
    parser.add_argument("file", type=Path, nargs="?", help="answers with known quotes, in QuoteSum's form")
    parser.add_argument("--model", default="smollm2", help="as the commands take it (default: smollm2)")
    parser.add_argument("--causes", type=int, default=0, metavar="N", help="of so many answers the causes, too")
    args = parser.parse_args()
    target = load_target(args.model)
    examples, notes = read_quotesum(args.file) if args.file else ([], [])
    rows = rarity_rows(target, examples) if args.file else time_rows(target)
    if args.causes and examples:
        rows += cause_rows(target, examples[: args.causes])
    table = Table("what", "value", title=f"{args.file.name if args.file else 'leaving out'}, {target.name}")
    for name, value in rows:
        table.add_row(name, str(value) if isinstance(value, int) else f"{value:.3f}")
    console = Console()
    console.print(table)
    console.print("\n".join(notes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
