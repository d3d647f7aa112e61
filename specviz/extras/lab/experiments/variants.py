"""Draft models and prompt tokens trained for an experiment: short runs, alike but for one setting.

A variant is trained where it is first needed and kept under ``SPECVIZ_HOME``/lab/parts, in a folder named after all
that decides what it becomes; an interrupted one goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from decoders.errors import UserError
from decoders.method.part import PROMPT_TOKENS, kinds, training_of
from specviz.places import home

from .experiment import Experiment, Setting, trainable
from .stages import BOTH_STAGES, EPOCH, FINETUNED, PRETRAINED, STAGES, Epochs, StageSource, stage_files

if TYPE_CHECKING:
    from decoders import Target
    from specviz.extras.training.states import Shelf

BATCH_TOKENS = 2048  # of a step, padding included: less than a part's own training takes
POINTS = 256  # of a step, at most: insertion points of prompt tokens, whatever the rows of each
DOCUMENTS = 64  # that are made, or answered, at a time
LOOKS, MIN_STEPS = 6, 8  # validations along the way, and steps between two of them at least: each costs some steps
HELD_OUT_TOKENS = 14_000  # read by each, about
HELD_OUT = 12  # documents of them that prompt tokens are tried on: each of their positions takes rows of its own
HELD_OUT_POINTS = 1_500  # in these, about
EPOCH_BATCH = 4  # documents of a step, where epochs are counted, as in PPD's training
LATER_SETTINGS = (
    "stages",
    "epochs",
    "batch",
)  # settings that earlier trainings lack: unset, they change no folder's name
SEED = 0
STATES, MOST_STATES = "states", 4 << 30  # of the target, of documents that variants share; bytes of them
MOST_BYTES = 4 << 30  # kept trainings; beyond it the oldest go


@dataclass(frozen=True, slots=True)
class Variant:
    """One part to train: its kind, and what all of an experiment have in common. Subclasses say what may differ."""

    kind: str
    steps: int
    data: tuple[str, ...] = ("demo",)

    @property
    def recipe(self) -> Any:
        """The options of its training."""
        raise NotImplementedError

    def check(self, target: Target) -> None:
        """Raise UserError for a target that it cannot be trained for, or settings that do not fit it."""
        raise NotImplementedError

    def seconds(self, target: Target) -> float:
        """About how long its training takes from the beginning."""
        raise NotImplementedError

    def run(self, folder: Path, network: Any, name: str, source: Any) -> Any:
        """Its training run (``specviz.extras.training.loop.PartRun``), not opened yet."""
        raise NotImplementedError

    def finish(self, part: Path) -> None:
        """Files that a trained part needs besides, in its folder; nothing by itself."""

    @property
    def looks(self) -> int:
        """Validations of its training."""
        return -(-self.steps // max(MIN_STEPS, self.steps // LOOKS))

    @property
    def before(self) -> Variant | None:
        """The part that it goes on from: trained first, and kept as well."""
        return None

    def source(self, source: Any) -> Any:
        """The text that it learns from, of all there is to learn from."""
        return source

    def folder(self, key: str) -> Path:
        """Its folder for the target with this fingerprint."""
        fields = {name: value for name, value in asdict(self).items() if value or name not in LATER_SETTINGS}
        recipe = {name: value for name, value in asdict(self.recipe).items() if name != "bf16"}  # the same in either
        settings = [key, SEED, fields, recipe, [_stamp(name) for name in self.data]]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return home() / "lab" / "parts" / digest[:20]

    def log(self, key: str) -> list[dict[str, Any]] | None:
        """Its training's log; None where it is not finished."""
        from decoders.parts import is_part, read_part

        folder = self.folder(key) / "part"
        with contextlib.suppress(UserError):
            return list(read_part(folder).training["log"]) if is_part(folder) else None
        return None


