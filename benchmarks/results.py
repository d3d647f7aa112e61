"""docs/results.md and the README's sentence on installing, made of the measurements in ``assets/measured``:
``python -m benchmarks.results``.

A file is a section: its title, and its blocks in order, a paragraph or a table as ``{"heads", "rows"}``, cells as
Markdown; ``index.json`` has the beginning and the chapters. What the repository itself tells is counted, not written
down: the runs of the gallery. ``--check`` compares, and writes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import parser_of

ROOT = Path(__file__).resolve().parent.parent
MEASURED, PAGE, README = ROOT / "assets" / "measured", ROOT / "docs" / "results.md", ROOT / "README.md"
INSTALLING = re.compile(r"(?<=<!-- installing -->).*?(?=<!-- /installing -->)", re.DOTALL)
EXAMPLE = "class-docstring"  # of the gallery, whose runs stand in a table


def page() -> str:
    """The page as Markdown. Raises KeyError for a file of ``assets/measured`` that no chapter names."""
    index = _read("index")
    named = [name for chapter in index["chapters"] for name in chapter["files"]]
    if unnamed := {path.stem for path in MEASURED.glob("*.json")} - {*named, "index"}:
        raise KeyError(f"assets/measured/index.json names no chapter for {', '.join(sorted(unnamed))}")
    parts = [f"# {index['title']}", *map(_block, index["blocks"])]
    for chapter in index["chapters"]:
        parts.append(f"## {chapter['title']}")
        for name in chapter["files"]:
            section = _read(name)
            parts += [f"### {section['title']}"] if section["title"] else []
            parts += map(_block, COUNTED[name](section["blocks"]) if name in COUNTED else section["blocks"])
    return "\n\n".join(parts) + "\n"


def readme(text: str) -> str:
    """The README with what installing took, as it was measured last."""
    numbers = _read("installing")["numbers"]
    beside = "" if numbers["load"] < 1 else " beside other work"
    sentence = (
        "On {cores} cores{beside}, installing took {install_s:.0f} s and {environment_gb:.1f} GB; from its start on, "
        "the app takes {page_s:.0f} s to its page and {model_s:.0f} s to its model "
        "({first_model_s:.0f} s the first time, when it converts it)"
    )
    return INSTALLING.sub(sentence.format(**numbers, beside=beside), text)


def _read(name: str) -> dict[str, Any]:
    return json.loads((MEASURED / f"{name}.json").read_text("utf-8"))


def _block(block: str | Mapping[str, Any]) -> str:
    if isinstance(block, str):
        return block
    lines = (block["heads"], ["---"] * len(block["heads"]), *block["rows"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _installing(blocks: list[str]) -> list[Any]:
    """The numbers of the measuring command, in a table."""
    numbers = _read("installing")["numbers"]
    rows = [
        ["all commands but the last", f"{numbers['install_s']:.0f} s, {numbers['environment_gb']:.1f} GB"],
        *(
            [f"{words}: page served; model ready", f"{numbers[f'{key}page_s']:.1f} s; {numbers[f'{key}model_s']:.1f} s"]
            for words, key in {"the app's first start": "first_", "its later ones": ""}.items()
        ),
    ]
    return [*(block.format(**numbers) for block in blocks), {"heads": ["what", "result"], "rows": rows}]


def _gallery(blocks: list[str]) -> list[Any]:
    """The gallery's runs of one prompt, plain decoding's first: a column each."""
    from decoders import load
    from specviz.pages.compare.outcome import lane_numbers
    from specviz.places import GALLERY
    from specviz.words import decimals

    traces = [load(path) for path in sorted(GALLERY.glob(f"*-{EXAMPLE}-*.spectrace"))]
    traces.sort(key=lambda trace: trace.run["method"]["name"] != "plain")
    plain, *_ = traces
    numbers = [lane_numbers(trace, plain)["metrics"] for trace in traces]
    rows = [
        ["forwards", *(f"{trace.rows('steps'):,}" for trace in traces)],
        ["tokens per step", *(decimals(one["tokens_per_step"], 2) for one in numbers)],
        ["tokens per second", *(decimals(one["tokens_per_s"], 1) for one in numbers)],
        ["speedup", *(f"{decimals(one['speedup'], 2)}×" for one in numbers)],
        ["identical", *("yes" if trace.output_ids == plain.output_ids else "no" for trace in traces)],
    ]
    heads = ["", *(f"`{trace.run['method']['name']}`" for trace in traces)]
    machine = plain.run["machine"]
    told = {
        "tokens": len(plain.output_ids), "date": plain.run["created"][:10],
        "machine": f"{machine['processor']}, {machine['threads']} threads, engine {machine['engine']}",
    }  # fmt: skip
    return [*(block.format(**told) for block in blocks), {"heads": heads, "rows": rows}]


def _heads(blocks: list[Any]) -> list[Any]:
    """The parts' curves from their own logs, and what each goal would take."""
    return [{"heads": one["heads"], "rows": _curves(one["goals"])} if "goals" in one else one for one in blocks]


