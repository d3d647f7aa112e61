"""A static site in real Chromium, from disk: the list, a run, a hostile one, and one in another page's frame."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, load, load_target, record, save
from decoders.importers import open_log
from decoders.study.judge.judge import judge_steps
from specviz.cli import main
from specviz.pages.acceptance import judging
from specviz.places import GALLERY
from tests import recordings
from tests.waiting import expect, idle

from ..site.build import write_site
from ..site.entries import SiteEntry

RUNS, JUDGED = 100, 4


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery's site; of each run the first steps are judged, as of a run of more steps than are judged."""
    out = tmp_path_factory.mktemp("site") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "MOST_STEPS", JUDGED)
        assert main(["publish", str(out), str(GALLERY)]) == 0
    return out


def open_site(page: Any, place: Path, query: str = "") -> Any:
    page.goto(place.as_uri() + query)
    return page


def test_the_list_is_searched_and_leads_to_a_run_and_on_to_another_of_its_prompt(page, site):
    open_site(page, site / "index.html")
    expect(page.get_by_role("status")).to_have_text("20 runs of 10 prompts")
    expect(page.locator(".st-prompt").first).to_contain_text("plain decoding")  # who won
    page.get_by_label("Search").fill("class adapld")
    expect(page.get_by_role("status")).to_have_text("1 run of 1 prompt")
    page.get_by_label("Show").select_option("run")
    page.get_by_role("link", name="document a class").click()
    expect(page.locator(".sv")).to_contain_text("Edit code: document a class")
    page.get_by_role("link", name="Token Recycling").click()
    expect(page.locator(".st-nav b").last).to_have_text("Token Recycling")
    expect(page.locator(".sv")).to_contain_text("Token Recycling")
    assert page.problems == [] and all(url.startswith(("file:", "data:", "blob:")) for url in page.requests)


def test_a_run_that_holds_p_and_q_is_shown_under_every_verifier(page, site):
    path = GALLERY / "16-garden-summary-glide-sampled.spectrace"
    trace = load(path)
    first = next(iter(judge_steps(trace)))
    open_site(page, site / "run.html", f"?run={trace.digest[:16]}#step={first.step}")
    page.get_by_role("tab", name="Rules").click()
    table = page.locator(".svj-table")
    for name in ("ratio", "block", "typical"):
        row = table.locator(f"tr[data-verifier~={name}]")
        expect(row).to_contain_text(f"{1 + first.rules[name].expected[0]:.2f}")
    expect(page.locator(".sv-judges .sv-mass")).to_be_visible()
    widths = page.locator(".sv-judges .svp-unseen").evaluate_all("all => all.map((one) => one.offsetWidth)")
    assert widths and set(widths) == {1}, "words for screen readers are not drawn"
    copied = load(GALLERY / "2-class-docstring-pld-h.spectrace")  # no q was drawn from
    open_site(page, site / "run.html", f"?run={copied.digest[:16]}")
    page.wait_for_selector(".sv-row")
    idle(page)  # the tab would be added behind the views
    expect(page.get_by_role("tab", name="Rules")).to_have_count(0)
    assert page.problems == []


def test_runs_of_a_prompt_are_compared_as_in_the_app(page, site):
    open_site(page, site / "index.html")
    page.get_by_role("link", name="Compare").first.click()
    expect(page.locator(".svc-lane")).to_have_count(5)
    expect(page.locator(".svc-outcome")).to_contain_text("plain decoding")
    expect(page.locator(".svc-lens-row .svc-verdict").first).to_have_text("✓ plain decoding")
    expect(page.locator(".svc-lens-row", has_text="identical to plain decoding")).to_have_count(4)
    expect(page.locator(".svc-table tbody tr")).to_have_count(20)  # nineteen numbers, and acceptance by depth
    page.locator(".svc-play").click()
    expect(page.locator(".svc-play")).to_have_attribute("aria-label", "Pause the race")
    page.locator(".svc-stretch .svp-link").first.click()
    page.wait_for_url("**/run.html?run=*#step=*")
    page.wait_for_selector(".sv-row")
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("link", name="SpS").click()  # those beyond five lanes
    expect(page.locator(".svc-lane")).to_have_count(5)
    expect(page.locator(".svc-lane", has_text="SpS")).to_have_count(1)
    expect(page.locator(".svp-chart[data-drawn]")).to_have_count(4)
    assert page.problems == [] and all(url.startswith(("file:", "data:", "blob:")) for url in page.requests)


