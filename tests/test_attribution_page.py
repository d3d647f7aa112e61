"""The page "Attribution": what it is told of runs, given answers, exports and scores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders.study.attribute.attribution import WAYS, links
from decoders.study.attribute.evidence import sentences
from decoders.study.attribute.export import to_json
from decoders.study.attribute.quotes import read_quotesum, sweep
from specviz.pages import pages
from specviz.pages.attribution import scoring
from specviz.pages.attribution.scoring import ScoreRows
from specviz.places import GALLERY
from specviz.server.desk import Desk
from specviz.server.loader import Loader
from specviz.server.runner import Runner
from specviz.server.store import TraceStore
from specviz.views.export import read_page
from specviz.views.gallery import documents

from . import recordings
from .models import tiny_target
from .stubs import client_of
from .waiting import WAIT_S, until_over

CONTEXT = "the old lamp at the station 👩‍👩‍👧 glows\n---\nwas sold to the city 博物館 museum <b>now</b>"
ANSWER = "the old lamp at the station 👩‍👩‍👧 glows. It was sold to the city 博物館 museum <b>now</b>"
FORM = {"instruction": "Quote.", "context": CONTEXT, "question": "What became of it?"}
SIGNALS = ["pld+h", "pld+a", "adapld", "casd", "glide"]
ROW = {
    "unique_id": "q1", "question": "What fell?", "title1": "", "source1": "the old lamp at the station fell",
    "summary": "It was [ 1 the old lamp at the station ] .", "title2": "", "source2": "a new one stood in the city",
}  # fmt: skip


def attribution_desk(load: Any = None) -> Desk:
    """A desk with the real methods and two runs in its gallery that wrote the same."""
    store = TraceStore()
    other = recordings.gallery_run("class-docstring-pld-h")
    for name, trace in (("one", other), ("two", recordings.tree()), ("nasty", recordings.nasty())):
        trace.run["id"] = name
        store.put(trace, kind="gallery", owner="*")
    desk = Desk(store, Runner(store), Loader(load, reason="Opened for viewing only.", name="tiny"), pages=pages())
    desk.first = "one"
    return desk


def tiny() -> Any:
    target = tiny_target("llama", seed=2)
    target.model.generation_config.eos_token_id = 1
    return target


@pytest.fixture(scope="module")
def desk(module_home: Path) -> Desk:
    return attribution_desk(tiny)


@pytest.fixture(scope="module")
def client(desk: Desk) -> Iterator[TestClient]:
    with client_of(desk) as made:
        made.get("/")  # the browser's cookie
        yield made


def ask(client: TestClient, what: str, **asked: Any) -> Any:
    return client.post(f"/api/attribution/{what}", json=asked)


def wait(client: TestClient, key: str) -> dict[str, Any]:
    return until_over(lambda: client.get(f"/api/attribution/runs/{key}").json(), f"the attribution of {key}")


def score(client: TestClient, key: str) -> dict[str, Any]:
    address = f"/api/attribution/scores/{key}"
    return until_over(lambda: client.get(address, params={"answers": True}).json(), f"the scoring {key}")


def refuse(client: TestClient, what: str, status: int = 422, **asked: Any) -> str:
    answer = ask(client, what, **asked)
    assert answer.status_code == status
    return answer.json()["error"]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_recorded_runs_are_attributed_without_a_model() -> None:
    desk = attribution_desk()
    found = desk.services["attribution"].show("one")
    trace = desk.store.get("one")
    for view, how in WAYS.items():
        told = json.loads(json.dumps(found["views"][view]))
        rows = told.pop("thresholds")
        assert told == json.loads(json.dumps(to_json(trace, links(trace, 1, **how))))
        for row in rows:
            left = to_json(trace, links(trace, row["min_run"], **how))
            assert row["copied_tokens"] == left["copied_tokens"] and row["links"] == len(left["links"])
            assert row["uncopied"] == [list(span["output_tokens"]) for span in left["uncopied"]]
            assert row["own_tokens"] == len(trace.output_ids) - left["copied_tokens"] and row["score"] is None
        assert [row["min_run"] for row in rows[:-1]] == sorted(
            {link["output_tokens"][1] - link["output_tokens"][0] for link in told["links"]}
        )
        assert rows[-1]["links"] == 0
    assert found["views"]["drafted"]["links"] and found["others"] == [{"method": "adapld", "id": "two"}]
    catalog = desk.services["attribution"].catalog()
    assert catalog["reason"] == "Opened for viewing only." and catalog["signals"] == []
    file = desk.services["attribution"].download("one", "html", 3, "whole", ["two", "nasty"])
    given = json.loads(read_page(file.body.decode())["data"])
    assert file.media_type.startswith("text/html") and "attribution-one.html" in file.headers["content-disposition"]
    assert [one["method"] for one in given["signals"]] == ["pld+h", "adapld"]  # what wrote something else is not beside
    assert given["minRun"] == 3 and given["counted"] == "whole"


def documents_desk() -> Desk:
    """A desk without a model: the run it opens on, and the gallery's answers about documents."""
    desk = attribution_desk()
    for row in documents():
        trace = recordings.gallery_run(row["id"].partition("-")[2])
        trace.run["id"] = row["id"]
        desk.store.put(trace, kind="gallery", owner="*")
    return desk


