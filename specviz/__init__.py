"""specviz: see how speculative decoding drafts, accepts and rejects, step by step.

Importing it is cheap: neither torch nor the web framework is loaded until something needs them.

The folders are floors, and a module imports only from its own floor or from one below it::

    places, words    where things are, errors as sentences, numbers and text for people (markup: LaTeX, Markdown)
    views            charts, tables, the standalone page: from data to a drawing
    figures          a step or a comparison for a paper: vectors, caption, command, BibTeX
    server           queue, stored runs, users, limits, the desk that all pages share; it knows no page
    experiments      sweeps and ablations, their results and tables
    shell            Gradio's frame around the pages, the page's files, signing in
    pages            one folder per page, found and not listed
    app              puts desk, routes, guard and frame together
    commands         one file per command
    cli              the console script
"""

from __future__ import annotations

__version__ = "0.1.0"
