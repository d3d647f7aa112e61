"""`specviz train demo`: the bundled target model, made from nothing on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from decoders.folders import replacing
from decoders.prompt.tasks import MIXTURE
from decoders.prompt.tasks.example import FAMILIES, Family, TaskExample
from specviz.extras.training.batches import PROMPT, RESPONSE, Batch, pad
from specviz.extras.training.data import encode
from specviz.extras.training.learning import muon_and_adamw, position_weights, weighted_loss
from specviz.extras.training.loop import CHECKPOINT, TrainingRun, budget
from specviz.extras.training.progress import Progress

from .batches import training_batches
from .evaluation import probe_examples
from .induction import plant_copying_heads
from .tokenizer import train_tokenizer


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what the demo model becomes; written beside it as recipe.json."""

    pieces: int = 2048
    hidden: int = 256
    layers: int = 6
    heads: int = 8
    mlp: int = 640
    planted: bool = True  # start with copying heads
    tokenizer_examples: int = 12_000
    batch_tokens: int = 5120  # padding included
    chunk_examples: int = 1024
    matrix_lr: float = 0.02  # Muon, hidden matrices
    vector_lr: float = 0.003  # AdamW, embeddings and norms
    warmup_steps: int = 40
    decay_share: float = 1.0  # of the budget, at its end: from the first step on (D2Z, Bergsma et al. 2025)
    prompt_share: float = 0.15  # prompt positions that enter the loss
    prompt_weight: float = 0.3  # of each of these; a response position weighs 1
    repeated_start: float = 0.2  # repetitions per task example at the start …
    repeated_tokens: int = 1_000_000  # … falling linearly to repeated_end over so many tokens
    repeated_end: float = 0.02
    looked_up: float = 0.4  # lookup drills per task example
    probe_steps: int = 100
    probe_examples: int = 96
    mixture: dict[Family, float] = field(default_factory=lambda: dict(MIXTURE))
    fast: bool = False  # bf16 matrix products and compiled layers: needs a C++ compiler, pays after ten minutes


@dataclass(frozen=True)
class CopyProbe:
    """Held-out examples, teacher-forced: mean loss per response token, and exactly right answers per family.

    Greedy decoding gives the reference exactly when every response token is the likeliest one given the
    reference before it, so one forward pass counts the exact matches that generation would find.
    """

    loss: float
    exact: dict[str, tuple[int, int]]


def train_demo(
    out: Path,
    *,
    tokens: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    resume: bool = True,
    progress: Callable[[Progress], None] | None = None,
    recipe: Recipe | None = None,
    checkpoint_minutes: float = 4.0,
) -> None:
    """Train until `tokens` tokens or `minutes` of computing are spent, then export to `out / "target"`.

    The learning rate falls over the last `Recipe.decay_share` of the budget. A run that was stopped goes on from
    its checkpoint and gives the model that it would have given; another budget may be given when resuming before
    the decay.

    train_demo(Path("runs/demo"), tokens=15_000_000, minutes=None)
    """
    budget_check = budget(tokens=tokens, minutes=minutes)
    run = DemoRun.begin(out, recipe or Recipe(), seed, resume)
    run.advance(lambda: budget_check(run), run.save, checkpoint_minutes, progress)
    run.save()
    run.export(out / "target")


def learning_rate_factor(step: int, progress: float, recipe: Recipe) -> float:
    """Warm-up over the first steps, then 1, then linearly to 0 over the last `decay_share` of the budget."""
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    return warm * min(1.0, max(0.0, 1 - progress) / recipe.decay_share)


