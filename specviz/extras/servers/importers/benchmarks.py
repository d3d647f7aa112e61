"""Tables that programs print at the end of a measurement, and the JSON that they save: numbers of many requests.

vLLM's offline example (examples/offline_inference/spec_decode.py: ``num_drafts``, ``num_draft_tokens``,
``num_accepted_tokens``, "mean acceptance length", "acceptance at token i"); ``vllm bench serve`` (its section
"Speculative Decoding", saved as ``spec_decode_*``); SGLang's ``bench_serving`` ("Accept length", saved as
``accept_length``); llama.cpp's ``llama-speculative``, ``-simple`` and ``llama-lookup`` (``n_draft``, ``n_predict``,
``n_drafted``, ``n_accept``, ``accept``). Several tables may follow one another in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from decoders.importers.fields import about_drafts, totals_of
from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import MOST_REQUESTS
from decoders.importers.source import LogSource
from decoders.importers.values import number

from .parts import parts_of

POSITION = re.compile(r"(?:acceptance at token|\s*Position) (\d{1,4})\s*:\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%?)\s*$")
ROW = re.compile(
    r"\s*(?:[\w./-]{1,60}:\s{1,20})?(?P<name>[A-Za-z][\w #()%/.+-]{0,60}?)\s*[:=]\s*(?P<value>[\d.]{1,20}\s?%?)\s*$"
)
UNREAD = re.compile(r"accept|draft|specul", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """One program's table: the row that says that it is one, its first row, and the names of its counts."""

    title: str
    sign: re.Pattern[str]
    counts: dict[str, str]
    first: tuple[str, ...]


def _sign(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]{{0,40}}(?:{pattern})", re.MULTILINE)


TABLES = (
    BenchmarkTable("vLLM's offline example", _sign(r"acceptance at token \d|mean acceptance length:|num_drafts:"),
          {"total_num_output_tokens": "tokens", "num_drafts": "drafts", "num_draft_tokens": "drafted",
           "num_accepted_tokens": "accepted"}, ("total_num_output_tokens", "num_drafts", "mean acceptance length")),
    BenchmarkTable("vllm bench serve", _sign(r"Acceptance length:|Acceptance rate \(%\):|-+Speculative Decoding-+"),
          {"Total generated tokens": "tokens", "Drafts": "drafts", "Draft tokens": "drafted",
           "Accepted tokens": "accepted"}, ("Backend", "Successful requests")),
    BenchmarkTable("SGLang's bench_serving", _sign(r"Accept length:"),
          {"Total generated tokens": "tokens"}, ("Backend", "Successful requests")),
    BenchmarkTable("llama-speculative", _sign(r".{0,80}?\bn_accept[ \t]{0,20}="),
          {"n_predict": "tokens", "n_drafted": "drafted", "n_accept": "accepted"}, ("n_draft", "n_predict")),
)  # fmt: skip
ROLE_PREFIX = re.compile(
    r"accept|draft|specul|position|n_predict|output_tokens|requests|concurrency|generated tokens"
    r"|output token throughput|backend|request rate", re.IGNORECASE,
)  # fmt: skip


def read(source: LogSource) -> Contents | None:
    """The tables, or the saved results."""
    contents = Contents()
    text = source.text
    if text.lstrip()[:1] in ("{", "["):
        contents.numbers += _read_saved(source)
    else:
        tables = [table for table in TABLES if table.sign.search(text)]
        if tables:
            _read_rows(source, tables[0], contents)
    return contents if contents.numbers else None


def _read_rows(source: LogSource, table: BenchmarkTable, contents: Contents) -> None:
    rows, positions = dict[str, Any](), list[float]()

    def end() -> None:
        has_counts = positions or any(re.search("accept|draft", name, re.IGNORECASE) for name in rows)
        if has_counts and len(contents.numbers) < MOST_REQUESTS:
            contents.numbers.append(_numbers(table, rows, positions, len(contents.numbers)))
        rows.clear()
        positions.clear()

    for line in source.lines():
        if (place := POSITION.match(line)) is not None:
            rate = float(place[2]) / (100 if place[3] or table.title == "vllm bench serve" else 1)
            if int(place[1]) < len(positions):
                end()
            positions.append(rate)
        elif (row := ROW.match(line)) is not None and ROLE_PREFIX.search(row["name"]):
            name, value = row["name"].strip(), row["value"].strip()
            if name in rows and (name in table.first or name in table.counts):
                end()
            if value.endswith("%"):
                rows[name] = value.replace(" ", "")
            elif (plain := _plain(value)) is not None:
                rows[name] = plain
            else:
                contents.unread += 1
        elif UNREAD.search(line) and re.search(r"[:=]\s*\S*\d", line) and not parts_of(line):
            contents.unread += 1
    end()


def _plain(text: str) -> float | int | None:
    try:
        return int(text) if text.isdigit() else number(float(text))
    except ValueError:
        return None


def _numbers(table: BenchmarkTable, rows: dict[str, Any], positions: list[float], table_index: int) -> Numbers:
    totals = {count: rows[name] for name, count in table.counts.items() if isinstance(rows.get(name), int)}
    values = {name: f"{value:g}%" if name.endswith("(%)") else value for name, value in rows.items()}
    if positions:
        values["acceptance by position (of all drafts)"] = list(positions)
    mean = next((rows[name] for name in ("mean acceptance length", "Acceptance length") if name in rows), None)
    if isinstance(mean, int | float):
        values["Mean acceptance length"] = mean
    if table.title == "SGLang's bench_serving":
        values["Mean acceptance length"] = rows.get("Accept length")
    return Numbers.of(table.title if not table_index else f"{table.title}, table {table_index + 1}", values, totals)


FORMATS: tuple[tuple[str, Callable[[set[str]], bool]], ...] = (
    ("vllm bench serve", lambda names: any(name.startswith("spec_decode_") for name in names)),
    ("SGLang's bench_serving", lambda names: "accept_length" in names and "backend" in names),
)


def _read_saved(source: LogSource) -> Iterator[Numbers]:
    """Results as the two benchmarks save them."""
    for place, document in enumerate(source.documents[:MOST_REQUESTS]):
        value = document.value
        title = next((title for title, fits in FORMATS if fits(set(map(str, value)))), None)
        if title is None or "choices" in value:
            continue
        fields = about_drafts(value)
        totals = totals_of(fields) | totals_of({"completion_tokens": value.get("total_output_tokens")})
        numbers = Numbers.of(title if not place else f"{title}, result {place + 1}", fields, totals)
        length = value.get("spec_decode_acceptance_length", value.get("accept_length"))
        rate = number(value.get("spec_decode_acceptance_rate"))
        if rate is not None:
            numbers.values["spec_decode_acceptance_rate"] = f"{rate:g}%"
        if number(length) is not None:
            numbers.values["Mean acceptance length"] = length
        yield numbers


IMPORTER = Importer("benchmark", "A benchmark's printed numbers", read, order=18)
