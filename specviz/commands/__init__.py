"""The commands, in the order ``specviz --help`` lists them."""

from __future__ import annotations

from . import app, bench, calibrate, expand, export, lab, methods, run, train, verify, view

COMMANDS = (app, run, verify, bench, lab, view, export, methods, calibrate, expand, train)
