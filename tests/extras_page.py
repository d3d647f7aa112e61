"""docs/extras.md, made from ``Extra`` and from every annex: ``python -m tests.extras_page`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

import specviz  # noqa: F401  (whose annexes they are)
from decoders.extra import Extra, extras, hooks
from tests.test_house import house_graph

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "extras.md"
ANNEXES = "specviz.extras."

INTRODUCTION = Path(__file__).with_name("extras_page.md")

MODULES = """\
## What annexes use of the core

These modules are the core's public names for annexes; what else is in the core may change without a word.

"""


def section(name: str, extra: Extra) -> str:
    """An annex in the page: what it is for and what it brings."""
    lines = [f"## {name}", "", f"{extra.about} ([more](../specviz/extras/{name}/README.md)).", ""]
    for command, entry in extra.commands.items():
        lines.append(f"- `specviz {command}`: {entry.about}")
    for hook in ("methods", "verifiers", "importers", "pages"):
        if parts := [str(part).rpartition(".")[2] for part in getattr(extra, hook)]:
            lines.append(f"- {hook}: {', '.join(parts)}")
    for hook in ("engines", "weights"):
        if names := list(getattr(extra, hook)):
            lines.append(f"- {hook}: {', '.join(names)}")
    if extra.peers:
        lines.append(f"- peers: {', '.join(extra.peers.values())}")
    for variable, about in extra.settings.items():
        lines.append(f"- `{variable}`: {about}")
    if extra.uses:
        lines.append(f"- uses the annex{'es' * (len(extra.uses) > 1)} {', '.join(extra.uses)}")
    if extra.optional:
        lines.append(f"- works with {', '.join(extra.optional)} where that is there")
    return "\n".join(lines) + "\n"


def used_modules() -> list[str]:
    """The core's modules that annexes import."""
    return sorted(
        {
            other
            for module, others in house_graph().items()
            if module.startswith(ANNEXES)
            for other in others
            if not other.startswith(ANNEXES)
        }
    )


def page() -> str:
    """The whole page."""
    rows = "".join(f"| `{name}` | {about} |\n" for name, about in hooks().items() if name != "package")
    annexes = [section(name, extra) for name, extra in extras().items() if extra.package.startswith(ANNEXES)]
    modules = "".join(f"- `{name}`\n" for name in used_modules())
    return "\n".join([INTRODUCTION.read_text("utf-8") + rows, *annexes, MODULES + modules])


def sections(text: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    return dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", text, re.MULTILINE))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
