"""The browser's modules: what they import exists, nothing goes in a circle, lines are short, one global name is set."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from specviz import words
from specviz.pages import pages
from specviz.views import web

from .test_house import circles as circles_of

ROOT = Path(__file__).parents[1]
WIDEST = 120
HANDLE = "specviz/base/handle.js"  # documents and sets globalThis.specviz
DYNAMIC = re.compile(r"\bimport\(\s*[\"'](specviz/[^\"']+)[\"']\s*\)")
COMPUTED = re.compile(r"\bimport\((?!\s*[\"'])")  # of a module whose name is not written there
TYPES = re.compile(r"/\*\*.*?\*/", re.S)  # they name modules, too, and fetch none
ENTRY = "specviz/app/main.js"
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|class|const|let) (\w+)", re.M)
PASSED_ON = re.compile(r"^export \{([^}]*)\}", re.M)
PACKED = re.compile(r"\bexport\s*\{([^}]*)\}")  # the exports of a vendored file, with their own names last
NAMES = re.compile(r"^import \{([^}]*)\} from [\"']([^\"']+)[\"']", re.M)
GLOBAL = re.compile(
    r"\b(?:window|globalThis|self)\.(\w+)(?:\.\w+)*\s*(?:=(?![=>])|\?\?=|\|\|=|\+=)|(?:window|globalThis)\["
)


def unresolved_imports(sources: Mapping[str, str]) -> list[str]:
    """Imports of modules that do not exist, and of names that they do not export."""
    wrong = []
    for name, source in sources.items():
        for other in (*web.imports(source), *DYNAMIC.findall(source)):
            if other not in sources:
                wrong.append(f"{name}: there is no {other}")
        for names, other in NAMES.findall(source):
            exported = set(EXPORT.findall(sources.get(other, "")))
            lists = PACKED if other in web.VENDOR_FILES else PASSED_ON
            for passed_on in lists.findall(sources.get(other, "")):
                exported |= {one.split(" as ")[-1].strip() for one in passed_on.split(",")}
            wanted = {one.split(" as ")[0].strip() for one in names.split(",") if one.strip()}
            wrong += [f"{name}: {other} has no {one}" for one in sorted(wanted - exported)]
    return wrong


def all_imports(source: str) -> list[str]:
    """Modules that a module imports: at once, and later (``import()``)."""
    return [*web.imports(source), *DYNAMIC.findall(TYPES.sub("", source))]


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """Modules that import each other, directly or through others."""
    imports = {name: dict.fromkeys(all_imports(source), 0) for name, source in sources.items()}
    return [*circles_of(imports), *([name] for name, others in imports.items() if name in others)]


def wide(sources: Mapping[str, str]) -> list[str]:
    return [
        f"{name}:{number}"
        for name, source in sources.items()
        if name != web.TERMS and name not in web.VENDOR_FILES
        for number, line in enumerate(source.splitlines(), 1)
        if len(line) > WIDEST
    ]


ELEMENT = re.compile(r"""\bh\(\s*["'`]\w+([.#][^"'`]*)""")  # h("p.ui-soft.svj-visited")
CLASS = re.compile(r"""\bclass(?:Name)?\s*(?:[=:]|\?\?=)\s*(?:\$\{\s*)?["'`]([^"'`]*)""")
CLASS_LIST = re.compile(r"classList\.(?:add|toggle)\(([^()]*)")
LOOKED_FOR = re.compile(r"`\.([\w-]+-)\$\{")  # `.svc-${name}`: every name in quotation marks may be meant


def classes_set(source: str) -> set[str]:
    """Class names that a module's elements are given, but for those with a computed part."""
    texts = [re.sub(r"#[\w-]+", "", text).replace(".", " ") for text in ELEMENT.findall(source)]
    texts += CLASS.findall(source)
    texts += (text for given in CLASS_LIST.findall(source) for text in re.findall(r"[\"'`]([^\"'`]*)", given))
    words = (word for text in texts for word in re.sub(r"\$\{[^}]*\}?", "$", text).split())
    return {word for word in words if re.fullmatch(r"[a-z]+-[\w-]*\w", word)}


def unknown_classes(sources: Mapping[str, str], sheets: Iterable[str], tests: Iterable[str] = ()) -> dict[str, str]:
    """Class names that no stylesheet knows, and no selector and no test looks for, each with its module."""
    known = {name for sheet in sheets for name in re.findall(r"\.([\w-]+)", sheet)}
    bare = "\n".join(ELEMENT.sub("", source) for source in sources.values())
    known |= {name for text in (bare, *tests) for name in re.findall(r"\.([\w-]+)", text)}
    for prefix in LOOKED_FOR.findall(bare):
        known |= {prefix + name for name in re.findall(r"[\"'`]([\w-]+)[\"'`]", bare)}
    return {name: module for module, source in sources.items() for name in sorted(classes_set(source) - known)}


def globals_set(sources: Mapping[str, str]) -> list[str]:
    return [name for name, source in sources.items() if name != HANDLE and GLOBAL.search(source)]


# The rooms from the ground up: a module imports only of its own room and of rooms on floors below, at once and later.
FLOORS = (
    ("vendor", "generated"),
    ("base",),
    ("ui",),
    ("inspect",),
    ("shell",),
    ("prompt",),
    ("acceptance", "trees"),
    ("judges",),
    ("attribution", "compare", "lesson", "models", "runs", "whatif"),
    ("opening",),
    ("app",),
    tuple({name.split("/")[0] for name, path in web.files("js").items() if web.FOLDER not in path.parents}),  # annexes
)
# an annex's rooms may import each other
ANNEXES = {
    name.split("/")[0]: path.parents[1] for name, path in web.files("js").items() if web.FOLDER not in path.parents
}


def above(sources: Mapping[str, str], imports: Callable[[str], Iterable[str]] = all_imports) -> list[str]:
    """Imports of a room that is not on a floor below, or that may be of any."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    computed = [f"{name}: import(…)" for name, source in sources.items() if name != ENTRY and COMPUTED.search(source)]
    return computed + [
        f"{name}: {other}"
        for name, source in sources.items()
        for other in imports(source)
        if (here := web.room(name)) != (there := web.room(other)) and floor[there] >= floor[here]
        and not (here in ANNEXES and ANNEXES.get(there) == ANNEXES[here])
    ]


def with_module(source: str, name: str = "specviz/base/wrong.js") -> Mapping[str, str]:
    return {**web.modules(), name: source}


def test_every_import_resolves() -> None:
    assert unresolved_imports(web.modules()) == []
    for source in (
        'import { h } from "specviz/base/none.js";',
        'import { none } from "specviz/base/dom.js";',
        'import {\n  h,\n  none,\n} from "specviz/base/dom.js";',
        'await import("specviz/base/none.js");',
    ):
        assert len(unresolved_imports(with_module(source))) >= 1


def test_no_imports_go_in_a_circle() -> None:
    assert circles(web.modules()) == []
    text = web.modules()["specviz/base/dom.js"]
    circle = with_module('import { x } from "specviz/inspect/tree.js";', "specviz/base/dom.js")
    assert circles(circle) and not circles({**circle, "specviz/base/dom.js": text})
    assert circles(with_module('const x = () => import("specviz/inspect/tree.js");', "specviz/base/dom.js"))


def test_rooms_import_from_floors_below() -> None:
    assert above(web.modules()) == []
    assert {web.room(name) for name in web.modules()} <= {room for rooms in FLOORS for room in rooms}
    for source in (
        'import { app } from "specviz/shell/state.js";', 'export { app } from "specviz/shell/state.js";',
        'const { app } = await import("specviz/shell/state.js");',
    ):  # fmt: skip
        assert above(with_module(source)) == ["specviz/base/wrong.js: specviz/shell/state.js"]
        assert above(with_module(source, "specviz/runs/right.js")) == []
    assert above(with_module("await import(name);")) == ["specviz/base/wrong.js: import(…)"]
    assert above(with_module('/** @param {import("specviz/shell/state.js").App} app */')) == []
    types = {f"specviz/{name}": path.read_text("utf-8") for name, path in web.files("d.ts").items()}
    del types["specviz/vendor/modules.d.ts"]
    assert len(types) > 9 and above({**web.modules(), **types}, DYNAMIC.findall) == []
    beside = 'import { Lane } from "specviz/compare/lane.js";'
    assert above(with_module(beside, "specviz/runs/wrong.js"))
    assert not above(with_module(beside, "specviz/compare/x.js"))


def test_vendored_files_are_as_they_were_published() -> None:
    """Each says which version it is, and under which licence; the licences' texts come along."""
    licences = (web.FOLDER / "vendor" / "LICENCES.txt").read_text(encoding="utf-8")
    for name, file in web.VENDOR_FILES.items():
        first = web.modules()[name].splitlines()[0]
        licence = "(MIT|Apache-2.0|BSD-3-Clause)"
        said = re.fullmatch(rf"/\* (\S+ [\d.]+)(?: \(hooks\))?, {licence} licence, copyright .+ \*/", first)
        assert said and said[1] in licences, file


def test_lines_are_short() -> None:
    styles = {name: path.read_text(encoding="utf-8") for name, path in web.files("css").items()}
    assert len(styles) > 9 and wide(web.modules()) + wide(styles) == []
    assert wide(with_module("x" * 121)) == ["specviz/base/wrong.js:1"]


def unset(styles: Iterable[str], scripts: Iterable[str]) -> set[str]:
    """Variables that a style takes and that nothing sets: what they colour has no colour, without a word said."""
    sheets, code = "\n".join(styles), "\n".join(scripts)
    there = {*re.findall(r"(--[\w-]+)\s*:", sheets), *re.findall(r"(?<!var\()--[\w-]+", code)}
    return set(re.findall(r"var\((--[\w-]+)\)", sheets + code)) - there


def test_variables_of_styles_are_set_somewhere() -> None:
    styles = [path.read_text(encoding="utf-8") for path in web.files("css").values()]
    assert unset(styles, web.modules().values()) == set()
    assert unset([":root { --sv-a: 1 }", "p { color: var(--sv-b); top: var(--sv-a); left: var(--sv-c) }"],
                 ["h({ style: `--sv-c: ${x}` })"]) == {"--sv-b"}  # fmt: skip


def test_signs_for_what_cannot_be_seen_are_the_figures_own() -> None:
    """The page and the exported player draw them without a word from Python, so each has its own table."""
    source = web.modules()["specviz/base/text.js"]
    (table,) = re.findall(r"const GLYPHS = (\{.*\});", source)
    (pattern,) = re.findall(r"const UNSEEN =\s*/(.*)/g;", source)
    assert json.loads(table) == words.SIGNS
    signs = [chr(code) for code in range(0x10000)]
    assert [bool(re.match(pattern, sign)) for sign in signs] == [bool(words.UNSEEN.match(sign)) for sign in signs]


PUZZLING = ("losing offers", "score heat", "copied from nowhere", "comes along", "came true", "min_run, tokens")


def puzzling(sources: Mapping[str, str]) -> list[str]:
    """Lines of code, comments aside, that say something which readers of the page did not understand."""
    lines = [(name, line.strip()) for name, source in sources.items() for line in source.splitlines()]
    code = [(name, line.split(" // ")[0]) for name, line in lines if not line.startswith(("/*", "*", "//"))]
    return [f"{name}: {line}" for name, line in code if any(words in line.lower() for words in PUZZLING)]


def test_classes_of_elements_are_known_to_a_stylesheet() -> None:
    sources = {name: source for name, source in web.modules().items() if name not in web.VENDOR_FILES}
    sheets = [path.read_text(encoding="utf-8") for path in web.files("css").values()]
    python_files = [path for top in ("tests", "specviz/extras") for path in (ROOT / top).rglob("*.py")]
    tests = [path.read_text(encoding="utf-8") for path in python_files if path != Path(__file__)]
    assert unknown_classes(sources, sheets, tests) == {}
    module = 'h("p.ui-soft.sv-a#sv-b", h("i", { class: `sv-c sv-d-${n}` })); root.querySelector(".sv-e"); '
    module += 'part = (n) => `.sv-f-${n}`; part("g"); html`<b class="sv-e sv-f-g">`; one.classList.toggle("sv-h", on)'
    assert unknown_classes({"m": module}, [".ui-soft {}"]) == dict.fromkeys(("sv-a", "sv-c", "sv-h"), "m")


def test_words_that_puzzled_readers_are_gone() -> None:
    assert puzzling(web.modules()) == []
    assert puzzling(with_module('h("b", "Score heat");')) and not puzzling(with_module("x(); // what came true"))


@pytest.mark.parametrize("code", ["window.x = 1;", "globalThis.x ??= {};", "window.a.b = 2;", "window[name] = 3;"])
def test_one_global_name_is_set(code: str) -> None:
    assert globals_set(web.modules()) == [] and globals_set(with_module(code)) == ["specviz/base/wrong.js"]
    assert "globalThis.specviz" in web.modules()[HANDLE]
    assert globals_set(with_module("if (window.x === 1 || window.y == 2) call(() => window.z);")) == []


def reach(names: Iterable[str]) -> set[str]:
    """Modules that these need, at once or later."""
    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += all_imports(web.modules()[name])
    return seen


def test_every_module_is_used() -> None:
    page = re.compile(r"/(page|entry|moved|standalone)\.js$|^specviz/(app|shell|site|ui)/")
    tools = [f"specviz/{tool.name}/view.js" for tool in pages() if tool.tool]
    assert set(web.modules()) == reach([*filter(page.search, web.modules()), *tools])


def test_a_page_from_disk_carries_what_it_needs_and_no_more() -> None:
    carried = web.inline_map("specviz/inspect/standalone.js")
    assert set(carried) == reach(["specviz/inspect/standalone.js"])
    assert not [name for name in carried if name.startswith(("specviz/shell/", "specviz/runs/"))]
    assert all(url.startswith("data:text/javascript") and "#" not in url for url in carried.values())
    for name in carried:
        comments = [match[0].strip() for match in web.COMMENT.finditer(web.modules()[name])]
        assert all(text.index("*/") == len(text) - 2 for text in comments), "no code is left out"
        assert not any(text.startswith("/*!") for text in comments), "a licence stays"
    assert ".svr-" not in web.styles(carried) and ".sv-tree" in web.styles(carried) and "@import" not in web.styles()


def test_the_first_view_waits_for_no_page_but_its_own() -> None:
    first = web.reachable(ENTRY)
    assert {web.room(name) for name in first} == {"app", "base", "generated", "inspect", "shell", "ui", "vendor"}


def test_all_modules_come_in_one_script_that_names_them() -> None:
    sources = json.JSONDecoder().raw_decode(web.bundle(ENTRY).split("Object.entries(", 1)[1])[0]
    assert list(sources) == list(web.modules())
    assert all(text == f"{web.modules()[name]}\n//# sourceURL={name}" for name, text in sources.items())


def program(name: str) -> str:
    """The path of a program for developers of the browser's part; the test is skipped where there is none."""
    if (path := shutil.which(name)) is None:
        if os.environ.get("SPECVIZ_REQUIRE_NODE") == "1":
            pytest.fail(f"there is no {name}, and SPECVIZ_REQUIRE_NODE is set")
        pytest.skip(f"there is no {name} here: users need none")
    return path


def ran(*command: str) -> str:
    """Run a command; return its output, and fail with it where the command does."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done.stdout


@pytest.mark.slow(".ci/run compiles the types by itself, before all tests")
def test_modules_agree_with_their_types(tmp_path: Path) -> None:
    settings = tmp_path / "tsconfig.json"
    settings.write_text(ran(sys.executable, ".ci/tsconfig.py"), "utf-8")
    ran(program("tsc"), "-p", str(settings))


def test_pure_modules_without_a_browser() -> None:
    places = ("tests/web/*.test.mjs", "specviz/extras/*/tests/*.test.mjs")
    modules = sorted(str(path) for place in places for path in ROOT.glob(place))
    said = ran(program("node"), "--import", "./tests/web/resolve.mjs", "--test", "--test-reporter=tap", *modules)
    assert int(re.findall(r"^# pass (\d+)", said, re.M)[-1]) >= 24


@pytest.mark.slow("every method under every verifier")
def test_methods_under_other_verifiers_are_the_registrys(tmp_path: Path) -> None:
    """The browser makes METHOD@VERIFIER of both cards; the registry's is the same."""
    from decoders.draft.params import controls
    from decoders.drafters import find_method, methods
    from specviz.server.cards import judges, verifier_cards

    def names(params: type) -> list[str]:
        return [one.name for one in controls(params) if one.kind != "str"]

    cards = [
        {"name": one.name, "title": one.title, "lossless": one.lossless, "judges": judges(one),
         "verifier_params": one.verifier_params, "controls": [{"name": name} for name in names(one.params)]}
        for one in methods().values()
    ]  # fmt: skip
    (tmp_path / "catalog.json").write_text(json.dumps({"methods": cards, "verifiers": verifier_cards()}))
    wanted = [f"{card['name']}@{rule}" for card in cards for rule in card["judges"]]
    script = f"""import {{ readFileSync }} from "node:fs";
      import {{ cardOf }} from "specviz/shell/verifiers.js";
      const catalog = JSON.parse(readFileSync({json.dumps(str(tmp_path / "catalog.json"))}));
      const said = {json.dumps(wanted)}.map((name) => cardOf(catalog, name))
        .map((one) => [one.name, one.title, one.lossless, one.controls.map(({{ name }}) => name)]);
      console.log(JSON.stringify(said));"""
    (tmp_path / "ask.mjs").write_text(script)
    said = json.loads(ran(program("node"), "--import", "./tests/web/resolve.mjs", str(tmp_path / "ask.mjs")))
    theirs = [find_method(name) for name in wanted]
    assert said == [[one.name, one.title, one.lossless, names(one.params)] for one in theirs]
    assert len(said) == len(wanted) > 100 and not judges(find_method("plain"))
    assert {one.lossless for one in theirs} == {True, False}
