"""Recorded runs for tests: those of the gallery, a frozen one of hostile text, and mutations of them.

Every trace is of the real recorder, and reading one needs no torch. ``python -m tests.recordings`` records the hostile
one anew.

>>> trace = chain()
>>> trace.run["complete"], trace.rows("steps") > 10
(True, True)
"""

from __future__ import annotations

import functools
import gzip
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from decoders.trace.files import load, save
from decoders.trace.metrics import compute, fill_would_accept
from decoders.trace.tables import TABLES
from decoders.trace.trace import Trace
from specviz.places import GALLERY

HOSTILE = Path(__file__).parent / "frozen" / "hostile.spectrace"
UNPACKED = tempfile.TemporaryDirectory(prefix="specviz-frozen-")
FROZEN_GALLERY = Path(UNPACKED.name) / "frozen" / "gallery"  # as the first version wrote it
with tarfile.open(HOSTILE.with_name("gallery.tar.xz")) as packed:
    packed.extractall(FROZEN_GALLERY, filter="data")
NASTY = (
    "plain <b>bold</b> <img src=x onerror=window.__pwned=1> </script><script>window.__pwned=2</script>\r\n"
    "${window.__pwned=3} {{7*7}} tab\there  two  spaces\r\nemoji 👩‍👩‍👧 🇩🇪 👍🏽 naïve e\u0301 "
    "日本語の文 שלום עולם مرحبا\u2028line\u0000nul\u200b"
)
LONE_BYTES = {"ǰ": ["ð", "Ł"], "ǲ": ["ÿ", "ÿ"]}  # a placeholder, and the byte tokens F0 9F and FF FF for it
Rows = dict[str, dict[str, list[Any]]]


@functools.cache
def frozen_file(name: str) -> Path:
    """Unpacks a file of ``frozen`` that is kept compressed."""
    path = Path(UNPACKED.name) / name
    path.write_bytes(gzip.decompress(HOSTILE.with_name(f"{name}.gz").read_bytes()))
    return path


def frozen_journal() -> Path:
    """A journal as the first version wrote it."""
    return frozen_file("run.journal")


def save_trace(trace: Trace) -> bytes:
    """The bytes of the trace's file."""
    data = save(trace, None)
    assert data is not None
    return data


def gallery_run(name: str) -> Trace:
    """A run of the gallery, named without its number; it opens at its first step, as a user's run does."""
    trace = load(next(GALLERY.glob(f"*[0-9]-{name}.spectrace")))
    trace.run.pop("opens", None)
    return trace


def earlier_run(name: str) -> Trace:
    """A run of an earlier gallery, as its file was then."""
    return load(FROZEN_GALLERY / f"{name}.spectrace")


def chain() -> Trace:
    """One copied line a step, by PLD+; four steps have no draft."""
    return gallery_run("library-points-pld-h")


def tree() -> Trace:
    """Draft trees of copies, branches and their successors, by AdaPLD."""
    return gallery_run("class-docstring-adapld")


def plain() -> Trace:
    """No drafts at all."""
    return gallery_run("class-docstring-plain")


def quote() -> Trace:
    """Four passages, by PLD+."""
    return gallery_run("hotel-notes-pld-h")


def casd() -> Trace:
    """A lossy answer, by CASD; plain decoding's output stands beside it."""
    return gallery_run("account-check-casd")


def glide() -> Trace:
    """A draft model's drawn tokens, by GLIDE."""
    return gallery_run("garden-summary-glide-sampled")


def cape() -> Trace:
    """A draft model's chain with expansions beside it, by GLIDE with CAPE."""
    return gallery_run("class-docstring-glide-cape")


def ppd() -> Trace:
    """Trees of prompt tokens' guesses, by PPD."""
    return gallery_run("class-docstring-ppd")


def nasty() -> Trace:
    """Markup, CRLF, emoji, right-to-left text, split characters and lone bytes; the output repeats itself."""
    return load(HOSTILE)


def with_title(trace: Trace, title: str) -> Trace:
    trace.run["title"] = title
    return trace


def append(trace: Trace, table: str, row: dict[str, Any]) -> None:
    """Add one row; every column of the table is given."""
    for name, values in trace.tables[table].items():
        values.append(row[name])


def descend(document: Any, keys: Iterable[Any]) -> Any:
    """The part of a document that stands below these keys."""
    return reduce(getitem, keys, document)


def step_ids(trace: Trace, step: int) -> list[int]:
    """Output token ids emitted by a step."""
    tokens = trace.tables["tokens"]
    return [t for t, s in zip(tokens["id"], tokens["step"], strict=True) if s == step]


def _empty(trace: Trace) -> Rows:
    return {table: {name: [] for name in columns} for table, columns in trace.tables.items()}


def _step_of(trace: Trace, table: str) -> Iterable[int]:
    """The step of every row of a table; -1 where the row is of none."""
    columns = trace.tables[table]
    return range(trace.rows("steps")) if table == "steps" else columns.get("step", [-1] * trace.rows(table))


