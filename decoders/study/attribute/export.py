"""Attributions as JSON and as Markdown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from decoders.errors import capital
from decoders.trace.trace import Trace

from .attribution import (
    SCHEMA,
    Kind,
    Link,
    _Source,
    given_sources,
    passages,
    signal,
    uncopied_spans,
    used_sources,
    verbatim,
)
from .rarity import token_bits
from .text import TokenText


def to_json(
    trace: Trace, copies: Sequence[Link], texts: dict[tuple[Kind, int], TokenText] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Links with character offsets (counted in Unicode code points), as JSON holds them.

    ``output`` is the answer's text. Each of ``sources`` has its ``text`` and its coverage; each of ``links`` has
    "output" and "source", characters [a, b) of the answer and of the text of its source (``source_index`` in
    ``sources``), the same in tokens, whether it is verbatim, and how rare its words are ("bits": ``rarity``).
    ``uncopied`` lists the rest of the answer. ``texts`` keeps the sources' texts from one call for the next.
    """
    source_map, text = _Source(trace), TokenText(trace, trace.output_ids)
    sources = passages(trace, copies)
    texts = {} if texts is None else texts
    for source in sources:
        if source.home not in texts:
            texts[source.home] = TokenText(trace, source.ids)
    index = {source.home: i for i, source in enumerate(sources)}
    rows, bits = [], token_bits(trace, trace.output_ids)
    for number, link in enumerate(copies, 1):
        i = index[link.home]
        (a, b), (c, d) = text.span(link.start, link.stop), texts[link.home].span(*sources[i].tokens(link))
        rows.append({
            "number": number, "kind": link.kind, "passage": link.passage, "source_index": i, "output": [a, b],
            "source": [c, d], "output_tokens": [link.start, link.stop],
            "source_tokens": [link.source, link.source_stop], "text": text.text[a:b],
            "source_text": texts[link.home].text[c:d], "verbatim": verbatim(trace, link, source_map),
            "bits": round(sum(bits[link.start : link.stop]), 1),
        })  # fmt: skip
    given = given_sources(trace)
    length, run, method = len(trace.output_ids), trace.run, trace.run["method"]
    about = {
        "id": run["id"], "title": run.get("title", ""), "method": method["name"],
        "method_title": method.get("title") or method["name"], "signal": signal(trace),
        "model": run["model"].get("name", ""), "forced": bool(run.get("forced", False)),
    }  # fmt: skip
    return {
        "schema": SCHEMA, "run": about, "output": text.text, "output_tokens": length,
        "given_sources": len(given), "used_sources": used_sources(copies, given),
        "copied_tokens": sum(len(link) for link in copies), "verbatim": all(row["verbatim"] for row in rows),
        "sources": [
            {"name": source.name, "text": texts[source.home].text, **asdict(source.coverage(copies))}
            for source in sources
        ],
        "links": rows,
        "uncopied": [
            {"output": [*text.span(start, stop)], "output_tokens": [start, stop]}
            for start, stop in uncopied_spans(copies, length)
        ],
    }  # fmt: skip


def split_by_link(trace: Trace, copies: Sequence[Link]) -> Iterator[tuple[str, Link | None]]:
    """The answer in parts, with the link that each was copied by (None: nobody copied it); no character twice."""
    text, cursor = TokenText(trace, trace.output_ids), 0
    for link in copies:
        start, stop = text.span(link.start, link.stop)
        start = max(start, cursor)
        if stop <= start:
            continue
        if start > cursor:
            yield text.text[cursor:start], None
        yield text.text[start:stop], link
        cursor = stop
    if cursor < len(text.text):
        yield text.text[cursor:], None


def markdown(trace: Trace, copies: Sequence[Link]) -> str:
    """The answer as Markdown: copied spans in square brackets, with a footnote per source that lists what was taken
    from it and where, in characters of its text. Everything the model or the prompt said is escaped.
    """
    sources = {source.home: source for source in passages(trace, copies)}
    source_map, notes = _Source(trace), dict[tuple[Kind, int], int]()
    body = ""
    for part, link in split_by_link(trace, copies):
        if link is None:
            body += _escape(part, body)
            continue
        note = notes.setdefault(link.home, len(notes) + 1)
        core = part.strip()
        lead, tail = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :] if core else ""
        body += _escape(lead, body)
        if core:
            body += "\\[" + _escape(core, body + "[") + f"\\][^{note}]"
        body += _escape(tail, body)
    lines = [body.rstrip() or "*(no text)*", ""]
    for home, note in notes.items():
        source = sources[home]
        share, text, quotes = source.coverage(copies), TokenText(trace, source.ids), []
        for link in copies:
            if link.home == home:
                a, b = text.span(*source.tokens(link))
                false = "" if verbatim(trace, link, source_map) else " (not verbatim)"
                quotes.append(f"“{_escape(' '.join(text.text[a:b].split()), 'x')}” ({a}–{b}){false}")
        name = capital(source.name)
        lines.append(f"[^{note}]: {name}, {share.used_tokens} of {share.tokens} tokens used: {'; '.join(quotes)}")
    return "\n".join(lines).rstrip() + "\n"


_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def _escape(text: str, prefix: str) -> str:
    """Text as Markdown that shows just that: punctuation escaped, line ends kept, ``prefix`` it stands ``prefix``."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text)
    text = _PUNCTUATION.sub(r"\\\1", text)
    at_start = not prefix or prefix.endswith("\n")
    lines = []
    for number, line in enumerate(text.split("\n")):
        if number or at_start:  # blanks that begin a line could make it a block of code
            bare = line.lstrip(" \t")
            line = line[: len(line) - len(bare)].replace(" ", "&#32;").replace("\t", "&#9;") + bare
        lines.append(line)
    return "\\\n".join(lines)
