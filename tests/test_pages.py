"""Pages are found and not listed: docs/add-a-page.md followed once."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings
from fastapi.testclient import TestClient
from gradio import routes

import specviz.pages
from specviz.pages import pages
from specviz.shell.assets import head
from specviz.views import web

from .stubs import StubDesk, app_of
from .test_readme import snippet

GUIDE = "docs/add-a-page.md"


@pytest.fixture
def longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The guide's page, in a folder where pages are looked for."""
    folder = tmp_path / "longest"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "longest_page.py").write_text(snippet("service", GUIDE))
    monkeypatch.setattr(specviz.pages, "__path__", [*specviz.pages.__path__, str(tmp_path)])
    yield
    for name in [name for name in sys.modules if name.startswith("specviz.pages.longest")]:
        del sys.modules[name]
    if hasattr(specviz.pages, "longest"):
        del specviz.pages.longest


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk()


def tabs(client: TestClient) -> list[str]:
    components = client.get("/config").json()["components"]
    return [one["props"]["label"] for one in components if one["type"] == "tabitem"]


def test_a_folder_is_a_page(longest: None) -> None:
    desk = StubDesk(gallery=(recordings.plain(), recordings.chain()))
    with TestClient(app_of(desk)) as client:
        names = tabs(client)
        assert names.index("Longest") == len(names) - 1
        assert "sv-longest" in json.dumps(client.get("/config").json())
        runs = client.post("/api/longest/first", json={"count": 1}).json()["runs"]
        most = max(("gallery-0", "gallery-1"), key=lambda key: len(desk.store.get(key).output_ids))
        assert [run["id"] for run in runs] == [most]
        wrong = client.post("/api/longest/first", json={"count": "1"})
        assert wrong.status_code == 422
        assert wrong.json() == {"error": "The number of runs is '1': 1 to 50 are shown."}
        assert client.post("/api/longest/first", content="{}").status_code == 422  # not JSON by its type


def test_without_recorded_runs_there_is_nothing_to_open_on(client: TestClient) -> None:
    assert client.get("/api/first").json() == {}


def test_without_the_folder_there_is_no_such_page() -> None:
    """Negative control; every page that is found has a folder and an order of its own."""
    found = pages()
    folders = {path.parent.name for path in Path(specviz.pages.__file__).parent.glob("*/*_page.py")}
    core = {page.name for page in found if page.__module__.startswith("specviz.pages.")}
    assert core == folders and "longest" not in folders
    assert len({page.order for page in found}) == len(found)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "What was sent is not JSON."),
        ("[]", "What is asked is one JSON object."),
        ("", "What is asked is one JSON object."),
        ("[" * 90_000, "What was sent is nested too deeply."),
        ("{}", "“ids” is missing."),
        ('{"ids": [1]}', "Runs and tags are lists of at most 500 texts."),
        ('{"ids": [], "keep": "yes"}', "“keep”: input should be a valid boolean."),
    ],
)
def test_a_body_that_does_not_fit_is_one_sentence(client: TestClient, body: str, said: str) -> None:
    answer = client.post("/api/runs/change", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and answer.json() == {"error": said}
    other = client.post("/api/runs/change", content=body, headers={"content-type": "text/plain"})
    assert other.status_code == 422 and other.json() == {"error": "What is asked is sent as JSON."}


def test_of_the_page_gradio_makes_one_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make four, of which the last one answers: half of the time that the app takes to be made."""
    applications = []
    make = routes.App.__init__

    def count(app: routes.App, **keywords: Any) -> None:
        applications.append(app)
        make(app, **keywords)

    monkeypatch.setattr(routes.App, "__init__", count)
    mounted = [getattr(route, "app", None) for route in app_of(StubDesk()).routes if getattr(route, "path", None) == ""]
    assert mounted == applications


def test_old_addresses_are_changed_before_the_app_begins() -> None:
    """An annex's first, as the core's may know what is left; the scripts run in order, and the entry is the last."""
    (script,) = re.findall(r'<script type="module">(.*)</script>', head())
    first, *names, entry = re.findall(r'import "specviz/(.+?)";', script)
    assert (first, names[-1], entry) == ("shell/early.js", "shell/moved.js", "app/main.js")
    assert len(names) == sum(name.endswith("/moved.js") for name in web.modules())
