"""TensorRT-LLM: statistics of iterations, and answers that name the tokens of an iteration.

tensorrt_llm/executor and docs "IterationStats": ``specDecodingStats`` with ``numDraftTokens``, ``numAcceptedTokens``,
``numRequestsWithDraftTokens`` and ``acceptanceLength`` (1 + accepted ÷ requests with a draft) of an iteration, from
``GET /metrics`` of trtllm-serve or ``get_stats()``; with attention DP every rank repeats those of rank 0.
openai_protocol.py: ``choices[].avg_decoded_tokens_per_iter``, the answer's tokens ÷ its iterations. ``/perf_metrics``:
``speculative_decoding`` with ``total_draft_tokens`` and ``total_accepted_draft_tokens`` of a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decoders.importers.fields import flat, snake, totals_of
from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import MOST_REQUESTS
from decoders.importers.source import LogSource
from decoders.importers.values import number, whole

from .chat import answers

COUNTS = {"drafted": "numDraftTokens", "accepted": "numAcceptedTokens", "drafts": "numRequestsWithDraftTokens"}
STATS, LENGTH, PERFORMANCE = ("specDecodingStats", "spec_decoding_stats"), "avg_decoded_tokens_per_iter", "perf_metrics"
MILLISECONDS = "iterLatencyMS"


def read(source: LogSource) -> Contents | None:
    """All iterations together, and the requests."""
    if not any(word in source.text for word in (*STATS, LENGTH, "total_accepted_draft_tokens")):
        return None
    contents = Contents()
    sums, latency, iterations, odd = dict.fromkeys(COUNTS, 0), 0.0, 0, 0
    for document in source.documents:
        stats = _stats(document.value)
        if stats is None or (whole(document.value.get("attentionDpRank")) or 0) > 0:
            continue
        counts = {name: whole(_field(stats, field)) for name, field in COUNTS.items()}
        if None in (counts["drafted"], counts["accepted"]):
            odd += bool(stats)
            continue
        iterations += bool(counts["drafted"])
        latency += number(_field(stats, MILLISECONDS)) or 0.0
        for name, count in counts.items():
            sums[name] += count or 0
    if iterations:
        server_values = {"iterations with drafts": iterations, **{field: sums[name] for name, field in COUNTS.items()}}
        server_values |= {"draft iterLatencyMS, all": round(latency, 3)} if latency else {}
        contents.numbers.append(Numbers.of("all iterations", server_values, sums))
    contents.unread = odd
    for answer in answers(source.documents):
        if any(snake(name) == LENGTH for name in answer.request.server_fields):
            contents.requests.append(answer.request)
    contents.numbers += _requests(source)
    return contents if contents.requests or contents.numbers else None


def _stats(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((value[name] for name in STATS if isinstance(value.get(name), dict)), None)


def _field(stats: Mapping[str, Any], field: str) -> Any:
    return stats.get(field, stats.get(snake(field)))


def _requests(source: LogSource) -> Iterator[Numbers]:
    """Requests of /perf_metrics."""
    for place, document in enumerate(source.documents[:MOST_REQUESTS]):
        fields = {path: value for path, value in flat(document.value) if ".speculative_decoding." in f".{path}"}
        request_values = {path.rpartition(".")[2]: value for path, value in fields.items() if number(value) is not None}
        totals = totals_of(request_values)
        if "choices" not in document.value and "drafted" in totals:
            name = document.value.get("request_id", place + 1)
            yield Numbers.of(f"request {str(name)[:60]}", request_values, totals)


FIELDS = frozenset((*map(snake, COUNTS.values()), "acceptance_length", "draft_overhead", "spec_decoding_stats"))
IMPORTER = Importer("tensorrt-llm", "TensorRT-LLM", read, order=13, fields=FIELDS)
