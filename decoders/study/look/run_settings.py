"""A recorded run's settings as the engine takes them: model, method, parameters, sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from decoders.draft.params import controls
from decoders.drafters import select_method
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.model.files.catalog import precision_of, recorded_key
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.trace.run import RunRecord
from decoders.trace.trace import Trace
from decoders.verifiers.sampling import Chooser, Sampling

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

SHAPE = ("family", "layers", "heads", "hidden", "vocab")


def other_model(target: Target, run: RunRecord, *, exact: bool = False) -> str | None:
    """The reason why the loaded model does not serve for a run: another one made it. None where this one did, as far as
    the run's record tells. ``exact`` wants it under the same name and in the same dtype too.
    """
    model, info = run["model"], target.info
    if key := recorded_key(run):
        is_same_model = key == target.key
    else:
        is_same_model = all(model.get(name) == info[name] for name in SHAPE)
    if exact:
        is_same_model = is_same_model and all(
            model.get(name, info[name]) == info[name] for name in ("name", "parameters", "dtype")
        )
        is_same_model = is_same_model and all(model.get(name) == info.get(name) for name in ("weights", "activations"))
    return None if is_same_model else model_mismatch(target, run, exact=exact)


def model_mismatch(target: Target, run: RunRecord, *, exact: bool = False) -> str:
    """That a run was made with another model than the one loaded, and what to do."""
    local_name, dtype = target.name, precision_of(target.info)
    model = run["model"]
    name, made_in = model.get("name") or "another model", precision_of({"dtype": dtype, **model})
    if exact and made_in != dtype:
        name, local_name = f"{name} in {made_in}", f"{local_name} in {dtype}"
    if name == local_name:
        local_name = "another model of that name"
    return f"this run was made with {name}, and {local_name} is loaded: load that model to draft or judge it again"


def check_model(target: Target, run: RunRecord, *, exact: bool = False) -> None:
    """Raise UserError where another model made a run; arguments as in ``other_model``."""
    if problem := other_model(target, run, exact=exact):
        raise UserError(problem)


def own_params(trace: Trace, method: Method) -> dict[str, Any]:
    """The parameters that a run recorded for its method, but those that name files: a trace may come from anybody."""
    run_params = trace.run["method"].get("params", {})
    param_kinds = {c.name: c.kind for c in controls(method.params) if c.name in run_params}
    return {name: run_params[name] for name, kind in param_kinds.items() if kind != "str" or run_params[name] is None}


def redraft_method(
    trace: Trace, method: str | Method | None = None, params: Mapping[str, Any] | Any = None
) -> tuple[Method, Any]:
    """A method and its parameters to draft with after a run: its own where none is named, and its own parameters
    where none are given for its own method.
    """
    name = str(trace.run["method"]["name"])
    entry, _ = select_method(name if method is None else method)
    return select_method(entry, own_params(trace, entry) if params is None and entry.name == name else params)


def drawn_before(trace: Trace) -> list[int]:
    """Random numbers that a sampled run's own verifier had taken before each step, and at last in all. Raises UserError
    where its method is not here, ValueError for parameters that it does not have.
    """
    run, steps = trace.run, trace.tables["steps"]
    method, values = select_method(str(run["method"]["name"]), run["method"].get("params", {}))
    verifier = method.verifier(values, Chooser(sampling_of(run)), frozenset(run.get("stop_ids", ())))
    rows = zip(*(steps[name] for name in ("route", "drafted", "accepted")), strict=True)
    return [*accumulate((verifier.draws(*row) for row in rows), initial=0)]


def generation_of(run: RunRecord) -> dict[str, Any]:
    """The settings by which a run's logits were processed, in place of the model's own."""
    return {**NEUTRAL, **run.get("processing", {}).get("settings", {})}


def extra_processors(run: RunRecord) -> str:
    """The logits processors that a run was given besides, which no trace holds, in words; "" where there were none."""
    return " and ".join(run.get("processing", {}).get("extra", ()))


def sampling_of(run: RunRecord) -> Sampling:
    """A recorded run's rule for choosing tokens. Raises UserError where its settings are not numbers."""
    settings = run.get("sampling") or {}
    try:
        numbers: dict[str, Any] = {n: value for n, value in settings.items() if n in ("temperature", "top_k", "top_p")}
        seed = int(settings.get("seed", 0))
        if not -(2**63) <= seed < 2**63:
            raise OverflowError
        return Sampling(**numbers, seed=seed)
    except UserError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise UserError("this run's sampling settings are not numbers") from None


def check_ids(target: Target, ids: Sequence[int]) -> None:
    """Raise UserError for token ids that the model does not have, or more of them than it reads."""
    vocab, limit = target.info["vocab"], target.context_length
    if min(ids) < 0 or max(ids) >= vocab:
        raise UserError(f"this run has token ids beyond {target.name}'s vocabulary of {vocab:,}: name the right model")
    if len(ids) > limit:
        raise UserError(f"this run has {len(ids):,} tokens and {target.name} reads at most {limit:,}")


def check_step(trace: Trace, step: int) -> None:
    """Raise UserError unless a run has this step (from 0)."""
    if not 0 <= step < trace.rows("steps"):
        raise UserError(f"there is no step {step + 1}: this run has steps 1 to {trace.rows('steps')}")
