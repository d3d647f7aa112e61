"""The README's first screen."""

from __future__ import annotations

from decoders import load
from specviz.extras.publish.figures.race import race_svg
from specviz.extras.publish.figures.step import step_figure
from specviz.extras.publish.figures.svg import svg
from tests.test_readme import ROOT, page


def test_the_first_screen_is_what_the_gallery_recorded():
    """The race, the step and the headline come from two runs of the gallery, by the commands that docs name."""
    gallery = ROOT / "assets" / "gallery"
    runs = [load(next(gallery.glob(f"*-class-docstring-{name}.spectrace"))) for name in ("plain", "pld-h")]
    race = (ROOT / "assets" / "screenshots" / "race.svg").read_text("utf-8")
    assert race == race_svg(runs) and len(race.encode()) <= 150_000
    assert (ROOT / "assets" / "screenshots" / "step.svg").read_text("utf-8") == svg(step_figure(runs[1], 9))
    assert runs[0].output_ids == runs[1].output_ids
    tokens, forwards = len(runs[0].output_ids), [run.rows("steps") for run in runs]
    seconds = [f"{run.run['timings']['decode_ms'] / 1000:.2f} s" for run in runs]
    told = f"{tokens} tokens in {forwards[1]} forwards of the model instead of {forwards[0]}"
    assert f"{told}, {seconds[1]} instead of {seconds[0]}" in page("README.md").split("## ")[0]
