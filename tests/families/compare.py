"""One configuration, compared: plain decoding with generate(), and each method with both."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from decoders.draft.needs import Needs
from decoders.drafters import find_method
from decoders.engine.decoding import generate
from decoders.errors import UserError
from decoders.model.target_model.self_check import check
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.study.measure.stock import StockModel

from ..drafters_for_tests import WildTrees, method_of
from ..models import prompt_ids, tiny_tokenizer
from .cases import SWITCH, VOCAB, Case

NEW = 20
LENGTHS = (5, 14, 40)  # of the prompts: within the window to across its edge, past it
SWITCHING_LENGTHS = (SWITCH, SWITCH + 1)  # where longrope changes
METHODS = ("pld", "pld+h", "pld+a", "recycling")
IDENTICAL, REFUSED, WRONG = "identical", "refused", "WRONG"


@dataclass(frozen=True, slots=True)
class Result:
    """``verdict`` on a case, and what it rests on: the outputs compared, or why the engine refused; processor time."""

    case: Case
    verdict: str
    detail: str
    accepted: int = 0
    seconds: float = 0.0

    @property
    def wrong(self) -> bool:
        """Silently wrong, or not refused where it must be."""
        return self.verdict == WRONG or (self.case.refused and self.verdict != REFUSED)


def network(case: Case, seed: int = 1) -> Any:
    """A random model, with weights large enough that its argmax moves about."""
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(case.config(), attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 or name.endswith("sinks"):
            parameter.data.normal_(0, 0.12 if parameter.ndim > 1 else 1.0)
    model.generation_config.eos_token_id = None
    return model


def open_case(case: Case) -> Target:
    """The case's model as a target. Raises UserError for one that the engine refuses."""
    target = Target(network(case), tiny_tokenizer(), case.name)
    target.__dict__["calibration"] = None
    return target


def reason_of(error: UserError) -> str:
    """The reason why a family is refused, without what is supported."""
    return str(error).partition(" are refused: ")[2].partition(". Supported are ")[0] or str(error)


def compare(case: Case, methods: tuple[str, ...] = METHODS, lengths: tuple[int, ...] | None = None) -> Result:
    """Every method on prompts of every length, against plain decoding; plain decoding against generate()."""
    started = time.process_time()
    try:
        target = open_case(case)
    except UserError as error:
        return Result(case, REFUSED, reason_of(error), seconds=time.process_time() - started)
    stock = StockModel(network(case))
    outputs, accepted, lacking = 0, 0, dict[str, str]()
    for length in lengths or (*LENGTHS, *(SWITCHING_LENGTHS if case.rotary == "longrope" else ())):
        ids = prompt_ids(length, length)
        prompt, room = Prompt.from_ids(ids), min(NEW, target.context_length - length)
        expected = stock.generate(ids, room, ())
        wild = WildTrees(expected, VOCAB, seed=length, probes=3)
        heads = () if target.no_attention else target.shape.attention_heads[1::7]
        needs = Needs(layers=(1,), heads=heads, top_tokens=4)
        for name in ("plain", *methods, "trees"):
            try:
                method = method_of(wild, needs) if name == "trees" else find_method(name)
                output = generate(target, prompt, method, max_new_tokens=NEW)
            except UserError as error:
                lacking[name] = str(error)
                continue
            outputs += 1
            if output != expected:
                at = next((i for i, (a, b) in enumerate(zip(output, expected, strict=False)) if a != b), len(output))
                against = "generate()" if name == "plain" else "plain decoding"
                detail = f"{name} leaves {against} at token {at} behind {length} tokens"
                return Result(case, WRONG, detail, seconds=time.process_time() - started)
        accepted += sum(verdict.accepted for _, _, verdict in wild.seen)
    if not accepted:
        return Result(case, WRONG, "no tree ever carried the right token: nothing was tested")
    try:
        check(target)  # also of families that are opened without it
    except UserError as error:
        return Result(case, WRONG, f"right, but its self-check says: {reason_of(error)}")
    detail = "; ".join([f"{outputs} outputs", *(f"without {name}: {reason}" for name, reason in lacking.items())])
    return Result(case, IDENTICAL, detail, accepted, time.process_time() - started)


def quiet() -> None:
    """One thread per process, and no warnings between the table's lines."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
