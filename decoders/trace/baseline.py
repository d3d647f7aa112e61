"""The speed of plain decoding that a run's speedup is formed with, or why there is none.

A speedup compares methods and nothing else. Both runs are of the same prompt with the same model, dtype, weights,
device, engine, threads and sampling; a run that does not record one of them forms none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from decoders.names import BASELINE

from .metrics import measure
from .run import RunRecord
from .trace import Trace

MACHINE = (("processor", "device"), ("engine", "engine"), ("threads", "number of threads"))  # run["machine"], in words


@dataclass(frozen=True, slots=True)
class Baseline:
    """Plain decoding's tokens per second; None where ``why`` says, in a sentence without its full stop, what differs
    or is missing.
    """

    tokens_per_s: float | None
    why: str = ""


def baseline(trace: Trace, plain: Trace | None = None) -> Baseline:
    """That of a run: the speed of ``plain``, a run of plain decoding (the median of its repeats), or else of the plain
    decoding that the run itself recorded behind its own.
    """
    reason = unlike(trace, plain) if plain is not None else "plain decoding was not run"
    if plain is not None and not reason:
        plain_speeds = speeds(plain)
        return Baseline(median(plain_speeds) if plain_speeds else None)
    plain_speed = trace.run.get("timings", {}).get("plain_tokens_per_s")
    if plain_speed is None:
        return Baseline(None, f"no speedup: {reason}")
    if not _greedy(trace.run) and not trace.run.get("plain_sampling"):
        return Baseline(None, "no speedup: this run drew tokens, and the plain decoding recorded with it was greedy")
    return Baseline(plain_speed)


def speeds(trace: Trace) -> list[float]:
    """Tokens per second of a run, then those of each of its repeats; empty where no time was measured."""
    first = measure(trace)["tokens_per_s"]
    tokens = first.parts.get("tokens")
    if first.value is None or not tokens:
        return []
    repeats = trace.run.get("timings", {}).get("repeats_ms") or []
    return [first.value, *(1000 * tokens / ms for ms in repeats if ms > 0)]


def pair_with_plain(traces: Iterable[Trace]) -> None:
    """Give every run without plain decoding's speed that of a plain run among ``traces`` which is alike in all but the
    method (``unlike``); ``run["plain_run"]`` is its id.
    """
    all_traces = list(traces)
    plains = [trace for trace in all_traces if trace.run["method"]["name"] == BASELINE]
    for trace in all_traces:
        like = next((plain for plain in plains if plain is not trace and not unlike(trace, plain)), None)
        if like is None or trace in plains or baseline(trace).tokens_per_s is not None:
            continue
        speed = measure(like)["tokens_per_s"].value
        trace.run["timings"] = {**trace.run.get("timings", {}), "plain_tokens_per_s": speed}
        trace.run["plain_run"] = like.run.get("id", "")
        speed_values = {key: measurement.value for key, measurement in measure(trace, speed).items()}
        trace.run["metrics"] = {**(trace.run.get("metrics") or {}), **speed_values}


def unlike(trace: Trace, plain: Trace) -> str:
    """The first thing but the method in which two runs differ, in words; "" where they are alike in all.

    >>> run = {"prompt_length": 1, "model": {"name": "a", "dtype": "float32", "device": "cpu"}}
    >>> machines = ({"processor": "x", "engine": engine, "threads": 1} for engine in ("auto", "eager"))
    >>> one, other = (Trace.new({**run, "machine": machine}) for machine in machines)
    >>> unlike(one, other), unlike(one, one)
    ('the engine differs (auto, and eager of plain decoding)', '')
    """
    return next(_differences(trace, plain), "")


def pairing_key(trace: Trace) -> str:
    """The same for runs that are alike in all but the method (``unlike``); "" where the machine was not recorded.

    >>> machine = {"processor": "x", "engine": "auto", "threads": 1}
    >>> pld, plain = (Trace.new({"prompt_length": 1, "method": {"name": name}, "machine": machine}) for name in "ab")
    >>> pairing_key(pld) == pairing_key(plain) != pairing_key(Trace.new({"prompt_length": 1})) == ""
    True
    """
    machine = trace.run.get("machine") or {}
    machine_values = [machine.get(key) for key, _ in MACHINE]
    if None in machine_values:
        return ""
    identity = json.dumps([_setting(trace.run), asked_prompt(trace), machine_values])
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _differences(trace: Trace, plain: Trace) -> Iterator[str]:
    plain_setting = _setting(plain.run)
    for name, value in _setting(trace.run).items():
        if value != plain_setting[name]:
            yield f"the {name} differs ({value}, and {plain_setting[name]} of plain decoding)"
    if asked_prompt(trace) != asked_prompt(plain):
        yield "plain decoding was run on another prompt"
    machines = [side.run.get("machine") or {} for side in (trace, plain)]
    for key, words in MACHINE:
        own_value, plain_value = (machine.get(key) for machine in machines)
        if own_value is None or plain_value is None:
            yield f"the {words} of both runs was not recorded, as in runs of earlier versions: run both again"
        elif own_value != plain_value:
            yield f"the {words} differs ({own_value}, and {plain_value} of plain decoding)"


def asked_prompt(trace: Trace) -> Any:
    """The prompt that was given to a run: its tokens, or their digest where the method rewrote them."""
    return trace.run.get("given_prompt") or trace.prompt_key


def _greedy(run: RunRecord) -> bool:
    return not (run.get("sampling") or {}).get("temperature")


def _setting(run: RunRecord) -> dict[str, Any]:
    model, sampling = run.get("model") or {}, run.get("sampling") or {}
    settings = {name: sampling.get(name) for name in ("temperature", "top_k", "top_p", "seed")}
    return {
        "model": model.get("name"), "model's size": model.get("parameters"),
        "model's fingerprint": model.get("key"), "dtype": model.get("dtype"),
        "precision of the weights": model.get("weights") or "full",
        "precision of the rows": model.get("activations") or "full", "device": model.get("device"),
        "sampling": "greedy" if _greedy(run) else ", ".join(f"{name} {value}" for name, value in settings.items()),
    }  # fmt: skip
