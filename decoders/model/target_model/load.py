"""Opens a model folder, GGUF file, hub id or named model as a target."""

from __future__ import annotations

import copy
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from decoders.errors import UserError, first_line
from decoders.folders import refuse_pointer, typed_path
from decoders.names import AUTO

from ..files.catalog import model_place
from ..files.gguf import Progress, convert, gguf_file, source_of
from ..files.shape import ModelShape
from .target import Target

DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16,
    "fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16,
}  # fmt: skip
MODEL_FILES = (".json", ".safetensors", ".bin", ".pt", ".pth", ".model", ".txt", ".jinja")
# names of a multimodal checkpoint's language model → those of a text model; the other parts are left where they are
TEXT_PART = {
    r"^(model\.)?(language_model|text_model)\.(model\.)?(?!lm_head)": "model.",
    r"^(language_model|text_model)\.lm_head\.": "lm_head.",
}


def load_target(
    model: str | Path, *, dtype: str | None = None, device: str | None = None, progress: Progress | None = None,
    engine: str | None = None, weights: str | None = None,
) -> Target:  # fmt: skip
    """Open a model folder, a GGUF file (or a folder with one), a hub id, or a model by its name (``catalog.NAMES``).

    dtype and device are chosen where not given: cuda → bfloat16, cpu → float32. ``progress`` hears what is done, where
    that takes long: a GGUF file is converted when it is opened for the first time. ``engine`` is how forwards run
    (``names.engine_names``); where not given, what SPECVIZ_ENGINE says, or auto. ``weights`` (``names.weight_names``)
    are of fewer bits where that is asked for, on a CPU in float32.

    Raises UserError with one sentence for a missing or incomplete folder, a file that cannot be read, a refused family,
    an unknown dtype, device, engine or weights.
    """
    network, tokenizer, name = load_network(model, dtype=dtype, device=device, progress=progress)
    target = Target(network, tokenizer, name, engine=chosen_engine(engine), weights=weights)
    source = source_of(Path(network.config._name_or_path))
    if source is not None:
        target.info["dequantised"] = asdict(source)
    return target


def load_network(
    model: str | Path, *, dtype: str | None = None, device: str | None = None, attention: str | None = "eager",
    progress: Progress | None = None,
) -> tuple[Any, Any, str]:  # fmt: skip
    """The transformers model as it is, its tokenizer and its name; arguments and errors as of ``load_target``. Of
    ``attention`` None the model's own choice is taken: torch's kernels, where its code can (``own_attention``).
    """
    torch_device = torch.device(chosen_device(device))
    kind = chosen_dtype(dtype, torch_device)
    source, name = local_place(model), str(model)
    if isinstance(source, Path):
        if source.is_file():
            source, name = convert(source, kind, progress), source.stem
        else:
            name = _folder_name(source)
        source = str(source)
    try:
        whole: Any = AutoConfig.from_pretrained(source)
        config = whole.get_text_config(decoder=True)
        ModelShape.of(config)  # refuses a family before its weights are read
        if config is not whole and type(config) not in AutoModelForCausalLM._model_mapping:
            raise UserError(
                f"the model {str(model)!r} is multimodal ({whole.model_type}), and transformers has no language model "
                f"of its text part alone ({config.model_type}): give a text model, or the checkpoint of its text part"
            )
        # not through the host's memory
        options: dict[str, Any] = {"dtype": kind, "attn_implementation": attention, "output_loading_info": True}
        straight = (
            {"device_map": {"": torch_device}} if torch_device.type == "cuda" and torch.cuda.is_available() else {}
        )
        if config is not whole:
            options["key_mapping"] = TEXT_PART
        network, about = _open(source, config, **options, **straight)
        if about["missing_keys"] == {"lm_head.weight"} and getattr(whole, "tie_word_embeddings", False):
            config.tie_word_embeddings = True  # the whole model's configuration says so, its text part's does not
            network, about = _open(source, config, **options, **straight)
        if lacking := sorted(about["missing_keys"]):  # transformers would go on with random numbers
            suffix = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
            part = "" if config is whole else f" of the text part of a multimodal model ({whole.model_type})"
            raise UserError(
                f"the model {str(model)!r} lacks weights{part} that its config.json names: {', '.join(lacking[:3])}"
                f"{suffix}. Give the whole checkpoint, with the configuration that belongs to it"
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the model {str(model)!r} could not be loaded: {first_line(error, 240)}. Give a folder with config.json, "
            "weights and tokenizer, a GGUF file, or a hub id such as org/name."
        ) from error
    return network if straight else network.to(torch_device), tokenizer, name


