"""Compiled draft forwards: what they give is what stock code gives, and who decides that they run.

Nothing is compiled here but in the last test: a part is the same function, not compiled.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.needs import Needs
from decoders.draft_models.config import DraftConfig
from decoders.draft_models.draft_run import DraftRun, target_rotary
from decoders.drafters import sps
from decoders.drafters.sps import LanguageModelRun
from decoders.model.engines import engines
from decoders.model.engines.engines import Engines
from tests.drafts import save_tiny_part, tiny_draft
from tests.models import prompt_ids, session_behind, tiny_target
from tests.tiers import matrix

from .. import compiling
from ..compiled_draft import CompiledDraft
from ..functional import ROW, TEXT, DraftRows, ForwardShape, TensorForward
from .test_compiled_layers import interpret, interpret_unchecked

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


MAKER = CompiledDraft.maker
ROWS: dict[str, tuple[Any, type[torch.nn.Module]]] = {MAKER: (DraftConfig, DraftRows)}  # by maker; annexes add theirs


class Interpreter:
    """A compiled part that is not compiled."""

    def __init__(self, part: compiling.CompiledPart) -> None:
        config, rows = ROWS[part.maker]
        shape, self.calls = ForwardShape.from_json(json.loads(part.shape), config), 0
        self.forward = TensorForward(shape, rows)
        self.first, self.weights = len(self.forward.inner.example(shape)[0]), len(self.forward.sizes)

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.calls += 1
        caches, weights = tensors[self.first : -self.weights], tensors[-self.weights :]
        return list(self.forward(tensors[: self.first], caches, weights))


@pytest.fixture
def openings(monkeypatch, home) -> dict[compiling.CompiledPart, Interpreter]:
    """All parts of draft models are there, and are not compiled; those that were opened."""
    parts: dict[compiling.CompiledPart, Interpreter] = {}

    def note_opening(part: compiling.CompiledPart) -> Interpreter | None:
        return parts.setdefault(part, Interpreter(part)) if part.maker in ROWS else None

    monkeypatch.setattr(compiling.WORKSHOP, "open", note_opening)
    monkeypatch.setattr(Engines, "complete", lambda self: True)
    return parts


def runs_of(target, model) -> tuple[DraftRun, DraftRun]:
    """A draft model at work through stock code, and through compiled parts."""
    target.engines, rotary = interpret(target), target_rotary(target.stack)
    compiled = CompiledDraft.of(target, model, rotary)
    assert compiled is not None
    return DraftRun(model, rotary), DraftRun(model, rotary, compiled)


def context_of(target, tokens, layers=()):
    return session_behind(target, tokens, len(tokens) + 40, Needs(layers=layers)).context


@pytest.mark.parametrize("family", matrix(FAMILIES, 1, "the other families"))
@pytest.mark.parametrize("kind, layers", [("glide", 1), ("glide", 2), ("drafter", 1), ("drafter", 2)])
def test_chains_and_looks_are_those_of_stock_code(family, kind, layers, openings):
    target = tiny_target(family)
    stock, ours = runs_of(target, tiny_draft(target, kind, layers=layers))
    for length in (26, 31, 32, 40):  # the prompt, then texts caught up with by several rows and by one
        context = context_of(target, prompt_ids(4, 40)[:length])
        rows = [[run.read(context)] for run in (stock, ours)]
        for i, token in enumerate(prompt_ids(5, 4)):
            for run, logits in zip((stock, ours), rows, strict=True):
                logits += run.extend([token], [i - 1])
        for one, other in zip(*rows, strict=True):
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
        looks = [run.looks([0, 1, 4]) for run in (stock, ours)]
        assert (looks[0] is None) == (looks[1] is None) == (kind == "drafter")
        if looks[0] and looks[1]:
            torch.testing.assert_close(looks[1](), looks[0](), atol=1e-4, rtol=1e-4)
    calls = {json.loads(part.shape)["kind"]: made.calls for part, made in openings.items()}
    assert calls[ROW] >= 4 * 4 and calls[TEXT] >= 2


def test_a_draft_vocabulary_is_spread_over_the_whole(openings):
    target = tiny_target("llama")
    stock, ours = runs_of(target, tiny_draft(target, "glide", shared=True, draft_vocab=100))
    context = context_of(target, prompt_ids(4, 30))
    assert ours.compiled is not None and stock.read(context).shape == ours.read(context).shape
    torch.testing.assert_close(ours.extend([7], [-1]), stock.extend([7], [-1]), atol=1e-4, rtol=1e-4)


def check_drafts(method, kind, openings):
    """The same drafts through compiled parts, and plain decoding's output."""
    target = tiny_target("llama")
    save_tiny_part(target, kind)
    prompt = Prompt.from_ids(prompt_ids(3, 40))
    stock = record(target, prompt, method, max_new_tokens=30)
    target.engines = interpret(target)
    ours = record(target, prompt, method, max_new_tokens=30)
    assert sum(part.calls for part in openings.values()) > 20
    assert ours.output_ids == stock.output_ids == generate(target, prompt, max_new_tokens=30)
    for table, column in (("nodes", "token"), ("nodes", "parent"), ("steps", "accepted")):
        assert ours.tables[table][column] == stock.tables[table][column]