def deltas(trace: Trace) -> tuple[Trace, list[Rows]]:
    """The trace as it is streamed: an opening trace with the prompt and the pool only, and one delta per step; the
    last one has plain decoding's output too.
    """
    opening = Trace.new({**trace.run, "complete": False, "metrics": {}})
    prompt = trace.run["prompt_length"]
    opening.tables["pieces"] = {name: list(values) for name, values in trace.tables["pieces"].items()}
    opening.tables["tokens"] = {name: values[:prompt] for name, values in trace.tables["tokens"].items()}
    opening.tables["pool"] = {name: list(values) for name, values in trace.tables["pool"].items()}
    parts = [_empty(trace) for _ in range(trace.rows("steps"))]
    parts[-1]["plain"] = {"id": list(trace.tables["plain"]["id"])}
    for table in TABLES:
        for row, step in enumerate(_step_of(trace, table)):
            for name, values in trace.tables[table].items() if step >= 0 else ():
                parts[step][table][name].append(-1 if name == "would_accept" else values[row])
    return opening, parts


def beginning(trace: Trace, steps: int) -> Trace:
    """The run as it would be had it been cancelled after so many steps."""
    opening, parts = deltas(trace)
    for part in parts[:steps]:
        opening.extend(part)
    opening.run.update(complete=True, stop="cancelled")
    fill_would_accept(opening)
    opening.run["metrics"] = compute(opening)
    return opening


PLACES = {"source", "position", "context"}  # columns that hold positions of the text, or count up to one


def repeat(trace: Trace, outputs: int, prompts: int = 1) -> Trace:
    """The run with its prompt ``prompts`` times in a row, and all its steps ``outputs`` times.

    A candidate in the prompt is one in each copy, and the last of them is what was drafted from.
    """
    prompt, clock = trace.run["prompt_length"], trace.tables["steps"]["elapsed_ms"][-1]
    further = {"step": trace.rows("steps"), "context": len(trace.output_ids), "elapsed_ms": clock}  # a turn's
    tables: dict[str, dict[str, list[Any]]] = {}
    for table, columns in trace.tables.items():
        steps = _step_of(trace, table)
        rows = [(row, 0, 0) for row, step in enumerate(steps) if step < 0]  # row, turn, shift of its places
        if table == "tokens":
            rows *= prompts
        for turn in range(outputs):
            for row, step in enumerate(steps):
                in_prompt = table == "candidates" and 0 <= columns["position"][row] < prompt
                shifts = range((0 if in_prompt else prompts - 1), prompts)
                rows += [(row, turn, shift * prompt) for shift in reversed(shifts)] if step >= 0 else []
        new = tables[table] = {name: [values[row] for row, *_ in rows] for name, values in columns.items()}
        for name in (PLACES | set(further)) & set(new) if table != "pool" else ():
            by, moved = further.get(name, 0), name in PLACES
            new[name] = [
                value + turn * by + shift * moved if value >= 0 else value
                for value, (_, turn, shift) in zip(new[name], rows, strict=True)
            ]
        if table == "candidates":
            before = [prompts - 1 - shift // prompt for *_, shift in rows]  # 0: in the last copy
            new["chosen"] = [won and not copies for won, copies in zip(new["chosen"], before, strict=True)]
            new["rank"] = [rank * prompts + copies for rank, copies in zip(new["rank"], before, strict=True)]
    nodes = tables["nodes"]
    for row, parent in enumerate(nodes["parent"]):
        if parent < 0:
            nodes["token"][row] = tables["tokens"]["id"][tables["steps"]["context"][nodes["step"][row]] - 1]
    return Trace({**trace.run, "prompt_length": prompts * prompt}, tables)


def record_hostile() -> None:
    """Records ``frozen/hostile.spectrace``: the bundled target is made to write the hostile text twice."""
    from decoders import Prompt, load_target
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    target = load_target("bundled")
    tokenizer = target.tokenizer

    def with_lone_bytes(ids: Iterable[int]) -> tuple[int, ...]:
        """Each placeholder's two tokens become those of its lone bytes."""
        text = " ".join(map(str, ids))
        for placeholder, names in LONE_BYTES.items():
            pair = tokenizer.encode(placeholder, add_special_tokens=False)
            lone = tokenizer.convert_tokens_to_ids(names)
            assert len(pair) == len(lone)
            text = text.replace(" ".join(map(str, pair)), " ".join(map(str, lone)))
        return tuple(map(int, text.split()))

    text = f"{NASTY} lone ǰ byte ǲ end"
    prompt = Prompt.from_segments(tokenizer, "Repeat it <i>twice</i>.", text)
    prompt = replace(prompt, tokens=with_lone_bytes(prompt.tokens))
    answer = with_lone_bytes(answer_ids(target, f"{text}\n{text}"))
    trace = forced_trace(target, prompt, answer, "adapld", title="<script>alert(1)</script> ${x}")
    save(trace, HOSTILE)


if __name__ == "__main__":
    record_hostile()
