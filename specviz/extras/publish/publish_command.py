"""``specviz publish``: recorded runs as a static site, in a folder or as a static Space on the Hugging Face hub."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.folders import cache_folder, typed_path
from specviz.commands import common, options
from specviz.words import plural

if TYPE_CHECKING:
    from .site.build import SiteWritten
    from .site.entries import SiteEntry
    from .site.folder import SiteFolder
    from .site.space import Space

DESCRIPTION = (
    "Publish recorded runs as a site that needs no server and no Python: a list that is searched and filtered, the "
    "inspector, Compare, Attribution, the lessons, and a player for other pages. It opens from disk, and any static "
    "host serves it. A second publish makes what is new; one that broke off goes on (docs/extras.md)."
)
HUB = "hf:"
GITHUB = re.compile(r"github\.com[:/]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dest", metavar="DEST",
        help="a folder (GitHub Pages serves docs/ or a branch of its own), or hf:owner/name, a static Space on the hub",
    )  # fmt: skip
    options.file(
        parser, "traces", ".spectrace files, folders of them, or files to import (default: all that are kept in Runs)",
        "TRACE", nargs="*",
    )  # fmt: skip
    parser.add_argument("--title", default="Speculative decoding, step by step", help="of the list")
    options.flag(parser, "--public", "everybody may see the Space (else it is private)")
    options.flag(parser, "--no-rules", "leave out runs' drafts under every verifier, where no earlier publish has them")
    options.flag(parser, "--no-lessons", "leave out the lessons and the runs that they are about (1 MB)")


def run(args: argparse.Namespace) -> int:
    from specviz.places import home

    from .push_command import trace_files
    from .site.entries import entries_of
    from .site.folder import SiteFolder

    files = trace_files(args.traces or [home() / "runs"])
    space = _space(args.dest, args.public)
    folder = typed_path(args.dest) if space is None else cache_folder() / "sites" / args.dest[len(HUB) :]
    if space is not None:
        space.open()
    entries, faults = entries_of(files, site := SiteFolder(folder))
    result = _publish(args, site, entries, space, judges=False)
    faults += result.faults
    common.say(*faults, error=True)
    if result.pending and not args.no_rules:
        count = plural(len(result.pending), "run")
        common.say(f"The tab Rules of {count} follows, a second or two each; who stops here has it next time.")
        late_faults = _publish(args, SiteFolder(folder), entries, space, judges=True).faults
        common.say(*(fault for fault in late_faults if fault not in faults), error=True)
        faults += late_faults
    return 1 if faults else 0


def _publish(
    args: argparse.Namespace, site: SiteFolder, entries: Sequence[SiteEntry], space: Space | None, *, judges: bool
) -> SiteWritten:
    """Write the site, upload it where it is a Space's, and say where it is."""
    from .site.build import write_site

    result = write_site(site, args.title, entries, with_lessons=not args.no_lessons, judges=judges)
    size = sum((site.folder / name).stat().st_size for name in site.names)
    size_words = f"{plural(len(result.keys), 'run')}, {size / 1e6:.1f} MB, {plural(site.write_count, 'file')} new"
    if space is not None:
        count = space.upload(site.folder, site.names, args.title)
        sight = "everybody may see it" if args.public else "private: --public shows it to everybody"
        common.say(f"{space.address}: {size_words}, {plural(count, 'file')} uploaded; {sight}")
    else:
        common.say(f"{site.folder / 'index.html'}: {size_words}", *_pages_line(site.folder))
    return result


def _space(dest: str, public: bool) -> Space | None:
    """The Space that a destination names; None for a folder."""
    from .site.space import Space

    if not dest.startswith(HUB):
        if public:
            raise UserError("--public is for a Space (hf:owner/name): who sees a folder is up to its host")
        return None
    name = dest[len(HUB) :]
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"{dest} names no Space: give hf:owner/name")
    return Space(name, public)


def _pages_line(folder: Path) -> list[str]:
    """A line with the address of a checkout's folder on GitHub Pages and the command that pushes it; [] for others."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        top, remote = Path(git("rev-parse", "--show-toplevel")), git("remote", "get-url", "origin")
    except (OSError, subprocess.SubprocessError):
        return []
    address = pages_address(remote, folder.resolve().relative_to(top.resolve()).as_posix())
    if not address:
        return []
    command = f"git -C {folder} add . && git -C {folder} commit -m Site && git -C {folder} push"
    return [f"{address} shows it, once it is pushed: {command}"]


def pages_address(remote: str, place: str) -> str:
    """The address at which GitHub Pages shows a folder of a repository, "" where it does not: it serves the whole of a
    branch, or its folder docs.

    >>> pages_address("git@github.com:ann/drafts.git", "docs/runs")
    'https://ann.github.io/drafts/runs/'
    >>> pages_address("https://github.com/ann/ann.github.io", ".")
    'https://ann.github.io/'
    """
    match = GITHUB.search(remote)
    parts = [] if place == "." else place.split("/")
    if not match or (parts and parts[0] != "docs"):
        return ""
    owner, name = match[1].lower(), match[2]
    root = f"https://{owner}.github.io/" + ("" if name.lower() == f"{owner}.github.io" else f"{name}/")
    return root + "".join(f"{part}/" for part in parts[1:])
