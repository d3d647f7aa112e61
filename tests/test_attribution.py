"""Attribution: links from an output to what it was copied from, their characters, and scores against known quotes."""

from __future__ import annotations

import copy
import html
import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from decoders import Prompt, UserError, record
from decoders.study.attribute import attribution
from decoders.study.attribute import export as attribution_export
from decoders.study.attribute.attribution import Link, given_sources, link_mask, links, uncopied_spans, verbatim
from decoders.study.attribute.demo_quotes import demo_quotes
from decoders.study.attribute.export import split_by_link, to_json
from decoders.study.attribute.quotes import (
    Quote,
    QuotedAnswer,
    gold_tokens,
    locate,
    parse_quotes,
    parse_quotesum,
    parse_rows,
    read_quotesum,
    score_links,
    sweep,
    token_score,
)
from decoders.study.attribute.rarity import token_bits
from decoders.study.attribute.text import TokenText, grapheme_breaks
from decoders.study.attribute.verbatim import quotations
from decoders.study.look.teacher_forcing import answer_ids, check_answer, forced_trace
from decoders.trace.check import check
from decoders.trace.trace import Trace

from .models import prompt_ids, tiny_target
from .recordings import NASTY, append, earlier_run

QUOTESUM = Path(__file__).resolve().parents[2] / "shared" / "data" / "quotesum_a.jsonl"
FAMILY, FLAGS, THUMB, ACCENT = "👩‍👩‍👧", "🇩🇪🇫🇷", "👍🏽", "e\u0301"


def trace_of(
    parts: Sequence[tuple[str, int, Sequence[str | bytes]]],
    output: Sequence[tuple[str | bytes, int]],
    pool: Sequence[tuple[int, str, int]] = (),
    pooled: dict[int, int] | None = None,
) -> Trace:
    """A trace's tokens alone: prompt parts (segment, passage, pieces), output (piece, source), the pool's rows (place,
    piece, passage) and, by output token, places in it.
    """
    known: dict[bytes, int] = {}

    def number(piece: str | bytes) -> int:
        return known.setdefault(piece.encode() if isinstance(piece, str) else piece, len(known))

    rows = [(number(p), segment, passage, -1, -1) for segment, passage, pieces in parts for p in pieces]
    trace = Trace.new({
        "id": "made", "title": "made", "prompt_length": len(rows), "method": {"name": "pld+h"}, "model": {"name": "m"},
    })  # fmt: skip
    rows += [(number(p), "output", -1, s, (pooled or {}).get(i, -1)) for i, (p, s) in enumerate(output)]
    for name, values in zip(("id", "segment", "passage", "source", "pool"), zip(*rows, strict=True), strict=True):
        trace.tables["tokens"][name] = list(values)
    for place, piece, passage in pool:
        for name, value in (("position", place), ("id", number(piece)), ("passage", passage)):
            trace.tables["pool"][name].append(value)
    trace.tables["pieces"] = {
        "id": list(known.values()),
        "hex": [piece.hex() for piece in known],
        "special": [piece.startswith(b"<|") for piece in known],
    }
    return trace


def two_passages(output: Sequence[tuple[str | bytes, int]]) -> Trace:
    """Positions: 0 an instruction; 1-4 "the old lamp fell"; 5-8 " a new lamp stood"; 9 a question."""
    passages = [("context", 0, ["the", " old", " lamp", " fell"]), ("context", 1, [" a", " new", " lamp", " stood"])]
    return trace_of([("instruction", -1, ["Quote."]), *passages, ("question", -1, [" Which?"])], output)


# --- links ------------------------------------------------------------------------------------------------------------


def test_runs_end_where_the_source_jumps_or_changes_its_passage():
    said = [("the", -1), (" old", 2), (" lamp", 3), (" fell", 4), (" a", 5), (" new", 6), (" lamp", 3)]
    trace = two_passages(said)
    assert links(trace, 1, whole=False) == [
        Link(1, 4, 2, 5, 0, "context"), Link(4, 6, 5, 7, 1, "context"), Link(6, 7, 3, 4, 0, "context"),
    ]  # fmt: skip
    assert [link.start for link in links(trace, 2, whole=False)] == [1, 4]
    assert [link.start for link in links(trace, 3, whole=False)] == [1]
    assert links(trace, 4, whole=False) == []
    assert all(verbatim(trace, link) for link in links(trace, 1, whole=False))
    with pytest.raises(ValueError, match="min_run=0"):
        links(trace, 0, whole=False)


