"""The command line, called as a user calls it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specviz import cli
from specviz.commands import common


def specviz(*args: object) -> int:
    """Run a command; its exit code."""
    try:
        return cli.main([str(one) for one in args])
    except SystemExit as end:
        return int(end.code or 0)


def refusal(capsys: Any, *args: object) -> str:
    """The one sentence that a mistake gives: nothing on stdout, and no traceback. However long a busy machine takes
    until then, no line of progress stands beside it.
    """
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "LINE_SECONDS", math.inf)
        assert specviz(*args) == 2
    out, sentence = capsys.readouterr()
    assert out == "" and sentence.startswith("specviz") and sentence.count("\n") == 1 and "Traceback" not in sentence
    return sentence
