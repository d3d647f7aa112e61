"""``specviz compile``: compile a model's forwards at once, and those of the draft models that are here for it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from decoders.errors import UserError
from specviz.commands import common, options

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

    from .compiling import CompiledPart

DESCRIPTION = "Compile a model's forwards, and its draft models', once for this machine; needs a C++ compiler."
SOME_S = 60  # of a part, at most, on an idle machine


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="PATH_OR_ID", help=options.MODEL_HELP)
    parser.set_defaults(device="cpu", dtype="float32", engine="auto", threads=None)


def run(args: argparse.Namespace) -> int:
    from .compiled_layers import why_not
    from .compiling import NO_COMPILER, WORKSHOP, compiler
    from .kernel import KERNELS

    target = common.open_target(args)
    if reason := why_not(target):
        raise UserError(reason)
    parts = named_parts(target)
    missing = {name: part for name, part in parts.items() if WORKSHOP.open(part) is None}
    if missing and compiler() is None:
        raise UserError(f"{NO_COMPILER}: install one, then call specviz compile again")
    compiled_count = len(parts) - len(missing)
    common.say(
        f"{target.name}: {compiled_count} of {len(parts)} parts are compiled"
        + (f"; the others take up to {SOME_S} s each on an idle machine, and what is done stays" if missing else "")
    )
    failed = 0
    with common.progress_bar("compiling", lines=False, told_now=True) as progress:
        for position, (name, part) in enumerate(missing.items()):
            progress(position, len(missing), name)
            start_time = time.monotonic()
            WORKSHOP.make([part])
            is_compiled = WORKSHOP.wait([part])
            failed += not is_compiled
            outcome = f"{time.monotonic() - start_time:.0f} s" if is_compiled else WORKSHOP.failed[part.package]
            common.say(f"{position + 1} of {len(missing)}: {name}, {outcome}")
    if KERNELS.usable("compiled"):  # else the log says why
        common.say("the kernels for rounded weights are there")
    return 1 if failed else 0


def named_parts(target: Target) -> dict[str, CompiledPart]:
    """The compiled parts of a model and of its draft models by the names that people read, most used first."""
    from decoders.method.part import kinds
    from decoders.parts import load_part, missing_part

    from .engine import forward_of

    forward = forward_of(target)
    assert not isinstance(forward, str)
    parts = {forward.titles[key]: part for key, part in forward.parts.items()}
    for kind, about in kinds().items():
        if about.compiled is None or missing_part(target, kind):
            continue
        compiled = about.compiled(target, load_part(target, kind))
        if compiled is not None:
            parts |= {f"{about.title}, {rows}": part for rows, part in compiled.parts.items()}
    return parts
