"""An assistant's tools, asked with the protocol's own client: in process, over HTTP, and over standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import recordings
from mcp import StdioServerParameters
from mcp.client import Client

from decoders import save
from specviz.server.guard import SESSION
from specviz.server.limits import rules_for
from specviz.server.store import EVERYBODY
from specviz.server.users import Users, hash_password, write_users
from tests.stubs import StubDesk, at_work, serving

from ..app import mount_tools
from ..assistants import server_of


@pytest.fixture
def desk() -> Iterator[StubDesk]:
    with at_work(StubDesk(gallery=(recordings.tree(), recordings.chain()))) as made:
        yield made


def asking(server: Any, work: Callable[[Client], Awaitable[Any]]) -> Any:
    """The result of ``work`` with a client of the server."""

    async def connect() -> Any:
        async with Client(server) as client:
            return await work(client)

    return asyncio.run(connect())


async def call(client: Client, tool: str, **given: Any) -> Any:
    """A tool's answer; of one that was refused, the sentence."""
    result = await client.call_tool(tool, given)
    text = result.content[0].text if result.content else "[]"
    if result.is_error:
        return text
    data = result.structured_content
    return data.get("result", data) if isinstance(data, dict) else json.loads(text)


def answer_of(server: Any, tool: str, **given: Any) -> Any:
    return asking(server, lambda client: call(client, tool, **given))


def test_the_tools_and_what_they_take(desk):
    async def list_tools(client):
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asking(server_of(desk), list_tools)}
    assert [*tools] == ["methods", "run", "compare", "find_runs", "acceptance", "explain_step", "what_if"]
    assert all(tool.description and "ctx" not in tool.input_schema["properties"] for tool in tools.values())
    assert tools["explain_step"].input_schema["required"] == ["run", "step"]
    methods = {one["name"]: one for one in answer_of(server_of(desk), "methods")}
    assert methods["ppd"]["missing"].startswith("Prompt tokens are missing") and "k" in methods["pld"]["params"]


def test_a_run_can_be_found_and_asked_about(desk):
    async def session(client):
        made = await call(client, "run", prompt="abc", method="pld", params={"k": 4}, max_new_tokens=16)
        found = await call(client, "find_runs", method="adapld", text="ada")
        whole = await call(client, "find_runs")
        said = await call(client, "explain_step", run=made["id"], step=1)
        return made, found, whole, said, await call(client, "acceptance", runs=[made["id"]])

    made, found, whole, said, accepted = asking(server_of(desk), session)
    trace = desk.store.get(made["id"])
    assert made["text"] == trace.text(trace.output_ids) and made["steps"] == trace.rows("steps")
    assert made["id"] in [row["id"] for row in whole] and {row["id"] for row in found} == {"gallery-0"}
    assert desk.store.entry(made["id"]).owner == EVERYBODY  # it stands in Runs
    assert said["step"] == 1 and said["sentence"].endswith(".")
    assert any(one["value"] is not None and one["formula"] for one in accepted[0]["definitions"])


def test_a_rejected_token_is_explained_with_what_the_target_preferred(desk):
    trace = desk.store.get("gallery-0")
    nodes = trace.tables["nodes"]
    row = next(row for row, status in enumerate(nodes["status"]) if status == "rejected")
    step = nodes["step"][row]
    said = answer_of(server_of(desk), "explain_step", run="gallery-0", step=step + 1)
    assert len(said["nodes"]) + said["nodes_left_out"] == trace.tables["steps"]["drafted"][step]
    first = nodes["step"].index(step)
    told = said["nodes"][row - first - 1]
    assert told["verdict"] == "rejected" and told["reason"] == nodes["reason"][row] and told["target_preferred"]
    assert told["target_rank"] is None or told["target_rank"] == nodes["rank"][row] + 1


def test_compare_says_who_won(desk):
    told = answer_of(server_of(desk), "compare", prompt="abc", methods=["pld", "pld+h"], max_new_tokens=16)
    assert [run["output"] for run in told["runs"]] == ["the reference", "identical", "identical"]
    assert told["outcome"].endswith(".") and len({run["id"] for run in told["runs"]}) == 3


