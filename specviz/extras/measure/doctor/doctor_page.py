"""The drafter doctor on a page: examinations in the background, one after another, and their reports to keep."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from decoders.errors import UserError, capital
from specviz.places import new_id
from specviz.server.bodies import Body, SentFile, needs
from specviz.server.desk import get, post
from specviz.server.forms import Missing
from specviz.server.http import Owner, attachment, problem
from specviz.views.examples import SAMPLES
from specviz.views.prompts import SETS, records, sent_records, short_name

from ..stage_tasks import StagedService, StagedTask
from . import examination
from .report_page import doctor_page

if TYPE_CHECKING:
    from .server import ServerNumbers
    from .setup import Place

PROMPT_SETS = ("examples", "demo", "turns", *SAMPLES)  # prompt sets
MAX_LOG = 4 << 20  # characters of a server's log that is sent
PUBLIC = "Nothing is examined on a public server: run specviz on a computer of your own."


class ExaminationRequest(Body):
    """A part by its id in the list, the prompts (a set's name, or a file), and how much of them."""

    part: Annotated[str, Field(max_length=200), needs("choose a part of the list")]
    prompts: Annotated[str | SentFile, needs(f"the prompts are a file, or one of {', '.join(PROMPT_SETS)}")]
    count: Annotated[int, Field(ge=1, le=48), needs("the number of prompts is {given}: 1 to 48, please")] = 12
    max_new_tokens: Annotated[
        int, Field(ge=8, le=512), needs("the new tokens are {given}: a whole number from 8 to 512, please")
    ] = 48
    places: Annotated[
        int, Field(ge=20, le=5000), needs("the places are {given}: a whole number from 20 to 5,000, please")
    ] = 240
    temperature: Annotated[
        float, Field(gt=0, le=2), needs("the temperature is {given}: a number above 0, up to 2, please")
    ] = 1.0
    raw: bool = False
    server: SentFile | None = None


@dataclass(eq=False, kw_only=True)
class Examination(StagedTask):
    """An examination: of which part beside which model."""

    title: str
    model: str
    begin: dict[str, Any]

    def card(self) -> dict[str, Any]:
        verdict = self.report["verdict"] if self.report else ""
        return {**super().card(), "title": self.title, "model": self.model, "verdict": verdict}


class Doctor(StagedService[Examination]):
    """The view of the doctor: parts, examinations, reports."""

    name, order = "doctor", 58
    tool, about = "Drafter doctor", "Why a head or draft model has little accepted"
    cannot = "The doctor cannot"
    work, busy = "examine a part", "parts are being examined"
    expiry = "this examination is not kept any more: examine the part again"

    @get()
    def catalog(self, owner: Owner) -> dict[str, Any]:
        """The parts of the model in use, the prompt sets, and the owner's examinations, the newest first."""
        target = self.desk.loader.target
        public = self.desk.rules.public
        cards = [task.card() for task in reversed(self._tasks.all()) if task.owner == owner]
        return {
            "model": "" if target is None else target.name,
            "reason": PUBLIC if public else "" if target is not None else self.desk.reason() or "There is no model.",
            "parts": [] if target is None else [
                {"id": key, "title": capital(place.title), "kind": place.kind, "own": place.own,
                 "curve": _curve(place)}
                for key, place in _parts(target).items()
            ],
            "sets": {name: SETS[name] for name in PROMPT_SETS},
            "examinations": cards,
        }  # fmt: skip

    @post("start")
    def start(self, request: ExaminationRequest, owner: Owner) -> dict[str, Any] | Response:
        """Queue an examination; its card. Raises UserError for a part, prompts or a log that will not do."""
        if self.desk.rules.public:
            return problem(403, PUBLIC)
        target = self.desk.target()
        place = _parts(target).get(request.part)
        if place is None:
            raise UserError(f"{target.name} has no such part to examine: choose one of the list")
        server = None if request.server is None else _server(request.server)
        if isinstance(request.prompts, SentFile):
            prompt_records = sent_records(request.prompts.name, request.prompts.text, request.count)
        elif request.prompts in PROMPT_SETS:  # a page names no files of this computer
            prompt_records = records(request.prompts, request.count, toy=self.desk.toy)
        else:
            raise UserError(f"there are no prompts called {request.prompts[:60]!r}: choose of {', '.join(PROMPT_SETS)}")
        title = f"{capital(place.title)} ({'your own' if place.own else 'shipped'})"
        begin = {
            "part": str(place.folder), "title": title, "records": [asdict(record) for record in prompt_records],
            "raw": request.raw,
            "max_new_tokens": request.max_new_tokens, "places": request.places, "temperature": request.temperature,
            "server": server and [server.length, list(server.by_position)],
        }  # fmt: skip
        exam = Examination(
            id=new_id(), owner=owner, title=title, model=target.name, begin=json.loads(json.dumps(begin))
        )  # fmt: skip
        return self._queue(exam, target, lambda: {"begin": exam.begin}, (examination.advance, examination.forget))

    @get("of/{key}")
    def of(self, key: str, owner: Owner) -> dict[str, Any]:
        """An examination as far as it is, with its report where it is over. Raises Missing."""
        exam = self._tasks.find(key, owner)
        return {**exam.card(), "report": exam.report}

    @get("of/{key}/report")
    def report(self, key: str, owner: Owner, format: Literal["html", "json"] = "html") -> Response:
        """The report as a file. Raises Missing."""
        exam = self._tasks.find(key, owner)
        if exam.report is None:
            raise Missing("this examination has no report: examine the part again")
        name = f"doctor-{key}.{format}"
        if format == "json":
            return attachment(json.dumps(exam.report, ensure_ascii=False), "application/json", name)
        return attachment(doctor_page(exam.report), "text/html; charset=utf-8", name)


def _parts(target: Any) -> dict[str, Place]:
    """Parts of a target by what the page calls them: no folder is named to it."""
    from .setup import parts_of

    return {f"{'own' if place.own else 'shipped'}:{place.kind}": place for place in parts_of(target)}


def _curve(place: Place) -> dict[str, Any] | None:
    """Acceptance of a part over the tokens it saw (``learning_curve``); None where its log does not say."""
    from decoders.parts import read_part
    from decoders.study.measure.learning_curve import learning_curve

    try:
        curve = learning_curve(read_part(place.folder).training.get("log", ()))
    except UserError:
        return None
    return curve and curve.to_json()


def _server(file: SentFile) -> ServerNumbers:
    from .server import ServerNumbers

    if len(file.text) > MAX_LOG:
        raise UserError(f"this log has {len(file.text):,} characters and at most {MAX_LOG:,} are read: shorten it")
    return ServerNumbers.read(file.text.encode(), short_name(file.name))