def test_the_page_begins_with_answers_about_documents_and_their_causes() -> None:
    desk = documents_desk()
    page = desk.services["attribution"]
    catalog = page.catalog()
    assert [row["title"] for row in catalog["documents"]] == ["a lease", "a laboratory report", "notes of a meeting"]
    assert catalog["first"] == "one" and not attribution_desk().services["attribution"].catalog()["documents"]
    total = 0
    for row in catalog["documents"]:
        trace, shown = desk.store.get(row["id"]), page.show(row["id"])
        assert shown["question"].endswith("?") and shown["views"]["words"]["links"]
        assert len(shown["causes"]) == shown["verbatim"]["given_sources"] == 3
        for cause in shown["causes"]:  # recorded from this very run
            assert len(cause["fall"]) == len(cause["reread"]) == len(trace.output_ids)
            assert [(w["start"], w["stop"]) for w in cause["weights"]][1:] == sentences(trace)
        files = [path.stat().st_size for path in GALLERY.glob(f"{row['id']}.*")]
        assert len(files) == 2 and sum(files) <= 45_000
        total += sum(files)
    assert total <= 110_000
    fair = page.show(catalog["documents"][2]["id"])["causes"]
    assert [cause["weights"][1]["standing"] for cause in fair] == ["corroborates", "corroborates", "none"]


def test_signals_that_lack_their_parts_say_what_makes_them(client: TestClient) -> None:
    found = client.get("/api/attribution").json()
    missing = {one["name"]: one["missing"] for one in found["signals"]}
    assert list(missing) == SIGNALS and "no GLIDE draft model" in missing["glide"]
    assert not any(missing[name] for name in SIGNALS[:4]) and found["plotly"].startswith("web/plotly.")


def test_a_given_answer_by_every_signal(client: TestClient, desk: Desk) -> None:
    started = ask(client, "start", form=FORM, answer=ANSWER, signals=SIGNALS).json()
    assert [run["method"] for run in started["runs"]] == SIGNALS[:4]
    assert len(started["notes"]) == 1 and "no GLIDE draft model" in started["notes"][0]
    for run in started["runs"]:
        wait(client, run["id"])
    docs = {run["method"]: wait(client, run["id"]) for run in started["runs"]}
    for method, doc in docs.items():
        view = doc["views"]["whole"]
        assert doc["title"] == "What became of it?" and doc["method"] == view["run"]["method"] == method
        assert view["output"] == ANSWER and view["run"]["forced"] is True and view["run"]["signal"] == "copy"
        assert {one["method"] for one in doc["others"]} == set(SIGNALS[:4]) - {method}
        assert {link["passage"] for link in view["links"] if len(link["text"]) > 12} == {0, 1}
    key = started["runs"][0]["id"]
    told = client.get(f"/api/attribution/runs/{key}/download?format=json&min_run=4").json()
    assert told["min_run"] == 4 and told["counted"] == "whole words" and len(told["links"]) >= 2
    for link in told["links"]:
        assert ANSWER[slice(*link["output"])] == link["text"] and link["verbatim"]
        assert told["sources"][link["source_index"]]["text"][slice(*link["source"])] == link["source_text"]
    assert any("👩‍👩‍👧" in link["text"] for link in told["links"]) and "博物館" in str(told["links"])
    notes = client.get(f"/api/attribution/runs/{key}/download?format=markdown&counted=drafted").text
    assert "[^1]: Passage 1" in notes and "\\<b\\>" in notes
    assert desk.store.get(key).run["forced"] is True


def test_markup_stays_text_in_the_exported_page(client: TestClient) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    form = {**FORM, "context": f"{evil} the old lamp", "question": evil}
    started = ask(client, "start", form=form, answer=f"{evil} the old lamp", signals=["casd"]).json()
    wait(client, started["runs"][0]["id"])
    answer = client.get(f"/api/attribution/runs/{started['runs'][0]['id']}/download?format=html")
    assert answer.headers["content-disposition"].startswith("attachment") and "alert(1)</script>" not in answer.text
    assert "<img" not in answer.text and "default-src 'none'" in answer.text
    assert not re.search(r"(?:src|href)=\"?https?:", answer.text)


