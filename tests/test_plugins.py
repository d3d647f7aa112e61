"""Methods from outside: packages and files are found, kept apart where they fail, and checked in plain words."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from string import Template

import pytest

from decoders import Prompt, UserError, drafters, find_method, generate, methods, record
from decoders.method import plugins
from decoders.method.plugin_files import VARIABLE, name_plugin_files
from decoders.study.judge import contract
from specviz.cli import main
from specviz.commands.own_method import TEMPLATE
from specviz.server import desk as desks
from specviz.server.limits import PUBLIC

from .command import refusal
from .models import prompt_ids, save_model
from .stubs import StubDesk, at_work
from .tiers import matrix
from .whatifs import whatif

PROMPT = Prompt.from_ids(prompt_ids(1))
ORIGINAL = Template(TEMPLATE.read_text("utf-8")).substitute(name="mine", title="Mine", file="mine.py", module="mine")
COPIED = 'return Draft.copy_from(context.root, copied, start, route="copy")'


@pytest.fixture(autouse=True)
def no_plugins(registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No plug-in was read yet."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(folder: Path, *changes: tuple[str, str], name: str = "mine.py") -> Path:
    """The template's method with some of its text replaced."""
    text = ORIGINAL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def wheel(folder: Path, name: str, text: str) -> Path:
    """A wheel with one module and an entry point, as a build would make it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/entry_points.txt", f"[{plugins.GROUP}]\nmine = {name}\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


def install(wheel: Path, folder: Path) -> None:
    """Install a wheel as an installer does; the folder where it looks."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    sys.path.insert(0, str(folder))


def test_a_method_of_an_installed_wheel_is_everywhere(tmp_path, target):
    install(wheel(tmp_path, "drafts_of_mine", ORIGINAL), tmp_path / "site")
    assert list(methods())[-1] == "mine" and drafters.plugin_problems() == ()
    assert drafters.plugin_place("mine") == "package drafts_of_mine, entry point mine"
    assert drafters.plugin_place("pld") is None
    plain = generate(target, PROMPT, max_new_tokens=24)
    trace = record(target, PROMPT, "mine", {"ngram": 1}, max_new_tokens=24)
    assert trace.output_ids == plain and trace.run["method"]["name"] == "mine"
    again = whatif(target, trace, 3)
    assert again.same and again.trace.run["method"]["params"]["ngram"] == 1


def test_the_template_keeps_the_contract(tmp_path, target):
    plugin = drafters.add_plugin(write(tmp_path))
    assert [method.name for method in plugin.methods] == ["mine"]
    assert contract.check(find_method("mine"), target, [PROMPT, Prompt.from_ids([5])]) == []
    assert contract.drafted_tokens(target, Prompt.from_ids(prompt_ids(1, spread=4)), "mine") > 0


