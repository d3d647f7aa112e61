"""Prometheus metrics of a server (``GET /metrics``): numbers of all requests since it started.

vLLM: ``vllm:spec_decode_num_drafts``, ``…_draft_tokens``, ``…_accepted_tokens``, ``…_accepted_tokens_per_pos``
(vllm/v1/spec_decode/metrics.py, SpecDecodingProm; with ``_total`` on export); V0: ``…_efficiency``,
``…_num_emitted_tokens``. SGLang: ``sglang:spec_accept_length``, ``…_rate`` (docs/references/production_metrics).
llama.cpp: ``llamacpp:…`` (tools/server/README, GET /metrics), of drafting by vLLM's names. TensorRT-LLM:
``trtllm_spec_decode_…``. Text Generation Inference: the histogram ``tgi_request_skipped_tokens``, of the accepted
tokens of each step (router, infer: the tokens of a generation − 1). A sample may have a time behind its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from decoders.importers.fields import check_totals
from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.source import LogSource

LINE = re.compile(
    r"^(?P<name>(?:(?:vllm|sglang|llamacpp):|trtllm_|tgi_)\w+)(?:\{(?P<labels>(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*)\})?"
    r"[ \t]+(?P<value>\d{1,18}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)(?:[ \t]+-?\d{1,17}(?:\.\d{1,9})?)?(?:[ \t]+#.*)?\s*$"
)
SERVERS = ("vllm", "llamacpp", "trtllm")  # whose counters have these names
METRIC_NAMES = re.compile(
    r"spec_|draft|tokens_predicted|generation_tokens|skipped_tokens|generated_tokens|tokens_cached"
)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PLACE = re.compile(r"[0-9]{1,4}")


def samples(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name (without its ``_total``), labels and value of each line about drafting or tokens that servers wrote.

    >>> list(samples(['vllm:spec_decode_num_drafts_total{engine="0"} 2.0', "python_info 1"]))
    [('vllm:spec_decode_num_drafts', {'engine': '0'}, 2.0)]
    """
    for line in lines:
        match = LINE.match(line.strip())
        if match is not None and METRIC_NAMES.search(match["name"]):
            labels = dict(LABEL.findall(match["labels"] or ""))
            yield match["name"].replace("trtllm_", "trtllm:", 1).removesuffix("_total"), labels, float(match["value"])


def read(source: LogSource) -> Contents | None:
    """The numbers about drafting, per server; rates are computed where their parts are there."""
    servers: dict[str, dict[str, Any]] = {}
    positions: dict[str, dict[int, float]] = {}
    contents = Contents()
    lines = [line for line in source.lines() if ABOUT.match(line)]
    contents.unread = sum(LINE.match(line.strip()) is None and not EMPTY.search(line) for line in lines)
    for name, labels, value in samples(source.lines()):
        server_name = " ".join(labels[name] for name in ("model_name", "engine", "tp_rank") if name in labels)
        if name.endswith(("_created", "_bucket")):  # of a histogram its sum and count are told
            continue
        if PLACE.fullmatch(labels.get("position", "")):
            positions.setdefault(server_name, {})[int(labels["position"])] = value
        else:
            servers.setdefault(server_name, {})[name] = value
    for server_name, values in servers.items():
        counts = {total: _count(values, names) for total, names in COUNTERS.items()}
        drafts, drafted, accepted = (counts[name] for name in ("drafts", "drafted", "accepted"))
        if drafts and accepted is not None:
            values["mean acceptance length (1 + accepted ÷ drafts)"] = 1 + accepted / drafts
            if server_name in positions:
                rates = [positions[server_name][place] / drafts for place in sorted(positions[server_name])]
                values["acceptance by position (of all drafts)"] = rates
        if drafted and accepted is not None:
            values["accepted ÷ drafted"] = accepted / drafted
        skip_sum, steps = (values.get(f"tgi_request_skipped_tokens_{end}") for end in ("sum", "count"))
        if skip_sum is not None and steps:
            counts |= {"steps": int(steps), "tokens": int(skip_sum + steps)}
            values["tokens per step (1 + skipped ÷ steps)"] = 1 + skip_sum / steps
        totals = check_totals({name: int(count) for name, count in counts.items() if count is not None})
        contents.numbers.append(Numbers(server_name or "the server", values, totals))
    return contents


def _count(values: dict[str, Any], names: tuple[str, ...]) -> float | None:
    keys = (f"{server}:{name}" for name in names for server in SERVERS)
    return next((values[name] for name in keys if name in values), None)


COUNTERS = {
    "drafts": ("spec_decode_num_drafts",), "drafted": ("spec_decode_num_draft_tokens",),
    "accepted": ("spec_decode_num_accepted_tokens",),
}  # fmt: skip
ABOUT = re.compile(r"\s*(?:(?:vllm|sglang|llamacpp):|trtllm_|tgi_)\w*(?:spec_|draft|skipped_tokens)")
EMPTY = re.compile(r"\s(?:NaN|[+-]?Inf)\b")
IMPORTER = Importer("prometheus", "Prometheus metrics", read, order=20)