def test_a_run_races_against_plain_decoding_as_in_the_app_and_says_its_speedup(page, site):
    page.emulate_media(reduced_motion="reduce")
    trace = load(GALLERY / "2-class-docstring-pld-h.spectrace")
    open_site(page, site / "run.html", f"?run={trace.digest[:16]}")
    expect(page.locator(".sv-run-facts [data-key=speedup], [data-key=speedup]").first).to_contain_text("faster")
    page.get_by_role("button", name="Race").click()
    words = page.locator(".svo-words")
    expect(words).to_contain_text("PLD+ by hidden states wrote 106 tokens in 13 forwards (0.5 s)")
    expect(words).to_contain_text("needed 106 forwards (2.8 s)")  # recorded, and on the site
    page.get_by_role("button", name="Close").click()
    expect(page.locator(".svo")).to_have_count(0)
    page.get_by_role("link", name="Plain decoding").click()  # nothing to race against
    expect(page.locator(".st-nav b").last).to_have_text("Plain decoding")
    page.wait_for_selector(".sv-row")
    expect(page.get_by_role("button", name="Race")).to_have_count(0)
    assert page.problems == []


def test_an_answer_stands_beside_its_sources(page, site):
    open_site(page, site / "index.html")
    page.get_by_role("link", name="sources of PLD+ by hidden states").first.click()
    expect(page.locator(".sv-a-title")).to_contain_text("document a class")
    expect(page.locator(".sv-attr")).to_contain_text("Word for word")
    expect(page.locator(".sv-a-summary")).to_contain_text("Not recorded. Open the run in specviz")  # its cause
    page.locator(".sv-attr [data-run]").first.click()
    page.get_by_role("link", name="Player").click()
    page.wait_for_selector(".svq-chip")
    open_site(page, site / "index.html")
    page.get_by_label("Search").fill("notes of a meeting")
    page.get_by_role("link", name="sources of PLD+ by hidden states").click()
    expect(page.locator(".sv-a-matrix tbody tr")).to_have_count(5)  # its causes were recorded
    open_site(page, site / "attribution.html", "?answer=0123456789abcdef")
    expect(page.get_by_role("alert")).to_contain_text("There is no such answer here")
    assert page.problems == []


def test_a_lesson_is_played_and_its_run_opens(page, site):
    open_site(page, site / "index.html")
    page.locator("a[href='lessons.html']").click()  # however many there are
    page.get_by_role("button", name="Start: What drafting is").click()
    page.wait_for_selector(".sv-lesson .sv-output .sv-row")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sv-lesson-place")).to_contain_text("2 of 7")
    assert "lesson=1-drafting" in page.url and "at=2" in page.url
    page.reload()  # the address has the stop
    expect(page.locator(".sv-lesson-place")).to_contain_text("2 of 7")
    page.get_by_role("button", name="Open in Inspect").click()
    page.wait_for_url("**/run.html?run=*#step=*")
    page.wait_for_selector(".sv-row")
    open_site(page, site / "lessons.html", "?lesson=../../x")
    expect(page.get_by_role("alert")).to_contain_text("There is no lesson ../../x. There are 1-drafting, ")
    assert page.problems == [] and all(url.startswith(("file:", "data:", "blob:")) for url in page.requests)


def test_runs_whose_prompt_is_not_recorded_are_not_of_one_prompt(tmp_path):
    runs = [{"id": str(accepted), "rounds": [{"drafted": 5, "accepted": accepted}]} for accepted in (3, 1)]
    traces = open_log(json.dumps(runs).encode()).traces
    assert len({trace.prompt_key for trace in traces}) == 1 and len(traces) == 2
    write_site(tmp_path / "out", "x", map(SiteEntry.of, traces), with_lessons=False)
    rows = runs_of(tmp_path / "out")
    assert rows[0]["prompt"] != rows[1]["prompt"] and [row["answer"] for row in rows] == ["", ""]
    assert not (tmp_path / "out" / "prompts").exists()