BROKEN = {
    "lossy": (("lossless", "differs from plain decoding"), [
        ('build=lambda', 'verifier=lambda params, chooser, stops: Gullible(),\n    build=lambda'),
        ("METHOD = ", "from decoders.verifiers.match import judged\nclass Gullible:\n    lossless = True\n"
         "    def draws(self, *step): return 0\n"
         "    def __call__(self, draft, scored):\n        last = len(draft.tree) - 1\n"
         "        return judged(draft, draft.tree.path(last), int(scored.logits[last].argmax()))\n\nMETHOD = "),
    ]),
    "raises": (("failed in propose: ZeroDivisionError", "of mine.py"), [(COPIED, "return 1 / 0")]),
    "no draft": (("it returned list, and a Draft is wanted",), [(COPIED, "return copied")]),
    "too deep": (("and its budget was",), [(COPIED, COPIED.replace("copied, start", "(copied * 40)[:40], start"))]),
    "no tree": (("its draft cannot be read: AttributeError",), [(COPIED, "return Draft(copied)")]),
    "far source": (("names the source 1000000",), [
        (COPIED, "tree, main = " + COPIED[len("return "):] + ".tree, ('main',)\n"
         + " " * 16 + "return Draft(tree, ('root', *main * len(copied)), (-1, *[10**6] * len(copied)))"),
    ]),
    "candidates": (("3 candidates and 1 numbers of score",), [
        (COPIED, COPIED.replace(", route", ", candidates=Candidates(PLACES, np.ones(1), PLACES), route")),
        ("import Draft,", "import Candidates, Draft,"), ("@dataclass", "PLACES = np.arange(3)\n\n\n@dataclass"),
    ]),
    "probabilities": (("1 numbers of probabilities",), [
        (COPIED, "return replace(" + COPIED[len("return "):] + ", probabilities=[1.0])"),
        ("import dataclass\n", "import dataclass, replace\n"),
    ]),
    "route": (("its draft's route or reason is 7",), [(COPIED, COPIED.replace('"copy"', "7"))]),
    "learned": (("failed in observe: it returned int",), [
        ("    def propose", "    def observe(self, *step):\n        return 5\n\n    def propose"),
    ]),
    "no propose": (("failed in build: MyDrafter has no propose",), [("def propose", "def drafts")]),
    "no token": (("it drafted 100000",), [(COPIED, COPIED.replace("copied, start", "[100000], start"))]),
    "wrong source": (("at its source",), [(COPIED, COPIED.replace("copied, start", "copied, max(start - 1, 0)"))]),
    "no reason": (("no reason why",), [('f"the last {n} tokens stand nowhere before"', '""')]),
    "unrepeatable": (("two runs of one prompt differ", "other steps"), [
        ("class MyDrafter", "from itertools import count\nCALLS = count()\n\nclass MyDrafter"),
        ("copied = tokens", "start = max(1, start - next(CALLS) % 3)\n                copied = tokens"),
    ]),
    "no help": (("no help that is a sentence",), [('"Tokens copied per draft."', '"Tokens"')]),
}  # fmt: skip


@pytest.mark.parametrize("fault", matrix(BROKEN, 5, "other faults of plug-ins"))
def test_what_is_broken_is_said_in_plain_words(tmp_path, target, fault):
    words, changes = BROKEN[fault]
    drafters.add_plugin(write(tmp_path, *changes))
    findings = contract.check(find_method("mine"), target, [Prompt.from_ids(prompt_ids(1, spread=4))])
    said = " ".join(finding.words for finding in findings)
    assert any(word in said for word in words), said
    if fault == "raises":
        assert "ZeroDivisionError" in findings[0].error and "return 1 / 0" in findings[0].error
        assert all(word in said for word in words)


