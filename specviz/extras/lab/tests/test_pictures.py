"""Small pictures of recorded experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specviz.extras.lab.experiments.drawing import COLORS
from specviz.extras.lab.experiments.figures import caption, charts
from specviz.extras.lab.experiments.recipe_files import recipes
from specviz.extras.lab.experiments.results import Results
from specviz.extras.lab.experiments.shipped import SHIPPED, example
from specviz.extras.lab.page.pictures import draw_pictures, picture, pictures
from specviz.views.charts import GREY


def test_every_recorded_experiment_has_a_picture() -> None:
    drawn = pictures(SHIPPED)
    assert json.loads(json.dumps(draw_pictures(SHIPPED))) == drawn, "python -m specviz.extras.lab.page.pictures"
    assert drawn.keys() == {path.stem for path in SHIPPED.glob("*.zip")} <= recipes().keys()
    for name, entry in drawn.items():
        values = [value for line in entry["lines"] for value in line if value is not None]
        assert values and min(values) >= 0 and max(values) == 1, name
        assert entry["kind"] in ("bar", "line", "heat") and all(len(line) <= 24 for line in entry["lines"])
        several = len(entry["lines"]) > 1 and entry["kind"] != "heat"
        assert not several or len(entry["names"]) == len(entry["lines"]), name  # each colour has its name
        assert entry["metric"] and entry.keys() & {"names", "note"}, name
    # what a sentence compares is marked; what stays level is drawn from zero, so that little does not look like much
    assert drawn["pldplus-table8"]["marks"] == [[0, 0], [0, 5]] and min(drawn["pldplus-table8"]["lines"][0]) > 0.9
    assert drawn["pldplus-fig4"]["kind"] == "line" and drawn["pldplus-table3"]["kind"] == "bar"
    assert drawn["pldplus-fig4"]["lines"][0][-1] == 1
    assert drawn["pldplus-fig4"]["names"] == ["draft length of 10 to 40 tokens"]
    low, _, high = (line[0] for line in drawn["glide-fig1b"]["lines"])  # of a profile: the numbers of its sentence
    assert low < 0.15 and high == 1 and drawn["glide-fig1b"]["range"] == "3–29 %"
    depths = drawn["eagle3-depth"]  # of all places between two, where these turn
    assert depths["range"] == "57–67 %" and depths["names"] == ["depth 1: 63 %", "depth 2: 57 %", "depth 4: 67 %"]


def test_a_figure_has_a_series_once_and_whiskers_where_there_is_an_error() -> None:
    accepted, places = (chart.figure for chart in charts(Results.load(SHIPPED / "pldplus-fig2.zip")))
    copies, numbers = accepted.data[::2], accepted.data[1::2]
    assert len(copies) == len(numbers) == 3 and len(places.data) == 2  # the places are the same whoever copies
    assert "the same for all three series" in places.layout.title.text
    assert places.data[0].marker.color not in [copy.marker.color for copy in copies]  # it is of none
    assert copies[0].error_y.array[0] is None and copies[1].error_y.array[0] > 0
    # a number for each bar, above its whisker; nothing at all is a stroke; side by side both have one base
    assert [trace.text[0] for trace in numbers] == ["0.0", "2.2", "12.3"]
    assert numbers[1].y[0] == copies[1].y[0] + copies[1].error_y.array[0]
    assert numbers[1].offsetgroup == copies[1].offsetgroup and copies[1].name == "PLD+'s copy"
    assert copies[0].y[0] == 0 and {copy.marker.line.width for copy in copies} == {2}
    assert (accepted.layout.height, accepted.layout.margin.b) == (places.layout.height, places.layout.margin.b)
    tree = next(chart.figure for chart in charts(Results.load(SHIPPED / "ppd-table1.zip")) if "Tree" in chart.title)
    assert [trace.marker.size for trace in tree.data[:2]] == [12, 8] and {t.line.width for t in tree.data[:2]} == {2}
    assert "<br>PPD and PPD, typical lie on each other<" in tree.layout.title.text
    latency = charts(example(SHIPPED / "ppd-fig8b.zip"))[-1].figure  # of the pruned trees alone
    assert "lie on each other" not in latency.layout.title.text


def test_a_colour_can_be_seen_on_a_dark_page() -> None:
    state = (Path(__file__).parents[1] / "web" / "lab" / "state.js").read_text("utf-8")
    assert all(f'"{color.lower()}":' in state for color in {*COLORS} - {GREY}) and len({*COLORS}) == len(COLORS)


def test_labels_lie_on_nothing() -> None:
    def chart(name: str) -> Any:
        return charts(Results.load(SHIPPED / f"{name}.zip"))[0].figure

    layout = chart("adapld-fig1").layout
    assert layout.xaxis.type == "log" and 10 ** layout.annotations[0].x == pytest.approx(layout.shapes[0].x0) == 8
    assert chart("casd-table2").layout.xaxis.ticktext[1] == "CASD,<br>δ\u00a0=\u00a01e-3"
    assert not chart("adapld-table9").layout.yaxis.title.text and chart("adapld-fig4").layout.margin.r > 24
    copies, case = example(SHIPPED / "pldplus-fig2.zip"), example(SHIPPED / "casd-table5.zip")
    assert charts(copies)[0].figure.layout.xaxis.title.text == "class of the last token"
    assert "all 4 prompts" in charts(case)[0].figure.layout.title.text and "whiskers: ± a standard" in caption(case)
    assert "prompts" not in charts(copies)[0].figure.layout.title.text  # told apart
    assert any(">1 position<" in label for label in chart("glide-ranks").data[0].y)


def test_what_cannot_be_read_has_none(tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_bytes(b"no results")
    assert picture(tmp_path / "broken.zip") is None and pictures(tmp_path) == {}


def test_a_series_has_a_look_of_its_own_and_a_share_ends_at_100_percent() -> None:
    """The same in all charts of a result; lines of two settings stand in a chart of each."""
    for path in sorted(SHIPPED.glob("*.zip")):
        looks_by_name: dict[str, set[Any]] = {}
        for chart in charts(example(path)):
            looks = {}
            for trace in chart.figure.data:
                if trace.type == "scatter" and trace.name and trace.showlegend is not False:
                    symbol = trace.marker.symbol if "markers" in trace.mode else "none"
                    looks[trace.name] = (trace.line.color, symbol, trace.line.dash)
                elif trace.type == "bar" and chart.paper and trace.orientation != "h" and trace.name not in looks:
                    looks[trace.name] = (trace.marker.color, "bar", "")
            assert len({*looks.values()}) == len(looks), (path.stem, chart.title)
            for name, look in looks.items():
                looks_by_name.setdefault(name.removeprefix("paper, "), set()).add(look[0])
        assert all(len(colors) == 1 for colors in looks_by_name.values()), (path.stem, looks_by_name)
    quoted = charts(example(SHIPPED / "pldplus-table10.zip"))
    assert [chart.title for chart in quoted][:2] == [
        "Token F1, counting whole quotations", "Token F1, counting drafted tokens"
    ]  # fmt: skip
    whole, drafted = (chart.figure for chart in quoted[:2])
    names = [trace.name for trace in whole.data]
    assert [trace.name for trace in drafted.data] == [*names, "PLD+ (h), paper (Vicuna-7B)"]
    assert whole.layout.yaxis.autorangeoptions.clipmax == 1 and not whole.data[0].cliponaxis
