"""SGLang's answers: ``meta_info`` of POST /generate, and of choices where ``return_meta_info`` or ``sglext`` is on.

srt/managers/tokenizer_manager.py, ``_add_spec_metrics``: ``spec_verify_ct``, ``spec_accept_length``,
``spec_accept_rate``, ``spec_num_correct_drafts``, ``spec_num_proposed_drafts``, ``spec_correct_drafts_histogram``;
``output_token_logprobs`` and ``output_top_logprobs`` as [logprob, id, text] (docs/basic_usage/native_api,
sampling_params). In a stream text and counts grow from chunk to chunk: where ``spec_verify_ct`` grew by one, the chunk
is one step.

DSpark: ``dspark_info_record.records[].reqs[]`` of GET /server_info, on with SGLANG_DSPARK_DEBUG_DUMP=core,reqs
(srt/speculative/dspark_components/dspark_observability.py, DecodeStepRecord and ReqDetail). ``draft_tokens`` has the
whole block, of which ``verify_len`` − 1 were verified; ``acc_len`` = ``correct_drafts`` + 1 tokens stood, the last one
``bonus_token``. The prompt and the first token, which its forward wrote, are not told. DSpark needs a GPU: no such
server was run here; the sample in tests/servers was written by the dumper's own code of sglang 0.5.23 on made-up steps.
"""

from __future__ import annotations

from typing import Any

from decoders.importers.fields import merge_fields
from decoders.importers.importer import Contents, Importer
from decoders.importers.request import MOST_REQUESTS, Choice, Request, ServerStep, Token, check_tokens, words
from decoders.importers.source import LogSource
from decoders.importers.values import dicts, from_log, merge, number, numbers, whole

from .chat import answers


def read(source: LogSource) -> Contents | None:
    """Requests whose meta_info tells of speculation."""
    contents, request_parts = Contents(), dict[str, list[dict[str, Any]]]()
    for place, document in enumerate(source.documents):
        value = document.value
        for dump in _dumps(value):
            contents.requests += _dspark(dump, contents)
        meta = value.get("meta_info")
        if "choices" not in value and isinstance(meta, dict):
            request_parts.setdefault(str(meta.get("id") or f"request {place + 1}"), []).append(value)
    for key, parts in request_parts.items():
        if any(str(name).startswith("spec_") for part in parts for name in part["meta_info"]):
            contents.requests.append(_native(key, parts))
    for answer in answers(source.documents):
        fields = merge(meta for part in answer.parts for meta in _metas(part))
        if any(name.startswith("spec_") for name in fields):
            _add_numbers(answer.request, fields)
            contents.requests.append(answer.request)
    return contents if contents.requests else None


def _dumps(value: dict[str, Any]) -> list[dict[str, Any]]:
    """DSpark's dumps in an answer of /server_info: one per data-parallel rank, or the dump alone."""
    states = [value, *dicts(value.get("internal_states"))]
    dumps = [state["dspark_info_record"] for state in states if isinstance(state.get("dspark_info_record"), dict)]
    is_single = isinstance(value.get("records"), list) and "verify_num_draft_tokens" in value
    return dumps or ([value] if is_single else [])


def _dspark(dump: dict[str, Any], contents: Contents) -> list[Request]:
    """The requests of a dump, in the order in which they began. A slot without an id begins another request where its
    prefix does not go on.
    """
    begun: dict[str, Request] = {}
    ends, odd, tokens = dict[str, int](), 0, 0
    for record in dicts(dump.get("records")):
        for entry in dicts(record.get("reqs")):
            names = ("prefix_len", "verify_len", "acc_len", "correct_drafts", "bonus_token")
            prefix, verified, emitted_count, accepted, bonus = (whole(entry.get(name)) for name in names)
            drafted = numbers(entry.get("draft_tokens"))
            if prefix is None or verified is None or accepted is None or bonus is None or drafted is None or (
                not accepted < verified <= len(drafted) + 1 or emitted_count != accepted + 1
            ):  # fmt: skip
                odd += 1
                continue
            key = str(entry.get("rid") or f"slot {entry.get('req_pool_index')}")
            if "rid" not in entry and ends.get(key, prefix) != prefix:
                key = f"{key} from {prefix}"
            if key not in begun and len(contents.requests) + len(begun) > MOST_REQUESTS:
                continue
            request = begun.setdefault(key, Request(key, server_fields={"method": "DSPARK", "prefix_len": prefix}))
            if (missing := prefix - ends.get(key, prefix)) and "rid" in entry:
                request.warnings.append(f"{missing} tokens before number {prefix + 1} are not in the dump")
            ends[key] = prefix + accepted + 1
            tokens += accepted + 1
            check_tokens(tokens)
            _dspark_step(request, record, entry, drafted, verified - 1, accepted, bonus)
    if odd:
        contents.notes.append(f"{odd} steps whose numbers do not go together were left out")
    return list(begun.values())


