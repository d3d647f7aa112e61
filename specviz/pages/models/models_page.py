"""The models that are here, and another one in place of the one in use: what the picker in the header asks for."""

from __future__ import annotations

import contextlib
import dataclasses
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from typing import Annotated, Any

from fastapi import Response
from pydantic import AfterValidator, Field

from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.model.files.catalog import NAMES, model_name
from decoders.names import weight_names
from specviz.model_records import source_of_key
from specviz.models import absent, list_models, same_place
from specviz.places import is_id
from specviz.server.bodies import Body, needs
from specviz.server.desk import Service, get, post
from specviz.server.http import User, problem

CHECK_S = 2.0  # whatever cannot be loaded is usually refused within this time
MAX_CHARACTERS = 400  # characters of a path or hub id



def _check_weights(name: str) -> str:
    """The weights' name, or "" for those in use."""
    if name and name not in weight_names():
        raise ValueError(name)
    return name


On = Annotated[
    str,
    Field(json_schema_extra={"enum": ["", *weight_names()]}),
    AfterValidator(_check_weights),
    needs(f"the weights are {{given}}: one of {', '.join(weight_names())}, please"),
]


class Choice(Body):
    """The model to load: a name, a path or a hub id, as ``--model`` takes it, and its weights as of ``--weights``."""

    model: Annotated[
        str,
        Field(max_length=MAX_CHARACTERS),
        needs(f"a model is named by a path or a hub id of at most {MAX_CHARACTERS} characters"),
    ]
    weights: On = ""  # those in use


class Models(Service):
    """Lists the models, and exchanges the one that everybody here uses."""

    name, order = "models", 110  # asked for by the header
    cannot = "The model cannot be asked to"

    @get()
    def show(self, user: User, weights: On = "") -> dict[str, Any] | Response:
        """The models that are here with their memory on ``weights``, which of them is in use or being loaded, on which
        weights models can be loaded here, and why the last choice failed.
        """
        if reason := self._forbidden(user):
            return problem(403, reason)
        desk, loader = self.desk, self.desk.loader
        shown_weights = weights or loader.weights
        local_models = list_models(dtype=desk.dtype, device=desk.device, weights=shown_weights, engine=desk.engine)
        models = [*local_models, *absent()]
        return {
            **loader.info(),
            "models": [dataclasses.asdict(entry) for entry in models],
            "used": next((entry.model for entry in models if same_place(entry.model, loader.model)), loader.model),
            "refused": loader.refused,
            "weights": loader.weights,
            "choices": self._choices(),
            "pending": "" if loader.target is None else loader.target.engines.pending,
        }

    @get("of/{key}")
    def of(self, key: str, user: User) -> dict[str, Any]:
        """The model of a run that is over: is it the one in use, and else how to choose it. Raises UnknownTrace."""
        target, loader = self.desk.loader.target, self.desk.loader
        if target is None or (is_id(key) and self.desk.runner.job(key) is not None):
            return {"same": True, "name": "", "loaded": "", "model": "", "beside": False}
        run = self.desk.trace(key).run  # before torch is imported: the run may be deleted meanwhile
        from decoders.study.look.run_settings import other_model

        recorded_model = run.get("model") or {}
        source = (
            source_of_key(str(recorded_model.get("key") or "")) if loader.pick and not self._forbidden(user) else ""
        )
        is_same = "name" not in recorded_model or other_model(target, run) is None
        fits_beside = not is_same and loader.load_beside(run)
        name = str(recorded_model.get("name") or "another model")
        return {"same": is_same, "name": name, "loaded": target.name, "model": source, "beside": fits_beside}

    @post("choose")
    def choose(self, choice: Choice, user: User) -> dict[str, Any] | Response:
        """Load a model in the background, in place of the one in use.

        Raises UserError where it is not there, damaged, or larger than the memory that is free, and Taken while
        another one is loaded. What is found out later (a hub that does not answer) is told by ``show``.
        """
        if reason := self._forbidden(user):
            return problem(403, reason)
        loader, model = self.desk.loader, checked_source(choice.model)
        if same_place(model, loader.model):
            model = loader.model
        weights = choice.weights or loader.weights
        check = partial(self._check_fits, model, weights)
        check_future = loader.choose(model, model_name(model), user, check, weights)
        with contextlib.suppress(NotYet):
            check_future.result(CHECK_S)
        return loader.info()

    def _forbidden(self, user: str) -> str:
        """The reason why a user may not choose the model, in a sentence; "" where that is allowed."""
        if self.desk.runner.pool is not None:
            return "The model of an app with backends is not exchanged: start it anew, with --model."
        if self.desk.rules.public:
            return "The model of a public server is not exchanged: run specviz on a computer of your own."
        if not self.desk.rules.may_pick(user):
            return "The model is chosen for everybody here: ask those who run this server (app --picks names who may)."
        return ""

    def _choices(self) -> list[str]:
        """The weights that a model can be loaded on here."""
        from torch import device

        from decoders.model.engines.fewer_bits import weights_for
        from decoders.model.target_model.load import chosen_device, chosen_dtype

        target_device = device(chosen_device(self.desk.device))
        return list(weights_for(target_device, chosen_dtype(self.desk.dtype, target_device)))

    def _check_fits(self, model: str, weights: str) -> None:
        from decoders.model.target_model.size import check_room

        desk = self.desk
        check_room(model, dtype=desk.dtype, device=desk.device, weights=weights, engine=desk.engine)


def checked_source(text: str) -> str:
    """A typed name, path or hub id. Raises UserError for what can be none."""
    source = text.strip()
    if not source or not source.isprintable():
        raise UserError(
            f"a model is named by a path, a hub id such as org/name, {' or '.join(NAMES)}; given was {text[:40]!r}"
        )
    typed_path(source)
    return source