def test_quotations_are_found_by_their_text_alone():
    """No token says where it came from: the longest run of words wins, whatever cuts them, and case counts."""
    trace = two_passages([(" A", -1), (" new", -1), (" la", -1), ("mp", -1), (" stood", -1), (",", -1), ("the", -1),
                          (" old", -1), (" lamp", -1), (" stood", -1)])  # fmt: skip
    assert links(trace, 1) == []
    found = quotations(trace)
    assert found == [Link(1, 5, 6, 9, 1, "context"), Link(6, 9, 1, 4, 0, "context")]
    assert all(verbatim(trace, link) for link in found)
    assert quotations(two_passages([(" lamp", -1), (" Which", -1)])) == []  # a word is none; nor is what is no passage


def test_used_sources_are_counted_in_one_place():
    """The defect: "2 of 3 passages used" stood above "4 of 4 used"; a pool's unused passages did not count."""
    parts = [("context", n, [f"w{n}", " x"]) for n in range(3)]
    trace = trace_of(parts, [("w0", 0), (" x", 1), (" z", -1)])
    assert given_sources(trace) == {("context", 0), ("context", 1), ("context", 2)}
    export = to_json(trace, links(trace, 1))
    assert (export["used_sources"], export["given_sources"]) == (1, 3)
    pool = [(0, "a", 0), (1, " b", 1), (2, " c", 2)]
    pooled = trace_of([("text", -1, ["q"])], [("a", -1), (" b", -1)], pool, {0: 0, 1: 1})
    assert (to_json(pooled, links(pooled, 1))["used_sources"], len(given_sources(pooled))) == (2, 3)
    assert given_sources(trace_of([("chat", -1, ["q"])], [])) == {("turn", 0)}


def test_rarity_is_of_words_by_their_place_in_the_vocabulary():
    trace = two_passages([("the", -1), (" ,", -1), (" lamp", -1), ("<|end|>", -1)])
    trace.run["model"] = {"name": "m", "vocab": 1000}
    the, comma, lamp, end = token_bits(trace, trace.output_ids)
    ids = dict(zip(("the", " lamp"), (trace.output_ids[0], trace.output_ids[2]), strict=True))
    assert comma == end == 0 and the == pytest.approx(math.log2((ids["the"] + 1) * math.log(1000)))
    assert lamp - the == pytest.approx(math.log2((ids[" lamp"] + 1) / (ids["the"] + 1)))


def test_function_words_and_punctuation_are_no_quotations():
    """The defect: ", the" and a line end were drawn as loud as a copied name."""
    trace = two_passages([("the", 1), (",", -1), (" old", 2), (" the", -1), (" lamp", 3), (" fell", 4)])
    assert [link.start for link in links(trace, 1, words=True)] == [2, 4]
    comma = trace_of([("context", 0, ["x", ",", " the", " end"])], [("y", -1), (",", -1), (" the", -1), (".", -1)])
    assert quotations(comma) == []


def test_without_passages_the_turns_are_the_sources_and_not_the_template():
    parts = [("template", -1, ["hello", " there"]), ("chat", -1, ["say", " it", " again"])]
    trace = trace_of(parts, [("say", -1), (" it", -1), (".", -1), ("hello", -1), (" there", -1)])
    assert quotations(trace) == [Link(0, 2, 2, 4, 0, "turn")]


@given(st.lists(st.sampled_from("abc"), max_size=14), st.lists(st.sampled_from("abc"), max_size=14))
def test_quotations_are_as_long_as_any_in_the_source(said: list[str], source: list[str]):
    """Against every run of words of the source, one by one."""
    trace = trace_of([("context", 0, [f" {word}" for word in source] or [" z"])], [(f" {word}", -1) for word in said])
    runs = {tuple(source[a:b]) for a in range(len(source)) for b in range(a + 2, len(source) + 1)}
    at, expected = 0, []
    while at < len(said):
        most = max((n for n in range(2, len(said) - at + 1) if tuple(said[at : at + n]) in runs), default=0)
        expected += [(at, at + most)] if most else []
        at += max(1, most)
    assert [(link.start, link.stop) for link in quotations(trace)] == expected


def test_kinds_and_what_no_one_copied():
    trace = trace_of(
        [("instruction", -1, ["Say", " it"]), ("context", 0, ["x"])],
        [("Say", 0), (" it", 1), (" up", -1), ("Say", 3), (" it", 4), (" p", -1), (" q", -1)],
        [(40, " p", 2), (41, " q", 2), (42, " r", 3)],
        {5: 40, 6: 41},
    )
    found = links(trace, 2, whole=False)
    assert [(link.kind, link.passage) for link in found] == [("prompt", -1), ("output", -1), ("pool", 2)]
    assert uncopied_spans(found, 7) == [(2, 3)] and uncopied_spans([], 2) == [(0, 2)] and uncopied_spans([], 0) == []
    assert link_mask(found, 7).tolist() == [-2, -2, -2, -2, -2, 2, 2]
    shares = {source.home: source.coverage(found) for source in attribution.passages(trace, found)}
    assert list(shares) == [("context", 0), ("pool", 2), ("prompt", -1), ("output", -1)]
    assert shares["context", 0].copied_tokens == 0
    assert shares["pool", 2].used_tokens == 2 and shares["pool", 2].longest == 2


