"""Prometheus metrics of a server (``GET /metrics``): numbers of all requests since it started.

vLLM: ``vllm:spec_decode_num_drafts``, ``…_draft_tokens``, ``…_accepted_tokens``, ``…_accepted_tokens_per_pos``
(vllm/v1/spec_decode/metrics.py, SpecDecodingProm; with ``_total`` on export). SGLang: ``sglang:spec_accept_length``,
``…_rate`` (docs/references/production_metrics). llama.cpp: ``llamacpp:…`` (tools/server/README, GET /metrics), of
drafting by vLLM's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from .importer import Contents, Importer, Numbers
from .source import Source

LINE = re.compile(
    r"^(?P<name>(?:vllm|sglang|llamacpp):\w+)(?:\{(?P<labels>[^}]*)\})? "
    r"(?P<value>\d{1,18}(?:\.\d+)?(?:e[+-]?\d{1,2})?)\s*$"
)
SERVERS = ("vllm", "llamacpp")  # whose counters have these names
WANTED = re.compile(r"spec_|draft|tokens_predicted|generation_tokens")
LABEL = re.compile(r'(\w+)="([^"]*)"')
PLACE = re.compile(r"[0-9]{1,4}")


def samples(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name (without its ``_total``), labels and value of each line about drafting or tokens that servers wrote.

    >>> list(samples(['vllm:spec_decode_num_drafts_total{engine="0"} 2.0', "python_info 1"]))
    [('vllm:spec_decode_num_drafts', {'engine': '0'}, 2.0)]
    """
    for line in lines:
        match = LINE.match(line.strip())
        if match is not None and WANTED.search(match["name"]):
            labels = dict(LABEL.findall(match["labels"] or ""))
            yield match["name"].removesuffix("_total"), labels, float(match["value"])


def read(source: Source) -> Contents | None:
    """The numbers about drafting, per server; rates are computed where their parts are there."""
    servers: dict[str, dict[str, Any]] = {}
    positions: dict[str, dict[int, float]] = {}
    for name, labels, value in samples(source.lines()):
        where = " ".join(labels[name] for name in ("model_name", "engine", "tp_rank") if name in labels)
        if name.endswith(("_created", "_bucket")):  # of a histogram its sum and count are told
            continue
        if PLACE.fullmatch(labels.get("position", "")):
            positions.setdefault(where, {})[int(labels["position"])] = value
        else:
            servers.setdefault(where, {})[name] = value
    for where, values in servers.items():
        drafts, drafted, accepted = (
            next((values[f"{server}:{name}"] for server in SERVERS if f"{server}:{name}" in values), None)
            for name in ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
        )
        if drafts and accepted is not None:
            values["mean acceptance length (1 + accepted ÷ drafts)"] = 1 + accepted / drafts
            if where in positions:
                rates = [positions[where][place] / drafts for place in sorted(positions[where])]
                values["acceptance by position (of all drafts)"] = rates
        if drafted and accepted is not None:
            values["accepted ÷ drafted"] = accepted / drafted
    return Contents(numbers=[Numbers(where or "the server", values) for where, values in servers.items()])


IMPORTER = Importer("prometheus", "Prometheus metrics", read, order=20)
