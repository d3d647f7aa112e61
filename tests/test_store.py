from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest
import recordings

from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz.places import GALLERY, home, is_id, new_id
from specviz.server.forms import TypedPrompt
from specviz.server.library import Library
from specviz.server.store import EVERYBODY, TraceStore, UnknownTrace, load_folder, summary
from specviz.views import gallery
from specviz.views.examples import TASKS, checked_turns, examples, marked_turns, passages
from specviz.views.prompts import DEMO

PLAIN_RUN = "5-class-docstring-plain"


def trace_named(trace: Trace, name: str, created: str = "2026-01-01T00:00:00Z") -> Trace:
    return Trace({**trace.run, "id": name, "created": created}, trace.tables)


def test_what_comes_out_is_what_went_in(chain: Trace) -> None:
    kept = TraceStore()
    key = kept.put(trace_named(chain, "a"))
    assert kept.get(key).to_json() == trace_named(chain, "a").to_json()


def test_a_teacher_forced_run_is_not_called_lossy(chain: Trace) -> None:
    told = []
    for forced in (False, True):
        trace = Trace({**chain.run, "method": {**chain.run["method"], "lossless": False}, "forced": forced})
        trace.tables = chain.tables
        told.append({key: summary(trace)[key] for key in ("lossless", "forced")})
    assert told == [{"lossless": False, "forced": False}, {"lossless": True, "forced": True}]


def test_least_recently_used_go_first_and_the_gallery_stays(chain: Trace) -> None:
    kept = TraceStore(max_count=2)
    kept.put(trace_named(chain, "shown"), kind="gallery", owner=EVERYBODY)
    for name in ("a", "b"):
        kept.put(trace_named(chain, name))
    kept.blob("a")  # used: b is now the oldest
    kept.put(trace_named(chain, "c"))
    assert ["shown" in kept, "a" in kept, "b" in kept, "c" in kept] == [True, True, False, True]
    with pytest.raises(UnknownTrace, match="no run called 'b'"):
        kept.get("b")


def test_bytes_are_bounded_but_the_newest_run_is_always_kept(chain: Trace) -> None:
    kept = TraceStore(max_bytes=10)
    for name in ("a", "b", "c"):
        kept.put(trace_named(chain, name))
        assert len(kept) == 1 and name in kept


def test_nobody_replaces_a_gallery_run(chain: Trace) -> None:
    kept = TraceStore()
    kept.put(trace_named(chain, "shown"), kind="gallery", owner=EVERYBODY)
    kept.put(Trace.new({"id": "shown", "title": "mine", "prompt_length": 0}))
    assert kept.get("shown").run["title"] == chain.run["title"]


def test_an_owner_sees_only_own_runs_and_what_belongs_to_everybody(chain: Trace) -> None:
    kept = TraceStore()
    kept.put(trace_named(chain, "shown"), kind="gallery", owner=EVERYBODY)
    kept.put(trace_named(chain, "old", "2026-01-01T00:00:00Z"), owner="ann")
    kept.put(trace_named(chain, "new", "2026-01-02T00:00:00Z"), owner="ann")
    kept.put(trace_named(chain, "other"), owner="bob")
    assert [run["id"] for run in kept.listing("ann")] == ["new", "old", "shown"]
    assert [run["id"] for run in kept.listing("")] == ["shown"]


def test_summary_has_the_numbers_of_the_run(chain: Trace) -> None:
    row = summary(chain)
    assert row["tokens"] == len(chain.output_ids)
    assert row["steps"] == chain.rows("steps")
    per_step = chain.run["metrics"]["tokens_per_step"]
    assert row["tokens_per_step"] == round(per_step, 2)
    for speedup, shown in ((None, None), (0.8 * per_step, round(0.8 * per_step, 2)), (2 * per_step, None)):
        timed = trace_named(chain, "timed")
        timed.run["metrics"] = {**chain.run["metrics"], "speedup": speedup}
        assert summary(timed)["speedup"] == shown, "one above the tokens per step cannot be"


def test_ids_are_unguessable_and_well_formed() -> None:
    made = {new_id() for _ in range(200)}
    assert len(made) == 200 and all(is_id(name) and len(name) >= 12 for name in made)
    assert not any(is_id(bad) for bad in ("", "a/b", "../x", "a b", "x" * 81, None, 5, "a\n"))


def test_a_run_is_journaled_and_recovered_after_a_crash(tmp_path: Path, chain: Trace) -> None:
    opening, parts = recordings.deltas(trace_named(chain, "crashed"))
    journal = Library(tmp_path).start(opening)
    for part in parts[:5]:
        journal.append(part)
    journal.close()  # the process ends here

    kept = TraceStore()
    library = Library(tmp_path)
    library.recover(kept)
    assert "crashed" in library  # at once: the page that shows it asks as soon as a server answers
    library.restore(kept)
    library.close()
    found = kept.get("crashed")
    assert found.rows("steps") == 5 and found.run["stop"] == "interrupted"
    assert kept.listing("")[0]["kind"] == "recovered"
    assert not list(tmp_path.glob("*.journal"))
    again = TraceStore()
    Library(tmp_path).restore(again)  # the next start finds it among the files
    assert again.listing("")[0]["kind"] == "recovered"