def test_a_source_that_says_something_else_is_not_verbatim():
    trace = two_passages([("the", 1), (" new", 2), (" lamp", 3)])
    [link] = links(trace, 2, whole=False)
    assert not verbatim(trace, link)
    assert to_json(trace, [link])["verbatim"] is False
    assert "(not verbatim)" in attribution_export.markdown(trace, [link])


def test_special_tokens_are_verbatim_only_where_they_are_the_same():
    trace = trace_of([("context", 0, ["<|a|>", "<|b|>", " "])], [("<|a|>", 0), ("<|c|>", 1), (" ", 2), ("\n", -1)])
    assert verbatim(trace, Link(0, 1, 0, 1, 0, "context")) and verbatim(trace, Link(2, 3, 1, 3, 0, "context"))
    assert not verbatim(trace, Link(1, 2, 1, 2, 0, "context")) and not verbatim(trace, Link(3, 4, 2, 3, 0, "context"))


def test_whole_quotations_take_in_what_the_source_says_beside_the_run():
    # "old lamp" was written by the target, of other tokens than the source's; then "fell" was drafted
    trace = two_passages([("“", -1), ("old", -1), (" la", -1), ("mp", -1), (" fell", 4), ("”", -1), ("<|end|>", -1)])
    assert links(trace, 2, whole=False) == [] and links(trace, 1, whole=False) == [Link(4, 5, 4, 5, 0, "context")]
    [link] = links(trace, 2, whole=True)
    assert link == Link(1, 5, 2, 5, 0, "context") and verbatim(trace, link)
    row = to_json(trace, [link])["links"][0]
    assert (row["text"], row["source_text"], row["source"]) == ("old lamp fell", " old lamp fell", [3, 17])


def test_whole_quotations_join_over_the_targets_token_and_stay_in_their_passage():
    said = [("the", -1), (" old", 2), (" lamp", -1), (" fell", 4), (" a", -1), (" new", -1)]
    assert links(two_passages(said), 2, whole=True) == [Link(0, 4, 1, 5, 0, "context")]
    # the run of the second passage keeps what it has; the first cannot grow into it
    said = [(" a", 5), (" new", 6), (" lamp", -1), (" old", 2), (" lamp", 3)]
    assert [(k.start, k.stop) for k in links(two_passages(said), 2, whole=True)] == [(0, 3), (3, 5)]


def test_whole_quotations_follow_copies_of_copies():
    said = [(" old", 2), (" lamp", 3), (";", -1), ("!", -1), (" old", 10), (" lamp", 11), (";", 12), ("!", 13)]
    trace = two_passages(said)
    assert [link.kind for link in links(trace, 2, whole=False)] == ["context", "output"]
    assert [(k.kind, k.start, k.stop) for k in links(trace, 2, whole=True)] == [
        ("context", 0, 2), ("context", 4, 6), ("output", 6, 8),
    ]  # fmt: skip


def test_copies_of_the_answer_are_traced_on_to_what_its_grown_links_were_copied_from():
    # the target itself wrote "the"; the second "the" was drafted from that one, and the passage goes on
    said = [("the", -1), (" old", 2), (" lamp", 3), (";", -1), ("the", 10), (" old", 2), (" lamp", 3), (" fell", 4)]
    trace = two_passages(said)
    assert [(k.kind, k.start, k.stop) for k in links(trace, 1, whole=False)][1] == ("output", 4, 5)
    found = links(trace, 1)
    assert found == [Link(0, 3, 1, 4, 0, "context"), Link(4, 8, 1, 5, 0, "context")]
    assert all(verbatim(trace, link) for link in found)


def glimpses(looks: Sequence[tuple[int, int, int, float]]) -> Trace:
    """``two_passages`` by a draft model: one step drafts " lamp", " fell", " new" after "the" and " old"; ``looks`` are
    (node, head, position, weight).
    """
    trace = two_passages([("the", -1), (" old", -1), (" lamp", -1), (" fell", -1), (" new", -1), (".", -1)])
    ids, first = trace.tables["tokens"]["id"], trace.run["prompt_length"]
    for column, values in {"step": [0, 1], "context": [first + 1, first + 2], "depth": [0, 3]}.items():
        if column in trace.tables["steps"]:
            trace.tables["steps"][column] = values
    rows = [(0, ids[first], -1, 0, "root"), (1, ids[first + 1], -1, 0, "root")]
    rows += [(1, ids[first + 2 + k], k, k + 1, "accepted") for k in range(3)]
    rows += [(1, ids[first], 0, 1, "rejected")]
    for name, values in zip(("step", "token", "parent", "depth", "status"), zip(*rows, strict=True), strict=True):
        trace.tables["nodes"][name] = list(values)
    for node, head, position, weight in looks:
        append(trace, "attention", {
            "step": 1, "node": node, "layer": 1, "head": head, "position": position, "weight": weight,
        })  # fmt: skip
    return trace


