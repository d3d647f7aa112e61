"""The index of runs' contents: what it finds and where, kept true, made anew where it is damaged, nobody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from decoders import save
from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.extras.find import index as index_module
from specviz.extras.find.index import FILE, RunIndex, Source, file_sources
from specviz.extras.find.texts import BRANCH_END, part_texts
from specviz.server.library import Library
from specviz.server.limits import rules_for
from specviz.views.step_words import WordPieces
from tests import recordings
from tests.command import refusal, specviz
from tests.stubs import StubDesk, client_of
from tests.waiting import until


def written(folder: Path, **runs: Trace) -> Path:
    """A folder with these runs as files."""
    folder.mkdir(exist_ok=True, parents=True)
    for key, trace in runs.items():
        save(trace, folder / f"{key}.spectrace")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {"chain": recordings.chain(), "tree": recordings.tree(), "hostile": recordings.nasty()}
    return written(tmp_path_factory.mktemp("of") / "runs", **runs)


@pytest.fixture
def index(folder: Path):
    index = RunIndex(None)
    index.sync(file_sources(folder))
    yield index
    index.close()


def found(index: RunIndex, *words: str) -> set[str]:
    """The runs that hold all the words."""
    keys = ("chain", "tree", "hostile", "new")
    return {key for key, run in index.find(words, keys).items() if len(run.words) == len(words)}


@pytest.mark.parametrize("make", [recordings.tree, recordings.glide, recordings.chain, recordings.nasty])
def test_a_place_is_where_the_run_has_the_word(make) -> None:
    """Every token of the output leads to its step, every refused node's text to a step that drafted it."""
    trace = make()
    parts, pieces, tokens = part_texts(trace), WordPieces(trace), trace.tables["tokens"]
    output = parts["output"]
    assert output.text == trace.text(trace.output_ids).replace("\0", "\ufffd")
    rows = output.rows.tolist()
    for start, step, position in zip(rows[0::3], rows[1::3], rows[2::3], strict=True):
        assert tokens["step"][position] == step
        text = pieces.texts[tokens["id"][position]]
        if text.isascii() and "\0" not in text and text in trace.text([tokens["id"][position]]):
            assert text in output.text[start : start + len(text) + 1], "a sign of a cut character may stand before it"
    rejected, nodes = parts["rejected"].text.split(BRANCH_END), trace.tables["nodes"]
    drafted = "\n".join(rejected)
    for row, status in enumerate(nodes["status"]):
        text = trace.text([nodes["token"][row]])
        if status == "rejected" and text.strip() and "\ufffd" not in text and "\0" not in text:
            assert text in drafted
    accepted_only = all(status in ("root", "accepted") for status in nodes["status"])
    assert accepted_only == (parts["rejected"].text == "")


def test_words_are_found_in_every_part_and_in_every_alphabet(index: RunIndex) -> None:
    assert found(index, "Library") == {"chain"} and found(index, "lIBRARY") == {"chain"}
    assert found(index, "日本語") == found(index, "日本") == found(index, "日") == {"hostile"}, "shorter than a trigram"
    assert found(index, "שלום") == found(index, "👍🏽") == {"hostile"}
    assert found(index, "<img src=x onerror=window.__pwned=1>") == found(index, '"') & {"hostile"}
    assert found(index, "zq") == found(index, "no such words anywhere") == set()
    assert found(index, "100%_") == found(index, "_%") == set(), "signs of patterns stand for themselves"
    assert not index.find(['a" OR texts MATCH "b', "prompt:library", "lib*", "NEAR(library)"], ["chain"])
    both = index.find(["library", "rectangle"], ("chain", "tree"))
    assert [run.words for run in both.values()] == [("library",), ("rectangle",)], "each run says which it holds"


def test_a_rejected_word_leads_to_its_step(index: RunIndex, folder: Path) -> None:
    trace = recordings.tree()
    nodes, pieces = trace.tables["nodes"], WordPieces(trace)
    text = trace.text(trace.tables["tokens"]["id"])
    word, steps = next(
        (name, [nodes["step"][at] for at, token in enumerate(nodes["token"]) if pieces.texts[token] == name])
        for row, token in enumerate(nodes["token"])
        if nodes["status"][row] == "rejected" and len(name := pieces.texts[token]) > 4 and name not in text
    )
    (run,) = index.find([word], ["tree"]).values()
    assert [place.part for place in run.places] == ["rejected"] and run.places[0].step in steps
    assert run.places[0].text[1] == word and BRANCH_END not in "".join(run.places[0].text)


