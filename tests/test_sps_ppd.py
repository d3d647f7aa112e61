"""SpS with PPD: the draft model's own prompt tokens save draft forwards and change nothing else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, UserError, find_method, generate, record
from decoders.draft_models.drafter import TokenDraw, first_choice, one_by_one
from decoders.drafters.sps import LanguageModelRun, offer_drafter, open_drafter
from decoders.drafters.sps_ppd import MOST_PENDING, PromptedRun
from decoders.engine.decoding import Decoding
from decoders.method import part
from decoders.prompt_tokens.design import trees_for
from decoders.verifiers.sampling import Chooser

from .drafts import save_tiny_part, saved_drafters, tiny_prompts
from .models import VOCAB, prompt_ids, session_behind, tiny_target
from .tiers import matrix

pytestmark = pytest.mark.usefixtures("home")
NEW = 20
DRAWN = Sampling(temperature=0.9, top_p=0.9, seed=3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return saved_drafters(tmp_path_factory)


class Oracle(PromptedRun):
    """Guesses that are right but for every third place: chains of plain SpS are known by the length of their text."""

    chains: dict[int, tuple[int, ...]]
    length = 0

    def chain(self, context, depth, choose):
        self.length = context.length
        return super().chain(context, depth, choose)

    def _guesses(self, at, behind):
        rows, root = super()._guesses(at, behind), at + 1 + behind
        known = self.chains.get(self.length, ())
        for distance, row in enumerate(rows, 1):
            place = root + distance - self.length
            if 0 <= place < len(known) and (root + distance) % 3:
                rows[distance - 1] = [known[place], *(token for token in row if token != known[place])]
        return rows


def drafts_of(steps):
    return [(step.context_length, step.draft.tree.tokens, step.emitted) for step in steps]


def runs(target, folder, sampling=None, knows=True, **options):
    """Steps of plain SpS and of SpS with PPD on one prompt."""
    prompt = Prompt.from_ids(prompt_ids(3))
    plain = list(Decoding.of(target, prompt, "sps", {"drafter": folder}, sampling=sampling, max_new_tokens=NEW))
    drafter = open_drafter(target, folder)
    save_tiny_part(drafter, "ppd", **options)
    given = {"drafter": folder, "tree_size": 20}
    run = Decoding.of(target, prompt, "sps+ppd", given, sampling=sampling, max_new_tokens=NEW)
    if knows:
        trees = trees_for(None, 3, 20, ensemble=options.get("vectors", 1))
        told = Oracle(drafter, tiny_prompts(drafter, **options), trees, VOCAB)
        told.chains = {step.context_length: step.draft.tree.tokens[1:] for step in plain}
        drafts: Any = run.drafter
        drafts.run, drafts.chain = told, told.chain
    return plain, list(run)


@pytest.mark.parametrize(
    ("family", "options", "sampling"),
    matrix(
        [("llama", {}, DRAWN), ("llama", {}, None), ("gpt2", {"vectors": 2}, DRAWN), ("mistral-window", {}, None)],
        1,
        "other families and settings",
    ),
)
def test_chains_and_draws_are_those_of_plain_sps_in_fewer_forwards(target, folders, family, options, sampling):
    """Token by token, with the same distributions: so verification by ratio and residual stays exact."""
    plain, steps = runs(target, folders[family], sampling, **options)
    assert drafts_of(steps) == drafts_of(plain)
    for step, same in zip(steps, plain, strict=True):
        if step.draft.tree.drafted:
            assert step.draft.drawn == same.draft.drawn == (sampling is not None)
            assert step.draft.distributions and same.draft.distributions
            for node, told in step.draft.distributions.items():
                torch.testing.assert_close(told, same.draft.distributions[node], atol=1e-5, rtol=1e-3)
    forwards = [step.draft.notes["draft_forwards"] for step in steps if step.draft.tree.drafted]
    assert sum(forwards) < 0.75 * sum(step.draft.tree.drafted for step in steps)


def test_random_prompt_tokens_change_nothing(target, folders):
    """Guesses that hardly ever hold, and the prompt tokens of a heuristic, widened draft."""
    plain, steps = runs(target, folders["gpt2"], knows=False)
    assert drafts_of(steps) == drafts_of(plain)
    params = {"drafter": folders["gpt2"], "expansion": "confidence", "schedule": "heuristic"}
    prompt = Prompt.from_ids(prompt_ids(3))
    assert generate(target, prompt, "sps+ppd", params, max_new_tokens=NEW) == generate(
        target, prompt, max_new_tokens=NEW
    )


def test_what_is_recorded(target, folders):
    save_tiny_part(open_drafter(target, folders["llama"]), "ppd")
    trace = record(target, Prompt.from_ids(prompt_ids(3)), "sps+ppd", {"drafter": folders["llama"]}, max_new_tokens=NEW)
    assert trace.run["method"]["params"]["drafter"] == Path(folders["llama"]).name, "no path of this machine"
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    for step, (forwards, hits) in enumerate(zip(steps["term:draft_forwards"], steps["term:hits"], strict=True)):
        rows = [row for row, of in enumerate(nodes["step"]) if of == step and nodes["depth"][row]]
        if not rows:
            continue
        by = [nodes["term:draft_forward"][row] for row in rows]
        assert all(before <= after for before, after in pairwise(by)) and by[-1] <= forwards
        assert sum(nodes["term:distance"][row] is not None for row in rows) == hits <= len(rows)
        assert forwards + hits >= len(rows)
    assert steps["term:draft_forwards"][0] > len(set(by)) - 1, "the prompt is read in a forward of its own"


def test_it_follows_any_text(target):
    """Cut back, gone on, another text, a long one: each chain is that of a drafter that never read anything else."""
    drafter = tiny_target("mistral-window", seed=3)
    run = PromptedRun(drafter, tiny_prompts(drafter), trees_for(None, 3, 20), VOCAB)
    first = prompt_ids(1, 40)

    def context(tokens):
        return session_behind(target, tokens, 150).context

    went_on = [*first, *one_by_one(LanguageModelRun(drafter, VOCAB), context(first), 6, first_choice).tokens]
    other = [*first[:20], *prompt_ids(2, MOST_PENDING + 10)]
    for tokens in (first, went_on, [*went_on[:43], 9], first[:30], other, first):
        for choose in (lambda: first_choice, lambda: TokenDraw(Chooser(DRAWN), len(tokens))):  # noqa: B023
            made = run.chain(context(tokens), 5, choose())
            fresh = one_by_one(LanguageModelRun(drafter, VOCAB), context(tokens), 5, choose())
            assert made.tokens == fresh.tokens
            torch.testing.assert_close(
                torch.stack(made.logit_rows), torch.stack(fresh.logit_rows), atol=2e-4, rtol=1e-3
            )
    again = run.chain(context(first), 5, TokenDraw(Chooser(DRAWN), len(first)))
    assert again.forwards < 5, "what was read for the same text is still there"


def test_it_keeps_inside_the_drafters_context(target):
    drafter = tiny_target("gpt2")
    run = PromptedRun(drafter, tiny_prompts(drafter), trees_for(None, 3, 20), VOCAB)
    tokens = prompt_ids(1, drafter.context_length - 5)
    session = session_behind(tiny_target("gpt2"), tokens, drafter.context_length)
    fresh = one_by_one(LanguageModelRun(drafter, VOCAB), session.context, 5, first_choice)
    assert run.chain(session.context, 5, first_choice).tokens == fresh.tokens


def test_what_is_missing_is_named_with_its_command(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(part, "has_command", lambda name: name == "train")
    target, prompt = tiny_target("llama"), Prompt.from_ids([5, 6])
    method = find_method("sps+ppd")

    def refuse(reason, **params):
        with pytest.raises(UserError, match=reason):
            generate(target, prompt, "sps+ppd", params, max_new_tokens=3)

    refuse("needs a causal LM as its drafter: name one .* `specviz train ppd --model DRAFTER`")
    command = f"no set of prompt tokens for the drafter .*`specviz train ppd --model {folders['gpt2']}`"
    refuse(command, drafter=folders["gpt2"])
    refuse("is a trained drafter, .* causal LMs alone", drafter=str(save_tiny_part(target, "drafter")))
    foreign = save_tiny_part(target, "ppd", tmp_path / "foreign")
    refuse("was trained for tiny-llama .* not for", drafter=folders["gpt2"], part=str(foreign))
    offer_drafter(target, folders["gpt2"])
    assert "specviz train ppd --model" in str(method.missing(target))
    save_tiny_part(open_drafter(target, folders["gpt2"]), "ppd")
    assert method.missing(target) is None
    assert len(generate(target, prompt, "sps+ppd", max_new_tokens=3)) == 3
    step = next(iter(Decoding.of(target, prompt, "sps+ppd", max_new_tokens=3)))
    assert np.isfinite(float(step.draft.notes["forward_ms"]))
