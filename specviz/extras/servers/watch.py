"""``specviz watch``: a server's acceptance while it answers, in the terminal."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.commands import common, options

if TYPE_CHECKING:
    from rich.table import Table

    from .watching import ServerAcceptance

DESCRIPTION = (
    "Show a server's acceptance while it answers, from the folder of specviz's recorder in vLLM (SPECVIZ_RECORD), or "
    "from the Prometheus metrics of vLLM or llama.cpp. Ctrl+C ends it."
)
WIDEST = 30  # characters of a bar


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="FOLDER_OR_URL", help="the recorder's folder, or http://HOST:PORT")
    options.count(parser, "--seconds", "look again after so many seconds", 1, high=3600)
    parser.add_argument("--once", action="store_true", help="print the numbers of now, and end")


def run(args: argparse.Namespace) -> int:
    from rich.live import Live

    from .watching import Metrics, WatchedFolder

    source = Metrics(args.place) if "://" in args.place else WatchedFolder(Path(args.place).expanduser())
    out = common.console()
    if args.once:
        out.print(table(source.look()))
        return 0
    with Live(table(source.look()), console=out, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(args.seconds)
                live.update(table(source.look()), refresh=True)
        except KeyboardInterrupt:
            return 0


def table(acceptance: ServerAcceptance) -> Table:
    """The numbers, and a bar per position."""
    from rich.table import Table

    rows = Table(show_header=False, box=None)
    rows.add_column(justify="right")
    rows.add_column(no_wrap=True)
    if acceptance.requests:
        rows.add_row("requests", f"{acceptance.requests:,}")
    rows.add_row("tokens", f"{acceptance.tokens:,}")
    if acceptance.per_second is not None:
        rows.add_row("tokens/s", f"{acceptance.per_second:.1f}")
    if acceptance.mean_length is not None and acceptance.rate is not None:
        rows.add_row("mean acceptance length", f"{acceptance.mean_length:.2f}  (1 + accepted ÷ drafts)")
        rows.add_row(
            "acceptance rate",
            f"{acceptance.rate:.1%}  ({acceptance.accepted:,} of {acceptance.drafted:,} drafted tokens)",
        )
    for place, share in enumerate(acceptance.by_position):
        rows.add_row(f"position {place + 1}", f"{'█' * round(share * WIDEST):{WIDEST}} {share:.0%} of all drafts")
    return rows
