"""Find a model's copying heads and the layer whose hidden states rank best, and remember them.

Each prompt is decoded greedily once; one more forward over prompt and output gives every head's attention and every
layer's hidden states. What PLD+(h) would have done at each layer is then simulated, not decoded again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .drafters import find_method
from .engine import generate
from .errors import UserError
from .heads import copy_sources, count_copies, ranked, strongest_positions
from .prompt import Prompt
from .protocols import Needs
from .target import Target

SCHEMA = "speccalibration/1"
PACKAGED = Path(__file__).parent.parent / "assets" / "demo" / "calibration.json"
# what makes two models the same one, whatever they are called and in whatever dtype they were loaded
IGNORED = ("_name_or_path", "name_or_path", "specviz_name", "dtype", "torch_dtype", "transformers_version", "use_cache")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of one model.

    ``tokens_per_step[k]`` is PLD+(h)'s at hidden state k (0 = embeddings), over all prompts' steps, with drafts of
    ``draft_length`` tokens; ``best_layer`` has the most (on a tie the lowest). ``head_counts[layer][head]`` says how
    often a head's strongest position was the one copied from, out of ``tokens_counted`` output tokens that occur in
    their prompts.
    """

    model_key: str
    model: str
    tokens_per_step: tuple[float, ...]
    best_layer: int
    head_counts: tuple[tuple[int, ...], ...]
    tokens_counted: int
    prompts: int
    draft_length: int

    def top_heads(self, count: int) -> list[tuple[int, int]]:
        """The ``count`` (layer, head) pairs that copied most often, best first."""
        return ranked(self.head_counts)[:count]

    def grown(
        self, key: str, name: str, layers: Sequence[int], heads: Sequence[int], size: tuple[int, int]
    ) -> Calibration:
        """The same for a model that this one was expanded to: layer i became ``layers[i]``, head h ``heads[h]``.

        ``size`` is its (layers, heads). What was added does nothing: no head there copies, and a hidden state is that
        of the layer before.
        """
        depth, width = size
        counts = [[0] * width for _ in range(depth)]
        for layer, row in zip(layers, self.head_counts, strict=True):
            for head, count in zip(heads, row, strict=True):
                counts[layer][head] = count
        live = [sum(layer < k for layer in layers) for k in range(depth + 1)]  # hidden state k has passed so many
        return replace(
            self, model_key=key, model=name, tokens_per_step=tuple(self.tokens_per_step[k] for k in live),
            best_layer=live.index(self.best_layer), head_counts=tuple(map(tuple, counts)),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Calibration:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"not a calibration of this version ({SCHEMA})")
        try:
            steps = tuple(float(x) for x in data["tokens_per_step"])
            counts = tuple(tuple(int(n) for n in row) for row in data["head_counts"])
            numbers = {key: int(data[key]) for key in ("best_layer", "tokens_counted", "prompts", "draft_length")}
            made = cls(str(data["model_key"]), str(data["model"]), steps, head_counts=counts, **numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a damaged calibration ({error})") from None
        if not 0 <= made.best_layer < len(steps) or len(steps) != len(counts) + 1 or len(set(map(len, counts))) != 1:
            raise ValueError("a damaged calibration (its layers and heads do not fit together)")
        return made


def calibrate(
    target: Target,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    draft_length: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Measure ``target`` on ``prompts`` (each must fit its context). ``progress(done, total)`` counts prompts.

    ``draft_length`` defaults to PLD+(h)'s own. Raises UserError where no output token occurs in its prompt.
    """
    if not prompts:
        raise UserError("calibration needs at least one prompt that fits the model's context")
    length = draft_length or int(find_method("pld+h").params().k)
    depth, heads = len(target.layers), target.heads
    every_head = tuple((layer, head) for layer in range(depth) for head in range(heads))
    counts = np.zeros((depth, heads), dtype=np.int64)
    steps, accepted, counted = np.zeros(depth + 1, dtype=np.int64), np.zeros(depth + 1, dtype=np.int64), 0
    for done, prompt in enumerate(prompts):
        output = generate(target, prompt, "pld", max_new_tokens=max_new_tokens)
        tokens, start = [*prompt.tokens, *output], len(prompt.tokens)
        session = target.session(Needs(heads=every_head), len(tokens))
        with _hidden_states(target) as states:
            session.prefill(tokens)
        sources = copy_sources(tokens, start)
        strongest = strongest_positions(session.context, range(start - 1, len(tokens) - 1))
        counts += count_copies(strongest, sources).reshape(depth, heads)
        counted += int((sources >= 0).sum())
        for k, hidden in enumerate(states):
            taken = simulate_hidden(tokens, start, hidden, length, max_new_tokens)
            steps[k] += len(taken)
            accepted[k] += sum(taken)
        if progress:
            progress(done + 1, len(prompts))
    if not counted:
        raise UserError("no output token occurs in its prompt: calibrate on prompts whose answers are copied from them")
    per_step = accepted / steps + 1
    return Calibration(
        model_key(target), target.name, tuple(round(float(x), 4) for x in per_step), int(per_step.argmax()),
        tuple(tuple(row) for row in counts.tolist()), counted, len(prompts), length,
    )  # fmt: skip


def simulate_hidden(
    tokens: Sequence[int],
    prompt_length: int,
    hidden: Float[Tensor, "positions hidden"],
    draft_length: int,
    max_new_tokens: int,
) -> list[int]:
    """Accepted tokens of each step PLD+(h) would take to emit a given greedy output, its drafts checked against it.

    ``hidden`` holds one layer's states of all positions but the last. Same rules as the method (PLD+ eq. 3) and the
    engine: candidates hold the root's token, the most similar predecessor wins, ties go to the earliest, and a draft
    leaves room for the bonus within ``max_new_tokens``.
    """
    array = np.asarray(tokens, dtype=np.int64)
    states = torch.nn.functional.normalize(hidden.float(), dim=-1)
    last, root = len(array) - 1, prompt_length - 1
    steps: list[int] = []
    while root < last:
        positions = np.flatnonzero(array[:root] == array[root])
        accepted = 0
        if len(positions):
            before = torch.as_tensor(np.maximum(positions - 1, 0), device=states.device)
            scores = (states[before] @ states[root - 1]).cpu().numpy()
            start = int(positions[int(np.argmax(np.where(positions > 0, scores, -1.0)))]) + 1
            room = max_new_tokens - (root + 1 - prompt_length) - 1
            offered = min(draft_length, root + 1 - start, last - root, room)
            equal = array[start : start + offered] == array[root + 1 : root + 1 + offered]
            accepted = offered if equal.all() else int(np.argmin(equal))
        root += accepted + 1  # the bonus; a run that ends inside the draft has none, and is over all the same
        steps.append(accepted)
    return steps


@contextmanager
def _hidden_states(target: Target) -> Iterator[list[Tensor]]:
    """Collect all hidden states ``[rows, hidden]`` of the next forward: the layers' inputs, the last norm's output."""
    states: list[Tensor] = []

    def layer_input(module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        states.append((args[0] if args else kwargs["hidden_states"])[0])

    def last(module: Any, args: Any, output: Any) -> None:
        states.append(output[0][0])

    hooks = [layer.register_forward_pre_hook(layer_input, with_kwargs=True) for layer in target.layers]
    hooks.append(target.stack.register_forward_hook(last))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def model_key(target: Target) -> str:
    """A fingerprint of the model: its configuration and a sample of every weight, whatever dtype it was loaded in."""
    return fingerprint(target.config, target.stack.parameters())


def fingerprint(config: Any, parameters: Iterable[Tensor]) -> str:
    """``model_key`` of a configuration and the decoder stack's parameters, in their order."""
    known = {k: v for k, v in config.to_dict().items() if k not in IGNORED and not k.startswith("_attn")}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for parameter in parameters:
        # a diagonal, as GPT-2's weights are turned when they are packed
        sample = parameter.detach().diagonal()[:64] if parameter.ndim == 2 else parameter.detach().flatten()[:64]
        digest.update(sample.to("cpu", torch.bfloat16).view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:24]


def calibration_folder() -> Path:
    """Where calibrations are kept: ``SPECVIZ_HOME``/calibration, or beside the user's settings."""
    home = os.environ.get("SPECVIZ_HOME")
    if home:
        return Path(home).expanduser() / "calibration"
    import platformdirs

    return Path(platformdirs.user_config_dir("specviz", appauthor=False)) / "calibration"


def save_calibration(calibration: Calibration, path: Path | None = None) -> Path:
    """Write it where ``load_calibration`` finds it (or to ``path``), whole or not at all."""
    path = path or calibration_folder() / f"{calibration.model_key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(calibration.to_json(), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def load_calibration(target: Target) -> Calibration | None:
    """The user's own calibration of this model, else the one shipped for the bundled target; None if it has none."""
    return find_calibration(model_key(target), len(target.layers), target.heads)


def find_calibration(key: str, layers: int, heads: int) -> Calibration | None:
    """The calibration kept for the model with this fingerprint and shape."""
    for path in (calibration_folder() / f"{key}.json", PACKAGED):
        if not path.is_file():
            continue
        try:
            calibration = Calibration.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            log.warning("%s is left out: %s", path, error)
            continue
        shape = (len(calibration.head_counts), len(calibration.head_counts[0]))
        if calibration.model_key == key and shape == (layers, heads):
            return calibration
    return None
