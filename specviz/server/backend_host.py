"""A backend's side of the app: the model, opened once, and what is done with it. Plain data goes there and back."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from decoders.method.plugin_files import plugin_files
from decoders.model.files.catalog import precision_of
from decoders.prompt.codec import from_json
from decoders.trace.trace import Trace
from specviz.workers.executors import Hosting
from specviz.workers.kinds import Workers
from specviz.workers.plain import code_of, open_alike
from specviz.workers.processes import worker_device

from .job import RunLike, copy_of

if TYPE_CHECKING:
    from decoders import Target

PACKAGES = ("decoders", "specviz/server", "specviz/workers", "specviz/pages")  # alike in the app and its backends


@dataclass
class Holder:
    """A place of model work: a model, and what pages remember there of what they did with it."""

    target: Target
    memory: dict[str, Any] = field(default_factory=dict)

    def run(self, arguments: Mapping[str, Any], cancel: threading.Event) -> RunLike:
        """A run, from its arguments as plain data: ``Run``'s, the prompt as ``decoders.prompt.codec`` writes it."""
        from decoders import Run, Sampling

        decoded_args = {"prompt": from_json(arguments["prompt"]), "sampling": Sampling(**arguments["sampling"])}
        return Run(self.target, **{**arguments, **decoded_args}, cancel=cancel)


Work = Callable[[Holder, Mapping[str, Any]], dict[str, Any]]  # a function of a module; plain data in and out


def open_holder(about: Mapping[str, Any]) -> Holder:
    """Open the model of a backend, and compare it with the app's own."""
    return Holder(open_alike(about, PACKAGES, about["code"], about["key"], about["precision"], "a backend", "the app"))


def hosting_of(workers: Workers, target: Target, opening: Mapping[str, Any], drafter: str | None = None) -> Hosting:
    """Options by which each backend opens the app's model; ``opening`` as ``load_target`` takes it."""
    device, gpus = worker_device(target.device.type, opening.get("device"), is_scheduled=not workers.kind.is_here)
    about = {
        "opening": {**opening, "device": device, "dtype": str(target.info["dtype"])},
        "key": target.key, "precision": precision_of(target.info), "code": code_of(PACKAGES), "offered": drafter,
        "plugins": [str(path) for path in plugin_files()], "threads": workers.threads_each,
    }  # fmt: skip
    return Hosting(open_holder, about, workers.threads_each, gpus)


def decode(
    holder: Holder, arguments: Mapping[str, Any], owner: str, cancel: threading.Event
) -> Iterator[dict[str, Any]]:
    """Decode a prompt: ``stream``."""
    from decoders.method.kept import owned_by

    with owned_by(owner):
        yield from stream(holder.run(arguments, cancel))


def method_state(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """By method, how much it keeps of ``owner``'s runs; with a method to ``empty`` what was dropped."""
    from decoders.method.kept import kept_with, owned_by

    with owned_by(request["owner"]):
        owner_state = kept_with(holder.target)
        if request.get("empty"):
            return {"dropped": owner_state.empty(request["empty"])}
        return {name: asdict(amount) for name, amount in owner_state.amounts().items()}


# --- a run as messages, and a run made of them ---


def stream(run: RunLike) -> Iterator[dict[str, Any]]:
    """A run as it goes on: {"begun": its record and tables}, then {"delta", "run", "tables"} for each delta, where
    ``run`` are the entries of the record that changed, and ``tables`` those that changed otherwise; at last without
    "delta". What it raises is told behind all of that.
    """
    trace = run.trace
    yield {"begun": {"run": trace.run, "tables": trace.tables}}
    cursor = _TraceCursor(trace)
    fault: Exception | None = None
    try:
        for delta in run:
            yield {"delta": delta, **cursor.step(delta)}
    except Exception as problem:
        fault = problem
    yield cursor.remainder()
    if fault is not None:
        raise fault


class _TraceCursor:
    """The part of a trace that the other side has."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.sent_copy = trace, copy_of(trace)
        self.entries = {name: json.dumps(value) for name, value in trace.run.items()}

    def step(self, delta: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, Any]:
        """Message beside a delta."""
        self.sent_copy.extend(delta)
        rows, sent_rows = self.trace.rows, self.sent_copy.rows
        uneven = {name: table for name, table in self.trace.tables.items() if rows(name) != sent_rows(name)}
        self.sent_copy.tables |= copy_of(Trace(self.trace.run, uneven)).tables
        return {"run": self._changes(), "tables": uneven}

    def remainder(self) -> dict[str, Any]:
        """Final message: columns changed since the last one."""
        columns = {
            table: changes
            for table, table_columns in self.trace.tables.items()
            if (
                changes := {
                    name: c for name, c in table_columns.items() if self.sent_copy.tables.get(table, {}).get(name) != c
                }
            )
        }
        return {"run": self._changes(), "tables": columns}

    def _changes(self) -> dict[str, Any]:
        changes = {}
        for name, value in self.trace.run.items():
            text = json.dumps(value)
            if self.entries.get(name) != text:
                self.entries[name], changes[name] = text, value
        return changes


class RemoteRun:
    """A run that goes on elsewhere, as what it tells says (``stream``): ``decoders.Run``'s face.

    Whatever ends the stream early is raised behind the last delta, after the trace was closed as far as it came.
    """

    def __init__(self, messages: Iterator[Mapping[str, Any]]) -> None:
        begun = next(messages)["begun"]
        self.trace = Trace(begun["run"], begun["tables"])
        self._messages = messages

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        trace = self.trace
        try:
            for message in self._messages:
                if "delta" in message:
                    trace.extend(message["delta"])
                for name, columns in message["tables"].items():
                    trace.tables[name] = {**trace.tables.get(name, {}), **columns}
                trace.run.update(message["run"])
                if "delta" in message:
                    yield message["delta"]
        finally:
            if not trace.run.get("complete"):
                self._close()

    def _close(self) -> None:
        """The run was cut off: its numbers are those of the steps that there are."""
        from decoders.trace import metrics

        run, elapsed = self.trace.run, self.trace.tables["steps"]["elapsed_ms"]
        run["timings"] = {**run.get("timings", {}), "decode_ms": elapsed[-1] if elapsed else 0.0}
        with contextlib.suppress(ValueError, KeyError):
            metrics.fill_would_accept(self.trace)
            run["metrics"] = metrics.compute(self.trace)
        run["complete"] = True