@pytest.mark.parametrize(
    ("tool", "given", "sentence"),
    [
        ("run", {"prompt": "abc", "method": "nothing"}, "nothing"),
        ("run", {"prompt": " "}, "prompt"),
        ("run", {"prompt": "abc", "params": {"k": 4000}}, "4000"),
        ("run", {"prompt": "abc", "method": "ppd"}, "Prompt tokens are missing"),
        ("explain_step", {"run": "gallery-0", "step": 4000}, "ask for 1 to that"),
        ("explain_step", {"run": "../../etc/passwd", "step": 1}, "etc/passwd"),
        ("explain_step", {"run": "gallery-0", "step": 0}, "step"),
        ("what_if", {"run": "gallery-0", "step": 1, "candidate": 999}, "candidate 999 was asked for"),
        ("acceptance", {"runs": []}, "runs"),
        ("compare", {"prompt": "abc", "methods": ["pld"] * 7}, "methods"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(desk, tool, given, sentence):
    said = answer_of(server_of(desk), tool, **given)
    assert isinstance(said, str) and sentence in said and "Traceback" not in said


def test_many_calls_in_turn_and_eight_at_once_over_http_get_their_own_runs(desk):
    """50 in turn; then eight clients at once, each of which gets the run it asked for."""

    async def session(client):
        for _ in range(50):
            assert (await call(client, "explain_step", run="gallery-1", step=1))["run"] == "gallery-1"

    async def one(port, number):
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            made = await call(client, "run", prompt=f"prompt {number}", chat=False, max_new_tokens=16)
            return number, made["id"], made["title"]

    async def together(port):
        return await asyncio.gather(*(one(port, number) for number in range(8)))

    with serving(desk, mounts=[mount_tools]) as port:
        asking(f"http://127.0.0.1:{port}/mcp", session)
        made = asyncio.run(together(port))
    assert len({key for _, key, _ in made}) == 8 and all(f"prompt {number}" in title for number, _, title in made)


def test_the_app_has_no_tools_unless_it_is_asked_for_them_and_guards_them_as_its_routes(desk):
    import httpx

    ask = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    kinds = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with serving(desk) as port:
        assert httpx.post(f"http://127.0.0.1:{port}/mcp", json=ask, headers=kinds).status_code in (404, 405)
    with serving(desk, mounts=[mount_tools]) as port:
        place = f"http://127.0.0.1:{port}/mcp"
        assert httpx.post(place, json=ask, headers={**kinds, "origin": "http://evil.example"}).status_code == 403
        assert httpx.post(place, json=ask, headers={**kinds, "host": "evil.example"}).status_code == 403


def test_a_session_belongs_to_the_user_who_began_it(desk, tmp_path):
    import httpx

    cost = (2, 1, 1)
    write_users(tmp_path / "users", {name: hash_password(f"word of {name}", cost=cost) for name in ("ann", "bob")})
    users = Users(tmp_path / "users")
    desk.keep_to(rules_for(public=False, accounts=True))
    kinds = {"accept": "application/json, text/event-stream"}
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a client", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with serving(desk, users, mounts=[mount_tools]) as port:
        place = f"http://127.0.0.1:{port}/mcp"
        cookies = {name: {SESSION: users.sign_in(name, f"word of {name}", "")} for name in ("ann", "bob")}
        begun = httpx.post(place, json=begin, headers=kinds, cookies=cookies["ann"])
        session = kinds | {"mcp-session-id": begun.headers["mcp-session-id"]}
        codes = [
            httpx.post(place, json=ask, headers=session, cookies=cookies[name]).status_code for name in ("ann", "bob")
        ]
        ended = httpx.delete(place, headers=session, cookies=cookies["bob"]).status_code
        again = httpx.post(place, json=ask, headers=session, cookies=cookies["ann"]).status_code
    assert (codes, ended, again) == ([200, 404], 404, 200)


def test_a_public_server_lists_no_run_of_an_assistant(desk):
    desk.keep_to(rules_for(public=True, accounts=False, overrides=None, pickers=()))

    async def session(client):
        made = await call(client, "run", prompt="abc", method="pld", max_new_tokens=16)
        said = await call(client, "run", prompt="abc", max_new_tokens=4000)
        told = await call(client, "explain_step", run=made["id"], step=1)
        return made, said, await call(client, "find_runs"), told

    with serving(desk, mounts=[mount_tools]) as port:
        made, said, found, explained = asking(f"http://127.0.0.1:{port}/mcp", session)
    assert {row["id"] for row in found} == {"gallery-0", "gallery-1"} and explained["run"] == made["id"]
    assert isinstance(said, str) and "4,000 new tokens were asked for" in said


@pytest.mark.slow("16 s for a process of its own; the tools are tested in this one")
def test_the_command_answers_on_standard_input(tmp_path):
    """No model: a recorded run alone."""
    trace = recordings.tree()
    save(trace, tmp_path / "run.spectrace")
    command = ["-m", "specviz", "mcp", "--trace", str(tmp_path / "run.spectrace")]
    server = StdioServerParameters(command=sys.executable, args=command, env={"SPECVIZ_HOME": str(tmp_path)})

    async def session(client):
        found = await call(client, "find_runs", limit=50)
        said = await call(client, "run", prompt="abc")
        own = next(row for row in found if row["kind"] != "gallery")
        return said, await call(client, "explain_step", run=own["id"], step=2)

    said, explained = asking(server, session)
    assert "viewing only" in said and explained["of"] == trace.rows("steps")
