"""The commands by group, each with its line of ``specviz --help``; a command's module is imported when it is run."""

from __future__ import annotations

from importlib.util import resolve_name

from decoders.extra import extras, leave_out

GROUPS = {
    "use": {
        "app": "open the web app",
        "run": "decode one prompt",
        "compare": "methods side by side on one prompt, or recorded runs of one",
        "view": "open a trace in the browser",
        "whatif": "draft a step of a trace again",
        "lens": "the logit lens of the target at a drafted token",
        "attribute": "link an answer to the passages it was copied from",
        "lessons": "list the lessons, or check one of your own",
    },
    "measure": {
        "verify": "check that methods change nothing but speed",
        "acceptance": "acceptance of recorded runs, by every definition in use",
        "drafts": "what drafted tokens were worth, by depth, rank and drafter; drafters at every place of a run",
        "judge": "recorded drafts under every verifier: what each accepts, and what it changes",
    },
    "share": {
        "export": "write a trace as one HTML file, or its times for Perfetto",
        "users": "who may sign in: make and change the file for app --auth-file",
    },
    "build": {
        "methods": "list methods, their papers and what they lack; begin and check one of your own",
        "models": "list the models that are here, and their trained parts",
        "calibrate": "find copying heads and the best layer",
        "parts": "keep a published head, or a trained part, for a model; or store a part in int8",
        "tree": "design PPD's trees for this machine",
    },
}
MODULES = {name: f"{__name__}.{name}" for group in GROUPS.values() for name in group}
"""Command → its module; those of the annexes stand behind those of the core, in ``GROUPS`` too."""
FIRST = {
    "specviz app": "open the app: runs, comparisons, lessons",
    "specviz run --prompt TEXT": "decode one prompt; --out RUN.spectrace keeps every step",
    "specviz compare --prompt TEXT": "methods side by side: who wins, by how much and why",
    "specviz verify": "check on the examples that they change nothing but speed",
}
"""The commands that people need first, as they are typed, and what they do."""


def _add_extras() -> None:
    for extra in extras().values():
        for name, command in extra.commands.items():
            if name in MODULES or command.group not in GROUPS:
                places = f"and groups are {', '.join(GROUPS)}" if name not in MODULES else "which there is already"
                leave_out(extra.package, ValueError(f"its command is {command.group}: {name}, {places}"))
                continue
            MODULES[name] = resolve_name(command.module, extra.package)
            lines = GROUPS[command.group]
            names = list(lines)
            place = names.index(command.predecessor) + 1 if command.predecessor in names else len(names)
            names.insert(place, name)
            GROUPS[command.group] = {key: lines.get(key, command.about) for key in names}
            if command.first_line:
                FIRST[f"specviz {name}"] = command.first_line


_add_extras()
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
