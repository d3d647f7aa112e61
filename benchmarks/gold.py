"""Gold quotations: F1 by minimum length, and agreement of causes with gold passages, beside baselines, in one table.

``python -m benchmarks.gold QUOTESUM --answers 20``. The gold answers are read as they are given. **F1**: of the tokens
that a way links to a passage, in spans of at least so many tokens, against those that are quoted. **Agreement**: of the
gold quotations of answers with two passages or more, the share whose passage the way names first, by its score summed
over the quotation's tokens; none named counts as a miss. Ways:

- *every token* linked: what the share of quoted tokens alone gives;
- *text alone*, *longest common run* (of each sentence with each passage), *BM25* (the first passage of each sentence);
- *pld+h*: whole words, whole quotations, drafted tokens;
- *attention rollout*, as inseq has it (heads averaged, half of each row its own): the passage with the most of a token;
- *one left out*: the fall of log p without a passage; a token is linked where it becomes half as likely;
- *32 subsets*: the sparse linear fit over random subsets of the passages, of each quotation's log p.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from benchmarks.attribution import WORD, bm25
from decoders import load_target
from decoders.study.attribute.ablations import SUBSETS, logp_without, sparse_fit, subsets
from decoders.study.attribute.attribution import WAY_WORDS, WAYS, Link, link_mask, links
from decoders.study.attribute.evidence import evidence_sources, sentences
from decoders.study.attribute.quotes import QuotedAnswer, gold_tokens, read_quotesum, token_score
from decoders.study.attribute.text import TokenText
from decoders.study.attribute.verbatim import quotations
from decoders.study.attribute.without import ReadAnswer
from decoders.study.look.teacher_forcing import answer_ids, forced_trace
from decoders.trace.trace import Trace

MIN_RUNS = (2, 5, 8)
HALF = math.log(2)


def linked_scores(found: Sequence[Link], passages: int, length: int) -> np.ndarray:
    """1 where a token is linked to a passage ``[passages, length]``."""
    scores = np.zeros((passages, length))
    for link in found:
        if link.kind == "context":
            scores[link.passage, link.start : link.stop] = 1
    return scores


def text_ways(trace: Trace, gold: QuotedAnswer) -> dict[str, list[Link]]:
    """Links by the text, and by what PLD+ copied."""
    common, ranked = list[Link](), list[Link]()
    texts, answer = [WORD.findall(text.casefold()) for text in gold.passages], TokenText(trace, trace.output_ids)
    for start, stop in sentences(trace):
        low, high = answer.span(start, stop)
        words = [*WORD.finditer(answer.text, low, high)]
        own = [word[0].casefold() for word in words]
        matches = [SequenceMatcher(None, own, text, autojunk=False).find_longest_match() for text in texts]
        best = max(range(len(texts)), key=lambda k: matches[k].size)
        if match := matches[best].size and matches[best]:
            edges = words[match.a].start(), words[match.a + match.size - 1].end()
            inside = [k for k in range(start, stop) if answer.core(k)[0] < edges[1] and answer.core(k)[1] > edges[0]]
            common.append(Link(inside[0], inside[-1] + 1, 0, 0, best, "context"))
        if own:
            order = bm25(own, texts)
            ranked.append(Link(start, stop, 0, 0, order.index(max(order)), "context"))
    ways = {"text alone": quotations(trace), "longest common run": common, "BM25 per sentence": ranked}
    return ways | {f"pld+h, {WAY_WORDS[name]}": links(trace, 1, **options) for name, options in WAYS.items()}


def rollout(target: Any, trace: Trace) -> np.ndarray:
    """Attention rollout from each answer token's row to each passage ``[passages, length]``."""
    ids = trace.tables["tokens"]["id"]
    with torch.inference_mode(), target.by_own_attention():
        layers = target.model(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    flow = torch.eye(len(ids))
    for layer in layers:
        mean = layer[0].float().mean(0)
        flow = (mean / 2 + torch.eye(len(ids)) / 2) @ flow
    rows = flow[len(trace.prompt_ids) - 1 : len(ids) - 1]
    return np.stack([rows[:, list(source.at)].sum(1).numpy() for source in evidence_sources(trace)])


def span_mask(scores: np.ndarray, min_run: int, threshold: float = 0.0) -> np.ndarray:
    """Tokens linked to their best passage, in spans of at least so many tokens of one passage."""
    best = np.where(scores.max(0) > threshold, scores.argmax(0), -1)
    linked, start = np.zeros(len(best), dtype=bool), 0
    for stop in range(1, len(best) + 1):
        if stop == len(best) or best[stop] != best[start]:
            linked[start:stop] = best[start] >= 0 and stop - start >= min_run
            start = stop
    return linked


def quotation_spans(gold: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, stop, passage) of the quotations in tokens; those of no given passage left out."""
    edges = [0, *(k for k in range(1, len(gold)) if gold[k] != gold[k - 1]), len(gold)]
    return [(a, b, int(gold[a])) for a, b in itertools.pairwise(edges) if gold[a] >= 0]


def measure(target: Any, examples: Sequence[QuotedAnswer], console: Console) -> tuple[dict[str, Any], int, float]:
    """F1s and agreements by way, the number of quotations, and seconds per passage left out."""
    f1: dict[str, list[list[float]]] = defaultdict(list)
    hits: dict[str, int] = defaultdict(int)
    count, forwards, seconds = 0, 0, 0.0
    for number, example in enumerate(examples, 1):
        prompt = example.record().prompt(target.tokenizer)
        trace = forced_trace(target, prompt, answer_ids(target, example.answer), "pld+h")
        gold = gold_tokens(trace, example)
        assert gold is not None, "a gold answer holds its own quotes"
        linked = text_ways(trace, example)
        ways = {name: linked_scores(found, len(example.passages), len(gold)) for name, found in linked.items()}
        ways["attention rollout"] = rollout(target, trace)
        answer, sources = ReadAnswer(target, trace.prompt_ids, trace.output_ids), evidence_sources(trace)
        f1["every token"].append([token_score(np.ones(len(gold), dtype=bool), gold >= -1).f1] * len(MIN_RUNS))
        begun = time.perf_counter()
        ways["one left out"] = np.stack([answer.logp - logp_without(answer, [source]) for source in sources])
        seconds, forwards = seconds + time.perf_counter() - begun, forwards + len(sources)
        for name, scores in ways.items():
            threshold = HALF if name == "one left out" else 0.0
            masks = [
                link_mask([link for link in linked[name] if len(link) >= n], len(gold)) >= -1
                if name in linked
                else span_mask(scores, n, threshold)
                for n in MIN_RUNS
            ]
            f1[name].append([token_score(found, gold >= -1).f1 for found in masks])
        spans = quotation_spans(gold) if len(sources) > 1 else []
        if spans:
            kept = subsets(len(sources), SUBSETS)
            pairs = [[s for s, is_kept in zip(sources, row, strict=True) if not is_kept] for row in kept]
            logp = np.array([logp_without(answer, left_out) for left_out in pairs])
            for start, stop, passage in spans:
                count += 1
                fit, _ = sparse_fit(kept, logp[:, start:stop].sum(1), stop - start)
                named = {f"{SUBSETS} subsets": fit, **{w: s[:, start:stop].sum(1) for w, s in ways.items()}}
                for name, scores in named.items():
                    hits[name] += bool(scores.max() > 0 and scores.argmax() == passage)
        console.print(f"{number} of {len(examples)}: {count} quotations", highlight=False)
    rows = {
        name: (
            [float(np.mean(column)) for column in zip(*f1[name], strict=True)] if name in f1 else None, hits.get(name),
        )
        for name in dict.fromkeys([*f1, *hits])
    }
    return rows, count, seconds / max(1, forwards)


def main() -> int:
    parser = parser_of("gold", __doc__)
    parser.add_argument("file", type=Path, help="answers with known quotes, in QuoteSum's form")
    parser.add_argument("--model", default="smollm2", help="as the commands take it (default: smollm2)")
    parser.add_argument("--answers", type=int, default=20, metavar="N", help="so many of them (default: 20)")
    args = parser.parse_args()
    target, console = load_target(args.model), Console()
    examples, notes = read_quotesum(args.file, args.answers)
    rows, count, seconds = measure(target, examples, console)
    heads = ("way", *(f"F1, {n} tokens" for n in MIN_RUNS), f"agreement, {count} quotations")
    table = Table(*heads, title=f"{args.file.name}, {len(examples)} answers, {target.name}")
    for name, (scores, right) in rows.items():
        texts = ["–"] * len(MIN_RUNS) if scores is None else [f"{score:.3f}" for score in scores]
        table.add_row(name, *texts, "–" if right is None else f"{right / max(1, count):.3f}")
    console.print(table)
    console.print(f"{seconds:.2f} s per passage left out (masked, the answer read once more)", *notes, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
