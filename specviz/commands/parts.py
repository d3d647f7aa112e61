"""``specviz parts``: heads that others published, as a target's own; trained parts in fewer bytes, and for servers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from . import common, options

if TYPE_CHECKING:
    from decoders import Target

DESCRIPTION = (
    "Fit a head that others published (EAGLE-1 to -3, Medusa, Hydra) to a model, or take a part that was trained for "
    "it elsewhere, and keep it beside the parts that were trained here: methods find it then by themselves, in the "
    "app too."
)
EXPORT = (
    "Write a trained part in a format that servers open: a folder for vLLM (speculators, eagle) or SGLang (eagle). "
    "EAGLE-3's and Hydra's heads that were trained here are exported exactly, and vanilla drafters as small causal LMs "
    "(transformers). EAGLE-1's and Medusa's heads are not: they read states in units of their spread, for which their "
    "formats have no place. Parts in int8 are dequantised."
)
DTYPES = ("float32", "bfloat16", "float16")


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    keep = actions.add_parser("add", help="keep a head", description=DESCRIPTION)
    keep.add_argument("head", metavar="HEAD", help="a folder, a file or a hub id such as org/name; or a part's folder")
    options.add_model(keep, plugins=False)
    shrink = actions.add_parser(
        "shrink", help="store a trained part in int8, or smaller", description="Store a part's matrices in int8, with "
        "a scale per row: half of half precision's bytes; or in six or four bits, with one per 64 weights. It is "
        "computed with as before; what it drafts may differ by a little, so compare with `specviz verify`."
    )  # fmt: skip
    shrink.add_argument("--bits", type=int, choices=(8, 6, 4), default=8, help="of a weight: 8 (default), 6 or 4")
    shrink.add_argument("folder", nargs="+", type=Path, metavar="FOLDER", help="a part's folder (it holds part.json)")
    write = actions.add_parser("export", help="write a trained part for servers", description=EXPORT)
    write.add_argument("part", metavar="PART", help="a part's folder, or the kind of the model's own (such as eagle3)")
    write.add_argument("out", type=Path, metavar="FOLDER", help="a new folder, for config.json and model.safetensors")
    write.add_argument(
        "--format", required=True, metavar="F", help="speculators or eagle, of an EAGLE-3 head; transformers, of a "
        "vanilla drafter; eagle, hydra, medusa: their authors' own form"
    )  # fmt: skip
    write.add_argument("--verifier", metavar="NAME", default="", help="hub id or path by which servers open the model")
    write.add_argument("--store", choices=DTYPES, metavar="T", help=f"{', '.join(DTYPES)} (default: the model's)")
    options.add_model(write, plugins=False)


def run(args: argparse.Namespace) -> int:
    from decoders.method.part import kinds
    from decoders.parts import keep_published, shrink_part

    if args.action == "shrink":
        for folder in args.folder:
            old_size, new_size = shrink_part(folder, args.bits)
            common.say(f"{folder}: {old_size / 1e6:.1f} MB before, {new_size / 1e6:.1f} MB now")
        return 0
    target = common.open_target(args)
    if args.action == "export":
        return _export(args, target)
    part, place = keep_published(target, args.head)
    about = part.training.get("published") or {"from": args.head, "title": "trained by specviz"}
    lines = [f"{about['from']} ({about['title']}) is kept as the {kinds()[part.kind].title} of {target.name}: {place}"]
    if "features" in about:
        lines.append(f"it reads the states {', '.join(map(str, about['features']))}")
    if "acceptance" in about:
        lines.append(f"on a short text {about['acceptance']:.0%} of its first guesses were the target's own")
    common.say(*lines)
    return 0


def _export(args: argparse.Namespace, target: Target) -> int:
    import torch

    from decoders.model.files.catalog import upstream
    from decoders.parts import export_part

    dtype = getattr(torch, args.store) if args.store else target.dtype
    verifier = args.verifier or upstream(target.key) or target.name
    part, export = export_part(target, args.part, args.format, args.out, verifier=verifier, dtype=dtype)
    size = (args.out / "model.safetensors").stat().st_size
    precision = str(dtype).removeprefix("torch.")
    common.say(f"{args.out}: a part of {verifier} ({part.kind}, {args.format}), {size / 1e6:.1f} MB in {precision}")
    common.say(*export.notes)
    return 0
