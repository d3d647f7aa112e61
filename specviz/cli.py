"""The ``specviz`` command. One file per command in ``specviz.commands``: its description, its arguments, its work.

Mistakes a user can mend end with one sentence and exit code 2, a check that failed with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from decoders.method.plugin_files import name_plugin_files
from specviz.words import visible

from . import __version__
from .commands import COMMANDS, FIRST, GROUPS, MODULES

DESCRIPTION = "See how speculative decoding drafts, accepts and rejects, step by step."
PACKAGES = tuple(str(Path(__file__).parent.parent / name) + os.sep for name in ("specviz", "decoders"))


class Parser(argparse.ArgumentParser):
    """Takes options by full names only, refuses in one line; a command's module fills its parser when it is used."""

    command = ""  # whose module has not been imported yet

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.command:
            module = import_module(MODULES[self.command])
            self.command, self.description = "", module.DESCRIPTION
            self.set_defaults(run=module.run, program=[sys.executable, "-m", f"{__package__}.cli"])
            module.add(self)
        known_args, unknown_args = super().parse_known_args(args, namespace)
        if unknown_args and " " in self.prog:  # a command's own sentence, not the program's
            self.error(f"unrecognized arguments: {' '.join(unknown_args)}")
        return known_args, unknown_args

    def error(self, message: str) -> NoReturn:
        message = re.sub(
            r"argument (COMMAND|PART): invalid choice: (.*) \(choose from (.*)\)",
            lambda parts: f"there is no {parts[1].lower()} {parts[2]}: choose one of {parts[3].replace(chr(39), '')}",
            message,
        )
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    """All commands; each knows its arguments once it is parsed."""
    main = Parser(
        prog="specviz", usage="%(prog)s [-h] [--version] COMMAND …", description=DESCRIPTION,
        epilog=commands_by_group(), formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    main.add_argument("--version", action="version", version=f"specviz {__version__}")
    commands = main.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="specviz", help=argparse.SUPPRESS
    )
    for name in COMMANDS:
        commands.add_parser(name).command = name
    return main


def commands_by_group() -> str:
    """The commands by group, a line each."""
    wide = max(map(len, COMMANDS)) + 2
    groups = (
        "\n".join([f"{title}:", *(f"  {name:{wide}}{line}" for name, line in group.items())])
        for title, group in GROUPS.items()
    )
    return "\n\n".join([*groups, "The options of one: specviz COMMAND --help."])


def first_help() -> str:
    """The bare command's output: the commands that people need first."""
    wide = max(map(len, FIRST)) + 2
    lines = (f"  {example:{wide}}{purpose}" for example, purpose in FIRST.items())
    hint = "All commands: specviz --help. The options of one: specviz COMMAND --help."
    return "\n".join([f"{DESCRIPTION}\n", *lines, "", hint])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    if not (sys.argv[1:] if argv is None else argv):
        print(first_help())
        return 0
    args = parser().parse_args(argv)
    try:
        name_plugin_files(getattr(args, "plugin", ()))
        return args.run(args)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in {"specviz", "decoders"}:
            raise
        needs = f"{error.name} is not installed: install the project's dependencies (pip install -e .)"
        return _refuse(args.command, f"specviz {args.command} needs a package that is missing: {needs}")
    except OSError as error:
        location = f" ({error.filename})" if error.filename else ""
        return _refuse(args.command, f"{error.strerror or error}{location}")
    except ValueError as error:
        if not _is_own(error):
            raise
        return _refuse(args.command, " ".join(str(error).split()))


def _is_own(error: ValueError) -> bool:
    """Raised by this project to be read by a user, not deep inside a library."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.abspath(frames[-1].filename).startswith(PACKAGES)


def _refuse(command: str, sentence: str) -> int:
    print(f"specviz {command}: {visible(sentence)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