def test_hostile_text_is_text_and_a_run_that_is_not_there_is_a_sentence(page, tmp_path):
    trace = recordings.nasty()
    trace.run["title"] = "</script><img src=x onerror=alert(1)> \u202e ../../x"
    other = recordings.nasty()
    other.run |= {"id": "other", "title": trace.run["title"], "method": {**trace.run["method"], "title": "<u>m</u>"}}
    tagged = [SiteEntry.of(trace, ("<i>tag</i>",)), SiteEntry.of(other)]
    key, second = write_site(tmp_path / "out", "<b>Ours</b>", tagged, with_lessons=False).keys
    assert {path.name for path in (tmp_path / "out" / "traces").iterdir()} == {f"{key}.js", f"{second}.js"}
    open_site(page, tmp_path / "out" / "index.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("<b>Ours</b>")
    expect(page.get_by_role("heading", level=2)).to_contain_text("</script><img src=x onerror=alert(1)>")
    page.get_by_label("Show").select_option("run")
    expect(page.get_by_role("table")).to_contain_text("<i>tag</i>")
    open_site(page, tmp_path / "out" / "run.html", f"?run={key}")
    page.wait_for_selector(".sv-row")
    assert page.locator("img, u").count() == 0
    for link, drawn in (("Compare", ".svc-lens-row"), ("Attribution", ".sv-attr [data-run]")):
        page.get_by_role("link", name=link).click()
        page.wait_for_selector(drawn)
        assert page.locator("img, u").count() == 0
    assert page.problems == []
    for query in ("?run=../../x", "", "?run=0123456789abcdef"):
        open_site(page, tmp_path / "out" / "run.html", query)
        expect(page.get_by_role("alert")).to_contain_text("There is no such run here")


def test_long_texts_widen_no_page_and_turn_no_line_round(page, tmp_path):
    trace = recordings.tree()
    trace.run["title"] = "\u202e" + "x" * 3000
    title = "Ours \u202e" + "T" * 500
    (key,) = write_site(tmp_path / "out", title, [SiteEntry.of(trace, ("t" * 2000,))], with_lessons=False).keys
    page.set_viewport_size({"width": 400, "height": 800})
    pages = ("index", "", "table"), ("run", f"?run={key}", ".sv-row"), ("player", f"?run={key}", ".svq")
    for name, query, drawn in pages:
        open_site(page, tmp_path / "out" / f"{name}.html", query)
        page.wait_for_selector(drawn)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, name
        assert "\u202e" not in page.locator("body").inner_text()
    assert page.problems == []


@pytest.mark.parametrize("view, drawn", [("", ".svq-chip"), ('data-view="inspector"', ".sv-row")])
def test_a_run_stands_in_another_page(page, site, tmp_path, view, drawn):
    key = next((site / "traces").iterdir()).stem
    script = f'<script src="{(site / "embed.js").as_uri()}" data-run="{key}" data-height="500" {view}></script>'
    (tmp_path / "other.html").write_text(f"<!doctype html><title>x</title><p>Before</p>{script}", "utf-8")
    open_site(page, tmp_path / "other.html")
    frame = page.frame_locator("iframe")
    expect(frame.locator(drawn).first).to_be_visible()
    assert frame.locator(".st-nav").count() == 0


PLAYER = 60_000  # bytes of all that the player loads, as it stands on the host


def loads(page: Any, site: Path, key: str) -> int:
    """Bytes of the files that a run's player asks for."""
    before = len(page.requests)
    open_site(page, site / "player.html", f"?run={key}")
    page.wait_for_selector(".svq-chip")
    files = [url.partition("?")[0].removeprefix(site.as_uri() + "/") for url in page.requests[before:]]
    assert sorted(file for file in files if not file.startswith("data:")) == [
        "player.html", "player.js", f"players/{key}.js",
    ]  # fmt: skip
    return sum((site / file).stat().st_size for file in files if not file.startswith("data:"))


AT_LEAST_THREE = re.compile(r"^Step ([3-9]|\d\d+) of")


def test_the_player_goes_through_a_run_step_by_step(page, site):
    trace = load(GALLERY / "2-class-docstring-pld-h.spectrace")
    run = next(one for one in runs_of(site) if one["key"] == trace.digest[:16])
    assert loads(page, site, run["key"]) < PLAYER
    expect(page.get_by_role("heading")).to_contain_text("document a class")
    text = page.get_by_role("group", name="Output")
    slider = page.get_by_role("slider", name="Step")
    slider.press("Home")
    expect(page.locator(".svq-place")).to_have_text(f"Step 1 of {run['steps']}")
    slider.focus()
    page.get_by_role("button", name="Step forward").click()
    expect(page.locator(".svq-place")).to_have_text(f"Step 2 of {run['steps']}")
    text.locator('[data-step="4"]').first.click()
    expect(page.locator(".svq-place")).to_have_text(f"Step 5 of {run['steps']}")
    text.press("End")
    expect(page.locator(".svq-place")).to_have_text(f"Step {run['steps']} of {run['steps']}")
    assert text.locator(".svq-later").count() == 0 and text.locator(".svq-now").count() > 0
    text.press("Home")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".svq-place")).to_have_text(AT_LEAST_THREE)  # it goes on: none is there for long
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("link", name="inspector")).to_have_attribute("href", f"run.html?run={run['key']}")
    assert text.locator(".svq-accepted").count() == sum(trace.tables["steps"]["accepted"])
    assert page.problems == []


