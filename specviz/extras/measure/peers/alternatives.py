"""Alternatives to this engine: transformers' generate() in its ways, and llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from decoders.draft_models.draft_run import DraftRun
from decoders.draft_models.drafter_export import causal_lm
from decoders.draft_models.network import DraftModel
from decoders.draft_models.part_files import PartSource
from decoders.drafters import select_method
from decoders.drafters.sps import METHOD, LanguageModelRun
from decoders.errors import UserError
from decoders.model.engines import machine
from decoders.model.files.gguf import gguf_file
from decoders.names import BASELINE, QUICK, USUAL
from decoders.study.measure.peers import Peer, PeerSetup
from decoders.study.measure.stock import StockModel
from specviz.commands import common

from .llama_cpp import LlamaCpp, missing_llama_cpp

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

SPS = METHOD.name
LOOKUP, ASSISTED, STATIC = "generate() prompt lookup", "generate() assisted", "generate() static cache, compiled"
LLAMA_CPP, LLAMA_NGRAM = "llama.cpp", "llama.cpp n-gram"
PAIRS = (  # our method, its peer, and what their ratio is called
    (QUICK, LOOKUP, "pld ÷ prompt lookup"),
    (SPS, ASSISTED, "sps ÷ assisted generation"),
    (BASELINE, STATIC, "plain ÷ compiled generate()"),
    (BASELINE, LLAMA_CPP, "plain ÷ llama.cpp"),
    (QUICK, LLAMA_NGRAM, "pld ÷ llama.cpp n-gram"),
    (USUAL, LLAMA_CPP, "pld+h ÷ llama.cpp"),
    (USUAL, LLAMA_NGRAM, "pld+h ÷ llama.cpp n-gram"),
)


def peers_of(setup: PeerSetup) -> tuple[list[Peer], list[str]]:
    """The ``alternatives`` that can take part, and a sentence for each that cannot."""
    notes, length, gguf = list[str](), 0, gguf_file(setup.source)
    if machine.compiler() is None:
        notes.append("generate() with a static cache takes no part: no C++ compiler was found to compile it with")
    else:
        length = setup.longest
        common.say("generate() with a static cache is compiled in the warm-up, which may take minutes", error=True)
    if gguf is not None and (reason := missing_llama_cpp()):
        notes.append(reason)
        gguf = None
    return alternatives(setup.target, setup.stock, setup.methods, compiled_length=length, gguf=gguf), notes


def alternatives(
    target: Target, stock: StockModel, methods: Mapping[str, Any], *, compiled_length: int = 0,
    gguf: Path | None = None,
) -> list[Peer]:  # fmt: skip
    """The peers of these methods (name → parameters): prompt lookup beside ``pld``; assisted generation with the same
    draft model beside ``sps``; with ``compiled_length``, generate() compiled over a static cache of so
    many tokens; with ``gguf``, llama.cpp on that file, plain and with its n-gram drafting.
    """
    peers = list[Peer]()
    if QUICK in methods:
        _, params = select_method(QUICK, methods[QUICK])
        lookup_options = {"prompt_lookup_num_tokens": params.k, "max_matching_ngram_size": params.max_ngram}
        peers.append(Peer(LOOKUP, partial(stock.time_run, **lookup_options)))
    if SPS in methods:
        peers.append(Peer(ASSISTED, partial(stock.time_run, assistant=assistant_of(target, methods[SPS]))))
    if compiled_length:
        static = {"cache_implementation": "static", "max_cache_len": compiled_length, "compile_config": _compiling()}
        peers.append(Peer(STATIC, partial(stock.time_run, **static)))
    if gguf is not None:
        for name, drafts in ((LLAMA_CPP, False), (LLAMA_NGRAM, True)):
            peers.append(Peer(name, LlamaCpp(gguf, target.context_length, drafts).time_run, lossless=False))
    return peers


def _compiling() -> Any:
    """torch.compile as generate() does it by itself on a GPU, on the CPU too."""
    from transformers import CompileConfig

    config = CompileConfig(mode="default")
    config._compile_all_devices = True  # type: ignore[assignment]
    return config


# --- assisted generation


def assistant_of(target: Target, params: Any) -> Any:
    """The draft model of ``sps`` with these parameters as transformers' assistant, which drafts as many tokens."""
    method, params = select_method(SPS, params)
    drafter: Any = method.build(target, params)
    run = drafter.run
    if isinstance(run, LanguageModelRun):
        from decoders.model.target_model.load import load_network

        if run.words is not None:
            raise UserError(
                f"{run.drafter.name} has another tokenizer than {target.name}: peers are compared with drafters of the "
                "target's own"
            )
        dtype = str(target.dtype).removeprefix("torch.")
        source = str(run.drafter.config._name_or_path)
        model, _, _ = load_network(source, dtype=dtype, device=str(target.device), attention=None)
    else:
        assert isinstance(run, DraftRun)
        model = as_llama(run.model, target)
    config = model.generation_config
    config.num_assistant_tokens = params.gamma
    config.num_assistant_tokens_schedule = "constant" if params.schedule == "fixed" else "heuristic_transient"
    config.assistant_confidence_threshold = 0.0
    return model.eval().requires_grad_(False)


class SpreadHead(nn.Module):
    """A head whose logits are of some tokens, spread over the whole vocabulary: the others are never likely."""

    def __init__(self, draft: DraftModel) -> None:
        super().__init__()
        object.__setattr__(self, "draft", draft)
        self.weight = nn.Parameter(draft.head.weight, requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        draft: Any = self.draft
        return draft.full_logits(torch.nn.functional.linear(hidden, self.weight))


def as_llama(draft: DraftModel, target: Target) -> Any:
    """A vanilla drafter as the Llama that it is, on the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    assert not draft.config.kv_layers, "a draft model that looks into the target's cache is no Llama"
    checkpoint = causal_lm(PartSource("", draft.config, draft.state_dict(), target, ""))
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    config = LlamaConfig.from_dict({**checkpoint.config, "tie_word_embeddings": False, **ends})
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    model.lm_head = SpreadHead(draft)
    model.load_state_dict({**checkpoint.weights, "lm_head.weight": draft.head.weight}, assign=True)
    rotary = type(model.model.rotary_emb)(config=config)
    model.model.rotary_emb = rotary.to(draft.norm.weight.device)
    return model