def tokens_for(curve: Any, acceptance: float) -> list[float | None]:
    """Tokens seen at which a part would reach an acceptance, if it went on so: by its curve's slope, the highest and
    the lowest; None where that slope never gets there.
    """
    seen, last = curve.points[-1]
    return [
        seen if last >= acceptance else seen * 2 ** ((acceptance - last) / slope) if slope > 0 else None
        for slope in (curve.doubling, curve.high, curve.low)
    ]


def acceptance_for(goal: float, length: float, acceptance: float) -> float:
    """First acceptance at which a method would give ``goal`` tokens per step, which gives ``length`` at ``acceptance``.

    A chain whose tokens all stand with probability p gives 1 + p ÷ (1 − p); what a method's tree adds to that, or later
    positions take from it, is a factor that its measured length gives.
    """
    odds = (goal - 1) / (length - 1) * acceptance / (1 - acceptance)
    return odds / (1 + odds)


def _curves(goals: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    from decoders.study.measure.learning_curve import LearningCurve, first_acceptance, learning_curve
    from specviz.words import decimals

    def share(value: float, digits: int = 3) -> str:
        return decimals(value, digits).replace("0.", ".", 1)

    def tokens(value: float | None) -> str:
        if value is None or value > 1e12:
            return "never"
        return f"{value / 1e6:,.1f} M" if value < 1e8 else f"{value / 1e6:,.0f} M"

    def tokens_to(curve: Any, needed: float) -> str:
        middle, soonest, latest = map(tokens, tokens_for(curve, needed))
        return f"{middle}{'' if middle == 'never' else ' tokens'} ({soonest} to {latest})"

    rows = []
    logs = {name: _log(name) for name in goals}
    for name, goal in goals.items():
        seen = [f"{share(first_acceptance(line) or 0)} at {line['tokens'] / 1e3:.0f} k" for line in logs[name]]
        points = ", ".join(seen if len(seen) < 6 else [seen[0], "…", *seen[-3:]])
        curve = learning_curve(logs[name])
        if curve is None:
            asked = f"`{goal['method']}` {goal['length']} → {goal['goal']}"
            needed = acceptance_for(goal["goal"], goal["length"], first_acceptance(logs[name][-1]) or 0)
            rows.append([f"`{name}`", points, "–", asked, share(needed, 2), "one point says nothing of it"])
            continue
        slope = f"{share(curve.doubling)} ({share(curve.low)} to {share(curve.high)})"
        asked, needed, when = "–", "–", "–"
        if "goal" in goal:
            p = acceptance_for(goal["goal"], goal["length"], curve.points[-1][1])
            asked, needed = f"`{goal['method']}` {goal['length']} → {goal['goal']}", share(p, 2)
            when = tokens_to(curve, p) if goal["length"] < goal["goal"] else "reached"
        elif "above" in goal:
            other = learning_curve(logs[goal["above"]])
            assert other is not None
            theirs = dict(other.points)
            gap = tuple((x, a - theirs[x]) for x, a in curve.points if x in theirs)  # of the same text
            apart = LearningCurve(
                gap, curve.doubling - other.doubling, curve.low - other.high, curve.high - other.low
            )  # fmt: skip
            asked = f"β {100 * goal['points']:.0f} points above `{goal['above']}`"
            needed, when = f"{share(goal['points'], 2)} apart", tokens_to(apart, goal["points"])
        rows.append([f"`{name}`", points, slope, asked, needed, when])
    return rows


def _log(part: str) -> list[dict[str, Any]]:
    file = ROOT / "assets" / "smollm2" / "parts" / part / "part.json"
    return json.loads(file.read_text("utf-8"))["training"]["log"]


COUNTED = {"heads": _heads, "installing": _installing, "smollm2-gallery": _gallery}


def main() -> int:
    """1 where ``--check`` finds that a page is not the one that the files make."""
    parser = parser_of("results", __doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    pages = {PAGE: page(), README: readme(README.read_text("utf-8"))}
    for path, text in pages.items():
        same = path.read_text("utf-8") == text
        status = "is what assets/measured says" if same else "differs: python -m benchmarks.results"
        if not options.check:
            path.write_text(text, "utf-8")
            status = f"{len(text.split()):,} words"
        print(f"{path.relative_to(ROOT)}: {status}")
        if options.check and not same:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