@pytest.mark.parametrize(
    "method, kind", matrix([("glide", "glide"), ("glide+cape", "glide"), ("sps", "drafter")], 1, "the other methods")
)
def test_methods_draft_the_same_and_stay_lossless(method, kind, openings, tmp_path):
    check_drafts(method, kind, openings)


def test_trees_of_drafts_run_through_stock_code(openings):
    """Beams extend several rows at a time."""
    target = tiny_target("llama")
    stock, ours = runs_of(target, tiny_draft(target, "glide"))
    context = context_of(target, prompt_ids(4, 30))
    for run in (stock, ours):
        run.read(context)
    calls = sum(part.calls for part in openings.values())
    for tokens, parents in (([5, 6], [-1, -1]), ([7], [0])):
        assert torch.equal(ours.extend(tokens, parents), stock.extend(tokens, parents))
    assert sum(part.calls for part in openings.values()) == calls


def test_draft_forwards_that_differ_are_never_used(openings, monkeypatch, caplog):
    monkeypatch.setattr(engines, "_messages", set())
    right = Interpreter.run
    monkeypatch.setattr(Interpreter, "run", lambda self, tensors: [part + 0.1 for part in right(self, tensors)])
    target = tiny_target("llama")
    stock, ours = runs_of(target, tiny_draft(target, "glide"))
    context = context_of(target, prompt_ids(4, 30))
    for run in (stock, ours):
        run.read(context)
    assert torch.equal(ours.extend([5], [-1]), stock.extend([5], [-1]))
    assert (
        isinstance(ours.compiled, CompiledDraft)
        and ours.compiled.is_checked is False
        and "draft model differ from its" in caplog.text
    )


def test_auto_takes_draft_forwards_that_are_there(openings, monkeypatch):
    target = tiny_target("llama")
    save_tiny_part(target, "glide")
    target.engines = interpret_unchecked(target)
    prompt = Prompt.from_ids(prompt_ids(3, 40))
    with monkeypatch.context() as patch:
        patch.setattr(compiling.WORKSHOP, "open", lambda part: None)
        stock = record(target, prompt, "glide", max_new_tokens=20)
    assert not openings
    ours = record(target, prompt, "glide", max_new_tokens=20)
    assert ours.output_ids == stock.output_ids and sum(part.calls for part in openings.values()) > 10


def test_eager_engines_compile_no_draft_model():
    target = tiny_target("llama")
    assert CompiledDraft.of(target, tiny_draft(target, "glide"), target_rotary(target.stack)) is None


def test_a_language_model_that_drafts_runs_through_its_own_engine(monkeypatch):
    target = tiny_target("llama")
    stock, ours = LanguageModelRun(tiny_target("llama"), 300), LanguageModelRun(tiny_target("llama"), 300)
    ours.drafter.engines = interpret(ours.drafter)
    ran = []
    run = ours.drafter.engines.static.run  # type: ignore[union-attr]
    monkeypatch.setattr(ours.drafter.engines.static, "run", lambda *args: (ran.append(args[0].rows), run(*args))[1])
    for length in (20, 24, 25):
        context = context_of(target, prompt_ids(4, 40)).cut(length)
        torch.testing.assert_close(ours.read(context), stock.read(context), atol=1e-4, rtol=1e-4)
        for i, token in enumerate((5, 6, 7)):
            one, other = (each.extend([token], [i - 1]) for each in (stock, ours))
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
    assert ran.count(1) >= 9 and ran.count(4) >= 1


def test_the_drafter_takes_the_targets_engine(monkeypatch):
    asked = []
    target = tiny_target("llama")

    def load(source: str, **options: Any):
        asked.append(options["engine"])
        return tiny_target("llama")

    monkeypatch.setattr(sps, "load_target", load)
    sps.open_drafter(target, "here")
    target.engines = Engines(target, "auto")
    sps.open_drafter(target, "there")
    assert asked == ["eager", "auto"]


@pytest.mark.compile("a minute of compiling")
def test_a_compiled_forward_takes_any_number_of_rows():
    """One part is really compiled, with six rows: it must not have kept to them."""
    if compiling.compiler() is None:
        pytest.skip("there is no C++ compiler here")
    glimpse = {"kv_layers": (0,), "target_heads": 4, "target_head_dim": 8}
    config = DraftConfig(vocab=50, hidden=32, layers=1, heads=4, mlp=48, **glimpse)
    shape, workshop = ForwardShape(config, TEXT, kv_heads=2), compiling.Workshop()
    made = compiling.CompiledPart.of(MAKER, shape.to_json())
    workshop.make([made])
    assert workshop.wait([made]), workshop.failed
    part, step = workshop.open_parts[made.package], TensorForward(shape, DraftRows)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(size, generator=generator) * 0.1 for size in step.sizes.values()]
    for rows, keys in ((2, 9), (6, 40), (17, 90)):
        mask, theirs = torch.zeros(rows, keys), torch.zeros(rows, keys - rows)
        turns = [torch.randn(rows, 8, generator=generator) for _ in range(4)]
        tensors = [torch.arange(rows), *turns, torch.arange(keys - rows, keys), mask, theirs]
        caches = [torch.randn(1, heads, 100, 8, generator=generator) for heads in (4, 4, 2, 2)]
        ours, stock = part.run([*tensors, *caches, *weights]), step(tensors, caches, weights)
        for one, other in zip(ours, stock, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