def test_where_a_draft_model_looked_is_where_it_copied_from():
    # " lamp" stands at 3 and 7, " fell" at 4, " new" at 6
    trace = glimpses([
        (0, -1, 3, 0.5), (0, -1, 7, 0.4), (0, 0, 7, 0.9),  # the mean over heads says 3
        (1, -1, 3, 0.6),  # it looked right before " fell"
        (2, -1, 2, 0.7), (2, -1, 6, 0.1),  # it looked elsewhere
    ])  # fmt: skip
    first = trace.run["prompt_length"]
    assert attribution.signal(trace) == "attention"
    assert attribution.attended_sources(trace)[first:] == [-1, -1, 3, 4, -1, -1]
    assert links(trace, 1, whole=False) == [Link(2, 4, 3, 5, 0, "context")]
    assert links(trace, 2) == [Link(0, 4, 1, 5, 0, "context")]
    assert all(verbatim(trace, link) for link in links(trace, 1))
    assert to_json(trace, links(trace, 2))["run"]["signal"] == "attention"
    tied = glimpses([(0, -1, 7, 0.5), (0, -1, 3, 0.5)])
    assert attribution.attended_sources(tied)[first + 2] == 3  # the earliest of equal weights
    assert attribution.signal(glimpses([])) == "" and links(glimpses([]), 1) == []


@pytest.mark.parametrize("name", ["13-docstring-glide-cape", "14-add-sentence-glide-sampled"])
def test_a_draft_models_looks_name_sources_that_carry_the_same_token(name: str):
    trace = earlier_run(name)
    ids, found = trace.tables["tokens"]["id"], attribution.attended_sources(trace)
    named = [(position, at) for position, at in enumerate(found) if at >= 0]
    assert named and all(at < position and ids[at] == ids[position] for position, at in named)
    assert all(trace.tables["tokens"]["kind"][position] == "accepted" for position, _ in named)


def test_links_of_any_trace_are_ordered_disjoint_and_honest(trace: Trace):
    length = len(trace.output_ids)
    source, first = trace.tables["tokens"]["source"], trace.run["prompt_length"]
    copied = sum(s >= 0 for s in source[first:])
    assert sum(len(link) for link in links(trace, 1, whole=False)) == copied
    for whole in (False, True):
        found = links(trace, 2, whole=whole)
        edges = [0, *(edge for link in found for edge in (link.start, link.stop)), length]
        assert edges == sorted(edges) and all(len(link) >= 2 for link in found)
        assert all(verbatim(trace, link) for link in found)
        rest = sum(stop - start for start, stop in uncopied_spans(found, length))
        assert rest + sum(map(len, found)) == length
        document = to_json(trace, found)
        json.dumps(document)
        for row in document["links"]:
            assert document["output"][slice(*row["output"])] == row["text"]
            assert document["sources"][row["source_index"]]["text"][slice(*row["source"])] == row["source_text"]
        assert "".join(part for part, _ in split_by_link(trace, found)) == document["output"]
        assert [link for link in links(trace, 1, whole=whole) if len(link) >= 5] == links(trace, 5, whole=whole)
        assert document["output"] == trace.text(trace.output_ids)


# --- characters -------------------------------------------------------------------------------------------------------


def test_graphemes_are_not_cut():
    for text in (FAMILY, THUMB, ACCENT, "\r\n", "한", "\u1112\u1161\u11ab", "🏴\U000e0067\U000e0062\U000e007f"):
        assert grapheme_breaks(text) == [0, len(text)], ascii(text)
    assert grapheme_breaks(FLAGS) == [0, 2, 4] and grapheme_breaks("") == [0]
    assert grapheme_breaks("한국") == [0, 1, 2] and grapheme_breaks("\n\u0301") == [0, 1, 2]


def test_a_character_split_over_tokens_belongs_to_each_of_them_whole():
    data = f"a{FAMILY}b".encode()
    cuts = [0, 3, 9, len(data) - 2, len(data)]
    pieces = [data[i:j] for i, j in pairwise(cuts)]
    trace = trace_of([("context", 0, pieces)], [(piece, i) for i, piece in enumerate(pieces)])
    text = TokenText(trace, trace.output_ids)
    assert text.text == f"a{FAMILY}b"
    assert [text.text[slice(*text.span(i, i + 1))] for i in range(4)] == ["a" + FAMILY, FAMILY, FAMILY, FAMILY + "b"]
    parts = list(split_by_link(trace, [Link(1, 2, 1, 2, 0, "context"), Link(2, 4, 2, 4, 0, "context")]))
    assert "".join(part for part, _ in parts) == text.text and len(parts) == 3


