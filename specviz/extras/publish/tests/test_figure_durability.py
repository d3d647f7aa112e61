"""A full disk leaves the figure that would have been replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_durability import test_a_full_disk_leaves_the_file_that_a_command_would_have_replaced as full_disk


def test_a_full_disk_leaves_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full_disk(tmp_path, capsys, ["figure", "RUN", "-o", "OUT"], "step.svg")
