"""``specviz parts``: heads that others published, as a target's own; trained parts in fewer bytes."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import common, options

DESCRIPTION = (
    "Fit a head that others published (EAGLE-1 to -3, Medusa, Hydra) to a model, or take a part that was trained for "
    "it elsewhere, and keep it beside the parts that were trained here: methods find it then by themselves, in the "
    "app too."
)


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    keep = actions.add_parser("add", help="keep a head", description=DESCRIPTION)
    keep.add_argument("head", metavar="HEAD", help="a folder, a file or a hub id such as org/name; or a part's folder")
    options.add_model(keep, plugins=False)
    shrink = actions.add_parser(
        "shrink", help="store a trained part in int8", description="Store a part's matrices in int8, with a scale "
        "per row: half of half precision's bytes. It is computed with as before; what it drafts may differ by a little."
    )  # fmt: skip
    shrink.add_argument("folder", nargs="+", type=Path, metavar="FOLDER", help="a part's folder (it holds part.json)")


def run(args: argparse.Namespace) -> int:
    from decoders.method.part import kinds
    from decoders.parts import keep_published, shrink_part

    if args.action == "shrink":
        for folder in args.folder:
            before, after = shrink_part(folder)
            common.say(f"{folder}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")
        return 0
    target = common.open_target(args)
    part, place = keep_published(target, args.head)
    about = part.training.get("published") or {"from": args.head, "title": "trained by specviz"}
    lines = [f"{about['from']} ({about['title']}) is kept as the {kinds()[part.kind].title} of {target.name}: {place}"]
    if "features" in about:
        lines.append(f"it reads the states {', '.join(map(str, about['features']))}")
    if "acceptance" in about:
        lines.append(f"on a short text {about['acceptance']:.0%} of its first guesses were the target's own")
    common.say(*lines)
    return 0