def test_a_run_is_attributed_again_and_a_model_can_write_the_answer(client: TestClient) -> None:
    started = ask(client, "start", form=FORM, signals=["pld+h", "casd"], max_new_tokens=12).json()
    assert len(started["runs"]) == 1
    first = wait(client, started["runs"][0]["id"])
    assert first["views"]["whole"]["run"]["forced"] is False and first["views"]["whole"]["output_tokens"] <= 12
    again = ask(client, "start", trace=first["id"], signals=["pld+a", "adapld"]).json()
    for run in again["runs"]:
        other = wait(client, run["id"])
        assert other["views"]["whole"]["output"] == first["views"]["whole"]["output"]
        assert other["views"]["whole"]["run"]["forced"] is True
    told = wait(client, first["id"])
    assert {one["method"] for one in told["others"]} == {"pld+a", "adapld"}
    assert "made with the tokens of" in refuse(client, "start", trace="one", signals=["pld+h"])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"form": FORM, "answer": " \n", "signals": ["pld+h"]}, "The answer is empty"),
        ({"form": FORM, "answer": 3, "signals": ["pld+h"]}, "The answer is given as text"),
        ({"form": FORM, "answer": "the old lamp " * 200, "signals": ["pld+h"]}, "has room for"),
        ({"form": FORM, "answer": "a" * 100_001, "signals": ["pld+h"]}, "at most 100,000 are taken"),
        ({"form": {**FORM, "context": " \n---\n"}, "answer": "a", "signals": ["pld+h"]}, "There are no sources"),
        ({"form": {**FORM, "context": ""}, "answer": "a", "signals": ["pld+h"]}, "There are no sources"),
        ({"form": {**FORM, "context": [1]}, "answer": "a", "signals": ["pld+h"]}, "given as text"),
        ({"form": FORM, "answer": "a", "signals": []}, "No signal is chosen"),
        ({"form": FORM, "answer": "a", "signals": ["plain"]}, "There is no signal 'plain'"),
        ({"form": FORM, "answer": "a", "signals": ["glide"]}, "no GLIDE draft model"),
        ({"signals": ["pld+h"]}, "Nothing is given to attribute"),
        ({"scoring": "none", "row": 0, "signals": ["pld+h"]}, "score again"),
    ],
)
def test_what_cannot_be_attributed(client: TestClient, asked: dict[str, Any], why: str) -> None:
    assert why in refuse(client, "start", **asked)


def test_other_mistakes(client: TestClient) -> None:
    assert client.get("/api/attribution/runs/nothing").status_code == 404
    assert client.get("/api/attribution/runs/a b").status_code == 404
    for query, why in (
        ("format=exe", "is unknown"), ("format=json&min_run=0", "min_run=0 is out of range"),
        ("counted=all", "words, whole, drafted"),
    ):  # fmt: skip
        answer = client.get(f"/api/attribution/runs/one/download?{query}")
        assert answer.status_code == 422 and why in answer.json()["error"]
    assert client.get("/api/attribution/runs/none/download").status_code == 404
    assert "sent as JSON" in client.post("/api/attribution/start", data={"signals": "pld"}).json()["error"]
    assert refuse(client, "dance", 404).startswith("Attribution cannot 'dance'")
    assert client.get("/api/attribution/scores/none").status_code == 404
    assert refuse(client, "start", 404, trace="none", signals=["pld+h"])


# --- known quotes -----------------------------------------------------------------------------------------------------


def test_quotes_are_scored_and_a_wrong_line_is_named(client: TestClient, desk: Desk, tmp_path: Path) -> None:
    lines = [json.dumps(ROW), "{bad", json.dumps({**ROW, "summary": "no"}), json.dumps({**ROW, "unique_id": "q2"})]
    started = ask(client, "score", text="\ufeff" + "\n".join(lines), name="my rows", signals=["pld+h", "glide"]).json()
    assert started["answers"] == 2 and "line 2 was left out: it is not JSON" in started["notes"][0]
    assert "line 3" in started["notes"][1] and "no GLIDE draft model" in started["notes"][2]
    told = score(client, started["id"])
    assert told["state"] == "done" and told["done"] == told["total"] == 2 and told["name"] == "my rows"
    (tmp_path / "q.jsonl").write_text("\n".join(lines), "utf-8")
    [gold, _], _ = read_quotesum(tmp_path / "q.jsonl")
    opened = ask(client, "start", scoring=started["id"], row=1, signals=["pld+h"]).json()["runs"][0]["id"]
    doc = wait(client, opened)
    trace = desk.store.get(opened)
    assert doc["gold"]["quotes"] == [[7, 34, 0]] and len(doc["gold"]["tokens"]) == len(trace.output_ids)
    for row in told["rows"]:
        expected = sweep([(trace, gold)], scoring.MIN_RUNS, whole=row["counted"] == "whole")
        assert row["examples"] == 2
        for mine, theirs in zip(row["scores"], expected, strict=True):
            assert mine["f1"] == pytest.approx(theirs.score.f1)
    assert [row["counted"] for row in told["rows"]] == ["whole", "drafted"]
    assert told["answers"][1]["f1"]["pld+h"]["whole"][1] == round(told["rows"][0]["scores"][1]["f1"], 3)
    assert "There is no answer number 2" in refuse(client, "start", scoring=started["id"], row=2, signals=["pld+h"])
    for text, why in (("", "it is empty"), ("{", "holds no row to score"), ("x" * (scoring.MAX_QUOTED + 1), "at most")):
        assert why in refuse(client, "score", text=text, signals=["pld+h"])
    assert "a whole number from 1 to 500" in refuse(client, "score", text=lines[0], limit=0, signals=["pld+h"])