def _dspark_step(
    request: Request, record: dict[str, Any], entry: dict[str, Any], drafted: list[int], verified: int, accepted: int,
    bonus: int,
) -> None:  # fmt: skip
    request.steps = [] if request.steps is None else request.steps
    request.tokens += [Token(token) for token in (*drafted[:accepted], bonus)]
    step = ServerStep(accepted + 1, accepted, verified, [[(token, None, None)] for token in drafted[:verified]])
    sure = entry.get("confidence")
    if isinstance(sure, list):
        step.confidence = [number(value) for value in sure[:verified]]
    times = ("draft_gpu_ms", "target_verify_gpu_ms", "step_gpu_ms", "step_cpu_ms")
    step.draft_ms, step.verify_ms, gpu, cpu = (number(record.get(name)) for name in times)
    step.ms, step.batch = gpu if gpu is not None else cpu, whole(record.get("bs")) or 0
    request.steps.append(step)
    for name, count in (("drafted", len(drafted)), ("verified", verified), ("accepted", accepted)):
        request.server_fields[name] = request.server_fields.get(name, 0) + count


def _metas(part: dict[str, Any]) -> list[dict[str, Any]]:
    choices = [choice for choice in part["choices"] if isinstance(choice, dict)]
    extensions = [part.get("sglext"), *(choice.get("sglext") for choice in choices)]
    details = [extension.get("spec_tokens_details") for extension in extensions if isinstance(extension, dict)]
    metas = [part.get("meta_info"), *(choice.get("meta_info") for choice in choices), *details]
    return [meta for meta in metas if isinstance(meta, dict)]


def _add_numbers(request: Request, meta: dict[str, Any]) -> None:
    fields = {name: value for name, value in meta.items() if isinstance(value, int | float | list)}
    request.server_fields = merge_fields(request.server_fields, fields)
    request.server_fields.pop("output_token_logprobs", None)
    request.server_fields.pop("output_top_logprobs", None)
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    request.stop = {"stop": "eos", "length": "max tokens"}.get(str(kind), "")
    if latency := number(meta.get("e2e_latency")):
        request.server_fields["e2e_latency"] = latency


def _native(key: str, parts: list[dict[str, Any]]) -> Request:
    last = parts[-1]
    meta = last["meta_info"]
    request = Request(key, str(meta.get("model") or ""))
    _add_numbers(request, meta)
    ids = numbers(last.get("output_ids")) or []
    logprobs = meta.get("output_token_logprobs")
    tops = meta.get("output_top_logprobs")
    if isinstance(logprobs, list) and logprobs:
        request.tokens = [_token(pair, tops[i] if isinstance(tops, list) and i < len(tops) else None)
                          for i, pair in enumerate(logprobs) if isinstance(pair, list) and len(pair) >= 2]  # fmt: skip
    elif ids:
        request.tokens, request.text = [Token(token_id) for token_id in ids], str(last.get("text") or "")
    else:
        request.tokens = [Token(None, word) for word in words(str(last.get("text") or ""))]
        request.is_counted = False
    if isinstance(meta.get("prompt_token_ids"), list):
        request.prompt_ids = numbers(meta["prompt_token_ids"]) or ()
    request.steps = _stream_steps(parts, len(request.tokens), request)
    return request


def _token(entry: list[Any], top: Any) -> Token:
    choices: list[Choice] = []
    for alternative in top[:20] if isinstance(top, list) else ():
        if isinstance(alternative, list) and len(alternative) >= 2:
            text = alternative[2] if len(alternative) > 2 and isinstance(alternative[2], str) else None
            choices.append((whole(alternative[1]), text, from_log(alternative[0])))
    text = entry[2] if len(entry) > 2 and isinstance(entry[2], str) else None
    return Token(whole(entry[1]), text, from_log(entry[0]), choices)


def _stream_steps(parts: list[dict[str, Any]], count: int, request: Request) -> list[ServerStep] | None:
    """The steps of a stream whose chunks are single steps; None where the answer came in one piece."""
    if len(parts) < 2:
        return None
    steps: list[ServerStep] = []
    wrote = verified = 0
    for part in parts:
        meta = part["meta_info"]
        token_count, checks = whole(meta.get("completion_tokens")), whole(meta.get("spec_verify_ct"))
        if token_count is None or token_count < wrote:
            return None
        grew, check_count = token_count - wrote, (checks or 0) - verified
        if checks is None or check_count not in (0, 1) or (check_count == 0 and grew > 1):
            request.notes.append("a chunk holds several steps, so they are not told apart (stream_interval 1 does)")
            return None
        if grew:
            steps.append(ServerStep(grew, grew - 1, None if check_count else 0))
        wrote, verified = token_count, checks
    return steps if wrote == count else None


FIELDS = frozenset(("correct_drafts", "draft_tokens", "verify_num_draft_tokens"))
IMPORTER = Importer("sglang", "SGLang", read, order=12, fields=FIELDS)