def test_bytes_that_are_no_character_and_special_tokens():
    trace = trace_of([("context", 0, [b"\xe2\x82", b"\xacx", b"\xe2", b"y\xff", "<|end|>", b"\xf0\x9f"])], [("z", -1)])
    text = TokenText(trace, trace.prompt_ids)
    assert text.text == "€x�y��" == trace.text(trace.prompt_ids)
    spans = [text.text[slice(*text.span(i, i + 1))] for i in range(6)]
    assert spans == ["€", "€x", "�", "y�", "", "�"]


@given(st.lists(st.binary(min_size=0, max_size=5), min_size=1, max_size=12))
def test_token_text_is_the_decoded_bytes(pieces: list[bytes]):
    trace = trace_of([("context", 0, list(pieces))], [("z", -1)])
    text = TokenText(trace, trace.prompt_ids)
    special = [piece.startswith(b"<|") for piece in pieces]
    said = b"".join(p for p, s in zip(pieces, special, strict=True) if not s)
    assert text.text == said.decode("utf-8", "replace")
    ends = [text.span(i, i + 1) for i in range(len(pieces))]
    assert all(a <= b for a, b in ends) and all(x[0] <= y[1] for x, y in pairwise(ends))


# --- Markdown ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        NASTY,
        "# no\n\n- list\n    code\n1. one\n> said ***it*** `x` [a](http://b) ![c](d) <i>&amp; www.e.f",
        "a|b\n-|-\n| ~~s~~ [^1]: note\n===\n\\ \n\ttab",
        "   \n\n  ",
    ],
)
def test_markdown_shows_the_text_and_nothing_but_the_text(text: str):
    pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
    trace = trace_of([("context", 0, list(pieces))], [(piece, i if i > 1 else -1) for i, piece in enumerate(pieces)])
    found = links(trace, 2, whole=False)
    parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    page = parser.render(attribution_export.markdown(trace, found))
    assert set(re.findall(r"</?(\w+)", page)) <= ({"p", "br"} if text.strip() else {"p", "br", "em"})
    body = html.unescape(re.sub(r"<[^>]*>", "", page.split("</p>")[0]))
    shown = "".join(
        f"[{part.strip()}][^1]" if link and part.strip() else part for part, link in split_by_link(trace, found)
    )
    plain = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", "\ufffd", shown)
    if text.strip():
        assert "".join(body.split()) == "".join(plain.split())


def test_markdown_has_one_footnote_per_source():
    said = [(" old", 2), (" lamp", 3), (",", -1), (" a", 5), (" new", 6), (" and", -1), (" lamp", 3), (" fell", 4)]
    trace = two_passages(said)
    text = attribution_export.markdown(trace, links(trace, 2, whole=False))
    assert text.startswith("&#32;\\[old lamp\\][^1]\\, \\[a new\\][^2] and \\[lamp fell\\][^1]\n\n")
    notes = re.findall(r"^\[\^(\d)\]: (Passage \d), (\d) of 4 tokens used: (.*)$", text, re.MULTILINE)
    assert [note[:3] for note in notes] == [("1", "Passage 1", "3"), ("2", "Passage 2", "2")]
    assert notes[0][3] == "“old lamp” (3–12); “lamp fell” (7–17)"


# --- a given answer ---------------------------------------------------------------------------------------------------

SAME = ("tokens", "nodes", "steps", "candidates", "targets", "pool")


def decisions(trace: Trace) -> dict[str, dict[str, list]]:
    """Drafts and decisions: all but times, the verifier's words, and the numbers of lossy verifiers alone."""
    apart = {"reason", "draft_ms", "verify_ms", "commit_ms", "elapsed_ms"}

    def keeps(table: str, column: str) -> bool:
        return column not in apart and not (table == "steps" and column.endswith("_ms"))

    return {t: {c: v for c, v in trace.tables[t].items() if keeps(t, c)} for t in SAME}


