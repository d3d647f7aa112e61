"""SAM decoding that falls back on EAGLE-2."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, UserError, record
from decoders.study.look.whatif import ReadRun
from tests.drafts import save_tiny_part
from tests.models import prompt_ids, tiny_target

NEW = 24
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("qwen3")


def test_eagle2_drafts_where_nothing_matches(target: Any) -> None:
    prompt, params = Prompt.from_ids(prompt_ids(3)), {"fallback": "eagle2", "len_threshold": 3}
    with pytest.raises(UserError, match="fallback=eagle2: there is no EAGLE head .* or choose another fallback"):
        record(target, prompt, "sam", params, max_new_tokens=NEW)
    save_tiny_part(target, "eagle")
    trace = record(target, prompt, "sam", params, max_new_tokens=NEW)
    alone = record(target, prompt, "eagle2", max_new_tokens=NEW)
    assert trace.run["part"]["kind"] == "eagle"
    steps, nodes = trace.tables["steps"], trace.tables["nodes"]
    ours = next(i for i, route in enumerate(steps["route"]) if route == "fallback")
    theirs = alone.tables["steps"]["context"].index(steps["context"][ours])
    of = [[t for t, s in zip(one["token"], one["step"], strict=True) if s == n] for one, n in (
        (nodes, ours), (alone.tables["nodes"], theirs))]  # fmt: skip
    assert of[0] == of[1] and len(of[0]) > 1, "after the same text it drafts the same tree"
    for route, cosine, beta in zip(steps["route"], steps["term:feature_cosine"], steps["drafted"], strict=True):
        assert route == "fallback" or cosine is None or np.isnan(cosine), f"{route}: {beta} copied tokens have none"
    read = ReadRun(target, trace)
    assert read.redraft(ours).same and read.redraft(steps["route"].index("text")).same


@pytest.mark.slow("a process of its own")
def test_its_module_may_be_the_first_that_is_imported() -> None:
    """It imports the core's method, so methods were looked for while it was half imported itself, and it was lost."""
    code = """
import specviz.extras.heads.sam as sam
from decoders import methods
assert methods()["sam"] is sam.METHOD, methods()["sam"].params
"""
    subprocess.run([sys.executable, "-c", code], check=True)
