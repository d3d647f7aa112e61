"""Steps of runs drafted again, and looked at layer by layer, where the model is: by the app, or by a backend of it.

Functions of a ``Holder`` and plain JSON (in the app itself a run's trace comes as it is); runs stay read there.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.trace import files as tracefile
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.server.backend_host import Holder
from specviz.server.cards import verifier_cards

if TYPE_CHECKING:
    from decoders import Needs, Target
    from decoders.study.look.whatif import ReadRun

MEMORY = "whatif"
MOST_READ, MOST_BYTES = 3, 2 << 30  # runs that stay read, and what they hold together
LACKS = {"lacks": "trace"}  # told where a run is not read: ask again, with its trace


def to_text(trace: Trace) -> str:
    """A run as text that JSON can hold."""
    return base64.b64encode(tracefile.save(trace, None) or b"").decode()


def to_trace(text: str) -> Trace:
    """The run back from ``to_text``."""
    return tracefile.load(base64.b64decode(text))


def redraft(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """A ``step`` of the run ``key`` drafted again: by a ``method`` with ``params`` (both None: the run's own), or on
    from a ``candidate``. The step as a trace of its own, how it compares with the recorded one, and its draft under
    every verifier (``judged``: the verifiers' cards and ``judging.step_json``; None where nothing was drafted).
    """
    from decoders.drafters import find_method

    if (trace := _trace(holder, request)) is None:
        return LACKS
    name, params, candidate = request["method"], request["params"], request["candidate"]
    method_params = params if params is not None else own_of(trace)
    method = find_method(name if name is not None else str(trace.run["method"]["name"]))
    run, read_ms = _ready(holder, request["key"], trace, _needs(holder.target, method, method_params))
    outcome = run.redraft(request["step"], name, method_params if candidate is None else None, candidate=candidate)
    return {
        "trace": payload(outcome.trace), "step": outcome.step, "recorded": outcome.recorded,
        "accepted": outcome.accepted,
        "more": outcome.accepted - outcome.recorded, "emitted": list(map(int, outcome.emitted)), "same": outcome.same,
        "read_ms": round(read_ms, 1), "ms": round(outcome.ms, 1), "notes": list(outcome.notes),
        "judged": _under_every_verifier(outcome.trace, trace, request["step"]),
    }  # fmt: skip


def _under_every_verifier(step_trace: Trace, trace: Trace, step: int) -> dict[str, Any] | None:
    """A step that was drafted ``again``, judged by all rules with the random numbers of the run's ``step``."""
    from decoders.study.judge.judge import fault, judge_steps
    from decoders.study.look.run_settings import drawn_before, sampling_of
    from specviz.pages.acceptance.judging import step_json

    if fault(step_trace):
        return None
    draw_count = 0 if sampling_of(trace.run).greedy else drawn_before(trace)[step]
    for judged_step in judge_steps(step_trace, offset=draw_count):
        return {"rules": verifier_cards([*judged_step.rules]), "step": step_json(judged_step)}
    return None


def lens(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """The first choices of every layer of the target at a drafted ``node`` of a ``step`` of the run ``key``."""
    from decoders.draft.needs import Needs
    from decoders.study.look import lens as study

    if (trace := _trace(holder, request)) is None:
        return LACKS
    run, read_ms = _ready(holder, request["key"], trace, Needs())
    return {**study.lens(run, request["step"], request["node"]).to_json(), "read_ms": round(read_ms, 1)}


def own_of(trace: Trace) -> dict[str, Any]:
    """The run's own parameters but those that name files."""
    from decoders import methods
    from decoders.study.look.run_settings import own_params

    name, registry = str(trace.run["method"]["name"]), methods()
    if name not in registry:
        raise UserError(f"This run's method {name[:40]!r} is not known here: choose another one.")
    return own_params(trace, registry[name])


def forget(holder: Holder, key: str) -> None:
    """Read a run no more."""
    _read(holder).pop(key, None)


def _read(holder: Holder) -> OrderedDict[str, ReadRun]:
    return holder.memory.setdefault(MEMORY, OrderedDict())


def _trace(holder: Holder, request: Mapping[str, Any]) -> Trace | None:
    """The run's trace: as it comes, else that of the run as it was read; None where there is neither."""
    sent_trace = request.get("trace")
    if isinstance(sent_trace, Trace):
        return sent_trace
    if sent_trace is not None:
        return to_trace(sent_trace)
    read = _read(holder).get(request["key"])
    return None if read is None else read.trace


def _needs(target: Target, method: Any, params: Mapping[str, Any]) -> Needs:
    """The needs of a method on a run."""
    from decoders.draft.params import make_params
    from decoders.study.look.whatif import bounded_needs

    return bounded_needs(method.needs(target, make_params(method.params, params)))


def _ready(holder: Holder, key: str, trace: Trace, needs: Needs) -> tuple[ReadRun, float]:
    """The run, read; and the milliseconds that took, 0 where it was read before."""
    from decoders.study.look.whatif import ReadRun

    read = _read(holder)
    run = read.pop(key, None)
    if run is not None and run.target is not holder.target:
        run = None
    took = 0.0
    if run is None or not run.serves(needs):
        run = ReadRun(holder.target, trace, needs)
        took = run.ms
    read[key] = run
    while len(read) > 1 and (len(read) > MOST_READ or sum(entry.bytes for entry in read.values()) > MOST_BYTES):
        read.popitem(last=False)
    return run, took