@pytest.mark.parametrize("method", ["pld", "pld+h", "pld+a", "adapld"])
@pytest.mark.parametrize("ends", [False, True])
def test_the_models_own_output_is_drafted_and_accepted_as_in_a_free_run(method: str, ends: bool):
    target = tiny_target("qwen3", seed=1)
    prompt = Prompt.from_ids(prompt_ids(0))
    if ends:  # a stop token that the model writes of itself
        said = record(target, prompt, "plain", max_new_tokens=40).output_ids
        end = next(token for i, token in enumerate(said) if i > 15 and token not in said[:i])
        target.model.generation_config.eos_token_id = end
    free = record(target, prompt, method, max_new_tokens=40)
    assert free.run["stop"] == ("eos" if ends else "max tokens") and free.run["metrics"]["accepted"] > 0
    given = forced_trace(target, prompt, free.output_ids, method, max_new_tokens=40)
    check(given)
    mine, theirs = decisions(given), decisions(free)
    for table in SAME:
        for column, values in mine[table].items():
            if column in ("prob", "entropy") or column.startswith("term:"):
                pairs = zip(values, theirs[table][column], strict=True)
                assert all(a == b or math.isclose(a, b, abs_tol=2e-6) for a, b in pairs)
            else:
                assert values == theirs[table][column], (table, column)
    assert given.run["forced"] is True and "forced" not in free.run
    assert given.run["metrics"]["differs"] == 0 and links(given, 1, whole=False) == links(free, 1, whole=False)


@pytest.mark.parametrize("method", ["plain", "pld", "pld+h", "pld+a", "adapld", "casd"])
def test_any_answer_can_be_forced_and_the_trace_is_whole(method: str, prompt: Prompt):
    target = tiny_target("llama", seed=2)
    target.model.generation_config.eos_token_id = 1
    answer = "sold to the city museum – ☃ </s> at the station was sold"
    ids = answer_ids(target, answer)
    assert ids[-1] == 1 and 1 not in ids[:-1]
    trace = forced_trace(target, prompt, ids, method)
    check(trace)
    assert trace.output_ids == ids and trace.run["stop"] == "eos" and trace.run["method"]["lossless"] is False
    assert trace.text(trace.output_ids) == answer
    tokens, first = trace.tables["tokens"], trace.run["prompt_length"]
    logits = target.reference_logits([*trace.prompt_ids, *ids])[first - 1 : -1]
    mine = logits.softmax(-1)[np.arange(len(ids)), ids]
    assert np.allclose(tokens["prob"][first:], mine, atol=1e-4)
    assert trace.run["metrics"]["differs"] > 0
    found = links(trace, 2, whole=False)
    assert all(verbatim(trace, link) for link in found) and (bool(found) == (method != "plain"))


def test_an_answer_without_a_stop_token_ends_where_it_ends():
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(1))
    trace = forced_trace(target, prompt, prompt.tokens[5:12], "pld", {"clip": True})
    assert tuple(trace.output_ids) == prompt.tokens[5:12] and trace.run["stop"] == "max tokens"


def test_answers_that_cannot_be_forced():
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(1))
    for empty in ("", " \n"):
        with pytest.raises(UserError, match="the answer is empty"):
            answer_ids(target, empty)
    with pytest.raises(UserError, match="the answer is empty"):
        forced_trace(target, prompt, [])
    with pytest.raises(UserError, match=r"has 460 tokens and tiny-llama has room for 452"):
        forced_trace(target, prompt, [7] * 460)
    with pytest.raises(UserError, match="has room for 0 after this prompt"):  # one that is longer than the context
        check_answer(target, [7], prompt_length=600)
    target.model.generation_config.eos_token_id = 9
    with pytest.raises(UserError, match="the stop token 9 at place 1 of 3"):
        forced_trace(target, prompt, [7, 9, 9])


# --- known quotes -----------------------------------------------------------------------------------------------------


def test_quotesum_marks():
    text = "One [ 2 it fell ] . [1] and [sic] [ 1 a [b] c. ][ 12   d ] , [ 3 ] (x [ 4 e ] ) end ]"
    answer, found = parse_quotes(text)
    assert answer == "One it fell. [1] and [sic] a [b] c.d,  (x e) end ]"
    assert [(answer[a:b], n) for a, b, n in found] == [("it fell", 2), ("a [b] c.", 1), ("d", 12), ("e", 4)]
    assert parse_quotes(" plain ") == ("plain", [])
    with pytest.raises(ValueError, match="of source 2 begins inside one of source 1"):
        parse_quotes("[ 1 a [ 2 b ] ]")
    with pytest.raises(ValueError, match="source 3 never closes"):
        parse_quotes("a [ 3 b [x]")


@given(st.lists(st.tuples(st.text("ab .[]é\n", max_size=6), st.booleans()), max_size=6))
def test_marks_come_out_and_quotes_keep_their_words(parts: list[tuple[str, bool]]):
    quoted = [("ß" + text.replace("[", "").replace("]", "").strip(), True) if q else (text, q) for text, q in parts]
    answer, found = parse_quotes("".join(f" [ 7 {text} ] " if q else text for text, q in quoted))
    assert [answer[a:b] for a, b, _ in found] == [text for text, q in quoted if q]
    assert "[ 7" not in answer and [stop for *_, stop in found] == [7] * len(found)