def test_a_scoring_stops_for_its_owner_alone(desk: Desk) -> None:
    assert desk.loader.wait(WAIT_S) or desk.loader.start() is None
    text = "\n".join(json.dumps({**ROW, "unique_id": f"q{n}"}) for n in range(200))
    scorings = desk.services["attribution"]
    started = scorings.score(ScoreRows(text=text, signals=["pld+h"]), "me")["id"]
    assert not scorings.stop(started, "you") and scorings.stop(started, "me")
    until_over(lambda: scorings.state(started), "the scoring")
    told = scorings.state(started)
    assert told["state"] == "stopped" and told["done"] < 200


def test_links_below_a_rarity_are_left_out_of_exports(client: TestClient) -> None:
    address = "/api/attribution/runs/one/download"
    every = client.get(address, params={"format": "json"}).json()["links"]
    limit = sorted(link["bits"] for link in every)[len(every) // 2]
    told = client.get(address, params={"format": "json", "min_bits": limit}).json()
    assert [link["text"] for link in told["links"]] == [link["text"] for link in every if link["bits"] >= limit]
    assert told["min_bits"] == limit and 0 < len(told["links"]) < len(every)
    rows = client.get(address, params={"format": "csv", "min_bits": limit}).text.split("\r\n")
    assert rows[0].startswith("number,source,tokens,bits,verbatim") and "user turn 2" in "".join(rows)
    assert client.get(address, params={"min_bits": -1}).status_code == 422


# --- cause ------------------------------------------------------------------------------------------------------------


def test_an_answer_is_read_without_a_source_and_what_was_found_stays(client: TestClient) -> None:
    started = ask(client, "start", signals=["casd"], form=FORM, answer=ANSWER).json()
    key = started["runs"][0]["id"]
    document = wait(client, key)
    assert (
        document["claims"] == []
        and document["causes"] == []
        and len(document["tokens"]) == document["verbatim"]["output_tokens"]
    )
    assert [ANSWER[slice(*one["output"])].strip() for one in document["sentences"]] == [
        "the old lamp at the station 👩‍👩‍👧 glows.", "It was sold to the city 博物館 museum <b>now</b>",
    ]  # fmt: skip
    found = ask(client, f"runs/{key}/without", kind="context", passage=0).json()
    assert len(found["weights"]) == 3 and len(found["fall"]) == len(found["reread"]) == len(document["tokens"])
    assert found["weights"][1]["has_words"] and not found["weights"][2]["has_words"]
    assert all(weight["said"].startswith("Passage 1 ") for weight in found["weights"])
    assert found["model"] == "tiny-llama" and found["places"] == 1
    link = document["views"]["words"]["links"][0]
    words = ask(client, f"runs/{key}/without", link=link["source_tokens"], span=link["output_tokens"]).json()
    assert [weight["start"] for weight in words["weights"]] == [link["output_tokens"][0]]
    assert words["weights"][0]["said"].startswith("This place ")
    assert wait(client, key)["causes"] == [found]  # a link's words are asked for again
    page = client.get(f"/api/attribution/runs/{key}/download?format=html").text
    assert json.loads(read_page(page)["data"])["signals"][0]["causes"] == [found]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"kind": "context", "passage": 9}, "The model read no such source"),
        ({}, "The model read no such source"),
        ({"link": [5, 5]}, "Only words of the prompt can be left out"),
        ({"link": [0, 9999]}, "Only words of the prompt can be left out"),
        ({"link": [0, 5], "span": [3, 9999]}, "There are no tokens [3, 9999]"),
    ],
)
def test_what_cannot_be_read_without(client: TestClient, asked: dict[str, Any], why: str) -> None:
    assert why in refuse(client, "runs/one/without", **asked)


def test_another_models_tokens_are_not_read(client: TestClient) -> None:
    assert "this run was made with the tokens of" in refuse(client, "runs/one/without", kind="turn", passage=0).lower()
    assert refuse(client, "runs/none/without", 404, kind="turn", passage=0)
