"""Figures for papers: what is drawn, that SVG and PDF are one drawing, and what comes along to cite it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
import recordings

from decoders import UserError, methods
from decoders.importers import open_log
from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz import cli
from tests.command import refusal
from tests.work import calls

from ..explain.sentences import sentence_of
from ..figures import citing
from ..figures.bundle import of_runs, of_step
from ..figures.comparison import _axis
from ..figures.pdf import pdf
from ..figures.race import pieces, race_svg
from ..figures.sheet import ACCEPTED, COLUMN, DARK, OFFERED, SMALL, Sheet, TextMark
from ..figures.step import tree_rows
from ..figures.svg import MARGIN, svg

ROOT = Path(__file__).parents[4]
GALLERY = recordings.FROZEN_GALLERY
SVG = "{http://www.w3.org/2000/svg}"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = {"chain": recordings.chain, "tree": recordings.tree, "nasty": recordings.nasty}


def record_of(name: str) -> Trace:
    return tracefile.load(next(GALLERY.glob(f"{name}-*.spectrace")))


def texts(sheet: Sheet) -> list[TextMark]:
    return [item for item in sheet.items if isinstance(item, TextMark)]


@pytest.mark.parametrize("name", [*MADE, "1", "3", "7", "9", "12", "13", "16", "18"])
def test_every_step_fits_a_column_in_legible_type_and_counts_every_drafted_token(name: str) -> None:
    trace = MADE[name]() if name in MADE else record_of(name)
    for step in range(0, trace.rows("steps"), max(1, trace.rows("steps") // 8)):
        sheet = of_step(trace, step).sheet
        for text in texts(sheet):
            assert text.size >= SMALL and text.x >= 0 and text.x + text.width <= COLUMN + 0.01, text
            assert 0 < text.y <= sheet.height
        rows = tree_rows(trace, step)
        drawn = sum(row.count for row in rows if row.kind in ("accepted", "rejected", "unreached"))
        counted = sum(int(re.findall(r"\d+", row.text)[0]) for row in rows if row.kind == "more")
        assert drawn + counted == trace.tables["steps"]["drafted"][step]
        assert sum(row.count for row in rows if row.kind == "accepted") == trace.tables["steps"]["accepted"][step]


def test_a_chain_of_accepted_tokens_is_one_row_and_its_text_stands_there() -> None:
    """29 of the 30 accepted tokens have nothing beside them."""
    rows = tree_rows(record_of("3"), 7)
    chain = next(row for row in rows if row.count > 1)
    assert len(rows) < 12 and chain.count >= 29 and chain.kind == "accepted" and chain.prob is not None
    assert any(text.text == f"{chain.count} accepted" for text in texts(of_step(record_of("3"), 7).sheet))


def test_the_sentence_beside_a_figure_is_the_pages_and_the_caption_explains_only_marks_that_are_drawn() -> None:
    trace = record_of("1")
    figure = of_step(trace, 0)
    assert figure.sheet.about == sentence_of(trace, 0)
    assert "dashed" not in figure.caption and "stroke-dasharray" not in figure.svg()


def server_run(name: str) -> Trace:
    """A run as a server tells it: a sample."""
    (trace,) = open_log((ROOT / "specviz/extras/servers/tests/samples" / name).read_bytes()).traces
    return trace


@pytest.mark.parametrize(
    ("name", "step", "sentence", "caption"),
    [
        (
            "sglang_stream.txt", 1, "2 drafted tokens accepted, then the target added “<1003>”; what was",
            "Step 2 of 5 of SGLang on a model that is not recorded: its draft is not wholly recorded. ",
        ),
        ("sglang_stream.txt", 2, "the target wrote “<1004>”; what was drafted beside is not recorded.", ""),
        ("openai_stream.jsonl", 1, "a chunk of the stream, “old␣lamp␣at”; its tokens", ""),
        ("llama_timings.json", 1, "1 token of the answer; which tokens came together is not recorded.", ""),
        ("vllm_detailed.json", 1, "Then it added “at” itself. What it refused is not recorded.", ""),
    ],
)  # fmt: skip
def test_what_an_imported_run_does_not_know_is_not_said(name: str, step: int, sentence: str, caption: str) -> None:
    figure = of_step(server_run(name), step)
    assert sentence in figure.sheet.about and caption in figure.caption
    assert "How the server sampled is not recorded" in figure.caption


def test_every_colour_of_a_picture_has_one_for_the_dark() -> None:
    runs = [record_of("18"), record_of("2")]
    for picture in (of_step(runs[1], 9).svg(), of_runs(runs).svg(), race_svg(runs)):
        drawn = set(re.findall(r'(?:fill|stroke)="(#\w+)"', picture))
        assert drawn and drawn <= DARK.keys()
        assert all(f'="{light}"]{{fill:{DARK[light]}}}' in picture for light in drawn)


@pytest.mark.slow("thousands of nodes")
@pytest.mark.parametrize("accepted", [0, 3000])
def test_a_chain_of_thousands_is_drawn(accepted: int) -> None:
    steps = {"per_step_accepted": [accepted], "per_step_drafted": [3000]}
    answer = {"id": "a", "choices": [{"text": "", "token_ids": [*range(accepted + 2)]}], "prompt_token_ids": [5]}
    document = {**answer, "metrics": {"speculative_decoding": steps}}
    (trace,) = open_log(json.dumps(document).encode()).traces
    rows = tree_rows(trace, 1)
    assert [row.kind for row in rows[:3]] == (["root", "accepted", "own"] if accepted else ["root", "rejected", "more"])
    assert svg(of_step(trace, 1).sheet)


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        ("sampling", "temperature", "hot"), ("sampling", "temperature", [1]), ("method", "resolved", [1]),
        ("model", "dtype", ["a"]), ("method", "title", "x" * 19_000),
    ],
)  # fmt: skip
def test_odd_records_are_Drawn_once(record: str, name: str, value: object) -> None:
    trace = recordings.chain()
    trace.run[record] = {**trace.run.get(record, {}), name: value}
    drawn: list[str] = []
    many = calls(lambda: drawn.extend([of_step(trace, 1).to_text(), svg(of_runs([trace, trace]).sheet)]))
    assert all(drawn) and many < 600_000  # a few per character


def test_the_axis_of_a_long_output_is_numbered() -> None:
    sheet = Sheet("long")
    _axis(sheet, 40_000, 5.0)
    assert [text.text for text in texts(sheet)] == ["0", "10000", "20000", "30000", "40000", "output token"]


def test_svg_and_pdf_are_one_drawing_whose_text_is_text() -> None:
    sheet = of_step(record_of("13"), 3).sheet
    root = ElementTree.fromstring(svg(sheet))
    written = [(one.text, float(one.get("x", "")), float(one.get("y", ""))) for one in root.iter(f"{SVG}text")]
    assert written == [(one.text, round(one.x, 2), round(one.y, 2)) for one in texts(sheet)]
    assert root.get("width") == f"{COLUMN + 2 * MARGIN:g}pt"
    assert "font/woff;base64" in (root.findtext(f"{SVG}style") or "")
    page = pdf(sheet, NOON, compress=False)
    assert page.count(b" Tj") == len(texts(sheet)) and page.count(b"/FontFile2") == 2
    assert b"/Type3" not in page and b"/ToUnicode" in page and f"/MediaBox [0 0 {COLUMN:.2f}".encode() in page
    assert pdf(sheet, NOON) == pdf(sheet, NOON)


def test_text_of_any_origin_stays_text() -> None:
    trace = recordings.nasty()
    trace.run["title"] = "</text><script>alert(1)</script>\x00 50 % \\input{x}"
    figure = of_step(trace, 0)
    figure.sheet.text(0, 9, "<b>中\x07")
    root = ElementTree.fromstring(figure.svg())
    assert {one.tag for one in root.iter()} <= {SVG + tag for tag in ("svg", "title", "desc", "style", "text")} | {
        SVG + "polygon", SVG + "polyline"
    }  # fmt: skip
    assert [one.text for one in root.iter(f"{SVG}text")][-1] == "<b>⟨U+4E2D⟩⟨U+0007⟩"
    assert r"\textbackslash{}input\{x\}" in citing.latex(str(trace.run["title"]), ["a"], "b")
    assert figure.pdf().startswith(b"%PDF")


def test_a_greyscale_print_tells_fills_apart() -> None:
    def grey(color: str) -> float:
        red, green, blue = (int(color[n : n + 2], 16) for n in (1, 3, 5))
        return (0.299 * red + 0.587 * green + 0.114 * blue) / 255

    assert grey(ACCEPTED) < 0.4 < 0.8 < grey(OFFERED) < 0.95


def test_a_comparison_has_a_lane_per_run_with_the_runs_own_numbers() -> None:
    traces = [record_of(name) for name in ("18", "2", "1")]
    sheet = of_runs(traces).sheet
    shown = [text.text for text in texts(sheet)]
    for trace in traces:
        assert trace.run["method"]["title"] in shown
        assert any(f"{trace.run['metrics']['tokens_per_step']:.2f} tokens per step" in one for one in shown)
    assert all(text.x + text.width <= COLUMN + 0.01 and text.size >= SMALL for text in texts(sheet))
    with pytest.raises(UserError, match="one model and prompt"):
        of_runs([record_of("1"), record_of("4")])
    with pytest.raises(UserError, match="2 to"):
        of_runs(traces[:1])


def test_the_archive_holds_all_that_is_needed_to_print_cite_and_repeat() -> None:
    trace = record_of("2")
    figure = of_step(trace, 2)
    with zipfile.ZipFile(io.BytesIO(figure.archive())) as archive:
        names = set(archive.namelist())
        assert names == {
            "figure.pdf", "figure.svg", "figure.tex", "references.bib", "README.txt", "pld.spectrace", "page.html",
        }  # fmt: skip
        bib, tex, told = (archive.read(name).decode() for name in ("references.bib", "figure.tex", "README.txt"))
        assert tracefile.load(archive.read("pld.spectrace")).output_ids == trace.output_ids
    keys = re.findall(r"^@\w+\{(\S+),$", bib, re.MULTILINE)
    assert keys == ["saxena2023pld", "specviz"] and f"\\cite{{{','.join(keys)}}}" in tex
    assert "\\columnwidth" in tex and "k = 10" in tex and "3 of" in tex
    assert "specviz run --again pld.spectrace" in told and figure.caption in told


@pytest.mark.parametrize("method", [name for name, entry in methods().items() if entry.paper])
def test_every_method_with_a_paper_can_be_cited(method: str) -> None:
    text = methods()[method].bibtex.strip()
    assert re.fullmatch(r"@\w+\{[\w:-]+,\n(  .+\n|            .+\n)+\}", text), text
    assert text.count("{") == text.count("}") and "title = {" in text and "author = {" in text


def test_the_command_writes_what_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(next(GALLERY.glob("2-*.spectrace")))
    for kind, start in (("pdf", b"%PDF"), ("svg", b"<svg"), ("zip", b"PK")):
        assert cli.main(["figure", trace, "--step", "1", "-o", str(tmp_path / f"a.{kind}")]) == 0
        assert (tmp_path / f"a.{kind}").read_bytes().startswith(start)
        told = capsys.readouterr()
        assert "Step 1 of" in told.out and "saxena2023pld" in told.out and "3.3 ×" in told.err
    assert "has steps 1 to" in refusal(capsys, "figure", trace, "--step", "999", "-o", tmp_path / "b.pdf")
    assert "no kind of figure" in refusal(capsys, "figure", trace, "-o", tmp_path / "b.png")
    assert not list(tmp_path.glob("b.*"))


def test_a_race_writes_each_answer_at_its_recorded_pace() -> None:
    """Text by text and moment by moment what was recorded; the slowest run ends last, in five of six seconds."""
    traces = [record_of("18"), record_of("2")]
    root = ElementTree.fromstring(race_svg(traces))
    style = root.findtext(f"{SVG}style") or ""
    appears = {int(n): float(share) for n, share in re.findall(r"@keyframes m(\d+)\{0%\{opacity:0\}([\d.]+)%", style)}
    groups = {int(str(g.get("class"))[1:]): g for g in root.iter(f"{SVG}g") if str(g.get("class")).startswith("m")}
    assert set(groups) == set(appears) and "prefers-reduced-motion:no-preference" in style
    slowest = max(trace.run["timings"]["decode_ms"] for trace in traces)
    number = 0
    for trace in traces:
        lane = list(pieces(trace))
        answer = "".join(piece.text for piece in lane)
        assert answer == trace.text([i for i in trace.output_ids if i not in trace.run["stop_ids"]])
        for piece in lane:
            wanted = max(0.01, 100 * 5 / 6 * piece.at / slowest)
            assert number not in appears or appears[number] == pytest.approx(wanted, abs=0.011)
            drawn = "".join(text.text or "" for text in (groups[number].iter(f"{SVG}text") if number in groups else ()))
            assert "".join(drawn.split()) == "".join(piece.text.split()), piece
            number += 1
        last = "".join(text.text or "" for text in groups[number].iter(f"{SVG}text"))
        assert last.startswith(f"{trace.rows('steps')} forward") and last.endswith(" s")
        assert appears[number] == pytest.approx(100 * 5 / 6 * trace.run["timings"]["decode_ms"] / slowest, abs=0.011)
        number += 1
    assert max(appears.values()) == pytest.approx(100 * 5 / 6, abs=0.011)


def test_a_race_of_hostile_or_long_text_stays_a_picture() -> None:
    nasty, long = recordings.nasty(), recordings.chain()
    root = ElementTree.fromstring(race_svg([nasty, nasty]))
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg", "title", "desc", "style", "text", "polygon", "polyline", "g"
    }  # fmt: skip
    assert root.findtext(f"{SVG}title") == nasty.run["title"]
    for one in (root, ElementTree.fromstring(race_svg([long, long]))):
        height = float(str(one.get("height")).removesuffix("pt"))
        assert height < 340 and all(float(text.get("y", 0)) < height for text in one.iter(f"{SVG}text"))


def test_a_race_is_an_svg_of_whole_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(next(GALLERY.glob(f"{name}-*.spectrace"))) for name in ("18", "2")]
    out = tmp_path / "race.svg"
    assert cli.main(["figure", "--race", *files, "-o", str(out)]) == 0
    assert out.read_text() == race_svg([record_of("18"), record_of("2")]) and len(out.read_bytes()) < 150_000
    assert "forwards and" in capsys.readouterr().out
    for args, words in (
        ([*files, "-o", str(tmp_path / "race.pdf")], "race.pdf cannot move"),
        ([*files, "-o", str(out), "--step", "1"], "--step is of no use to --race"),
        ([files[0], "-o", str(out)], "a comparison has 2 to 6 runs, and 1 were given"),
    ):
        assert words in refusal(capsys, "figure", "--race", *args)