def test_locating_words_in_a_passage():
    passage = "Fig.: The “Straße” – long\nand dark."
    for words in ("The “Straße”", 'the "strasse"', "long and dark", "LONG AND DARK!", "- long"):
        a, b = locate(passage, words)
        assert passage[a:b].casefold()[:3] in (words.casefold()[:3], "– l"), words
    assert locate(passage, "short") == locate(passage, "...") == (-1, -1)


def row(**more: object) -> dict[str, object]:
    return {
        "unique_id": "q1", "question": "What fell?", "summary": "[ 1 The lamp ] fell, [ 3 it stood ] [ 2 gone ] .",
        "title1": "Lamps", "source1": "The lamp was old.", "title2": "", "source2": "", "source3": "Then it stood.",
        "title3": "Then", **more,
    }  # fmt: skip


def test_a_row_of_quotesum():
    gold = parse_quotesum(row(), "x")
    assert gold.id == "q1" and gold.passages == ("Lamps: The lamp was old.", "Then it stood.")
    assert gold.answer == "The lamp fell, it stood gone."
    assert gold.quotes == (Quote(0, 8, 0, 7, 15), Quote(15, 23, 1, 5, 13), Quote(24, 28, -1))
    assert gold.record().context == gold.passages
    for bad, why in (
        ([], "not an object"),
        (row(summary=None), "'summary' is missing or not text"),
        (row(source1="", source3=" "), "no source"),
        (row(summary="It fell."), "quotes nothing"),
        (row(summary="[ 1 a [ 2 b ] ]"), "begins inside"),
        (row(source1=3), "source1 or title1 is not text"),
    ):
        with pytest.raises(ValueError, match=why):
            parse_quotesum(bad, "x")


def test_reading_a_quotesum_file(tmp_path: Path):
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (row(), row(summary="no"), row(), row())) + "\n\n", "utf-8")
    found, left_out = read_quotesum(path, 2)
    assert len(found) == 2 and left_out == ["line 2 was left out: its summary quotes nothing"]
    for text, why in (("{", r"line 1 was left out: it is not JSON \("), ("", "it is empty"), ("[]", "not an object")):
        path.write_text(text, "utf-8")
        with pytest.raises(UserError, match=why):
            read_quotesum(path)
    found, left_out = parse_rows("{bad\n[1]\n" + json.dumps(row(unique_id="good")) + "\n" + "[" * 9000, "r")
    assert [one.id for one in found] == ["good"] and len(left_out) == 3
    assert left_out[0].startswith("line 1 was left out: it is not JSON (column 2") and "line 2" in left_out[1]
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not text in UTF-8"):
        read_quotesum(path)
    with pytest.raises(UserError, match="no such file"):
        read_quotesum(tmp_path / "none.jsonl")


@pytest.mark.skipif(not QUOTESUM.exists(), reason="the shared data is not here")
def test_every_row_of_the_real_file_is_read_and_its_quotes_are_found():
    found, left_out = read_quotesum(QUOTESUM)
    assert len(found) == 133 and not left_out
    quotes = [(gold, quote) for gold in found for quote in gold.quotes]
    assert len(quotes) == 518 and all(q.source_start >= 0 for _, q in quotes)
    for gold, quote in quotes:
        words = gold.answer[quote.start : quote.stop]
        assert words == words.strip() and words[0] != "["


def test_the_demos_quotes_are_where_they_are_said_to_be():
    found = demo_quotes(12)
    assert found == demo_quotes(12) and len(found) == 12
    for gold in found:
        assert gold.quotes and gold.answer.endswith('"')
        for quote in gold.quotes:
            source = gold.passages[quote.passage][quote.source_start : quote.source_stop]
            assert gold.answer[quote.start : quote.stop] == source
    assert any(not gold.answer.endswith('"') for gold in demo_quotes(12, brief=True))


# --- scores -----------------------------------------------------------------------------------------------------------


def flags(*at: int) -> np.ndarray:
    return np.isin(np.arange(15), at)


def test_the_oracle():
    """methods.md §2: quoted {2..6}; runs {2,3}, {5,6}, {9..13}."""
    said = [("w", -1)] * 15
    for start, stop, source in ((2, 4, 0), (5, 7, 5), (9, 14, 9)):
        said[start:stop] = [("w", source + i) for i in range(stop - start)]
    trace = trace_of([("context", 0, ["w"] * 15)], said)
    gold = flags(2, 3, 4, 5, 6)
    score = token_score(link_mask(links(trace, 2, whole=False), 15) >= -1, gold)
    assert (score.precision, score.recall) == pytest.approx((4 / 9, 4 / 5))
    score = token_score(link_mask(links(trace, 5, whole=False), 15) >= -1, gold)
    assert (score.precision, score.recall, score.f1) == (0, 0, 0)
    score = token_score(link_mask(links(trace, 8, whole=False), 15) >= -1, gold)
    assert (score.precision, score.recall, score.f1) == (1, 0, 0)
    with pytest.raises(ValueError, match="no token is quoted"):
        token_score(gold, flags())


