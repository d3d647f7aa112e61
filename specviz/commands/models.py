"""``specviz models``: the models that are here, and the parts that were trained for each."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from decoders.model.files.catalog import SMOLLM2, default_model, missing_smollm2
from decoders.names import weight_names
from specviz.models import list_models
from specviz.words import short_number

from . import common, options

UNKNOWN = "known once it was opened"

DESCRIPTION = "List the models that are here: bundled, SmolLM2, converted from GGUF files, opened before."


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--json", "print one JSON object")
    names = weight_names()
    help = f"the memory with {' or '.join(names[1:] or names)}"
    parser.add_argument("--weights", choices=names, metavar="W", help=help)


def run(args: argparse.Namespace) -> int:
    common.settle()
    models, absent = list_models(weights=args.weights), missing_smollm2()
    if args.json:
        missing = {SMOLLM2: absent} if absent else {}
        return common.print_json({"models": [asdict(model) for model in models], "missing": missing})
    from rich.text import Text

    rows = []
    for entry in models:
        about = Text(f"{entry.name}\n{entry.kind}")
        for note in entry.notes:
            about.append(f"\n{note}", "italic")
        parts = UNKNOWN if entry.parts is None else ", ".join(entry.parts) or "none"
        count = "–" if entry.parameters is None else short_number(entry.parameters)
        rows.append((entry.model, about, count, _size(entry.size_bytes), _size(entry.memory_bytes), entry.dtype, parts))
    heads = ("--model", "what it is", "parameters", "on disk", "memory", "dtype", "trained parts")
    common.show_table(heads, rows, row_lines=True)
    default_note = f"{default_model()} is opened where no --model is given."
    common.say(*([f"{absent}."] if absent else []), default_note)
    return 0


def _size(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:,.1f} MB"
