"""The gallery: runs recorded with the bundled model, so that there is something to show before a model is loaded."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.trace import files as tracefile
from specviz.places import BUNDLED, GALLERY, SUFFIX

from .examples import examples

if TYPE_CHECKING:
    from decoders import Target

# (example, method, temperature) in the order of the list; the page opens on the first one
with (GALLERY / "runs.csv").open(encoding="utf-8", newline="") as _file:
    RECORDED = tuple((row["example"], row["method"], float(row["temperature"])) for row in csv.DictReader(_file))


def record_gallery(
    target: Target, folder: Path, *, max_new_tokens: int = 320, say: Callable[[str], None] = print
) -> list[Path]:
    """Record every run of ``RECORDED`` into ``folder`` (created if missing); files of earlier recordings are replaced.

    Nothing is removed before all runs are recorded. Raises UserError if a method or a prompt is refused.
    """
    from decoders import Sampling, find_method, record

    by_name = {e.record.id: e for e in examples()}
    made = []
    for number, (name, method, temperature) in enumerate(RECORDED, 1):
        example = by_name[name]
        prompt = replace(example.record.prompt(target.tokenizer), reference=example.record.reference)
        compare = not find_method(method).lossless
        trace = record(
            target, prompt, method, sampling=Sampling(temperature), max_new_tokens=max_new_tokens,
            title=example.label, compare=compare,
        )  # fmt: skip
        trace.run["id"] = f"{number}-{name}-{method.replace('+', '-')}{'-sampled' if temperature else ''}"
        made.append(trace)
        say(
            f"{trace.run['id']}: {len(trace.output_ids)} tokens, {trace.run['metrics']['tokens_per_step']:.2f} per step"
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{trace.run['id']}{SUFFIX}" for trace in made]
    for trace, path in zip(made, paths, strict=True):
        tracefile.save(trace, path)
    for old in folder.glob(f"*{SUFFIX}"):
        if old not in paths:
            old.unlink()
    return paths


def main() -> None:
    """``python -m specviz.views.gallery``: record the gallery with the bundled model."""
    from decoders import load_target

    record_gallery(load_target(str(BUNDLED)), GALLERY)


if __name__ == "__main__":
    main()
