"""The command line, called as a user calls it."""

from __future__ import annotations

from typing import Any

from specviz import cli


def specviz(*args: object) -> int:
    """Run a command; its exit code."""
    try:
        return cli.main([str(one) for one in args])
    except SystemExit as end:
        return int(end.code or 0)


def refusal(capsys: Any, *args: object) -> str:
    """The one sentence that a mistake gives: nothing on stdout, and no traceback."""
    capsys.readouterr()
    assert specviz(*args) == 2
    out, sentence = capsys.readouterr()
    assert out == "" and sentence.startswith("specviz") and sentence.count("\n") == 1 and "Traceback" not in sentence
    return sentence