def test_the_index_follows_its_folder(folder: Path, tmp_path: Path) -> None:
    runs = written(tmp_path / "runs", chain=recordings.chain(), tree=recordings.tree())
    (runs / "broken.spectrace").write_bytes(b"no trace")
    os.mkfifo(runs / "pipe.spectrace")
    index = RunIndex(runs)
    assert index.sync(file_sources(runs)) == [] == index.sync(file_sources(runs), seconds=-1), "each is read once"
    assert (runs / FILE).stat().st_mode & 0o077 == 0
    assert found(index, "library") == {"chain"}
    save(recordings.chain(), runs / "new.spectrace")
    assert index.sync(file_sources(runs), seconds=-1) == ["new"] and found(index, "library") == {"chain"}
    index.sync(file_sources(runs))
    assert found(index, "library") == {"chain", "new"}
    (runs / "chain.spectrace").unlink()
    save(recordings.tree(), runs / "new.spectrace")
    index.sync(file_sources(runs))
    assert found(index, "library") == set() and found(index, "rectangle") == {"new", "tree"}
    index.close()
    assert b"ibrar" not in (runs / FILE).read_bytes(), "what is deleted is gone from the file, too"


DAMAGES = {
    "no database": lambda data: b"no database at all, whatever its name says" * 30,
    "empty": lambda data: b"",
    "cut off": lambda data: data[: len(data) // 2],
    "pages overwritten": lambda data: data[:8192] + b"\xa5" * 8192 + data[16384:],
    "text changed": lambda data: data.replace(b"rectangle", b"rectangel"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[*DAMAGES])
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage, is_open: bool) -> None:
    runs = written(tmp_path / "runs", chain=recordings.chain(), tree=recordings.tree())
    index = RunIndex(runs)
    index.sync(file_sources(runs))
    if not is_open:
        index.close()
    file = runs / FILE
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert file.read_bytes() != before
    index.check()
    index.sync(file_sources(runs))
    assert found(index, "rectangle") == {"tree"} and found(index, "library") == {"chain"}
    index.close()


def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    import sqlite3

    runs = written(tmp_path / "runs", tree=recordings.tree())
    with sqlite3.connect(runs / FILE) as other:
        other.executescript("CREATE TABLE runs(x); PRAGMA user_version=999;")
    other.close()
    index = RunIndex(runs)
    index.sync(file_sources(runs))
    assert found(index, "rectangle") == {"tree"}
    index.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_has_its_index_in_memory(tmp_path: Path) -> None:
    runs = written(tmp_path / "runs", tree=recordings.tree())
    runs.chmod(0o500)
    _in_memory(runs)


def test_where_no_file_can_be_the_index_is_in_memory(tmp_path: Path) -> None:
    runs = written(tmp_path / "runs", tree=recordings.tree())
    (runs / FILE).mkdir()
    _in_memory(runs)


def _in_memory(runs: Path) -> None:
    index = RunIndex(runs)
    index.sync(file_sources(runs))
    assert index.path is None and found(index, "rectangle") == {"tree"}
    index.close()


def test_a_python_without_full_text_search_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "TABLES", index_module.TABLES.replace("trigram", "nosuch"))
    for folder in (None, written(tmp_path / "runs", tree=recordings.tree())):
        with pytest.raises(UserError, match="FTS5 with trigrams"):
            RunIndex(folder).sync({})


def test_two_programs_share_an_index(tmp_path: Path) -> None:
    runs = written(tmp_path / "runs", tree=recordings.tree(), chain=recordings.chain())
    indexes = [RunIndex(runs), RunIndex(runs)]
    for index in indexes:
        index.sync(file_sources(runs))
    (runs / "chain.spectrace").unlink()
    indexes[0].sync(file_sources(runs))
    assert found(indexes[1], "library") == set() and found(indexes[1], "rectangle") == {"tree"}
    for index in indexes:
        index.close()


# --- the app ---


def ask(client, *words: str) -> dict:
    """The answer once all runs are read."""
    url = "/api/find?" + "&".join(f"word={word}" for word in words)
    return until(lambda: (answer := client.get(url).json())["pending"] == 0 and answer, "all runs are read")["runs"]


