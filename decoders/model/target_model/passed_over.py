"""A model's own generation settings that runs here do not apply: they change its logits, or end its text."""

from __future__ import annotations

from typing import Any

# settings of transformers' GenerationConfig, each with the values that change nothing
CHANGES_LOGITS: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,), "encoder_repetition_penalty": (1.0,), "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,), "bad_words_ids": ([],), "sequence_bias": ({}, []), "min_length": (0,),
    "min_new_tokens": (0,), "suppress_tokens": ([],), "begin_suppress_tokens": ([],), "forced_bos_token_id": (),
    "forced_eos_token_id": (), "exponential_decay_length_penalty": (), "guidance_scale": (1.0,),
    "watermarking_config": (), "penalty_alpha": (0.0,), "dola_layers": (), "num_beams": (1,),
    "diversity_penalty": (0.0,), "stop_strings": ([],), "max_time": (),
}  # fmt: skip
OF_DRAWS: dict[str, tuple[Any, ...]] = {
    "min_p": (0.0,), "typical_p": (1.0,), "epsilon_cutoff": (0.0,), "eta_cutoff": (0.0,), "top_h": (),
}  # fmt: skip


def passed_over(config: Any, with_draws: bool = False) -> list[str]:
    """The settings of a generation config that a run does not apply, as "repetition_penalty = 1.1"; those that cut a
    distribution only where tokens are ``drawn``. Temperature, top-k and top-p are a run's own settings.
    """
    defaults = {**CHANGES_LOGITS, **(OF_DRAWS if with_draws else {})}
    values = {name: getattr(config, name, None) for name in defaults}
    return [f"{name} = {str(v)[:80]}" for name, v in values.items() if v is not None and v not in defaults[name]]


def passed_over_words(settings: list[str]) -> str:
    """A sentence on such settings; "" where there are none."""
    if not settings:
        return ""
    return (
        f"The model's own generation config asks for {', '.join(settings)}; runs here do not apply that, so generate() "
        "may write something else. specviz.generate under a call of generate() applies it."
    )
