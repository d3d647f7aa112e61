"""The renderer's document of an attributed run: its links, and what they come to at every threshold."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from decoders.study.attribute.absent import claims
from decoders.study.attribute.attribution import (
    WAYS,
    Link,
    given_sources,
    links,
    passages,
    uncopied_spans,
    used_sources,
)
from decoders.study.attribute.evidence import sentences
from decoders.study.attribute.export import to_json
from decoders.study.attribute.quotes import QuotedAnswer, gold_json, score_links
from decoders.study.attribute.text import TokenText
from decoders.study.attribute.verbatim import quotations
from decoders.trace.trace import Trace
from specviz.markup import inert
from specviz.views.export import standalone_page
from specviz.views.known_quotes import quoted_answer

SCHEMA = "specattribution-page/1"


def answer_digest(trace: Trace) -> str:
    """The same for runs that wrote the same to the same prompt and passages."""
    tokens = trace.tables["tokens"]
    identity = (trace.run["prompt_length"], tokens["id"], tokens["passage"])
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def known_quotes(record: Any) -> QuotedAnswer | None:
    """Known quotes as they stand in a file beside a run; None where there are none."""
    try:
        return quoted_answer(record)
    except (TypeError, KeyError):
        return None


def document(
    trace: Trace, gold: QuotedAnswer | None = None, causes: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """All links of a run: "views" holds ``to_json`` at min_run 1 with its ``thresholds``, by every way to count
    (``WAYS``); "verbatim" the same of what stands in the sources by its text alone, whatever any signal says; "gold"
    the known quotes and how many tokens are quoted (None where there are none); "tokens" and "sentences" where these
    lie in the answer's text; "question" what was asked; "claims" its numbers, dates and names, and whether a source has
    them; ``causes``: what was found by reading it without its sources (``causes.read_without``).
    """
    run = trace.run
    quotes = gold_json(trace, gold) if gold is not None else None
    if quotes is not None:
        quotes["quoted_tokens"] = sum(passage >= -1 for passage in quotes["tokens"])

    texts: dict[Any, TokenText] = {}

    def draw(all_links: list[Link]) -> dict[str, Any]:
        export = to_json(trace, all_links, texts)
        return {**export, "thresholds": thresholds(trace, all_links, export["links"], gold)}

    text = TokenText(trace, trace.output_ids)
    return {
        "schema": SCHEMA, "title": str(run.get("title") or ""), "question": _question(trace),
        "method": run["method"]["name"], "gold": quotes,
        "tokens": [list(pair) for pair in zip(text.starts, text.stops, strict=True)],
        "sentences": [{"tokens": [a, b], "output": list(text.span(a, b))} for a, b in sentences(trace)],
        "claims": [dataclasses.asdict(claim) for claim in claims(trace)], "causes": list(causes),
        "views": {name: draw(links(trace, 1, **options)) for name, options in WAYS.items()},
        "verbatim": draw(quotations(trace)),
    }  # fmt: skip


def _question(trace: Trace) -> str:
    """The question about the passages, or else the instruction; "" for a chat and for plain text."""
    prompt_length, tokens = trace.run["prompt_length"], trace.tables["tokens"]
    for part in ("question", "instruction"):
        if ids := [tokens["id"][at] for at in range(prompt_length) if tokens["segment"][at] == part]:
            return trace.text(ids).strip()
    return ""


def thresholds(
    trace: Trace, all_links: Sequence[Link], rows: Sequence[Mapping[str, Any]], gold: QuotedAnswer | None = None
) -> list[dict[str, Any]]:
    """The outcome of links at each ``min_run`` that changes something, in rising order: the outcome of any threshold is
    that of the first entry with a ``min_run`` at least as large, or of the last entry, which has no link left.

    ``rows``: the same links as ``to_json`` has them. "sources" follow those of ``to_json``; "score" is None where no
    quotes are known, or the answer does not hold them.
    """
    given, sources = given_sources(trace), passages(trace, all_links)
    lengths = sorted({len(link) for link in all_links})
    outcomes = []
    for min_run in (*lengths, lengths[-1] + 1 if lengths else 1):
        kept_links = [link for link in all_links if len(link) >= min_run]
        score = score_links(trace, gold, kept_links) if gold is not None else None
        copied_tokens = sum(map(len, kept_links))
        outcomes.append({
            "min_run": min_run,
            "links": len(kept_links),
            "not_verbatim": sum(
                len(link) >= min_run and not row["verbatim"] for link, row in zip(all_links, rows, strict=True)
            ),
            "used_sources": used_sources(kept_links, given),
            "copied_tokens": copied_tokens,
            "own_tokens": len(trace.output_ids) - copied_tokens,
            "uncopied": uncopied_spans(kept_links, len(trace.output_ids)),
            "sources": [
                {name: getattr(share, name) for name in ("used_tokens", "copied_tokens", "links", "longest")}
                for share in (source.coverage(kept_links) for source in sources)
            ],
            "score": dataclasses.asdict(score) if score is not None else None,
        })  # fmt: skip
    return outcomes


def link_table(export: Mapping[str, Any]) -> str:
    """Links, as ``to_json`` has them, as CSV: one a row, with ``inert`` text."""
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\r\n")
    rows.writerow((
        "number", "source", "tokens", "bits", "verbatim", "output_start", "output_stop", "source_start", "source_stop",
        "text",
    ))  # fmt: skip
    for link in export["links"]:
        (start, stop), source = link["output_tokens"], export["sources"][link["source_index"]]
        rows.writerow((
            link["number"], inert(source["name"]), stop - start, link["bits"], link["verbatim"], *link["output"],
            *link["source"], inert(link["text"]),
        ))  # fmt: skip
    return lines.getvalue()


def standalone(
    signals: Sequence[Mapping[str, Any]], min_run: int = 2, counted: str = "words", min_bits: float = 0
) -> str:
    """Attributions of one answer as one HTML page that works from disk: renderer, style and links in one, no request.
    ``signals`` are ``document``s, shown side by side.
    """
    settings = {"signals": list(signals), "minRun": int(min_run), "minBits": min_bits, "counted": counted}
    return standalone_page(
        f"{signals[0].get('title') or 'answer'} · attribution",
        '<main id="attribution"><noscript>This page draws the links with JavaScript.</noscript></main>',
        ("attribution-data", settings),
        entry="specviz/attribution/standalone.js",
    )
