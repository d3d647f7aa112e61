"""The page of a method that is being written: there only where a file is watched, on one's own machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from decoders import Prompt
from decoders.errors import UserError
from specviz.extras.dev import page as dev_page
from specviz.extras.dev.live_drafts import LiveRun
from specviz.extras.dev.saves import default_traces, draft_save, mean
from specviz.server.limits import rules_for
from specviz.server.loader import Loader
from tests.models import prompt_ids, tiny_target
from tests.stubs import app_of, gallery_desk
from tests.test_plugins import COPIED, no_plugins, write  # noqa: F401
from tests.waiting import until

from .test_dev import PROMPT, trace  # noqa: F401


@pytest.fixture
def desk(target, trace, home: Path):
    return gallery_desk(target, {"mine": trace})


def news(client: TestClient, done) -> dict:
    """The page's news once ``done`` says so."""
    told: dict = {"number": -1}

    def ask() -> bool:
        nonlocal told
        told = client.get(f"/api/dev?after={told['number']}").json()
        return done(told)

    until(ask, "news of a save")
    return told


@pytest.mark.slow("decodes prompts with every save of a file")
def test_what_a_save_is_worth(desk, target, trace, tmp_path, registry, monkeypatch):
    monkeypatch.setattr(dev_page, "check_prompts", lambda tokenizer: [Prompt.from_ids(prompt_ids(1))])  # a short one
    file = write(tmp_path)
    desk.services["dev"].watch(file)
    with TestClient(app_of(desk)) as client:
        first = news(client, lambda told: told.get("ran"))
        live = LiveRun(target, trace)
        expected = draft_save(file, [live])
        assert first["tokens_per_step"]["now"] == pytest.approx(mean(expected.drafts), abs=1e-3)
        assert first["steps"] == trace.rows("steps") and first["method"]["name"] == "mine" and not first["problem"]
        assert {row["step"]: row["recorded"] for row in first["rows"]}.items() <= dict(
            enumerate(trace.tables["steps"]["accepted"])
        ).items()
        assert [rule["faults"] for rule in first["rules"]] == [[]] * 5
        ran = desk.store.get(first["ran"]["id"])
        assert ran.run["method"]["name"] == "mine" and ran.output_ids == trace.output_ids  # lossless

        # the next save: against this one; the run of the save before is gone
        write(tmp_path, ("param(8,", "param(1,"))
        second = news(client, lambda told: told.get("saves") == 2 and not told["state"])
        assert second["base"] == "the last save" and second["lost"] > 0 == second["won"]
        assert second["tokens_per_step"]["before"] == first["tokens_per_step"]["now"]
        assert first["ran"]["id"] not in desk.store and second["ran"]["id"] in desk.store

        # another prompt: run on it, and nothing else; that is no save
        assert client.post("/api/dev/prompt", json={"run": 0}).status_code == 200
        again = news(client, lambda told: told["ran"] and told["ran"]["id"] != second["ran"]["id"])
        assert [again[name] for name in ("saves", "lost", "base", "rows")] == [
            second[name] for name in ("saves", "lost", "base", "rows")
        ]

        # one that raises: every rule that it breaks, with the traceback
        write(tmp_path, (COPIED, "raise KeyError('gone')"))
        third = news(client, lambda told: told.get("saves") == 3 and not told["state"])
        assert "KeyError" in third["rows"][0]["why"] and third["rows"][0]["accepted"] is None
        faults = [fault for rule in third["rules"] for fault in rule["faults"]]
        assert faults and "raise KeyError('gone')" in faults[0]["details"] and "KeyError" in third["failed"]

        # one that cannot be imported: what was told of the last one stays
        file.write_text("import nothing_of_this_name\n", "utf-8")
        fourth = news(client, lambda told: "nothing_of_this_name" in (told["problem"] or ""))  # not of half a file
        assert fourth["saves"] == 3
        assert client.post("/api/dev/prompt", json={"run": 5}).status_code == 422


def test_a_model_that_is_chosen_after_one_failed_is_drafted_with(
    desk, target, tmp_path, registry, monkeypatch
):  # fmt: skip
    monkeypatch.setattr(dev_page, "check_prompts", lambda tokenizer: [Prompt.from_ids(prompt_ids(1))])

    def damage() -> None:
        raise ValueError("it is damaged")

    desk.loader = loader = Loader(damage, name="tiny")
    desk.services["dev"].watch(write(tmp_path))
    with TestClient(app_of(desk)) as client:
        assert "it is damaged" in news(client, lambda told: told.get("problem"))["problem"].lower()
        loader.target, loader.state = target, "ready"
        told = news(client, lambda told: told.get("ran"))
        assert not told["problem"] and told["saves"] == 1


def test_the_tab_is_there_only_where_a_file_is_watched(desk, target, trace, tmp_path, registry):
    with TestClient(app_of(desk)) as client:
        refused = client.get("/api/dev")
        assert refused.status_code == 422 and "specviz dev FILE --open" in refused.json()["error"]
    assert not desk.services["dev"].title
    other = gallery_desk(target, {"mine": trace})
    with pytest.raises(UserError, match="there is no file"):
        other.services["dev"].watch(tmp_path / "gone.py")
    other.keep_to(rules_for(public=True, accounts=False))
    with pytest.raises(UserError, match="your own machine alone"):
        other.services["dev"].watch(write(tmp_path))


def test_runs_are_made_where_none_is_recorded(target, trace):
    assert default_traces(target, [trace, trace], [("once", PROMPT)]) == [trace]
    other = tiny_target("qwen3")
    (made,) = default_traces(other, [trace], [("once", PROMPT)])
    assert made.run["method"]["name"] == "pld" and made.run["model"]["key"] == other.key
    assert made.run["title"] == "once"
