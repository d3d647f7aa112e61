"""A model's own generation settings: those that become logits processors of a run, and those that it passes over."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from decoders.draft.settings import Sampling
from decoders.errors import UserError

# settings of transformers' GenerationConfig, each with the values that change nothing
PROCESSORS: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1.0,), "encoder_repetition_penalty": (1.0,), "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,), "bad_words_ids": ([],), "sequence_bias": ({}, []), "min_length": (0,),
    "min_new_tokens": (0,), "suppress_tokens": ([],), "begin_suppress_tokens": ([],), "forced_bos_token_id": (),
    "forced_eos_token_id": (), "exponential_decay_length_penalty": (), "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
}  # fmt: skip
OF_DRAWS: dict[str, tuple[Any, ...]] = {
    "min_p": (0.0,), "typical_p": (1.0,), "epsilon_cutoff": (0.0,), "eta_cutoff": (0.0,), "top_h": (),
}  # fmt: skip
PASSED_OVER: dict[str, tuple[Any, ...]] = {  # another way of decoding, or an end of the text
    "guidance_scale": (1.0,), "watermarking_config": (), "penalty_alpha": (0.0,), "dola_layers": (), "num_beams": (1,),
    "diversity_penalty": (0.0,), "stop_strings": ([],), "max_time": (),
}  # fmt: skip
SETTINGS = {**PROCESSORS, **OF_DRAWS}
NEUTRAL: Mapping[str, Any] = dict.fromkeys(SETTINGS)
"""Settings by which a run applies none of the model's own: for comparisons with a generate() that does not either."""


def list_applied(config: Any) -> list[str]:
    """The settings of a generation config that a run applies, as "repetition_penalty = 1.1"."""
    return [f"{name} = {str(value)[:80]}" for name, value in _active(config, SETTINGS).items()]


def passed_over(config: Any) -> list[str]:
    """The settings of a generation config that a run does not apply, as "num_beams = 4"."""
    return [f"{name} = {str(value)[:80]}" for name, value in _active(config, PASSED_OVER).items()]


def passed_over_words(settings: list[str]) -> str:
    """A sentence on such settings; "" where there are none."""
    if not settings:
        return ""
    return (
        f"The model's own generation config asks for {', '.join(settings)}; runs here do not apply that, so generate() "
        "may write something else."
    )


def run_settings(config: Any, sampling: Sampling, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a generation config that a run applies, with those that are given ``over`` them; in a greedy run
    none of draws. Raises UserError for one that there is not.
    """
    if unknown := [name for name in over or {} if name not in SETTINGS]:
        raise UserError(
            f"{unknown[0]!r} is no setting that a run applies: choose one of {', '.join(SETTINGS)} (temperature, top_k "
            "and top_p are the run's own)"
        )
    names = PROCESSORS if sampling.greedy else SETTINGS
    values = {**_active(config, names), **{name: value for name, value in (over or {}).items() if name in names}}
    return {name: value for name, value in values.items() if value is not None and value not in names[name]}


def recorded_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a trace keeps them, in JSON's terms: of a bias by token sequences the list form."""
    return {
        name: [[list(ids), bias] for ids, bias in value.items()] if isinstance(value, dict) else value
        for name, value in settings.items()
    }


def settings_behind(settings: Mapping[str, Any], output_length: int) -> dict[str, Any]:
    """The settings of a run that goes on behind so many tokens of another one's output, which are its prompt.

    >>> settings_behind({"min_new_tokens": 8, "begin_suppress_tokens": [3], "min_p": 0.1}, 5)
    {'min_new_tokens': 3, 'min_p': 0.1}
    """
    result = dict(settings)
    if output_length:
        result.pop("begin_suppress_tokens", None)
    if minimum := result.get("min_new_tokens"):
        result["min_new_tokens"] = max(0, minimum - output_length)
    if decay := result.get("exponential_decay_length_penalty"):
        result["exponential_decay_length_penalty"] = (decay[0] - output_length, decay[1])
    return result


def _active(config: Any, names: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The values of a generation config that change something."""
    values = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None and value not in names[name]}


def processors_of(
    model: Any, settings: Mapping[str, Any], extra: Sequence[Any], *, prompt: Sequence[int], sampling: Sampling,
    max_new_tokens: int, stop_ids: Collection[int], device: torch.device,
) -> list[Any]:  # fmt: skip
    """The processors that generate() would make of these settings, and the ``extra`` ones, in its order; the warpers of
    the sampling stand last. Raises UserError for a value that transformers does not take.
    """
    config = GenerationConfig()
    temperature = 1.0 if sampling.greedy else float(sampling.temperature)
    values = {
        "do_sample": not sampling.greedy, "temperature": temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
        "max_length": len(prompt) + max_new_tokens, **settings,
    }  # fmt: skip
    if minimum := settings.get("min_new_tokens"):
        values["min_length"] = len(prompt) + minimum  # as generate() does
    for name, value in values.items():
        setattr(config, name, value)
    if not stop_ids:
        config.exponential_decay_length_penalty = None  # of the stop token
    config._eos_token_tensor = torch.tensor(sorted(stop_ids), device=device) if stop_ids else None
    try:
        return model._get_logits_processor(
            config, input_ids_seq_length=len(prompt), encoder_input_ids=torch.tensor([list(prompt)], device=device),
            logits_processor=list(extra), device=device, model_kwargs={},
        )  # fmt: skip
    except (ValueError, TypeError, AttributeError, RuntimeError) as problem:
        words = ", ".join(f"{name} = {str(value)[:80]}" for name, value in settings.items())
        raise UserError(f"transformers makes no logits processors of {words or 'these'}: {problem}") from None