def gold_of(answer: str, *quotes: tuple[str, int]) -> QuotedAnswer:
    placed = tuple(Quote(answer.index(w), answer.index(w) + len(w), p) for w, p in quotes)
    return QuotedAnswer("x", "Quote.", ("the old lamp fell", " a new lamp stood"), "Which?", answer, placed)


def test_a_token_is_quoted_if_all_of_it_is():
    trace = two_passages([("“", -1), ("the", 1), (" old", 2), (".”", -1), (" ", -1), (" new", 6), (" lamp", 3)])
    gold = gold_of("“the old.”  new lamp", ("the old.", 0), ("new lamp", 1))
    passage = gold_tokens(trace, gold)
    assert passage is not None and passage.tolist() == [-2, 0, 0, -2, -2, 1, 1]
    score = score_links(trace, gold, links(trace, 1, whole=False))
    assert score is not None and (score.precision, score.recall, score.f1) == (1, 1, 1)
    assert score.right_passage == 3 / 4  # " lamp" was taken from the other passage


def test_another_answer_counts_if_it_holds_the_quotes():
    trace = two_passages([("So", -1), (" old", 2), (" lamp", 3), (".", -1)])
    gold = gold_of("The old lamp.", ("old lamp", 0))
    assert score_links(trace, gold, links(trace, 2, whole=False)).f1 == 1  # type: ignore[union-attr]
    other = gold_of("A new lamp.", ("new lamp", 1))
    assert score_links(trace, other, links(trace, 2, whole=False)) is None
    [row] = sweep([(trace, gold), (trace, other)], [2])
    assert (row.examples, row.score.f1, row.score.right_passage) == (1, 1, 1)
    with pytest.raises(ValueError, match="no answer holds"):
        sweep([(trace, other)], [2])


def test_a_sweep_averages_examples():
    whole = two_passages([(" old", 2), (" lamp", 3), (" fell", 4)])
    half = two_passages([(" old", -1), (" lamp", 3), (" fell", 4)])
    gold = gold_of(" old lamp fell", ("old lamp fell", 0))
    rows = sweep([(whole, gold), (copy.deepcopy(half), gold)], [2, 3], whole=False)
    assert [(r.min_run, r.examples) for r in rows] == [(2, 2), (3, 2)]
    assert rows[0].score.recall == pytest.approx((1 + 2 / 3) / 2) and rows[1].score.recall == pytest.approx(0.5)
    assert rows[1].score.precision == 1 and rows[1].score.f1 == 0.5
    assert sweep([(half, gold)], [3], whole=True)[0].score.f1 == 1


def test_links_end_where_words_and_numbers_do():
    """The defect: "in 1" from one passage and "930" from another are one number; neither may claim a part of it."""
    first, second, answer = b"built in 1", b"the 930 steps", b"built in 1930, the"
    tokens = [bytes([byte]) for byte in dict.fromkeys(first + second + answer)]
    number = {piece: n for n, piece in enumerate(tokens)}

    def ids(text: bytes) -> list[int]:
        return [number[bytes([byte])] for byte in text]

    trace = Trace.new({"id": "a", "prompt_length": len(first + second), "method": {"name": "pld"}})
    rows = zip(range(len(tokens)), (piece.hex() for piece in tokens), [False] * len(tokens), strict=True)
    columns = zip(*rows, strict=True)
    trace.tables["pieces"] = dict(zip(("id", "hex", "special"), map(list, columns), strict=True))
    passages = [0] * len(first) + [1] * len(second) + [-1] * len(answer)
    places = [-1] * len(first + second) + [*range(len(first)), *(len(first) + 4 + n for n in range(3)), -1, -1]
    places += [len(first) + n for n in range(3)]
    trace.tables["tokens"] |= {
        "id": ids(first + second + answer), "passage": passages, "source": places, "pool": [-1] * len(passages),
        "segment": ["context"] * len(first + second) + ["output"] * len(answer),
    }  # fmt: skip
    said = {
        words: [answer[link.start : link.stop].strip() for link in links(trace, 1, words=words)]
        for words in (False, True)
    }  # fmt: skip
    assert said[False] == [b"built in 1", b"930", b"the"] and said[True] == [b"built in"]  # "the" alone is no quotation
    assert all(verbatim(trace, link) for link in links(trace, 1, words=True))
    assert len(links(trace, 9, words=True)) == 1 and links(trace, 10, words=True) == []
