"""Checkpoints as they come: multimodal ones, Git LFS pointers, models whose own settings runs pass over, references."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from decoders import Prompt, UserError, generate, load, load_target, record
from decoders.model.files.headers import tensor_sizes
from decoders.model.target_model.size import size_of
from decoders.prompt.files import read_prompts
from decoders.study.measure.stock import StockModel
from decoders.trace.tables import TraceError
from specviz.cli import main

from .drafts import save_tiny_part
from .models import GROUPED, network, prompt_ids, save_model, tiny_target

pytestmark = pytest.mark.usefixtures("home")
VISION = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
QWEN_VISION = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64, "patch_size": 14,
}  # fmt: skip


def multimodal(kind: str) -> Any:
    """A tiny multimodal model."""
    if kind == "gemma3":
        text = {**GROUPED, "head_dim": 16, "sliding_window": 24}
        ids = {"image_token_index": 318, "boi_token_index": 317, "eoi_token_index": 316}
        config = hf.Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4, **ids)
        model = hf.Gemma3ForConditionalGeneration(config)
    elif kind == "mistral3":
        vision = {"model_type": "pixtral", **VISION, "head_dim": 16}
        text = {"model_type": "mistral", **GROUPED, "head_dim": 16}
        config = hf.Mistral3Config(text_config=text, vision_config=vision, image_token_index=318)
        model = hf.Mistral3ForConditionalGeneration(config)
    elif kind == "llava":
        vision, text = {"model_type": "clip_vision_model", **VISION}, {"model_type": "llama", **GROUPED}
        model = hf.LlavaForConditionalGeneration(
            hf.LlavaConfig(text_config=text, vision_config=vision, image_token_index=318)
        )
    elif kind == "smolvlm":
        text = {"model_type": "llama", **GROUPED}
        model = hf.SmolVLMForConditionalGeneration(
            hf.SmolVLMConfig(text_config=text, vision_config=VISION, scale_factor=2, image_token_id=318)
        )
    else:
        text = {**GROUPED, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
        vision = {**QWEN_VISION, "fullatt_block_indexes": [0]}
        model = hf.Qwen2_5_VLForConditionalGeneration(hf.Qwen2_5_VLConfig(text_config=text, vision_config=vision))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.12, generator=generator)
    return model.eval()


def rename(folder: Path, change: Any) -> None:
    file = folder / "model.safetensors"
    save_file({change(name): value for name, value in load_file(file).items()}, file, metadata={"format": "pt"})


def newer(name: str) -> str:
    """A name as transformers has it inside the model: ``model.language_model.…``, ``lm_head``."""
    return re.sub(
        r"^language_model\.model\.", "model.language_model.", name.replace("language_model.lm_head", "lm_head")
    )


@pytest.mark.parametrize("layout", ["published", "newer"])
@pytest.mark.parametrize("kind", ["gemma3", "mistral3", "llava", "smolvlm"])
def test_a_multimodal_checkpoint_is_opened_by_its_text_part(kind: str, layout: str, tmp_path: Path) -> None:
    model = multimodal(kind)
    save_model(tmp_path, model=model)
    if layout == "newer":
        rename(tmp_path, newer)
    target, ids = load_target(tmp_path), prompt_ids(1)
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([ids])).logits[0].double()
    torch.testing.assert_close(target.reference_logits(ids), expected, atol=1e-4, rtol=1e-4)
    assert len(generate(target, Prompt.from_ids(ids), "pld", max_new_tokens=5, stop_ids=())) == 5
    assert StockModel.load(str(tmp_path), torch.float32, torch.device("cpu")).generate(ids, 4, ())
    assert size_of(tmp_path).parameters


def test_a_multimodal_checkpoint_without_a_text_model_is_called_multimodal(tmp_path: Path) -> None:
    save_model(tmp_path, model=multimodal("qwen2_5_vl"))
    with pytest.raises(UserError, match=r"is multimodal \(qwen2_5_vl\), and transformers has no language model of its"):
        load_target(tmp_path)


def test_a_multimodal_checkpoint_that_lacks_text_weights_is_called_multimodal(tmp_path: Path) -> None:
    save_model(tmp_path, model=multimodal("gemma3"))
    rename(tmp_path, lambda name: name.replace("language_model.", "somewhere_else."))
    with pytest.raises(UserError, match=r"lacks weights of the text part of a multimodal model \(gemma3\)"):
        load_target(tmp_path)


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "llama"])
def test_verify_compares_with_a_reference_that_can_attend_as_the_model_does(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Soft caps (Gemma-2) and sinks (gpt-oss) are not in torch's kernels."""
    assert "ok: every output is identical" in verify_against_generate(family, tmp_path, capsys)


