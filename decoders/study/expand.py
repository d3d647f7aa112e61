"""Grow a Llama-shaped model without changing its function: a real model's cost with a small model's behaviour.

The live part sits in a corner of every weight: extra width is fed zeros, extra heads, MLP units and layers write
nothing back into the residual stream. Dead weights are random, so the cost is real. What keeps the numbers equal:

- width d → D: the RMS norm's mean shrinks by d / D, so its weight is multiplied by √(d / D) and its epsilon by d / D;
- head size × m: rotary pair i moves to pair m·i (same frequency), queries × √m undo the new 1/√head_dim;
- a layer whose output projections are zero is the identity. Live layers are spread over the depth, so that hidden state
  k of n layers becomes hidden state round(k·N/n) of N.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from decoders.errors import UserError, first_line
from decoders.folders import replacing
from decoders.model.load import model_folder
from decoders.model.shape import ModelShape

from .shapes import Shape, shape_of

FAMILIES = ("llama", "mistral")
ROTARIES = ("default", "linear", "llama3")  # these frequencies depend on the pair's own frequency only
DEAD_STD = 0.02  # of the random weights that cost time but change nothing
GIB = 1 << 30
COPIED = (
    "tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
    "chat_template*", "generation_config.json", "LICENSE*",
)  # fmt: skip


def layer_map(small: int, large: int) -> list[int]:
    """Which layer of ``large`` each of ``small`` live layers becomes: hidden state k lands at round(k * large / small).

    >>> layer_map(4, 9)
    [1, 4, 6, 8]
    """
    return [(2 * k * large + small) // (2 * small) - 1 for k in range(1, small + 1)]


def expand(
    model: PreTrainedModel, shape: str | Shape, *, dtype: torch.dtype | None = None, seed: int = 0
) -> PreTrainedModel:
    """The model grown to ``shape`` (a new model; the given one is not changed), in ``dtype`` (default: its own).

    Logits stay equal within rounding: 2e-5 in fp32. Raises UserError for a model that does not fit.
    """
    plan = _Plan.of(model.config, shape_of(shape))
    dtype = dtype or model.dtype
    large: Any = type(model)(plan.config(dtype))
    large.to(dtype).eval()
    weights = dict(large.named_parameters())
    with torch.no_grad():
        for name, tensor in plan.tensors(model.state_dict(), dtype, seed):
            weights[name].copy_(tensor)
    large.generation_config = copy.deepcopy(model.generation_config)
    return large


def expand_to_folder(
    source: str | Path,
    shape: str | Shape,
    out: str | Path,
    *,
    dtype: str | None = None,
    seed: int = 0,
    shard_bytes: int = 2 * GIB,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the model of ``source`` (folder or hub id), grown to ``shape``, to the new folder ``out``.

    Weights are made and written tensor by tensor, in shards of about ``shard_bytes``, so memory holds one shard beside
    the source. ``dtype`` is float32, float16 or bfloat16 (default: the shape's). Everything goes to a temporary folder
    that is renamed at the end. ``progress(done, total)`` counts parameters. What ``specviz calibrate`` found of the
    source, and its trained parts, are kept for the new model too. Raises UserError in one sentence.
    """
    shape, out, source = shape_of(shape), Path(out).expanduser(), model_folder(source)
    if out.exists():
        raise UserError(f"{out} is already there: give a new folder, or delete it first")
    stored = _dtype(dtype or shape.dtype)
    is_path = os.path.exists(source) or source.startswith((".", os.sep)) or source.count("/") > 1
    if is_path and not os.path.isfile(os.path.join(source, "config.json")):
        advice = "give the folder that holds config.json, or a hub id like org/name"
        raise UserError(f"there is no model in {source!r}: {advice}")
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read a model from {source}: {first_line(error)}") from None
    plan = _Plan.of(config, shape)
    total = shape.parameters(plan.small.vocab, plan.small.tied)
    _check_disk(out, total * stored.itemsize)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"cannot load the weights of {source}: {first_line(error)}") from None
    with replacing(out) as partial:
        grown = plan.config(stored)
        grown.specviz_name = f"{_name(source, config)}-{shape.name}"
        grown.save_pretrained(partial)
        model.generation_config.save_pretrained(partial)
        _copy_tokenizer(source, partial)
        note = {"source": _name(source, config), "shape": asdict(shape), "layers": plan.layer_map, "seed": seed}
        (partial / "expansion.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        samples: list[Tensor] = []
        tensors = _sampled(plan.tensors(model.state_dict(), stored, seed), samples)
        _write_shards(tensors, partial, shard_bytes, lambda done: progress(done, total) if progress else None)
    _carry(model, plan, AutoConfig.from_pretrained(out), samples)
    return out


def _sampled(tensors: Iterator[tuple[str, Tensor]], samples: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors, with what a fingerprint reads of each put aside (the head's apart: it is not in the stack)."""
    for name, tensor in tensors:
        if name != "lm_head.weight":
            samples.append(tensor[:64, :64].clone() if tensor.ndim == 2 else tensor[:64].clone())
        yield name, tensor


def _carry(model: PreTrainedModel, plan: _Plan, grown: PreTrainedConfig, samples: list[Tensor]) -> None:
    """Keep the source's calibration and its trained parts for the grown model as well, where it has some."""
    from decoders.model.calibration import fingerprint, load_calibration, save_calibration

    key, old = fingerprint(grown, samples), fingerprint(model.config, cast(Any, model).model.parameters())
    calibration = load_calibration(old, plan.small.layers, plan.small.heads)
    if calibration is not None:
        size, name = (plan.shape.layers, plan.shape.heads), f"{calibration.model}-{plan.shape.name}"
        save_calibration(calibration.grown(key, name, plan.layer_map, plan.head_map, size))
    _carry_parts(plan, old, key)


def _carry_parts(plan: _Plan, old: str, key: str) -> None:
    """The draft models keep their own size; GLIDE's queries go to where the target's own heads went. Prompt tokens
    widen as the embeddings do; those that are read in a way of their own (``decoders.model.reading``) stay behind.
    """
    from safetensors.torch import load_file

    from decoders.parts import KINDS, WEIGHTS, find_part, own_place, read_part, save_part
    from decoders.prompt_tokens.tokens import PromptConfig

    q_rows, _, _, o_columns, _ = plan._rows()
    total, scale = plan.shape.heads * plan.shape.head_dim, math.sqrt(plan.shape.head_dim / plan.small.head_dim)
    for kind in KINDS:
        folder = find_part(old, kind)
        if folder is None:
            continue
        part, weights = read_part(folder), load_file(folder / WEIGHTS)
        config = part.config
        if isinstance(config, PromptConfig):
            if not config.plain:  # prefix tokens, exits and heads belong to the small model's layers
                continue
            config = replace(config, hidden=plan.shape.hidden)
            weights["embeddings"] = pad(weights["embeddings"], (0, plan.shape.hidden - plan.small.hidden))
        elif config.kv_layers:
            config = replace(
                config, kv_layers=tuple(plan.layer_map[layer] for layer in config.kv_layers),
                target_heads=plan.shape.heads, target_head_dim=plan.shape.head_dim,
            )  # fmt: skip
        for name, tensor in weights.items():
            if ".glimpse.query." in name:
                weights[name] = tensor.new_zeros(total, *tensor.shape[1:]).index_copy(0, q_rows, tensor * scale)
            elif ".glimpse.out." in name:
                weights[name] = tensor.new_zeros(len(tensor), total).index_copy(1, o_columns, tensor)
        grown = replace(part, model_key=key, model=f"{part.model}-{plan.shape.name}", config=config)
        save_part(grown, weights, own_place(kind, key), dtype=next(iter(weights.values())).dtype)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a small model's weights are laid into a large one's."""

    source: PreTrainedConfig
    small: ModelShape
    shape: Shape

    @classmethod
    def of(cls, config: PreTrainedConfig, shape: Shape) -> _Plan:
        small = ModelShape.of(config)
        family, rotary, head_dim = small.family, small.rotary, small.head_dim
        if family not in FAMILIES:
            raise UserError(f"{family!r} models cannot be grown: only Llama-shaped ones can ({', '.join(FAMILIES)})")
        if any(small.layer_windows):
            raise UserError(f"this {family!r} model has a sliding window and cannot be grown: only full attention can")
        if rotary not in ROTARIES or small.rotary_share != 1.0:
            allowed = ", ".join(ROTARIES)
            raise UserError(f"rotary positions of kind {rotary!r} cannot be grown: only {allowed} can, on whole heads")
        too_small = f"the model cannot grow to {shape.name}: its"
        sizes = {"hidden size": "hidden", "number of layers": "layers", "MLP size": "mlp", "head size": "head_dim"}
        for what, size in sizes.items():
            if (has := getattr(small, size)) > (limit := getattr(shape, size)):
                raise UserError(f"{too_small} {what} is {has}, that of {shape.name} only {limit}")
        if shape.head_dim % head_dim:
            raise UserError(f"{too_small} head size {head_dim} must divide that of {shape.name}, {shape.head_dim}")
        plan = cls(config, small, shape)
        if small.kv_heads * plan.copies > shape.kv_heads:
            raise UserError(
                f"{too_small} {small.heads} heads over {small.kv_heads} key/value heads do not fit into {shape.heads} "
                f"over {shape.kv_heads}"
            )
        return plan

    @property
    def copies(self) -> int:
        """Large key/value heads each small one needs: its queries may not fit behind one."""
        group = self.small.heads // self.small.kv_heads
        return -(-group // (self.shape.heads // self.shape.kv_heads))

    @property
    def layer_map(self) -> list[int]:
        return layer_map(self.small.layers, self.shape.layers)

    @property
    def head_map(self) -> list[int]:
        """Which large query head each small one becomes."""
        heads, group = self.small.heads, self.small.heads // self.small.kv_heads
        room = self.shape.heads // self.shape.kv_heads
        return [(h // group * self.copies + h % group // room) * room + h % group % room for h in range(heads)]

    def config(self, dtype: torch.dtype) -> PreTrainedConfig:
        config, shape = copy.deepcopy(self.source), self.shape
        config.rms_norm_eps = config.rms_norm_eps * config.hidden_size / shape.hidden
        config.hidden_size, config.intermediate_size = shape.hidden, shape.mlp
        config.num_hidden_layers, config.head_dim = shape.layers, shape.head_dim
        config.num_attention_heads, config.num_key_value_heads = shape.heads, shape.kv_heads
        if getattr(config, "layer_types", None):
            config.layer_types = ["full_attention"] * shape.layers
        config.dtype = dtype
        return config

    def tensors(self, small: dict[str, Tensor], dtype: torch.dtype, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Every weight of the large model, one after the other: (name, tensor in ``dtype``)."""
        make = _Maker(torch.Generator().manual_seed(seed), dtype)
        d, wide, vocab = self.small.hidden, self.shape.hidden, self.small.vocab
        embedding = make.zeros(vocab, wide)  # the padding of the stream must be exactly zero
        embedding[:, :d] = small["model.embed_tokens.weight"]
        yield "model.embed_tokens.weight", embedding
        live = {large: i for i, large in enumerate(self.layer_map)}
        for index in range(self.shape.layers):
            yield from self._layer(index, live.get(index), small, make)
        yield "model.norm.weight", self._norm(small["model.norm.weight"], make)
        if not self.small.tied:
            head = make.random(vocab, wide)
            head[:, :d] = small["lm_head.weight"]
            yield "lm_head.weight", head

    def _norm(self, weight: Tensor | None, make: _Maker) -> Tensor:
        norm = make.zeros(self.shape.hidden) + 1
        if weight is not None:
            norm[: len(weight)] = weight.float() * math.sqrt(len(weight) / self.shape.hidden)
        return norm

    def _layer(
        self, index: int, source: int | None, small: dict[str, Tensor], make: _Maker
    ) -> Iterator[tuple[str, Tensor]]:
        shape, d, units = self.shape, self.small.hidden, self.small.mlp

        def old(name: str) -> Tensor | None:
            if source is None:
                return None
            tensor = small[f"model.layers.{source}.{name}"].float()
            return tensor[repeated] if name.startswith(("self_attn.k_proj", "self_attn.v_proj")) else tensor

        q_rows, k_rows, v_rows, o_columns, repeated = self._rows()
        scale = math.sqrt(shape.head_dim / self.small.head_dim)
        kv_rows, q_total = shape.kv_heads * shape.head_dim, shape.heads * shape.head_dim
        # name, rows, columns, rows of the live block, its columns, factor; output projections are zero outside it
        blocks = (
            ("self_attn.q_proj", q_total, shape.hidden, q_rows, slice(0, d), scale),
            ("self_attn.k_proj", kv_rows, shape.hidden, k_rows, slice(0, d), 1.0),
            ("self_attn.v_proj", kv_rows, shape.hidden, v_rows, slice(0, d), 1.0),
            ("self_attn.o_proj", shape.hidden, q_total, slice(0, d), o_columns, 1.0),
            ("mlp.gate_proj", shape.mlp, shape.hidden, slice(0, units), slice(0, d), 1.0),
            ("mlp.up_proj", shape.mlp, shape.hidden, slice(0, units), slice(0, d), 1.0),
            ("mlp.down_proj", shape.hidden, shape.mlp, slice(0, d), slice(0, units), 1.0),
        )
        for name, rows, columns, to_rows, to_columns, factor in blocks:
            full, writes = f"model.layers.{index}.{name}", name in {"self_attn.o_proj", "mlp.down_proj"}
            weight, small_weight = (make.zeros if writes else make.random)(rows, columns), old(f"{name}.weight")
            if small_weight is not None:
                if name == "self_attn.k_proj":  # live queries meet zeros in rotary pairs that the small head lacks
                    weight.view(shape.kv_heads, shape.head_dim, -1)[: self.small.kv_heads * self.copies] = 0
                weight[to_rows, to_columns] = (small_weight * factor).to(weight.dtype)
            yield f"{full}.weight", weight
            if self.small.mlp_bias if name.startswith("mlp") else self.small.query_bias:
                bias, small_bias = make.zeros(rows), old(f"{name}.bias")
                if small_bias is not None:
                    bias[to_rows] = (small_bias * factor).to(bias.dtype)
                yield f"{full}.bias", bias
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{index}.{name}.weight", self._norm(old(f"{name}.weight"), make)

    def _rows(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Where the small model's rows go: of queries, keys, values, the output projection's columns; and which old
        key/value rows are repeated to fill them."""
        kv_heads, size = self.small.kv_heads, self.small.head_dim
        factor = self.shape.head_dim // size
        half = torch.arange(size // 2) * factor
        rotary = torch.cat([half, half + self.shape.head_dim // 2])  # pair i of the small head → pair factor·i
        plain = torch.arange(size)

        def rows(chosen: list[int] | range, within: Tensor, head_dim: int) -> Tensor:
            return torch.cat([h * head_dim + within for h in chosen])

        filled, large = range(kv_heads * self.copies), self.shape.head_dim
        return (
            rows(self.head_map, rotary, large),
            rows(filled, rotary, large),
            rows(filled, plain, large),
            rows(self.head_map, plain, large),
            rows([h // self.copies for h in filled], plain, size),
        )


@dataclass(slots=True)
class _Maker:
    generator: torch.Generator
    dtype: torch.dtype

    def zeros(self, *size: int) -> Tensor:
        return torch.zeros(size, dtype=self.dtype)

    def random(self, *size: int) -> Tensor:
        return torch.empty(size).normal_(0, DEAD_STD, generator=self.generator).to(self.dtype)


def _write_shards(
    tensors: Iterator[tuple[str, Tensor]], folder: Path, shard_bytes: int, progress: Callable[[int], Any]
) -> None:
    """Write tensors in shards named as transformers expects, with their index (one file, if one shard is enough)."""
    from safetensors.torch import save_file

    shards: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    size = parameters = written = 0

    def flush() -> None:
        place = folder / f"part-{len(shards):05d}"
        save_file(shard, place, metadata={"format": "pt"})
        shutil.copymode(folder / "config.json", place)  # the library makes it readable by the owner only
        shards.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            flush()
            size = 0
        shard[name] = tensor.contiguous()
        size, written, parameters = size + tensor.nbytes, written + tensor.nbytes, parameters + tensor.numel()
        progress(parameters)
    flush()
    if len(shards) == 1:
        (folder / "part-00000").rename(folder / "model.safetensors")
        return
    index = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"part-{number:05d}").rename(folder / file)
        index.update(dict.fromkeys(names, file))
    content = {"metadata": {"total_size": written}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _copy_tokenizer(source: str, folder: Path) -> None:
    if not Path(source).is_dir():
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
        return
    for file in (file for pattern in COPIED for file in Path(source).glob(pattern) if file.is_file()):
        shutil.copy2(file, folder / file.name)


def _check_disk(out: Path, needed: int) -> None:
    place = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    if (free := shutil.disk_usage(place).free) < needed * 1.02:
        has = f"{place} has {free / GIB:.1f} GiB left"
        raise UserError(f"{out} needs {needed / GIB:.1f} GiB and {has}: give another folder")


def _name(source: str, config: PreTrainedConfig) -> str:
    return str(getattr(config, "specviz_name", None) or Path(source).resolve().name)


def _dtype(name: str) -> torch.dtype:
    allowed = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if name not in allowed:
        raise UserError(f"weights cannot be stored as {name!r}: allowed are {', '.join(allowed)}")
    return allowed[name]
