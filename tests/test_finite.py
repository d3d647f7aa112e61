"""Numbers that are none: a model whose logits are NaN or infinite is refused, at load and in the run, by its layer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoders import Prompt, Sampling, UserError, generate, load_target, methods
from decoders.draft.draft import Draft, Scored
from decoders.draft.tree import DraftTree
from decoders.engine.recording import Run
from decoders.method.part import kinds
from decoders.model.target_model.target import Target
from decoders.study.measure.together import decode_together
from decoders.verifiers.block import BlockVerifier
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser
from specviz.cli import main
from specviz.commands import common

from .drafts import save_tiny_part
from .models import network, prompt_ids, save_model, tiny_target, tiny_tokenizer
from .simulation import simulate

NAN, INFINITY = float("nan"), float("inf")
RARE = 300  # a token of no prompt here


@pytest.mark.parametrize(
    ("weight", "value", "place"),
    [
        ("model.layers.1.mlp.up_proj.weight", NAN, "first in layer 2 of 3"),
        ("model.layers.0.self_attn.k_proj.weight", NAN, "first in layer 1 of 3"),
        ("model.layers.2.input_layernorm.weight", INFINITY, "first in layer 3 of 3"),
        ("model.norm.weight", NAN, "its layers' outputs are finite, and the head's are not"),
        ("lm_head.weight", NAN, "its layers' outputs are finite, and the head's are not"),
    ],
)
def test_a_model_whose_logits_are_no_numbers_is_not_opened(weight: str, value: float, place: str, tmp_path) -> None:
    model = network("llama")
    model.get_parameter(weight).data.flatten()[3] = value
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"not finite \(NaN or infinity\) when it is loaded: {place}"):
        load_target(tmp_path)


def rarely_broken(family: str = "llama") -> Any:
    """A model that gives numbers until it reads one token; it then gives none from its second layer on."""
    model = network(family)

    def break_rows(module: Any, args: tuple, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        states[:, seen["rare"]] = NAN
        return output

    seen: dict[str, Any] = {"rare": []}

    def look(module: Any, args: tuple, kwargs: Any) -> None:
        ids = args[0] if args else kwargs.get("input")
        seen["rare"] = (ids[0] == RARE).nonzero()[:, 0]

    model.get_input_embeddings().register_forward_pre_hook(look, with_kwargs=True)
    model.model.layers[1].register_forward_hook(break_rows)
    return model


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=2)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", ["plain", "pld", "adapld", "pld@typical", "pld@fly", "pld@relaxed", "recycling"])
def test_numbers_that_are_none_for_some_inputs_end_the_run_with_layer_and_step(method: str, sampling: Sampling) -> None:
    target = Target(rarely_broken(), tiny_tokenizer(), "rare")
    assert generate(target, Prompt.from_ids(prompt_ids(1)), method, max_new_tokens=4, sampling=sampling)
    run = Run(target, Prompt.from_ids([*prompt_ids(1), RARE, *prompt_ids(1)]), method, None, sampling=sampling)
    with pytest.raises(UserError, match="in step 0, behind .* tokens: first in layer 2 of 3, at position"):
        run.finish()
    assert run.trace.run["stop"] == "error" and "layer 2 of 3" in run.trace.run["error"]


def test_a_token_written_in_a_later_step_names_that_step() -> None:
    target = Target(rarely_broken(), None, "rare")
    written = 0

    class WritesRare(torch.nn.Module):
        """The head, which puts the rare token first once, in step 1."""

        def __init__(self, head: Any) -> None:
            super().__init__()
            self.head = head

        def forward(self, states: Any) -> Any:
            nonlocal written
            logits = self.head(states)
            logits[..., RARE] = 1e4 if written == 2 else -1e4
            written += 1
            return logits

    target.model.lm_head = WritesRare(target.model.lm_head)
    target.head = target.model.lm_head.head
    with pytest.raises(UserError, match="in step 2, behind 10 tokens: first in layer 2 of 3, at position 9 of"):
        generate(target, Prompt.from_ids(prompt_ids(1, 8, 5)), "plain", max_new_tokens=9, stop_ids=())


def test_runs_that_share_forwards_are_checked_too() -> None:
    target = Target(rarely_broken(), None, "rare")
    prompts = [Prompt.from_ids(prompt_ids(1)), Prompt.from_ids([*prompt_ids(2), RARE, 5])]
    with pytest.raises(UserError, match="first in layer 2 of 3"):
        decode_together(target, prompts, "pld", max_new_tokens=4)


def test_a_check_on_a_gpu_takes_no_copy_of_its_own(tmp_path) -> None:
    """test_device.py counts all methods' copies; here is one that fails there."""
    save_model(tmp_path, "llama")
    with simulate():
        target = load_target(tmp_path, device="cuda", dtype="float32")
        target.model.model.layers[1].mlp.up_proj.weight.data.fill_(NAN)
        with pytest.raises(UserError, match="in step 0, .* first in layer 2 of 3"):
            generate(target, Prompt.from_ids(prompt_ids(1)), "pld", max_new_tokens=3)


@pytest.mark.usefixtures("home")
def test_verify_does_not_say_ok_of_a_model_that_is_broken_for_some_inputs(tmp_path, capsys, monkeypatch) -> None:
    prompt = {"question_id": 1, "category": "a", "turns": ["the old lamp the old"]}
    (tmp_path / "p.jsonl").write_text(json.dumps(prompt))
    broken = Target(network("llama"), tiny_tokenizer(), "rare")
    first = broken.model.model.layers[1]
    first.register_forward_hook(lambda module, args, output: output * (NAN if output.shape[1] > 3 else 1))
    monkeypatch.setattr(common, "open_target", lambda *args, **options: broken)
    code = main(["verify", "--prompts", str(tmp_path / "p.jsonl"), "--no-generate", "--methods", "pld"])
    shown = capsys.readouterr()
    assert code != 0 and "ok:" not in shown.out


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", sorted({"drafter", "glide", "medusa", "eagle", "dspark", "ppd"} & kinds().keys()))
def test_a_part_with_weights_that_are_no_numbers_is_not_opened(kind: str) -> None:
    target = tiny_target()
    file = save_tiny_part(target, kind) / "part.safetensors"
    weights = load_file(file)
    next(weight for weight in weights.values() if weight.is_floating_point()).flatten()[-1] = NAN
    save_file(weights, file)
    method = next(m for m in methods().values() if m.part is not None and m.part.kind.name == kind)
    with pytest.raises(UserError, match=r"has weights that are not finite \(NaN or infinity in float32\), in "):
        generate(target, Prompt.from_ids(prompt_ids(1)), method, max_new_tokens=4)


@pytest.mark.parametrize("verifier", [ResidualVerifier, BlockVerifier])
def test_a_draft_drawn_from_no_distribution_is_not_accepted(verifier: Any) -> None:
    """min(1, p/q) of a q that is NaN is 1 in Python: the token would stand whatever it is."""
    q = torch.full((2, 8), NAN)
    draft = Draft(DraftTree.chain(1, (2, 3)), drawn=True, distributions=dict(enumerate(q)), route="drawn")
    with pytest.raises(UserError, match="distribution after node 0 of a draft is not finite"):
        verifier(Chooser(Sampling(1.0)))(draft, Scored(torch.zeros(3, 8)))
