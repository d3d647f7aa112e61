"""The runs that take part in a sweep: a method timed, a method recorded, a peer."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decoders.draft.settings import FIXED
from decoders.drafters import find_method
from decoders.engine.decoding import Decoding
from decoders.engine.recording import record
from decoders.model.state.transfer import Span, wait
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.study.measure.peers import Peer

from .plan import TRACED_SUFFIX, Contender, Measurement, Sample

if TYPE_CHECKING:
    from decoders.model.target_model.target import Session, Target
    from decoders.prompt.prompt import Prompt
    from decoders.verifiers.sampling import Sampling


def contenders_of(
    target: Target, methods: Mapping[str, Any], max_new_tokens: int, with_traces: bool, peers: Sequence[Peer] = (),
    sampling: Sampling | None = None, length: str = FIXED,
) -> list[Contender]:  # fmt: skip
    """The contenders: each method, each traced (if asked for), and the peers."""
    result = []
    for name, params in methods.items():
        lossless = find_method(name).lossless
        unseen = timer(target, name, params, max_new_tokens, sampling=sampling, length=length, generation=NEUTRAL)
        result.append(Contender(name, "method", lossless, unseen))
        if with_traces:
            recording = _record(target, name, params, max_new_tokens, sampling, length)
            result.append(Contender(name + TRACED_SUFFIX, "traced", lossless, recording))
    result += [Contender(peer.name, "peer", peer.lossless, _peer(peer, target, max_new_tokens)) for peer in peers]
    return result


def timer(
    target: Target,
    method: str,
    params: Any,
    max_new_tokens: int,
    *,
    name: str = "",
    cancel: threading.Event | None = None,
    sampling: Sampling | None = None,
    **options: Any,
) -> Callable[[Prompt], Measurement]:
    """Decoding by a method with nothing recorded, as ``Contender.run``; ``name``: what its samples are called. Options
    as of ``Decoding.of``.
    """
    options |= {"max_new_tokens": max_new_tokens, "cancel": cancel, "sampling": sampling}
    return lambda prompt: run_unrecorded(name or method, lambda: Decoding.of(target, prompt, method, params, **options))


def run_unrecorded(name: str, decoding: Callable[[], Decoding], read: Session | None = None) -> Measurement:
    """One run with nothing recorded; ``decoding`` begins it, ``name`` is what the sample is called. ``read`` has
    processed its prompt (``read_once``).
    """
    start_time = time.perf_counter()
    run = decoding()
    run.prefill(read)
    fill_time = time.perf_counter()
    output: list[int] = []
    times: list[tuple[Span, Span, Span]] = []
    accepted, engines = 0, Counter[str]()
    for step in run:
        output += step.emitted
        accepted += step.accepted
        engines[step.scored.ran.engine] += 1
        times.append((step.draft_ms, step.verify_ms, step.commit_ms))
    wait(run.target.device)
    end_time = time.perf_counter()
    medians: list[Any] = [statistics.median(map(float, column)) for column in zip(*times, strict=True)] or [None] * 3
    n = len(output)
    seconds, decode_s = end_time - start_time, end_time - fill_time
    return Measurement(
        Sample(name, 0, 0, n, n, len(times), accepted, seconds, decode_s, *medians), output, engines=engines
    )


def _record(
    target: Target, name: str, params: Any, max_new_tokens: int, sampling: Sampling | None, length: str
) -> Callable[[Prompt], Measurement]:
    def run(prompt: Prompt) -> Measurement:
        start_time = time.perf_counter()
        options = {"max_new_tokens": max_new_tokens, "sampling": sampling, "length": length, "generation": NEUTRAL}
        trace = record(target, prompt, name, params, **options)
        seconds = time.perf_counter() - start_time
        output, accepted = trace.output_ids, trace.tables["steps"]["accepted"]
        setup_s = sum(trace.run["timings"].get(name) or 0.0 for name in ("prefill_ms", "prepare_ms")) / 1e3
        decode_s, n = seconds - setup_s, len(output)  # recording included
        sample = Sample(name + TRACED_SUFFIX, 0, 0, n, n, len(accepted), sum(accepted), seconds, decode_s)
        return Measurement(sample, output, trace)

    return run


def _peer(peer: Peer, target: Target, limit: int) -> Callable[[Prompt], Measurement]:
    def run(prompt: Prompt) -> Measurement:
        generation = peer.generate(prompt.tokens, limit, target.stop_ids)
        n, decode_s = len(generation.tokens), generation.seconds - generation.first_s
        sample = Sample(peer.name, 0, 0, n, n - generation.first_tokens, None, None, generation.seconds, decode_s)
        return Measurement(sample, generation.tokens)

    return run
