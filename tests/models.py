"""Tiny models made in the test, one per supported family, and a tiny tokenizer."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from decoders import Prompt
from decoders.draft.needs import Needs
from decoders.model.target_model.target import Session, Target

from .tiers import matrix

VOCAB = 320
BASE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 512, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": None,
}  # fmt: skip
GROUPED = {**BASE, "num_key_value_heads": 2}
WINDOW = 24
NOTHING = Needs()


def configs() -> dict[str, Any]:
    """A small configuration per supported family (and per sliding-window variant)."""
    gemma = {**GROUPED, "head_dim": 16, "sliding_window": WINDOW, "num_hidden_layers": 4}
    return {
        "llama": hf.LlamaConfig(**GROUPED),
        "mistral": hf.MistralConfig(**GROUPED, sliding_window=None),
        "mistral-window": hf.MistralConfig(**GROUPED, sliding_window=WINDOW),
        "qwen2": hf.Qwen2Config(**GROUPED),
        "qwen2-window": hf.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
        "qwen3": hf.Qwen3Config(**GROUPED, head_dim=16),
        "gpt_neox": hf.GPTNeoXConfig(**BASE),
        "gpt2": hf.GPT2Config(
            vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=512, eos_token_id=None, bos_token_id=None
        ),
        "phi": hf.PhiConfig(**GROUPED),
        "gemma": hf.GemmaConfig(**GROUPED, head_dim=16),
        "gemma2": hf.Gemma2Config(**gemma),
        "gemma3": hf.Gemma3TextConfig(**gemma, sliding_window_pattern=2),
        "olmo2": hf.Olmo2Config(**GROUPED),
        "granite": hf.GraniteConfig(**GROUPED, logits_scaling=4.0),
        "stablelm": hf.StableLmConfig(**GROUPED),
        "opt": hf.OPTConfig(
            vocab_size=VOCAB, hidden_size=64, ffn_dim=96, num_hidden_layers=3, num_attention_heads=4,
            word_embed_proj_dim=64,
            max_position_embeddings=512, pad_token_id=None, bos_token_id=0, eos_token_id=None,
        ),
    }  # fmt: skip


FAMILIES = tuple(configs())
EVERY_FAMILY = matrix(FAMILIES, ("llama", "gpt2", "gemma2", "qwen2-window"), "the other families")


def network(family: str = "llama", seed: int = 1, dtype: torch.dtype = torch.float32) -> Any:
    """A random model of a family, with weights large enough that its argmax moves about: a copy of one that is made
    once. The generator is left as if it had been made now.
    """
    model, state = _network(family, seed)
    torch.set_rng_state(state)
    return copy.deepcopy(model).to(dtype)


@functools.cache
def _network(family: str, seed: int) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(configs()[family], attn_implementation="eager").eval()
    for p in model.parameters():
        if p.ndim > 1:
            p.data.normal_(0, 0.12)
    model.generation_config.eos_token_id = None
    return model, torch.get_rng_state()


@functools.cache
def tiny_tokenizer() -> Any:
    """Byte-level BPE with a chat template: 256 bytes, a few merges, three special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = ["the old lamp at the station", "def total(items): return sum(items)", "was sold to the city museum"]
    special = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>"]})
    fast.chat_template = (
        "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    return fast


def tiny_target(family: str = "llama", seed: int = 1, dtype: torch.dtype = torch.float32, **options: Any) -> Target:
    """A ready target on a random model."""
    target = Target(network(family, seed, dtype), tiny_tokenizer(), f"tiny-{family}", **options)
    target.__dict__["calibration"] = None
    return target


def session_behind(target: Target, text: Sequence[int] | Prompt, room: int, needs: Needs = NOTHING) -> Session:
    """A session of a target that has read a text but for its last token, the root; it has room for so many tokens."""
    session = target.session(needs, room)
    session.prefill(text)
    return session


def own_forward(target: Target, tokens: Sequence[int]) -> Any:
    """The output of transformers' own forward over a text, with hidden states."""
    with target.by_own_attention(), torch.no_grad():
        return target.model(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False)


def save_model(folder: Any, family: str = "llama", seed: int = 1, model: Any = None) -> str:
    """A tiny model, or the one that is given, with the tokenizer, as a folder that commands load."""
    (network(family, seed) if model is None else model).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def write_text(folder: Path) -> Path:
    """A text with little in it."""
    path = folder / "text.txt"
    line = "the old lamp at the station was sold to the city museum. def total(items): return sum(items)\n"
    path.write_text(line * 80)
    return path


def prompt_ids(seed: int, length: int = 60, spread: int = 30) -> list[int]:
    """Random ids from a narrow range, so that n-grams repeat and drafters find something."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 5 + spread, (length,), generator=generator).tolist()