class Clock:
    """The time of the guard, which goes on only while a plug-in sleeps by it."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_call_that_fails_late_says_after_how_long(tmp_path, target, monkeypatch):
    monkeypatch.setattr("decoders.method.guard.time", Clock())
    late = "from decoders.method.guard import time; time.sleep(1.1); 1 / 0\n        tokens, n = context"
    drafters.add_plugin(write(tmp_path, ("tokens, n = context", late)))
    with pytest.raises(UserError, match=r"mine .* failed in propose after 1 s: ZeroDivisionError.* line \d+ of"):
        generate(target, PROMPT, "mine", max_new_tokens=8)
    drafters.add_plugin(write(tmp_path))
    assert generate(target, PROMPT, "mine", max_new_tokens=8) == generate(target, PROMPT, max_new_tokens=8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_this_name", "its import fails at line 1 of bad.py: ModuleNotFoundError"),
        ("def f(:", "line 1 is no Python"),
        ("raise SystemExit(3)", "SystemExit"),
        ("METHOD = 3", "METHOD is a int, and a decoders.Method is wanted"),
        ("x = 1", "it defines no method"),
        (ORIGINAL.replace('name="mine"', 'name="a b"'), "its method is called 'a b'"),
        (ORIGINAL.replace("k: int", "k: list"), "k is to be of bool, int, float or str"),
        (ORIGINAL.replace("params=Params", "params=dict"), "params of mine are to be a frozen dataclass"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_and_everything_else_goes_on(tmp_path, text, words, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text(text, "utf-8")
    name_plugin_files([bad, write(tmp_path, ('name="mine"', 'name="good"'))])
    assert "good" in methods() and "pld" in methods() and "mine" not in methods()
    (problem,) = drafters.plugin_problems()
    assert f"plug-in {bad} is left out: " in problem and words in problem
    with pytest.raises(UserError, match=r"there is no method 'mine': choose .*good; plug-in .*bad.py is left out"):
        find_method("mine")


def test_two_plugins_of_one_name_are_refused_with_both_places(tmp_path):
    first, second = write(tmp_path), write(tmp_path, name="other.py")
    third = write(tmp_path, ('name="mine"', 'name="pld"'), name="third.py")
    name_plugin_files([first, second, third])
    assert drafters.plugin_place("mine") == str(first) and drafters.plugin_place("pld") is None
    of_other, of_third = drafters.plugin_problems()
    assert str(second) in of_other and f"'mine', and so is one of {first}" in of_other
    assert str(third) in of_third and "'pld', and so is one of specviz itself" in of_third


def test_a_file_is_read_anew_and_its_earlier_methods_go(tmp_path):
    path = write(tmp_path)
    drafters.add_plugin(path)
    drafters.add_plugin(write(tmp_path, ('name="mine"', 'name="yours"')))
    assert "yours" in methods() and "mine" not in methods()


@pytest.mark.slow("checks and runs a method by its commands")
def test_the_commands_begin_check_and_run_a_method(tmp_path, home, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_model("toy")
    assert main(["methods", "new", "my-method"]) == 0
    assert (
        main(["methods", "new", "my-method"]) == 2 and "there is a file my_method.py already" in capsys.readouterr().err
    )
    assert main(["methods", "check", "my_method.py", "--model", "toy"]) == 0
    said = capsys.readouterr().out
    assert "my-method: ok" in said and "✗" not in said and said.count("✓") == 5
    monkeypatch.setattr(drafters, "_plugins", drafters._Plugins())
    args = ["--plugin", "my_method.py", "--model", "toy"]
    assert main(["methods", "my-method", *args]) == 0
    assert f"From the plug-in {tmp_path / 'my_method.py'}" in capsys.readouterr().out
    assert main(["run", "--method", "my-method", "--prompt", "the old lamp", "--max-new-tokens", "8", *args]) == 0
    capsys.readouterr()
    Path("my_method.py").write_text(
        Path("my_method.py").read_text().replace("return Draft.copy_from", "raise ValueError(3)  # ")
    )
    assert main(["methods", "check", "my_method.py", "--model", "toy"]) == 1
    said = capsys.readouterr().out
    assert "✗" in said and "line " in said
    assert "there is no file gone.py" in refusal(capsys, "methods", "check", "gone.py")
    assert "there is no plug-in gone.py" in refusal(capsys, "run", "--plugin", "gone.py", "--prompt", "x")


def test_the_app_says_which_plugin_is_left_out_and_never_to_other_people(tmp_path):
    with at_work(StubDesk()) as desk:
        desk._methods = desks._registry
        bad = tmp_path / "bad.py"
        bad.write_text("import nothing_of_this_name")
        raising = ("    build=lambda", "    needs=lambda target, params: 1 / 0,\n    build=lambda")
        name_plugin_files([bad, write(tmp_path, raising)])
        catalog = desk.catalog()
        assert f"Plug-in {bad} is left out: its import fails at line 1" in catalog["note"]
        (mine,) = [method for method in catalog["methods"] if method["name"] == "mine"]
        assert "failed in needs: ZeroDivisionError" in mine["missing"] and mine["controls"]
        desk.keep_to(PUBLIC)
        assert str(bad) not in desk.catalog()["note"]
