"""The endpoints that programs call by name, with Gradio's own client: their names, arguments and answers stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .stubs import StubDesk, serving


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from gradio_client import Client

    with serving(StubDesk()) as port:
        connected = Client(f"http://127.0.0.1:{port}/", verbose=False, analytics_enabled=False)
        try:
            yield connected
        finally:
            connected.close()


def test_the_endpoints_keep_their_names_and_arguments(client: Any) -> None:
    named = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    arguments = {name: [(p["parameter_name"], p["parameter_has_default"]) for p in endpoint["parameters"]]
                 for name, endpoint in named.items()}  # fmt: skip
    assert arguments == {
        "/run": [("prompt", False), ("method", True), ("params", True), ("settings", True), ("chat", True)],
        "/methods": [], "/trace_summary": [("trace_id", False)],
    }  # fmt: skip


def test_a_program_runs_a_prompt_and_asks_what_became_of_it(client: Any) -> None:
    answer = client.predict("abc abc", method="pld", params={"k": 4}, chat=False, api_name="/run")
    assert answer["text"] and answer["metrics"]["tokens_per_step"] > 1
    again = client.predict(answer["id"], api_name="/trace_summary")
    assert (again["id"], again["text"]) == (answer["id"], answer["text"])
    assert "pld" in {method["name"] for method in client.predict(api_name="/methods")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": "a", "method": "none"}, "There is no method 'none'"),
        ({"prompt": "a", "method": "pld", "params": {"k": 500}}, "Draft length needs a whole number from 1 to 128"),
    ],
)
def test_bad_input_is_a_sentence(client: Any, arguments: dict[str, Any], message: str) -> None:
    assert message in client.predict(**arguments, api_name="/run")["error"]
