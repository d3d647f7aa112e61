"""The commands, in the order ``specviz --help`` lists them."""

from __future__ import annotations

from . import app, attribute, bench, calibrate, expand, export, lab, methods, run, train, tree, verify, view

COMMANDS = (app, run, verify, bench, lab, attribute, view, export, methods, calibrate, expand, train, tree)
