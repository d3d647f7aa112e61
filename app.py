"""specviz in the browser: ``python app.py [--model PATH_OR_ID] [--port N]``, the same as ``specviz app``."""

from __future__ import annotations

import sys


def main() -> int:
    from specviz.cli import main as specviz

    return specviz(["app", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
