"""Engines: which of them runs a target's forwards. One that an annex would bring calls the stock forward again."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from decoders import Prompt, UserError, extra, generate, record
from decoders.extra import Extra
from decoders.model.engines import engines
from decoders.model.engines.engines import Engines
from decoders.model.engines.fewer_bits import round_model, rounded_bytes, weights_for
from decoders.model.engines.machine import gpu_facts
from decoders.model.target_model.target import Target
from decoders.names import engine_names, weight_names

from .models import network, tiny_target
from .tape import TapeForward

PROMPT = Prompt.from_ids([5, 6, 7] * 9)


class SlowForward(TapeForward):
    """Forwards that have to be made first."""

    engine, notice = "again", "making"
    made, reason = False, "nobody makes it"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.calls = list[object]()

    def ready(self, rows: int) -> bool:
        return self.made

    def complete(self) -> bool:
        return self.made

    def make(self, busy=None):
        self.calls.append(busy)

    def wait(self, cancel=None):
        self.calls.append("wait")
        return None if self.made else self.reason


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of an engine ``again``, the one that an annex brings; no other annex is there."""
    monkeypatch.setattr(Engines, "_slower", lambda *_: None)
    found = ModuleType("engine_of_tests")
    found.forward_of = SlowForward  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, found.__name__, found)
    brings = Extra(name="tests", about="", engines={"again": found.__name__})
    monkeypatch.setattr(extra, "extras", lambda: {"tests": brings})
    monkeypatch.setattr(engines, "_messages", set())
    return found


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree without any annex."""
    monkeypatch.setattr(extra, "extras", dict)


def test_without_annexes_what_they_bring_is_refused_and_what_is_left_is_said(bare: None) -> None:
    target = tiny_target()
    assert Engines(target, "auto").static is None and engine_names() == ("auto", "eager", "graph")
    with pytest.raises(UserError, match="^engine 'compiled' is unknown: use one of auto, eager, graph$"):
        Engines(target, "compiled")
    with pytest.raises(UserError, match="^weights 'int8' are unknown: use one of fp32$"):
        round_model(target.model, target.shape, "int8", "it", "auto")
    assert weights_for(target.device, target.dtype) == weight_names() == ("fp32",)
    assert round_model(target.model, target.shape, "fp32", "it", "auto") is None
    assert rounded_bytes("int8", 10, 2, 4, "auto", 4) == rounded_bytes(None, 10, 2, 4, "auto", 4) == 40


def test_graphs_without_cuda_are_refused() -> None:
    with pytest.raises(UserError, match=r"captures CUDA graphs, and tiny llama is on the cpu"):
        Target(network(), None, "tiny llama", engine="graph")


def test_an_engine_that_is_there_runs_and_else_stock_code_does(module: ModuleType) -> None:
    assert engine_names() == ("auto", "eager", "again", "graph")
    target = tiny_target()
    expected = generate(target, PROMPT, max_new_tokens=8)
    for engine in ("auto", "again"):
        target.engines = Engines(target, engine)
        for there in (False, True):
            target.engines.static.made = there  # type: ignore[union-attr]
            trace = record(target, PROMPT, "plain", max_new_tokens=8)
            assert trace.output_ids == expected
            assert set(trace.tables["steps"]["engine"]) == {"again" if there else "eager"}
    assert Engines(target).static is None


@pytest.mark.parametrize("fault", ["differs", "fails"])
def test_forwards_that_differ_or_fail_are_never_used(module, fault, caplog, monkeypatch) -> None:
    def run(forward, *others):
        if fault == "fails":
            raise RuntimeError("illegal instruction")
        return right(forward, *others) + 0.1

    right = SlowForward.run
    monkeypatch.setattr(SlowForward, "run", run)
    monkeypatch.setattr(SlowForward, "made", True)
    target = tiny_target()
    expected = generate(target, PROMPT, max_new_tokens=6)
    target.engines = Engines(target, "again")
    assert target.engines.static is None and generate(target, PROMPT, max_new_tokens=6) == expected
    sentence = "differ from its own by" if fault == "differs" else "fail (illegal instruction): not used"
    assert len(caplog.records) == 1 and sentence in caplog.text


def test_a_reason_is_said_once_and_to_those_alone_who_name_the_engine(module: ModuleType, caplog) -> None:
    module.forward_of = lambda target: "it has none"  # type: ignore[attr-defined]
    target = tiny_target()
    assert Engines(target, "auto").static is None and not caplog.records
    for _ in range(2):
        assert Engines(target, "again").static is None
    assert [entry.message for entry in caplog.records] == ["it has none"]


def test_a_server_has_it_made_and_a_command_that_names_the_engine_waits(module: ModuleType, caplog) -> None:
    def busy() -> bool:
        return True

    target = tiny_target()
    by_name, automatic = (Engines(target, engine) for engine in ("again", "auto"))
    assert by_name.waits and not automatic.waits and not by_name.runs_drafts and by_name.draft(None) is None
    assert not by_name.prepare() and by_name.static.calls == [None, "wait"]  # type: ignore[union-attr]
    assert [entry.message for entry in caplog.records] == [SlowForward.reason]
    for made, asked in ((by_name, None), (automatic, busy)):
        made.static.calls.clear()  # type: ignore[union-attr]
        assert made.pending == ""
        made.begin(busy)
        assert not made.waits and made.pending == "making"
        made.resume()  # a draft model needs more
        assert made.static.calls == [asked, asked]  # type: ignore[union-attr]
    SlowForward.made = True
    try:
        assert by_name.prepare() and by_name.state == ("again", True) and by_name.pending == ""
    finally:
        SlowForward.made = False


def test_an_engine_that_cannot_be_imported_is_left_out(module: ModuleType, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr(extra, "_problems", {})
    assert Engines(tiny_target(), "again").static is None
    assert "engine_of_tests" in extra.problems()[0]


@pytest.mark.parametrize("answer, facts", [
    ("580.65.06, 1980, 1980, 2619\n", "a card, driver 580.65.06, 1980 of 1980 MHz, memory 2619 MHz"),
    ("No devices were found\n", "a card"), (None, "a card"),
])  # fmt: skip
def test_a_gpu_is_named_with_its_driver_and_clocks(answer, facts, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "a card")
    monkeypatch.setenv("PATH", str(tmp_path))
    if answer is not None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!{sys.executable}\nprint({answer!r}, end='')\n", encoding="utf-8")
        tool.chmod(0o755)
    assert gpu_facts() == facts
