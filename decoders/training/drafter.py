"""`specviz train drafter` and `specviz train glide`: a target's draft models, trained alike but for the glimpse."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from decoders.calibrate import fingerprint
from decoders.errors import UserError
from decoders.glide import DraftConfig, DraftModel, Seen, block_mask
from decoders.parts import KINDS, Part, own_place, save_part
from decoders.residual import expected_speedup, overlap
from decoders.training.batches import PROMPT, RESPONSE, Batch, bucket, pad
from decoders.training.data import Source
from decoders.training.muon import Muon
from decoders.training.teacher import Teacher

GAMMA = 5  # of the validation's acceptance and expected speedup, as in the paper


@dataclass(frozen=True)
class Recipe:
    """Everything but the data that decides what a draft model becomes."""

    layers: int = 1
    hidden: int | None = None  # the target's
    mlp: int | None = None  # in proportion to the target's
    kv_layer: int | None = None  # the target's last
    block: int = 5
    batch_tokens: int = 5120  # padding included
    matrix_lr: float = 0.02  # Muon, hidden matrices
    vector_lr: float = 0.002  # AdamW, embeddings and norms
    warmup_steps: int = 40
    prompt_share: float = 0.15  # prompt positions that enter the loss
    prompt_weight: float = 0.3  # of each of these; an answer's position weighs 1
    validate_steps: int = 100
    fast: bool = False  # bf16 matrix products and compiled layers


@dataclass(frozen=True)
class Validation:
    """On held-out documents, read along the given text: mean loss per answer token; β and the share of equal first
    choices, each averaged over the positions reached up to the first rejection in a block (methods.md §6).
    """

    loss: float
    acceptance: float
    agreement: float


@dataclass(frozen=True)
class Progress:
    """What a progress bar needs: ``done`` runs from 0 to 1; seconds are computing time, pauses excluded. ``logged`` is
    the log line of a step with validation, ``warning`` something the user should know.
    """

    step: int
    tokens: int
    seconds: float
    done: float
    loss: float
    tokens_per_second: float
    logged: dict[str, Any] | None = None
    warning: str = ""


def train_part(
    kind: str,
    out: Path,
    model: Any,
    name: str,
    source: Source,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    recipe: Recipe | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint_minutes: float = 3.0,
) -> Path:
    """Train a draft model of ``kind`` ("glide" or "drafter") for a transformers model until the budget is spent.

    Checkpoints, ``log.jsonl`` and the part itself go to ``out``; the finished part is also kept where methods look for
    it, and its folder is returned. A run that was stopped goes on from its checkpoint and gives the part that it would
    have given. Raises UserError for what cannot be trained, and where the loss is no number any more.
    """
    if (minutes is None) == (steps is None):
        raise ValueError(f"give either minutes or steps, not both or none: got minutes={minutes}, steps={steps}")
    run = Run(kind, out, model, name, source, recipe or Recipe(), seed)
    run.open(resume)
    saved = time.monotonic()
    warning = ""
    try:
        while (done := run.step / steps if steps is not None else run.seconds / (60 * float(minutes or 1))) < 1:
            loss = run.train_step(done)
            logged = run.log(done) if run.step % run.recipe.validate_steps == 0 else None
            if time.monotonic() - saved > checkpoint_minutes * 60:
                warning = run.try_to_save()
                saved = time.monotonic()
            if progress is not None:
                rate = run.tokens_per_second
                progress(Progress(run.step, run.tokens, run.seconds, done, loss, rate, logged, warning))
                warning = ""
    except KeyboardInterrupt:
        run.try_to_save()
        raise
    if run.logged_step != run.step:
        logged = run.log(1.0)
        if progress is not None:
            progress(Progress(run.step, run.tokens, run.seconds, 1.0, run.loss, run.tokens_per_second, logged))
    try:
        run.save()
        run.export(out / "part")
        return run.export(own_place(kind, run.key))
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"the {KINDS[kind]} could not be written ({_first_line(error)}): make room and give the same command "
            f"again; {out} holds the last good checkpoint"
        ) from None


def learning_rate_factor(step: int, done: float, warmup_steps: int) -> float:
    """Linear warm-up, then a cosine to 0 over the whole budget."""
    return min(1.0, (step + 1) / warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def reached_mean(values: Float[Tensor, "rows length"], wanted: Bool[Tensor, "rows length"], block: int) -> float:
    """The mean over wanted positions reached: up to and including the first rejection in each block, in expectation.

    ``values`` are acceptance probabilities per position; a block stands for one draft.

    >>> round(reached_mean(torch.tensor([[1.0, 0.5, 0.2, 0.9]]), torch.ones(1, 4, dtype=torch.bool), 4), 3)
    0.65
    """
    short = -values.shape[1] % block
    values, wanted = F.pad(values, (0, short)), F.pad(wanted, (0, short))
    values = values.unflatten(1, (-1, block))
    wanted = wanted.unflatten(1, (-1, block))
    passed = torch.where(wanted, values, torch.ones_like(values)).cumprod(-1)
    reach = torch.cat([torch.ones_like(passed[..., :1]), passed[..., :-1]], -1) * wanted
    return float((reach * values).sum() / reach.sum().clamp_min(1e-9))


class Run:
    """A training run: the draft model, its optimisers, its frozen teacher, and its place in the data."""

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: Source, recipe: Recipe, seed: int
    ) -> None:
        self.kind, self.folder, self.name = kind, folder, name
        self.source, self.recipe, self.seed = source, recipe, seed
        self.config = DraftConfig.of(
            model.config, glimpse=kind == "glide", layers=recipe.layers, hidden=recipe.hidden, mlp=recipe.mlp,
            kv_layer=recipe.kv_layer,
        )  # fmt: skip
        self.key = fingerprint(model.config, model.base_model.parameters())
        self.device = model.device
        self.teacher = Teacher(model, self.config.kv_layers)
        self.draft = draft_for(model, self.config, seed).to(self.device)
        matrices = [p for p in self.draft.layers.parameters() if p.ndim == 2]
        others = [p for p in self.draft.parameters() if not any(p is m for m in matrices)]
        half = torch.bfloat16 if recipe.fast else torch.float32
        self.optimisers: tuple[torch.optim.Optimizer, ...] = (
            Muon(matrices, recipe.matrix_lr, weight_decay=0.01, dtype=half),
            torch.optim.AdamW(others, recipe.vector_lr, betas=(0.9, 0.95), weight_decay=0.0),
        )
        self.cost = measured_cost(self.teacher, self.draft)
        if recipe.fast:
            self.teacher.compile(dynamic=True)
            self.draft.compile(dynamic=True)
        self.step = self.tokens = self.chunk = self.taken = 0
        self.seconds, self.loss = 0.0, math.nan
        self.saved_step = self.logged_step = 0
        self._recent: list[tuple[int, float, float]] = []  # tokens, seconds, loss
        self._batches: Iterator[Batch] | None = None
        self._held_out: list[Batch] | None = None

    # --- checkpoints

    @property
    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common with the interrupted one."""
        common = {"part": self.kind, "target": self.key, "data": self.source.label, "seed": self.seed}
        return {**common, **asdict(self.recipe)}

    def open(self, resume: bool) -> None:
        """Begin in an empty folder, or go on from the checkpoint there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self.folder / "checkpoint.pt"
        if not checkpoint.exists():
            return
        if not resume:
            raise UserError(f"{self.folder} holds a run: resume it, or give another folder with --out")
        state = torch.load(checkpoint, weights_only=True, map_location=self.device)
        for setting, value in self.settings.items():
            if setting != "fast" and state["settings"].get(setting) != value:
                raise UserError(
                    f"the run in {self.folder} has {setting} {state['settings'].get(setting)!r}, not {value!r}: "
                    "give the same again, or another folder with --out"
                )
        self.draft.load_state_dict(state["draft"])
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        for name in ("step", "tokens", "seconds", "chunk", "taken"):
            setattr(self, name, state[name])
        self.saved_step = self.logged_step = self.step
        log = self.folder / "log.jsonl"
        if log.exists():
            lines = log.read_text("utf-8").splitlines()
            log.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= self.step), "utf-8")

    def save(self) -> None:
        """Write the checkpoint whole or not at all."""
        new = self.folder / "checkpoint.new"
        state = {
            "draft": self.draft.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
            "settings": self.settings,
            **{name: getattr(self, name) for name in ("step", "tokens", "seconds", "chunk", "taken")},
        }
        try:
            torch.save(state, new)
            os.replace(new, self.folder / "checkpoint.pt")
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self.saved_step = self.step

    def try_to_save(self) -> str:
        """Checkpoint and usable part; where the disk is full, what to tell the user (the last good ones stay)."""
        try:
            self.save()
            self.export(self.folder / "part")
        except (OSError, RuntimeError) as error:
            return (
                f"the checkpoint of step {self.step:,} could not be written ({_first_line(error)}): make room; "
                f"that of step {self.saved_step:,} stays"
            )
        return ""

    def export(self, folder: Path) -> Path:
        """The draft model as a part that methods can load."""
        log = self.folder / "log.jsonl"
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
        thin = lines[:: max(1, math.ceil(len(lines) / 100))]
        training = {
            **self.settings, "steps": self.step, "tokens": self.tokens, "seconds": round(self.seconds), "gamma": GAMMA,
            "log": thin if not lines or thin[-1] == lines[-1] else [*thin, lines[-1]],
        }  # fmt: skip
        part = Part(self.kind, self.key, self.name, self.config, training)
        return save_part(part, self.draft.state_dict(), folder)

    # --- data

    def _next_batch(self) -> Batch:
        while True:
            if self._batches is None:
                groups = bucket(self.source.chunk(self.chunk), self.recipe.batch_tokens)
                random.Random(f"specviz draft batches {self.seed} {self.chunk}").shuffle(groups)
                self._batches = (pad(group, 0) for group in islice(groups, self.taken, None))
            batch = next(self._batches, None)
            if batch is not None:
                self.taken += 1
                if bool((batch.kinds[:, 1:] == RESPONSE).any()):
                    return batch
                continue
            self._batches = None
            self.chunk, self.taken = self.chunk + 1, 0

    def _weights(self, batch: Batch) -> Tensor:
        """1 on answers, ``prompt_weight`` on a random few of the prompt's positions, else 0."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)
        chosen = torch.rand(batch.ids.shape, generator=generator) < self.recipe.prompt_share
        prompt = (batch.kinds == PROMPT) & chosen
        return (batch.kinds == RESPONSE).float() + prompt * self.recipe.prompt_weight

    # --- learning

    @property
    def tokens_per_second(self) -> float:
        return sum(n for n, _, _ in self._recent) / max(1e-9, sum(s for _, s, _ in self._recent))

    def _half(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.fast)

    def _seen(self, kvs: list[tuple[Tensor, Tensor]], rotary: tuple[Tensor, Tensor] | None, length: int) -> list[Seen]:
        mask = block_mask(length, self.recipe.block, self.device)
        return [Seen(k, v, rotary[0], rotary[1], mask) for k, v in kvs] if rotary is not None else []

    def train_step(self, done: float) -> float:
        """One optimiser step; gives the mean loss of its answers' tokens."""
        started = time.perf_counter()
        batch = self._next_batch()
        factor = learning_rate_factor(self.step, done, self.recipe.warmup_steps)
        for optimiser, rate in zip(self.optimisers, (self.recipe.matrix_lr, self.recipe.vector_lr), strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        ids, weights = batch.ids.to(self.device), self._weights(batch)[:, 1:].to(self.device)
        with self._half():
            seen: list[Seen] = []
            if self.config.kv_layers:
                with torch.no_grad():
                    kvs, rotary = self.teacher(ids)
                seen = self._seen(kvs, rotary, ids.shape[1])
            states = self.draft(ids, seen)[:, :-1].float()
        wanted = weights > 0
        losses = F.cross_entropy(self.draft.head(states[wanted]), ids[:, 1:][wanted], reduction="none")
        chosen = weights[wanted]
        loss = (losses * chosen).sum() / chosen.sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
        answers = batch.kinds[:, 1:].to(self.device)[wanted] == RESPONSE
        self.loss = float(losses.detach()[answers].mean())
        if not (math.isfinite(float(loss.detach())) and math.isfinite(float(norm))):
            raise UserError(
                f"the loss is no number any more at step {self.step + 1:,} (chunk {self.chunk} of {self.source.label}, "
                f"batch {self.taken}, learning rate factor {factor:.3f}): training stopped; "
                + (f"{self.folder} holds the good checkpoint of step {self.saved_step:,}" if self.saved_step else
                   "nothing was saved yet")
            )
        for optimiser in self.optimisers:
            optimiser.step()
        self.draft.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += batch.tokens
        took = time.perf_counter() - started
        if len(self._recent) >= 10:  # a paused process has not been computing
            took = min(took, 5 * statistics.median(s for _, s, _ in self._recent))
        self.seconds += took
        self._recent = [*self._recent[-49:], (batch.tokens, took, self.loss)]
        return self.loss

    def log(self, done: float) -> dict[str, Any]:
        """Validate, and add a line to ``log.jsonl``."""
        started = time.perf_counter()
        found = self.validate()
        self.seconds += time.perf_counter() - started
        line = {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "loss": round(statistics.fmean(x for _, _, x in self._recent), 4),
            "held_out_loss": round(found.loss, 4),
            "acceptance": round(found.acceptance, 4),
            "agreement": round(found.agreement, 4),
            "cost": round(self.cost, 4),
            "expected_speedup": round(expected_speedup(found.acceptance, self.cost, GAMMA), 3),
            "lr_factor": round(learning_rate_factor(self.step, done, self.recipe.warmup_steps), 4),
            "tokens_per_second": round(self.tokens_per_second),
        }
        with contextlib.suppress(OSError), (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        self.logged_step = self.step
        return line

    @torch.no_grad()
    def validate(self) -> Validation:
        """The draft model on held-out documents, the same ones each time, against the target's own distributions."""
        if self._held_out is None:
            groups = bucket(self.source.held_out(), self.recipe.batch_tokens)
            self._held_out = [pad(group, 0) for group in groups]
        total = count = 0.0
        accepted = equal = 0.0
        for batch in self._held_out:
            ids, wanted = batch.ids.to(self.device), (batch.kinds[:, 1:] == RESPONSE).to(self.device)
            if not wanted.any():
                continue
            with self._half():
                told, kvs, rotary = self.teacher.told(ids, wanted)
                states = self.draft(ids, self._seen(kvs, rotary, ids.shape[1]))[:, :-1].float()
            logits = self.draft.head(states[wanted])
            total += float(F.cross_entropy(logits, ids[:, 1:][wanted], reduction="sum"))
            n = int(wanted.sum())
            count += n
            shared = torch.zeros(wanted.shape, device=ids.device)
            shared[wanted] = overlap(told.softmax(-1), logits.softmax(-1))
            same = torch.zeros_like(shared)
            same[wanted] = (told.argmax(-1) == logits.argmax(-1)).float()
            accepted += reached_mean(shared, wanted, self.recipe.block) * n
            equal += reached_mean(same, wanted, self.recipe.block) * n
        return Validation(total / count, accepted / count, equal / count)


@torch.no_grad()
def draft_for(model: Any, config: DraftConfig, seed: int) -> DraftModel:
    """A new draft model, random but for the target's query norm."""
    draft = DraftModel(config, seed).float()
    for layer, place in zip(draft.layers, config.kv_layers, strict=False):
        if config.query_norm:
            layer.glimpse.query_norm.copy_(model.model.layers[place].self_attn.q_norm.weight.float())
    return draft


@torch.no_grad()
def measured_cost(teacher: Teacher, draft: DraftModel, rows: int = 256, times: int = 23) -> float:
    """c: the time of a draft forward of one token ÷ that of the target, in alternation; medians."""
    config, device = draft.config, draft.embedding.weight.device
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    kv_heads = getattr(teacher.model.config, "num_key_value_heads", None) or config.target_heads
    keys = torch.zeros(1, kv_heads, rows, config.target_head_dim, device=device)
    angle = torch.zeros(1, config.target_head_dim, device=device)
    seen = [Seen(keys, keys, angle + 1, angle) for _ in config.kv_layers]

    def seconds(call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    taken = [
        (
            seconds(lambda: draft.head(draft(ids, seen))),
            seconds(lambda: teacher.model(input_ids=ids, use_cache=False).logits),
        )
        for _ in range(times)
    ]
    drafts, targets = zip(*taken[3:], strict=True)  # the first ones warm up
    return statistics.median(drafts) / statistics.median(targets)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160].rstrip(".")
