"""specviz: see how speculative decoding drafts, accepts and rejects, step by step.

Importing it is cheap: neither torch nor the web framework is loaded until something needs them.

The folders are floors, and a module imports only from its own floor or from one below it::

    places, words    where things are, errors as sentences, numbers and text for people (markup: LaTeX, Markdown)
    views            charts, tables, the standalone page: from data to a drawing
    server           queue, stored runs, users, limits, the desk that all pages share; it knows no page
    shell            Gradio's frame around the pages, the page's files, signing in
    pages            one folder per page, found and not listed
    app              puts desk, routes, guard and frame together
    commands         one file per command
    cli              the console script

``extras`` holds the annexes, which import from all of these and are imported by none.
"""

from __future__ import annotations

from typing import Any

from decoders.extra import look_in

__version__ = "0.1.0"
look_in(__name__)
_LAZY = {"recording": "recorder", "generate": "custom"}  # name → module of decoders.recorder


def __getattr__(name: str) -> Any:
    """``specviz.recording`` records a user's own ``model.generate()``; ``specviz.generate`` is our engine for its
    argument ``custom_generate``. Both are imported when they are asked for.
    """
    if name not in _LAZY:
        raise AttributeError(f"module 'specviz' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"decoders.recorder.{_LAZY[name]}"), name)
