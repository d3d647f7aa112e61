"""The commands, in the order ``specviz --help`` lists them."""

from __future__ import annotations

from importlib import import_module

NAMES = (
    "app", "run", "verify", "bench", "lab", "attribute", "acceptance", "whatif", "lens", "import", "watch", "view",
    "export", "figure", "dev", "lessons", "methods", "models", "calibrate", "expand", "train", "parts", "tree", "users",
)  # fmt: skip
COMMANDS = {name: import_module(f"{__name__}.{name}") for name in NAMES}
FIRST = {
    "specviz app": "open the app: runs, comparisons, lessons, the Lab",
    "specviz run --prompt TEXT": "decode one prompt; --out RUN.spectrace keeps every step",
    "specviz bench": "measure the methods' speed on the examples",
    "specviz verify": "check on the examples that they change nothing but speed",
}
"""The commands that people need first, as they are typed, and what they do."""
