"""A run's times as Chrome's trace events, which ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format", the JSON object form: complete events (ph X) with microseconds, lanes named by metadata.
"""

from __future__ import annotations

from typing import Any

from decoders.trace.trace import Trace
from specviz.groups import group

LANES = ("step", "draft", "verify", "commit")
PROCESS = 1


def trace_events(trace: Trace) -> dict[str, Any]:
    """The document: one process for the run, one lane for whole steps and one per stage, and counters.

    A step's stages follow one another; what a drafter learns after the commit counts as drafting, as in the record. An
    event's ``args`` say what was drafted, accepted and written. What the record does not time has no event.
    """
    run, steps = trace.run, trace.tables["steps"]
    timings, step_texts = run.get("timings") or {}, _step_texts(trace)
    method = run["method"].get("title") or run["method"]["name"]
    events: list[dict[str, Any]] = [
        _name("process_name", 0, f"{method}: {run.get('title') or 'Untitled run'}"),
        *(_name("thread_name", lane, name) for lane, name in enumerate(LANES, 1)),
    ]
    clock_ms = 0.0
    for name, stage in (("read the prompt", "prefill_ms"), ("prepare", "prepare_ms")):
        if took := timings.get(stage) or 0.0:
            events.append(_event(name, 1, clock_ms, took, {}))
            clock_ms += took
    for step in range(trace.rows("steps")):
        began, text = clock_ms, step_texts[step] if step < len(step_texts) else ""
        drafted, accepted = steps["drafted"][step], steps["accepted"][step]
        stages = {
            "draft": {"drafted": drafted, "route": steps["route"][step], "reason": steps["reason"][step]},
            "verify": {"rows": drafted + 1, "context": steps["context"][step]},
            "commit": {"accepted": accepted, "text": text},
        }
        for lane, (stage, about) in enumerate(stages.items(), 2):
            if (took := steps[f"{stage}_ms"][step]) is not None:
                events.append(_event(stage, lane, clock_ms, took, {"step": step + 1, **about}))
                clock_ms += took
        about = {"drafted": drafted, "accepted": accepted, "outcome": steps["outcome"][step], "text": text}
        events.append(_event(f"step {step + 1}", 1, began, clock_ms - began, about))
        count = {"drafted": drafted, "accepted": accepted}
        events.append({"name": "tokens", "ph": "C", "pid": PROCESS, "ts": _us(began), "args": count})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run": run.get("id", ""), "method": run["method"]["name"], "model": run["model"].get("name", "")},
    }


def _step_texts(trace: Trace) -> list[str]:
    """The text that each step wrote."""
    tokens = trace.tables["tokens"]
    ids = group(zip(tokens["step"], tokens["id"], strict=True))
    return [trace.text(ids.get(step, ())) for step in range(trace.rows("steps"))]


def _event(name: str, lane: int, start_ms: float, ms: float, about: dict[str, Any]) -> dict[str, Any]:
    event = {"name": name, "cat": "specviz", "ph": "X", "pid": PROCESS, "tid": lane, "ts": _us(start_ms)}
    return {**event, "dur": _us(ms), "args": {key: value for key, value in about.items() if value != ""}}


def _name(event_name: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": event_name, "ph": "M", "pid": PROCESS, "tid": lane, "args": {"name": name}}


def _us(ms: float) -> float:
    """Microseconds of milliseconds, to the nanosecond."""
    return round(ms * 1e3, 3)