@dataclass(frozen=True, slots=True)
class DraftVariant(Variant):
    """A draft model (kind "glide" or "drafter"). ``stages``: it learns running text alone ("pretrained"),
    conversations alone ("finetuned"), or the one for half of the steps and then the other ("both", as in GLIDE §5.1);
    without it, all that there is.
    """

    layers: int = 1
    width: int | None = None
    kv_layer: int | None = None
    distill: bool = False
    stages: str = ""

    @property
    def before(self) -> Variant | None:
        return replace(self, steps=self.steps // 2, stages=PRETRAINED) if self.stages == BOTH_STAGES else None

    def source(self, source: Any) -> Any:
        return StageSource(source, running=self.stages == PRETRAINED) if self.stages else source

    @property
    def recipe(self) -> Any:
        from specviz.extras.training.drafter import Recipe

        return Recipe(
            layers=self.layers, hidden=self.width, kv_layer=self.kv_layer, batch_tokens=BATCH_TOKENS,
            validate_steps=max(MIN_STEPS, self.steps // LOOKS),
        )  # fmt: skip

    def config(self, target: Target) -> Any:
        """Its shape. Raises UserError as ``check`` does."""
        from decoders.draft_models.network import DraftConfig, refusal

        if reason := refusal(target.shape):
            raise UserError(reason)
        return DraftConfig.of(
            target.shape, layers=self.layers, hidden=self.width, kv_layer=self.kv_layer,
            **training_of(self.kind).settings,
        )  # fmt: skip

    def check(self, target: Target) -> None:
        self.config(target)
        if self.stages not in STAGES:
            raise UserError(f"stages={self.stages!r} is not allowed: one of {', '.join(map(repr, STAGES))}")
        if self.stages == BOTH_STAGES and self.steps < 2:
            raise UserError("two stages are to be trained in 1 step: give at least 2")

    def seconds(self, target: Target) -> float:
        """A step reads its tokens with the target and learns from them with the draft model (three times a forward); a
        validation reads with both. The target's answers, where it gives them, take some times longer than all of it.
        """
        config = self.config(target)
        width, attention_width = config.hidden, config.target_heads * config.target_head_dim
        draft = (
            self.layers * (4 * width**2 + 3 * width * config.mlp + 2 * width * attention_width) + config.vocab * width
        )
        whole, rate = _size_and_rate(target)
        step = BATCH_TOKENS * (3 * draft + (whole if config.kv_layers else 0))
        look = HELD_OUT_TOKENS * (draft + whole)
        return (4 if self.distill else 1) * (2 + self.steps * (0.02 + step / rate) + self.looks * look / rate)

    def run(self, folder: Path, network: Any, name: str, source: Any) -> Any:
        from specviz.extras.training.drafter import DrafterTraining

        recipe, shelf = _in_precision(self.recipe, network)
        return DrafterTraining(self.kind, folder, network, name, source, recipe, SEED, shelf=shelf)


@dataclass(frozen=True, slots=True)
class PromptVariant(Variant):
    """Prompt tokens (kind "ppd"): ``tokens`` of ``vectors`` each (EPTs), the ablations of PPD's appendix D, and what
    they learn from (``specviz.extras.training.prompt_tokens.Recipe``). With ``epochs``, the same 96 documents so often,
    ``batch`` of them (4 where it is 0) in each step.
    """

    tokens: int = 3
    vectors: int = 1
    mask: str = "ensemble"
    learned: bool = False
    prefix: int = 0
    exits: int = 1
    head: str = "target"
    hard_labels: bool = False
    epochs: int = 0
    batch: int = 0

    @property
    def recipe(self) -> Any:
        from specviz.extras.training.prompt_tokens import Recipe

        settings = {name: getattr(self, name) for name in training_of(self.kind).varies if name not in LATER_SETTINGS}
        rows, look = POINTS * self.tokens * self.vectors, max(MIN_STEPS, self.steps // LOOKS)
        if self.epochs:  # as many insertion points of a document, whatever the others of its step
            rows = rows * (self.batch or EPOCH_BATCH) // EPOCH_BATCH
        tokens = 1 << 20 if self.epochs else BATCH_TOKENS  # a chunk of an epoch is one step
        return Recipe(**settings, batch_tokens=tokens, rows=rows, validate_steps=look)

    def source(self, source: Any) -> Any:
        return Epochs(source, self.batch or EPOCH_BATCH, EPOCH) if self.epochs else source

    def check(self, target: Target) -> None:
        from specviz.extras.training.prompt_tokens import config_of

        config_of(self.recipe, target.shape)

    def seconds(self, target: Target) -> float:
        """A step reads its tokens with the target, and its rows of prompt tokens twice (there is no gradient of
        weights); a validation reads text and rows once.
        """
        whole, rate = _size_and_rate(target)
        vector_count = self.tokens * self.vectors
        share = (self.batch or EPOCH_BATCH) / EPOCH_BATCH if self.epochs else 1.0
        step, look = (
            share * (BATCH_TOKENS + 2 * POINTS * vector_count),
            HELD_OUT_TOKENS / 4 + HELD_OUT_POINTS * vector_count,
        )
        return 2 + self.steps * (0.02 + step * whole / rate) + self.looks * look * whole / rate

    def run(self, folder: Path, network: Any, name: str, source: Any) -> Any:
        from specviz.extras.training.prompt_tokens import PromptTokenTraining

        shorter = SimpleNamespace(label=source.label, chunk=source.chunk, held_out=lambda: source.held_out()[:HELD_OUT])
        recipe, shelf = _in_precision(self.recipe, network)
        return PromptTokenTraining(self.kind, folder, network, name, cast(Any, shorter), recipe, SEED, shelf)

    def finish(self, part: Path) -> None:
        """Trees for its own accuracy at the last validation; where no guess held, none can be designed."""
        from decoders.parts import read_part
        from decoders.prompt_tokens.design import DEFAULT_SIZE, design
        from decoders.prompt_tokens.trees import FILE, least_size, save_trees

        size = max(DEFAULT_SIZE, least_size(self.tokens, self.vectors))
        with contextlib.suppress(UserError):
            ranks = read_part(part).training["log"][-1]["ranks"]
            save_trees(design(ranks, size, self.vectors), part / FILE)


def variant_of(experiment: Experiment, setting: Setting) -> Variant | None:
    """The part that has to be trained for a setting; None where it takes the part that is there."""
    if setting.trains is None:
        return None
    kind = trainable(setting.line.method)
    variant = PromptVariant if kind.training.family == PROMPT_TOKENS else DraftVariant
    steps, epochs = experiment.training_steps, int(setting.trains.get("epochs") or 0)
    trains = {name: value for name, value in setting.trains.items() if (name, value) != ("batch", EPOCH_BATCH)}
    if epochs:
        steps = epochs * -(-EPOCH // int(trains.get("batch") or EPOCH_BATCH))
    return variant(kind.name, steps, experiment.data, **trains)


def check_variants(variants: Sequence[Variant], target: Target) -> None:
    """Raise UserError for the first variant that cannot be trained for this target."""
    from specviz.extras.training.demo_source import DEMO, DemoSource

    for variant in variants:
        variant.check(target)
        if target.tokenizer is None:
            raise UserError(f"{target.name} has no tokenizer, and parts learn from text: choose another model")
        if list(variant.data) == [DEMO]:
            DemoSource(target.tokenizer, SEED)
        elif isinstance(variant, DraftVariant) and variant.stages:
            modes = {PRETRAINED: (True,), FINETUNED: (False,), BOTH_STAGES: (True, False)}[variant.stages]
            if not all(stage_files(variant.data, running) for running in modes):
                raise UserError(
                    "two stages need two kinds of files: text (.txt, .md) for the first, conversations (.jsonl) for "
                    "the second: give both with --data"
                )
        for name in variant.data:
            if name != DEMO and not Path(name).expanduser().is_file():
                raise UserError(f"there is no training file {name}: give text or JSONL files, or `demo`")


def training(variant: Variant, target: Target, network: Any) -> Generator[int]:
    """Train it step by step (each ``next`` makes one; gives how many are made), then keep it.

    Closed before the end, it leaves a checkpoint that the next training goes on from. ``network`` is the target's
    (``decoders.model.target_model.load.stock_network``).
    """
    from safetensors.torch import load_file

    from decoders.parts import WEIGHTS
    from specviz.extras.training.demo_source import source_of
    from specviz.extras.training.loop import CHECKPOINT

    folder, earlier_steps = variant.folder(target.key), 0
    if (first := variant.before) is not None:
        earlier_steps = first.steps
        if first.log(target.key) is None:
            yield from training(first, target, network)
    answers = network if isinstance(variant, DraftVariant) and variant.distill else None
    stages = variant.stages if isinstance(variant, DraftVariant) else ""
    files = stage_files(variant.data, stages == PRETRAINED) if stages else variant.data
    source = variant.source(source_of(files, target.tokenizer, SEED, answers, documents=DOCUMENTS))
    run = variant.run(folder, network, target.name, source)
    run.open(resume=True)
    if first is not None and not run.step:
        run.trained.load_state_dict(load_file(first.folder(target.key) / "part" / WEIGHTS))
    last = variant.steps - earlier_steps
    try:
        while run.step < last:
            run.train_step(run.step / last)
            if run.step % run.recipe.validate_steps == 0 or run.step == last:
                run.log(run.step / last)
            if run.step == last:
                variant.finish(run.export(folder / "part"))
                (folder / CHECKPOINT).unlink(missing_ok=True)
            yield earlier_steps + run.step
    finally:
        if 0 < run.step < last and run.step != run.saved_step:
            with contextlib.suppress(OSError, RuntimeError):  # a full disk: it begins at an earlier step again
                run.save()


def trim(keep: Sequence[Path], most_bytes: int = MOST_BYTES) -> None:
    """Remove the oldest trainings beyond so many bytes; those to ``keep`` stay."""
    place, size = home() / "lab" / "parts", 0
    folders = [folder for folder in place.iterdir() if folder.is_dir()] if place.is_dir() else []
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True):
        size += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        if size > most_bytes and folder not in keep:
            shutil.rmtree(folder, ignore_errors=True)


def name_of(variant: Variant, differing: Mapping[str, Any]) -> str:
    """A variant in words, with the settings it was asked for.

    >>> name_of(DraftVariant("glide", 150), {"kv_layer": 2})
    'GLIDE draft model, KV layer 2'
    >>> name_of(PromptVariant("ppd", 150), {"vectors": 4, "hard_labels": True})
    'set of prompt tokens, vectors 4, hard labels'
    """
    words = {
        "kv_layer": "KV layer", "distill": "learning the target's answers", "learned": "learned weights",
        "hard_labels": "hard labels", "prefix": "prefix tokens", "exits": "exits",
    }  # fmt: skip
    settings = [
        words.get(name, name) + ("" if value is True else f" {value}")
        for name, value in differing.items()
        if value is not False
    ]
    return ", ".join([kinds()[variant.kind].title, *settings])


def _in_precision(recipe: Any, network: Any) -> tuple[Any, Shelf | None]:
    """A recipe in the precision that the network's device learns fastest in; and in bf16, the place where the target's
    states are kept, which are then no less exact than those it computes.
    """
    from decoders.model.files.calibration import fingerprint
    from specviz.extras.training.precision import has_bf16_products
    from specviz.extras.training.states import Shelf

    if not has_bf16_products(network.device):
        return recipe, None
    place = home() / "lab" / STATES
    key = fingerprint(network.config, network.base_model.parameters())[:20]
    for sibling in place.glob("*") if place.is_dir() else ():
        if sibling.name != key:
            shutil.rmtree(sibling, ignore_errors=True)
    return replace(recipe, bf16=True), Shelf(place / key, MOST_STATES)


def _size_and_rate(target: Target) -> tuple[float, float]:
    """The target's parameters, and how many parameters × tokens its device reads in a second, about."""
    from specviz.extras.training.precision import has_bf16_products

    cpu = 2e11 if has_bf16_products(target.device) else 5e10
    return float(target.info["parameters"]), cpu if target.device.type == "cpu" else 1e13


def _stamp(name: str) -> list[Any]:
    """The mark by which a data file differs from a later version of it."""
    path = Path(name).expanduser()
    if not path.is_file():
        return [name]
    return [str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns]