def verify_against_generate(family: str, tmp_path: Path, capsys: pytest.CaptureFixture, *more: str) -> str:
    """The table of ``specviz verify`` for a tiny model."""
    model: Any = None
    if family == "gpt_oss":
        small = {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24}
        torch.manual_seed(1)
        model = hf.GptOssForCausalLM(hf.GptOssConfig(**GROUPED, **small)).eval()
    elif family == "gemma2":
        config = network("gemma2").config
        config.attn_logit_softcapping, config.final_logit_softcapping = 5.0, 3.0
        torch.manual_seed(1)
        model = hf.Gemma2ForCausalLM(config).eval()
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.12)
    save_model(tmp_path, "llama", model=model)
    prompt = {"question_id": 1, "category": "a", "turns": ["the old lamp at the station the old lamp"]}
    (tmp_path / "p.jsonl").write_text(json.dumps(prompt))
    options = ["--prompts", str(tmp_path / "p.jsonl"), "--methods", "pld", "--max-new-tokens", "12", *more]
    assert main(["verify", "--model", str(tmp_path), *options]) == 0
    shown = capsys.readouterr().out
    assert "generate()" in shown
    return shown


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"  # noqa: E501


def write_pointer(file: Path) -> Path:
    file.write_text(POINTER)
    return file


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "pytorch_model.bin"])
def test_a_model_folder_with_a_git_lfs_pointer_is_told_so(name: str, tmp_path: Path) -> None:
    save_model(tmp_path)
    if name.endswith(".bin"):
        (tmp_path / "model.safetensors").unlink()
    write_pointer(tmp_path / name)
    for opened in (load_target, size_of):
        with pytest.raises(UserError, match=f"{name} is a Git LFS pointer, which stands for the file"):
            opened(tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        lambda place: load_target(write_pointer(place / "model.gguf")),
        lambda place: tensor_sizes(write_pointer(place / "w.safetensors")),
        lambda place: load(write_pointer(place / "run.spectrace")), lambda place: load(POINTER.encode()),
        lambda place: read_prompts(write_pointer(place / "prompts.jsonl")),
        lambda place: read_prompts(write_pointer(place / "p.txt")),
        lambda place: read_prompts(write_pointer(place / "p.parquet")),
    ],
    ids=["gguf", "safetensors", "trace", "trace bytes", "prompts", "text", "parquet"],
)  # fmt: skip
def test_other_files_that_are_git_lfs_pointers_are_told_so(read: Any, tmp_path: Path) -> None:
    with pytest.raises((UserError, TraceError), match="is a Git LFS pointer"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["part.json", "part.safetensors"])
def test_a_trained_part_that_is_a_git_lfs_pointer_is_told_so(name: str, tmp_path: Path) -> None:
    target = tiny_target()
    folder = save_tiny_part(target, "glide", tmp_path / "part")
    write_pointer(folder / name)
    with pytest.raises(UserError, match=f"{name} is a Git LFS pointer"):
        generate(target, Prompt.from_ids(prompt_ids(1)), "glide", {"part": str(folder)}, max_new_tokens=2)


SETTINGS: dict[str, Any] = {
    "repetition_penalty": 1.1, "no_repeat_ngram_size": 3, "bad_words_ids": [[5], [6, 7]], "min_new_tokens": 4,
    "suppress_tokens": [1, 2], "forced_eos_token_id": 3, "min_length": 9, "exponential_decay_length_penalty": [5, 1.1],
}  # fmt: skip


def test_own_settings_that_are_not_applied_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = network("llama")
    for name, value in {**SETTINGS, "num_beams": 4}.items():
        setattr(model.generation_config, name, value)
    save_model(tmp_path, model=model)
    target = load_target(tmp_path)
    trace = record(target, Prompt.from_ids(prompt_ids(1)), "pld", max_new_tokens=4)
    assert trace.run["passed_over"] == ["num_beams = 4"]
    assert trace.run["processing"]["settings"].keys() == SETTINGS.keys() and not trace.run["processing"]["extra"]
    assert main(["run", "--model", str(tmp_path), "--prompt", "the old lamp", "--max-new-tokens", "3"]) == 0
    assert "num_beams = 4" in capsys.readouterr().err


def test_settings_that_change_nothing_are_not_named() -> None:
    target = tiny_target()
    neutral = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "temperature": 0.6, "top_k": 50}
    for name, value in neutral.items():
        setattr(target.model.generation_config, name, value)
    run = record(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=3).run
    assert "passed_over" not in run and "processing" not in run
