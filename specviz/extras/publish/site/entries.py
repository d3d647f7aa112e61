"""The runs of a site: what its list says of them, and their traces, read where a file is made of them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.importers import ImportFault
from decoders.names import BASELINE
from decoders.trace.baseline import pair_with_plain, pairing_key
from decoders.trace.metrics import compute
from decoders.trace.tables import TraceError
from decoders.trace.trace import Trace
from specviz.commands import common
from specviz.pages.attribution.document import answer_digest
from specviz.pages.compare.outcome import is_plain, plain_key

from .documents import TEXTLESS
from .folder import SiteFolder, program

# facts that the list does not show
GROUPING = "answer_digest", "signal", "guessed", "created", "whole_plain", "pairing_key", "plain_key"
TITLE = 200  # characters of a title in the list, and of a tag


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A run of a site: ``facts`` for its list, its trace when it is asked for, and what is kept beside its file: tags,
    and its known quotes as they stand there (``gold``).
    """

    facts: dict[str, Any]
    read: Callable[[], Trace]
    tags: tuple[str, ...] = ()
    gold: Any = None

    @classmethod
    def of(cls, trace: Trace, tags: Sequence[str] = (), gold: Any = None) -> SiteEntry:
        """A run that is open."""
        return cls(facts_of(trace), lambda: trace, tuple(tags), gold)

    @property
    def key(self) -> str:
        return self.facts["key"]

    @property
    def is_plain(self) -> bool:
        return self.facts["plain"]

    def when(self) -> tuple[str, str]:
        """Sorts runs by when they were recorded: of several that would do the earliest is taken, so that a later one
        changes no file of other runs.
        """
        return self.facts["created"], self.key

    @property
    def row(self) -> dict[str, Any]:
        """A line of the list."""
        facts = {name: value for name, value in self.facts.items() if name not in GROUPING}
        return {**facts, "tags": [tag[:TITLE] for tag in self.tags], "answer": "", "judged": False}

    def with_speedup(self, plains: Iterable[SiteEntry]) -> Trace:
        """The run, with its speedup where one of ``plains`` is plain decoding that is alike (``pair_with_plain``)."""
        trace = self.read()
        run_copy = copy.copy(trace)
        run_copy.run = copy.copy(trace.run)
        pair_with_plain([run_copy, *(plain.read() for plain in plains if plain is not self)])
        return run_copy


def facts_of(trace: Trace) -> dict[str, Any]:
    """Facts on a run that a site's list shows, and by which runs are grouped."""
    run, key = trace.run, trace.digest[:16]
    metrics = run.get("metrics") or compute(trace)
    return {
        "key": key, "title": str(run.get("title") or "Untitled run")[:TITLE],
        "method": str(run["method"].get("title") or run["method"].get("name") or "?").partition(":")[0],
        "model": str((run.get("model") or {}).get("name") or ""), "category": str(run.get("category") or ""),
        # the same for all runs of one model on the same prompt; its own where the prompt was not recorded
        "prompt": key if "prompt" in run.get("unknown", ()) else trace.prompt_key,
        "tokens": len(trace.output_ids), "steps": trace.rows("steps"), "per_step": metrics.get("tokens_per_step"),
        "plain": run["method"].get("name") == BASELINE, "answer_digest": answer_digest(trace)[:16],
        # what its answer's links were found by; "" where its texts were not recorded, and nothing is attributed
        "signal": "" if TEXTLESS & set(run.get("unknown", ())) else str(run["method"].get("name")),
        "created": run["created"], "whole_plain": is_plain(trace),
        "pairing_key": pairing_key(trace), "plain_key": plain_key(trace)[:16],
        "guessed": any(q is not None for q in trace.tables["nodes"]["draft_prob"]),
    }  # fmt: skip


def entries_of(files: Sequence[Path], site: SiteFolder) -> tuple[list[SiteEntry], list[str]]:
    """The runs in files, with the tags that the library keeps beside them, and a sentence for each file that is left
    out. A file whose content an earlier publish has seen is not opened. Raises UserError where no run can be read.
    """
    entries, faults = [], []
    for path in files:
        try:
            name = f"source/{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"
            source = Source(path)
            facts = site.make(name, program(), lambda source=source: (None, [facts_of(run) for run in source.runs()]))
        except (TraceError, ImportFault, UserError) as fault:
            faults.append(f"left out: {fault}")
            continue
        except Exception as fault:  # a run that was made to break readers breaks itself alone
            faults.append(f"left out: {path.name} cannot be read ({type(fault).__name__})")
            continue
        tags, gold = _kept_beside(path)
        entries += [SiteEntry(run, source.reader(number), tags, gold) for number, run in enumerate(facts)]
    if not entries:
        raise UserError(f"no run could be read: {faults[0]}" if faults else "there is no run to publish")
    return entries, faults


class Source:
    """A file of runs, opened once, when the first of them is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: list[Trace] | None = None

    def runs(self) -> list[Trace]:
        if self._runs is None:
            self._runs = common.read_traces(self.path)
        return self._runs

    def reader(self, number: int) -> Callable[[], Trace]:
        return lambda: self.runs()[number]


def _kept_beside(path: Path) -> tuple[tuple[str, ...], Any]:
    """Tags and known quotes that the library keeps beside a run; an imported file is JSON itself, and has none."""
    about = path.with_suffix(".json")
    try:
        metadata = json.loads(about.read_text("utf-8")) if about.is_file() and about != path else {}
        return tuple(str(tag) for tag in metadata.get("tags", ())), metadata.get("gold")
    except (OSError, ValueError, AttributeError, TypeError):
        return (), None