def test_the_player_shows_hostile_text_as_text_and_says_what_is_not_recorded(page, tmp_path):
    trace = recordings.nasty()
    trace.run["title"] = "</script><img src=x onerror=alert(1)> \u202e"
    rounds = open_log(b'{"rounds": [{"drafted": 5, "accepted": 3}, {"drafted": 2, "accepted": 0}]}').traces[0]
    keys = write_site(tmp_path / "out", "x", [SiteEntry.of(trace), SiteEntry.of(rounds)]).keys
    for key in keys:
        loads(page, tmp_path / "out", key)
        assert page.locator("img").count() == 0
    said = "5 drafted, 3 accepted; the target added a token that is not recorded."
    expect(page.get_by_role("status")).to_have_text(said)
    open_site(page, tmp_path / "out" / "player.html", "?run=../../x")
    expect(page.get_by_role("alert")).to_contain_text("There is no such run here")
    (tmp_path / "out" / "players" / f"{keys[0]}.js").unlink()
    open_site(page, tmp_path / "out" / "player.html", f"?run={keys[0]}")
    expect(page.get_by_role("alert")).to_contain_text("publish the site again")


@pytest.mark.slow("300 tokens by the bundled target and its draft head")
@pytest.mark.parametrize("method", ["eagle2", "medusa"])
def test_the_player_of_300_tokens_is_60_kB(page, tmp_path, method):
    """Trees of 60 nodes a step: the most that a run of ours says."""
    target = load_target("assets/demo/target")
    prompt = Prompt.from_text(target.tokenizer, "Say it twice: the old lamp. the old")
    trace = record(target, prompt, method, max_new_tokens=300)
    assert len(trace.output_ids) == 300
    (key,) = write_site(tmp_path / "out", "x", [SiteEntry.of(trace)]).keys
    assert loads(page, tmp_path / "out", key) <= PLAYER


def runs_of(site: Path) -> list[dict[str, Any]]:
    """The lines of a site's list."""
    text = (site / "index.html").read_text("utf-8")
    return json.loads(text.partition('id="site">')[2].partition("</script>")[0])["runs"]


def test_a_hundred_runs_are_a_small_list(page, tmp_path):
    entries = []
    for number in range(RUNS):
        trace = recordings.chain()
        trace.run |= {"id": f"r{number}", "title": f"Run {number} of one prompt", "category": "code"}
        entries.append(SiteEntry.of(trace, ("tag", f"tag {number % 7}")))
    keys = write_site(tmp_path / "out", "A hundred", entries).keys
    assert len(keys) == RUNS
    loaded = sum((tmp_path / "out" / name).stat().st_size for name in ("index.html", "index.js"))
    assert loaded <= 150_000
    open_site(page, tmp_path / "out" / "index.html")
    page.get_by_label("Tag").select_option("tag 3")
    expect(page.get_by_role("status")).to_contain_text("14 runs")


def test_only_a_site_of_ours_is_written_over_and_files_that_are_no_runs_are_named(site, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    assert main(["publish", str(tmp_path / "mine"), str(GALLERY)]) == 2
    assert "is there and no site of ours" in capsys.readouterr().err
    save(recordings.chain(), tmp_path / "a.spectrace")
    (tmp_path / "b.spectrace").write_bytes(b"PK no")
    (tmp_path / "sub").mkdir()
    save(recordings.tree(), tmp_path / "sub" / "a.spectrace")  # of the same name
    both = [str(tmp_path / name) for name in ("a.spectrace", "b.spectrace", "sub")]
    assert main(["publish", str(tmp_path / "s"), *both]) == 1
    said = capsys.readouterr()
    assert "2 runs" in said.out and "left out: b.spectrace" in said.err
    (tmp_path / "rounds.json").write_text('{"rounds": [{"drafted": 5, "accepted": 3}]}', "utf-8")
    (tmp_path / "whole.json").write_text(json.dumps(recordings.chain().to_json()), "utf-8")
    (tmp_path / "none.json").write_text('{"rounds": [{"drafted": 1, "accepted": 3}]}', "utf-8")
    files = [str(tmp_path / name) for name in ("rounds.json", "whole.json", "none.json")]
    assert main(["publish", str(tmp_path / "s"), *files, "--no-lessons"]) == 1
    said = capsys.readouterr()
    assert "2 runs" in said.out and "accepted 3 of 1 drafted" in said.err
    assert main(["publish", str(tmp_path / "s"), str(tmp_path / "a.spectrace")]) == 0  # once more, in its place