def test_a_finished_run_is_found_laterand_files_are_bounded(tmp_path: Path, chain: Trace) -> None:
    library = Library(tmp_path, max_count=2)
    for name in ("a", "b", "c"):
        opening, _ = recordings.deltas(trace_named(chain, name))
        library.finish(trace_named(chain, name), library.start(opening))
    assert len(list(tmp_path.glob("*.spectrace"))) == 2
    kept = TraceStore()
    library.restore(kept)
    assert [run["kind"] for run in kept.listing("")] == ["earlier", "earlier"]


def test_damaged_files_are_skipped(tmp_path: Path, chain: Trace, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad.spectrace").write_bytes(b"nothing")
    (tmp_path / "bad.journal").write_text("{")
    tracefile.save(trace_named(chain, "good"), tmp_path / "good.spectrace")
    kept = TraceStore()
    later = Library(tmp_path)
    later.recover(kept)
    later.restore(kept)
    assert [run["id"] for run in kept.listing("")] == ["good"]
    assert (tmp_path / "bad.unreadable").exists() and "bad.spectrace" in caplog.text
    shown = TraceStore()
    assert load_folder(shown, tmp_path, "gallery") == 1 and shown.listing("")[0]["kind"] == "gallery"


def test_gallery_runs_have_their_speedup_against_the_plain_run_of_the_same_prompt() -> None:
    gallery_runs = TraceStore()
    load_folder(gallery_runs, GALLERY, "gallery")
    rate = {key: gallery_runs.get(key).run["metrics"]["tokens_per_s"] for key in (PLAIN_RUN, "2-class-docstring-pld-h")}
    document = json.loads(gzip.decompress(gallery_runs.blob("2-class-docstring-pld-h")))
    speedup = document["report"]["metrics"]["speedup"]
    assert speedup["value"] == pytest.approx(rate["2-class-docstring-pld-h"] / rate[PLAIN_RUN]) and speedup["value"] > 2
    assert speedup["plain_tokens_per_s"] == rate[PLAIN_RUN]
    assert document["run"]["metrics"]["speedup"] == speedup["value"]
    assert f"against the run {PLAIN_RUN}, plain" in document["report"]["notes"]["speedup"]
    assert gallery_runs.get(PLAIN_RUN).run["metrics"]["speedup"] is None  # it is the baseline
    other = gallery_runs.get("11-account-check-pld-h").run
    assert other["metrics"]["speedup"] is None and "plain_run" not in other  # nothing plain ran on its prompt


def test_home_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "here"))
    assert home() == tmp_path / "here"


def test_examples_cover_every_task_and_survive_the_editor() -> None:
    real, toys = examples(), examples(toy=True)
    assert len(real) >= 24
    assert {e.record.category for e in real} == set(TASKS) - {"sums"}
    assert {e.record.category for e in toys} == set(DEMO)
    ids = [e.record.id for e in (*real, *toys)]
    assert len(set(ids)) == len(ids), "the page tells the two lists apart by the ids"
    for example in (*real, *toys):
        assert example.note and example.title
        if example.record.messages:
            messages = TypedPrompt(**example.prompt).form().turns()
            assert [(message["role"], message["content"]) for message in messages] == [*example.record.messages]
        else:
            assert tuple(passages("\n---\n".join(example.record.context))) == example.record.context


def test_turns_end_with_the_user() -> None:
    assert marked_turns("Just this: a question") == [{"role": "user", "content": "Just this: a question"}]
    with pytest.raises(ValueError, match="end the conversation with a message of the user"):
        checked_turns(marked_turns("User: a\nAssistant: b"))


def test_the_gallery_names_examples_that_exist() -> None:
    runs = gallery.list_runs()
    assert {run.example for run in runs} <= {e.record.id for e in examples()}
    assert len({run.name for run in runs}) == len(runs)


def test_the_gallery_opens_on_a_tree_with_a_long_copy() -> None:
    for run in gallery.list_runs():
        trace = tracefile.load(GALLERY / f"{run.id}.spectrace")
        assert trace.run["opens"] == run.opens - 1 and 1 <= run.opens <= trace.rows("steps"), run.id
        assert trace.run["model"]["name"].startswith("SmolLM2")
    assert len(list(GALLERY.glob("*.spectrace"))) == len(gallery.list_runs()) >= 14
    first = tracefile.load(GALLERY / f"{gallery.list_runs()[0].id}.spectrace")
    steps, nodes, at = first.tables["steps"], first.tables["nodes"], first.run["opens"]
    kinds = {kind for kind, step in zip(nodes["origin"], nodes["step"], strict=True) if step == at}
    assert steps["accepted"][at] >= 10 and kinds >= {"main", "branch"}


def test_the_store_does_not_change_what_it_is_given(chain: Trace) -> None:
    mine = trace_named(chain, "mine")
    before = copy.deepcopy(mine.to_json())
    TraceStore().put(mine)
    assert mine.to_json() == before
