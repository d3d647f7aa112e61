"""The commands, in the order ``specviz --help`` lists them."""

from __future__ import annotations

from . import (
    app,
    attribute,
    bench,
    calibrate,
    expand,
    export,
    lab,
    lessons,
    methods,
    models,
    run,
    train,
    tree,
    users,
    verify,
    view,
    whatif,
)

COMMANDS = (
    app, run, verify, bench, lab, attribute, whatif, view, export, lessons, methods, models, calibrate,
    expand, train, tree, users,
)  # fmt: skip