def _open(source: str, config: Any, **options: Any) -> Any:
    """A network by transformers, and what it says of the loading."""
    return AutoModelForCausalLM.from_pretrained(source, config=copy.deepcopy(config), **options)


def own_attention(model: Any) -> str:
    """transformers' attention for a model: torch's kernels, or its own code where these lack something that it needs
    (soft caps, sinks).
    """
    return "sdpa" if model._supports_sdpa else "eager"


def model_folder(model: str | Path) -> str:
    """The place from which transformers opens a model: a folder or hub id; of a GGUF file the converted folder.

    Raises UserError as ``load_target`` does for named models and GGUF files; a missing folder is not looked for.
    """
    place = model_place(model)
    file = gguf_file(Path(place))
    return place if file is None else str(convert(file, torch.float32))


def stock_network(target: Target) -> Any:
    """The target as plain transformers code on the same weights, to be read by a training: the target itself is
    arranged for decoding.
    """
    config = copy.deepcopy(target.config)
    config._attn_implementation = "sdpa"
    state_dict = target.model.state_dict()  # the head is wrapped, and in fp32
    weights = {name.replace(".inner.", "."): value.to(target.dtype) for name, value in state_dict.items()}
    with torch.device("meta"):
        network: Any = AutoModelForCausalLM.from_config(config, dtype=target.dtype)
    network.load_state_dict(weights, assign=True)
    network.tie_weights()
    network.model.rotary_emb = type(network.model.rotary_emb)(config=config).to(target.device)  # it has no weights
    network.generation_config = copy.deepcopy(target.model.generation_config)
    return network.eval().requires_grad_(False)


def chosen_device(device: str | None) -> str:
    """The device meant; without one, or with auto, cuda where torch sees one. Raises UserError."""
    if device in (None, "", "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch_device = torch.device(device)
        if (
            torch_device.type == "cuda"
        ):  # counted, not tried: a tensor would keep a context of half a GB in this process
            is_available = (torch_device.index or 0) < torch.cuda.device_count()
        else:
            is_available = torch.zeros(1, device=torch_device) is not None
    except (RuntimeError, AssertionError, NotImplementedError):
        is_available = False
    if not is_available:
        raise UserError(f"device {device!r} is not there: use cpu, cuda (where torch sees one) or leave it out")
    return str(device)


def chosen_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """The dtype meant; without one, or with auto, bfloat16 on cuda and float32 elsewhere. Raises UserError."""
    if dtype in (None, "", "auto"):
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UserError(
            f"dtype {dtype!r} is unknown: use one of {', '.join(k for k in DTYPES if k.startswith(('float', 'bf')))}"
        )
    return DTYPES[dtype]


def chosen_engine(engine: str | None) -> str:
    """The engine meant; without one, what SPECVIZ_ENGINE says, or auto."""
    return engine or os.environ.get("SPECVIZ_ENGINE") or AUTO


def local_place(model: str | Path) -> Path | str:
    """The folder or GGUF file of a model that is on this machine; a hub id as it is. Raises UserError for a folder that
    is not there, or lacks configuration, weights or tokenizer.
    """
    place = model_place(model)
    folder = typed_path(place)
    if not (folder.exists() or place.startswith((".", "/", "~")) or place.count("/") > 1 or folder.suffix == ".gguf"):
        return place
    if (file := gguf_file(folder)) is not None:
        refuse_pointer(file)
        return file
    if not folder.is_dir():
        raise UserError(
            f"there is no model folder {str(folder)!r}: give the folder that holds config.json, "
            "a GGUF file, or a hub id such as org/name"
        )
    tokenizers = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(any(folder.glob(weights)) for weights in ("*.safetensors", "*.safetensors.index.json", "*.bin")):
        missing.append("the weights (*.safetensors)")
    if not any((folder / name).is_file() for name in tokenizers):
        missing.append("the tokenizer (tokenizer.json)")
    if missing:
        raise UserError(f"the model folder {str(folder)!r} is incomplete: it lacks {' and '.join(missing)}")
    for file in sorted(folder.iterdir()):
        if file.suffix in MODEL_FILES and file.is_file():
            refuse_pointer(file)
    return folder


def _folder_name(folder: Path) -> str:
    """A folder's own name; a model made by specviz carries one in its config."""
    try:
        return str(json.loads((folder / "config.json").read_text())["specviz_name"])[:80]
    except (KeyError, ValueError, OSError):
        return folder.resolve().name


def versions() -> dict[str, str]:
    """Versions a trace is stamped with."""
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