def test_the_drawer_finds_ones_own_runs_alone(home: Path) -> None:
    """Runs on disk and in memory, of two users of a public server; what is deleted is not found any more."""
    desk = StubDesk(library=Library(home / "runs"), gallery=(recordings.tree(),))
    desk.keep_to(rules_for(public=True, accounts=False))
    with client_of(desk) as ann, client_of(desk) as bob:
        cookies = [client.get("/").cookies["specviz_browser"] for client in (ann, bob)]
        job = desk.submit_text(owner=cookies[0], title="Ann's")
        opened = desk.store.put(recordings.nasty(), kind="opened", owner=cookies[1])
        assert set(ask(ann, "library")) == {job.id} and set(ask(bob, "library")) == set()
        assert set(ask(bob, "日本語")) == {opened} and set(ask(ann, "日本語")) == set()
        assert set(ask(ann, "rectangle")) == set(ask(bob, "rectangle")) == {"gallery-0"}
        place = ask(ann, "library")[job.id]["places"][0]
        assert place["text"][1].lower() == "library" and {"part", "step", "first", "last", "text"} == set(place)
        assert ann.post("/api/runs/delete", json={"ids": [job.id]}).json()["done"] == [job.id]
        assert ask(ann, "library") == {}
        assert ask(ann) == {} and ask(ann, "%20") == {}
        assert ann.get("/api/find?" + "&".join(["word=a"] * 11)).status_code == 422
        assert ann.get("/api/find?word=" + "a" * 201).status_code == 422


def test_runs_are_indexed_in_the_background(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.extras.find import page

    monkeypatch.setattr(page, "QUERY_S", -1.0)
    written(home / "runs", tree=recordings.tree())
    desk = StubDesk(library=Library(home / "runs"))
    with client_of(desk) as client:
        until(lambda: "tree" in desk.store, "earlier runs are listed")
        first = client.get("/api/find?word=rectangle").json()
        assert first == {"runs": {}, "pending": 1}
        assert set(ask(client, "rectangle")) == {"tree"}


@pytest.mark.parametrize("damage", [*DAMAGES.values()][:4], ids=[*DAMAGES][:4])
def test_the_drawer_finds_all_with_an_index_that_is_damaged_meanwhile(home: Path, damage) -> None:
    folder = written(home / "runs", tree=recordings.tree(), chain=recordings.chain())
    desk = StubDesk(library=Library(folder))
    with client_of(desk) as client:
        until(lambda: {"tree", "chain"} <= {*desk.store.ages()}, "earlier runs are listed")
        assert set(ask(client, "rectangle")) == {"tree"}
        desk.services["find"].files.close()  # what it remembers of the file
        (folder / FILE).write_bytes(damage((folder / FILE).read_bytes()))
        assert set(ask(client, "rectangle")) == {"tree"} and set(ask(client, "library")) == {"chain"}


def test_a_run_that_cannot_be_read_is_left_out(index: RunIndex) -> None:
    def fail() -> Trace:
        raise OSError("gone")

    index.sync({"new": Source("1", fail), "tree": Source("1", recordings.tree)})
    assert found(index, "rectangle") == {"tree"}


# --- the command ---


def test_the_command_finds_the_same(home: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def out(*words: str) -> tuple[int, str]:
        return specviz("find", *words), capsys.readouterr().out

    library = written(home / "home" / "runs", mine=recordings.chain())
    Library(library).describe("mine", title="A new title \x1b[31m")
    code, text = out("Library", "point")
    assert code == 0 and "A new title ⟨x1B⟩[31m" in text and "output, step " in text and str(library) in text
    assert "12-library-points-pld-h.spectrace" in text, "the gallery's runs, too"
    code, text = out("library", "--runs", str(folder), "--json")
    (run,) = json.loads(text)
    assert code == 0 and run["run"] == "chain" and run["places"][0]["text"][1].lower() == "library"
    assert not (folder / FILE).exists(), "a folder that is not the library's is not written into"
    assert out("nothing holds this") == (1, "No run holds this word.\n")
    assert "are empty" in refusal(capsys, "find", " ")
    assert "there is no folder" in refusal(capsys, "find", "a", "--runs", folder / "gone")
    code, text = out("e", "--limit", "1")
    assert code == 0 and "further runs: give --limit" in text
