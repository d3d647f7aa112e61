"""The doctor's place among the tabs where no page lists the tools."""

from __future__ import annotations

import json

from fastapi.testclient import TestClient

from specviz.pages import pages
from tests.stubs import StubDesk, app_of
from tests.test_pages import tabs


def test_the_doctor_has_a_tab_before_the_trees() -> None:
    desk = StubDesk()
    for service in desk.services.values():
        service.lists_tools = False
    with TestClient(app_of(desk)) as client:
        names = tabs(client)
        assert names.index("Doctor") + 1 == names.index("Trees")
        assert "specviz/doctor/view.js" in json.dumps(client.get("/config").json())


def test_the_tools_are_two() -> None:
    assert {page.name for page in pages() if page.tool} == {"doctor", "trees"}
