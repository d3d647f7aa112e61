"""The commands, in the order ``specviz --help`` lists them."""

from __future__ import annotations

from importlib import import_module

NAMES = (
    "app", "run", "verify", "bench", "lab", "attribute", "whatif", "view", "export", "figure", "lessons", "methods",
    "models", "calibrate", "expand", "train", "tree", "users",
)  # fmt: skip
COMMANDS = {name: import_module(f"{__name__}.{name}") for name in NAMES}
