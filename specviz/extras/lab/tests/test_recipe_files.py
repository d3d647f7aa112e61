"""Recipes of an installed package, and what README.md says of recipes and of their example results."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_extras import plugin, python  # noqa: F401

from ..experiments.shipped import SHIPPED, comes_along, example

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
LOOK = (
    "from specviz.extras.lab.experiments.recipe_files import papers, recipes, find_recipe\n"
    "print([name for name in recipes() if name.startswith('mine')], len(recipes()))\n"
    "from decoders.extra import problems; print(problems())\n"
)


def bring_recipes(package: Path, text: str) -> None:
    """The package brings a folder with a file of recipes."""
    entry = package / "extra.py"
    entry.write_text(entry.read_text().replace("web='web',", "web='web', recipes='my/recipes',"))
    folder = package / "my" / "recipes"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").touch()
    (folder / "mine.toml").write_text(text)


def test_a_package_brings_recipes_as_the_page_says(plugin: Path) -> None:
    """The page's own file, with a recipe that measures by a function beside it; it stands behind the papers of ours."""
    own = (
        '\n[table2]\ntitle = "Two"\nfigure = "table 2"\nquestion = "?"\nlines.PLD = "pld"\n'
        'measure = "recipes.own:measure"\n'
    )
    bring_recipes(plugin, re.findall(r"```toml\n(.*?)```", README, re.DOTALL)[0] + own)
    (plugin / "my" / "recipes" / "own.py").write_text("def measure(target, method, params): yield {'x': 1}\n")
    said = python(
        LOOK + "print([*papers()][-2:], papers()['mine'].title, papers()['mine'].short)\n"
        "print(find_recipe('mine-table2').measure.__module__, find_recipe('mine-fig1').axes[0].values)\n"
    )
    assert said.splitlines() == [
        "['mine-fig1', 'mine-table2'] 90", "()", "['mine', ''] A paper of mine Mine",
        "mine.my.recipes.own (5, 10, 20)",
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_left_out_with_a_sentence(plugin: Path) -> None:
    bring_recipes(plugin, '[common]\ntitle = "Mine"\n')
    said = python(LOOK).splitlines()
    assert said[0] == "[] 88" and "mine: mine.toml is left out: " in said[1]


def test_the_page_counts_the_example_results() -> None:
    """Their number, and the loads of the machine under them."""
    names = comes_along()
    loads = [example(SHIPPED / f"{name}.zip").about["recorded"]["load"] for name in names]
    assert f"All {len(names)} recipes come with an example result" in README
    assert f"(load {min(loads):.0f} to {max(loads):.0f} on two cores)" in README
