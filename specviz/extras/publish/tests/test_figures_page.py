"""Figures as the pages offer them: forms of a step, runs side by side, and what is refused."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.test_server import desk  # noqa: F401


@pytest.mark.parametrize(("form", "begins"), [("zip", b"PK"), ("pdf", b"%PDF-"), ("svg", b"<svg ")])
def test_a_step_is_a_file(client: TestClient, form: str, begins: bytes) -> None:
    answer = client.get("/api/figures/step/gallery-1", params={"form": form, "step": 1})
    assert answer.status_code == 200 and answer.content.startswith(begins)
    assert f'-step-2.{form}"' in answer.headers["content-disposition"]
    assert b"<script" not in answer.content or form != "svg"


@pytest.mark.parametrize(
    ("address", "status"),
    [("gallery-1?step=9999", 422), ("gallery-1?step=-1", 422), ("gallery-1?form=exe", 422), ("no-run", 404)],
)
def test_what_there_is_not_is_a_sentence(client: TestClient, address: str, status: int) -> None:
    answer = client.get(f"/api/figures/step/{address}")
    assert answer.status_code == status and answer.json()["error"]