def build_model(recipe: Recipe, tokenizer: Any, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights that depend on `seed` alone."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        **_special_ids(tokenizer),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    if recipe.planted:
        plant_copying_heads(model, seed)
    return model


def _special_ids(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


class DemoRun(TrainingRun):
    """The bundled target's training run."""

    stored, data = "model", "the demo's tasks"
    counted = ("step", "tokens", "seconds", "chunk_tokens")

    def __init__(self, folder: Path, recipe: Recipe, seed: int, tokenizer: Any):
        super().__init__(folder, recipe, seed)
        self.tokenizer = tokenizer
        self.trained = self.model = build_model(recipe, tokenizer, seed)
        self.optimisers = muon_and_adamw(
            self.model, self.model.model.layers, recipe.matrix_lr, recipe.vector_lr, half=recipe.fast
        )
        if recipe.fast:
            self.model.model.compile(dynamic=True)
        self.chunk_tokens = 0  # tokens before this chunk: decides its share of repetitions

    @classmethod
    def begin(cls, folder: Path, recipe: Recipe, seed: int, resume: bool) -> DemoRun:
        """A new run in `folder`, or the one that was stopped there."""
        if (folder / CHECKPOINT).exists() and not resume:
            raise FileExistsError(f"{folder} holds a run: resume it, or give an empty folder")
        if not (folder / "tokenizer").exists():
            folder.mkdir(parents=True, exist_ok=True)
            tokenizer = train_tokenizer(pieces=recipe.pieces, examples=recipe.tokenizer_examples, seed=seed)
            tokenizer.save_pretrained(folder / "tokenizer.new")
            (folder / "tokenizer.new").rename(folder / "tokenizer")
        run = cls(folder, recipe, seed, AutoTokenizer.from_pretrained(folder / "tokenizer"))
        run.open(resume)
        return run

    @property
    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def batches(self, number: int) -> Iterator[Batch]:
        recipe = self.recipe
        if not self.feed.taken:  # a new one, not the one that a resumed run goes on in
            self.chunk_tokens = self.tokens
        remaining_share = max(0.0, 1 - self.chunk_tokens / recipe.repeated_tokens)
        return training_batches(
            self.tokenizer,
            seed=self.seed,
            chunk=number,
            examples=recipe.chunk_examples,
            budget=recipe.batch_tokens,
            repeat_share=recipe.repeated_end + remaining_share * (recipe.repeated_start - recipe.repeated_end),
            looked_up=recipe.looked_up,
            mixture=recipe.mixture,
        )

    def factor(self, progress: float) -> float:
        return learning_rate_factor(self.step, progress, self.recipe)

    @property
    def log_steps(self) -> int:
        return self.recipe.probe_steps

    def forward(self, progress: float) -> tuple[Batch, Tensor, Tensor]:
        recipe, batch = self.recipe, next(self.feed)
        weights = position_weights(batch, recipe.prompt_share, recipe.prompt_weight, self.seed, self.step)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.fast):
            states = self.model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        return batch, *weighted_loss(self.model.lm_head, states, batch, weights)

    def validate(self) -> dict[str, Any]:
        """The model on held-out examples: its loss, and how many of each family's answers are exactly right."""
        examples = probe_examples(self.recipe.probe_examples, self.seed)
        probe = teacher_forced(self.model, self.tokenizer, examples, self.recipe.batch_tokens)
        exact = {family: f"{right}/{count}" for family, (right, count) in probe.exact.items()}
        return {"held_out_loss": round(probe.loss, 4), "exact": exact}

    def export(self, folder: Path) -> None:
        """A loadable fp16 model with its tokenizer, recipe and log; replaces `folder` when all is written."""
        half = LlamaForCausalLM(self.model.config)
        half.load_state_dict(self.model.state_dict())
        half.generation_config = GenerationConfig(**_special_ids(self.tokenizer))
        half.config.specviz_name = "specviz-demo"
        facts = {"seed": self.seed, "steps": self.step, "tokens": self.tokens, "seconds": round(self.seconds)}
        recipe = json.dumps({**facts, "recipe": asdict(self.recipe)}, indent=2)
        with replacing(folder) as new:
            half.half().save_pretrained(new)
            self.tokenizer.save_pretrained(new)
            (new / "recipe.json").write_text(recipe + "\n", "utf-8")
            if log := self.log_file.sample(20):
                (new / "train_log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log), "utf-8")
            for path in (new, *new.iterdir()):
                path.chmod(0o755 if path.is_dir() else 0o644)


@torch.no_grad()
def teacher_forced(model: LlamaForCausalLM, tokenizer: Any, examples: list[TaskExample], budget: int) -> CopyProbe:
    """Loss and exact matches of the last turn of each example, from one forward pass over the references."""
    documents = [encode(tokenizer, example.messages) for example in examples]
    order = sorted(range(len(examples)), key=lambda i: len(documents[i].ids))
    exact = {family: [0, 0] for family in FAMILIES}
    total, count = 0.0, 0
    while order:
        group = [order.pop()]
        while order and (len(group) + 1) * len(documents[group[0]].ids) <= budget:
            group.append(order.pop())
        batch = pad([documents[i] for i in group], tokenizer.pad_token_id)
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
        # the last turn: nothing but RESPONSE follows it
        last = (batch.kinds == PROMPT).int().flip(1).cumsum(1).flip(1)[:, 1:] == 0
        answer_mask = last & (batch.kinds[:, 1:] == RESPONSE)
        logits = model.lm_head(hidden[answer_mask])
        labels = batch.ids[:, 1:][answer_mask]
        total += F.cross_entropy(logits, labels, reduction="sum").item()
        count += len(labels)
        wrong = torch.zeros_like(answer_mask)
        wrong[answer_mask] = logits.argmax(-1) != labels
        for i, failed in zip(group, wrong.any(1).tolist(), strict=True):
            exact[examples[i].family][0] += not failed
            exact[examples[i].family][1] += 1
    return CopyProbe(total / count, {f: (right, prompts) for f, (right, prompts) in exact.items() if prompts})
