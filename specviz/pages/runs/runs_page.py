"""The library of runs: the list of a user's runs, their titles, tags and room, and what is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from decoders.errors import reason_of
from specviz.server.bodies import Body, Ids, PageSession, Params, Texts, needs
from specviz.server.desk import Service, get, post
from specviz.server.forms import Refusal, TypedPrompt
from specviz.server.http import Owner
from specviz.server.job import Job
from specviz.server.store import EVERYBODY, MAX_TAGS, MAX_TITLE, UnknownTrace, checked_tag


class Change(Body):
    """Changes of some runs; None leaves it as it is."""

    ids: Texts
    title: str | None = None
    keep: bool | None = None
    add: Texts | None = None
    drop: Texts | None = None


class RunRequest(Body):
    """A run that is to begin: a prompt, a method with its parameters, the run's settings."""

    prompt: Annotated[TypedPrompt, needs("the prompt is given as names and values")]
    method: Annotated[str, Field(max_length=80)]
    params: Params | None = None
    settings: Params | None = None
    session: PageSession = None


class Runs(Service):
    """The stored runs, as a user may see and change them."""

    name, order = "runs", 70
    cannot = "The library cannot"

    @get()
    def show(self, owner: Owner) -> dict[str, Any]:
        """The list, the run to open on, and the room."""
        runs = self.listing(owner)
        return {"runs": runs, "first": self.desk.first, "room": self.room(runs)}

    @post()
    def start(self, request: RunRequest, owner: Owner) -> dict[str, Any]:
        """Queue a run; ``{"run", "prompt"}``: its row of the list, its prompt's key. Raises Refusal with the place."""
        form = request.prompt.form()
        job = self.desk.submit(
            form, request.method, request.params or {}, request.settings or {}, title=request.prompt.title, owner=owner,
            session=request.session or "",
        )  # fmt: skip
        return {"run": self._live(job), "prompt": form.key}

    def _live(self, job: Job) -> dict[str, Any]:
        """The row of a run that waits or goes on."""
        return {
            "id": job.id, "title": job.title or "Untitled run", "kind": "live", "state": job.state, "method": "",
            "created": "", "mine": False,
        }  # fmt: skip

    def listing(self, owner: str) -> list[dict[str, Any]]:
        """The list that ``owner`` may see, the running ones first; ``mine``: may be changed and deleted."""
        live = [self._live(job) for job in self.desk.runner.active(owner) if owner]
        return live + [{**row, "mine": self.may_change(row["id"], owner)} for row in self.desk.store.listing(owner)]

    def room(self, runs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The store's room: of ``count`` runs ``others`` are not among a user's; and the disk's fault, if any."""
        library, usage = self.desk.library, self.desk.store.usage()
        if library is not None:
            library.save_unsaved()
        listed_runs = sum(row["kind"] not in ("gallery", "lesson", "live") for row in runs)
        return {
            **usage,
            "others": usage["count"] - listed_runs,
            "problem": library.problem if library is not None else "",
        }

    def may_change(self, key: str, owner: str) -> bool:
        """True for a run that is ``owner``'s; what belongs to everybody may be changed on a server of one's own."""
        entry = self.desk.store.entry(key)
        if entry is None or entry.kind == "gallery":
            return False
        return entry.owner == (owner or None) or (entry.owner == EVERYBODY and not self.desk.rules.is_shared)

    @post("change")
    def change(self, request: Change, owner: Owner) -> list[str]:
        """Another title, tags more or fewer, kept or not; returns the runs that were changed. Raises UserError."""
        store, library, title = self.desk.store, self.desk.library, request.title
        new_tags = [checked_tag(tag) for tag in request.add or ()]
        if title is not None:
            title = " ".join(title.split())
            if not 0 < len(title) <= MAX_TITLE:
                raise Refusal(
                    "library", f"The title has {len(title)} characters: 1 to {MAX_TITLE} are needed, give another one."
                )
        changed_ids = []
        for key in request.ids:
            entry = store.entry(key)
            if entry is None or not self.may_change(key, owner):
                continue
            tags = [tag for tag in dict.fromkeys((*entry.tags, *new_tags)) if tag not in (request.drop or ())]
            if len(tags) > MAX_TAGS:
                raise Refusal(
                    "library", f"A run has at most {MAX_TAGS} tags, and this would make {len(tags)}: remove one first."
                )
            try:
                changed_entry = store.change(key, title=title, tags=tags, keep=request.keep)
            except UnknownTrace:  # trimmed in the meantime
                continue
            if library is not None:
                if key not in library and (changed_entry.keep or changed_entry.tags or title is not None):
                    library.finish(store.get(key))
                about = {
                    "title": changed_entry.summary["title"],
                    "tags": list(changed_entry.tags),
                    "keep": changed_entry.keep,
                }
                if key in library or key in library.unsaved:
                    library.describe(key, **about, **({"owner": owner} if owner else {}))
            changed_ids.append(key)
        return changed_ids

    @post("stop")
    def stop(self, ids: Ids, owner: Owner) -> list[str]:
        """End those of the runs that wait or go on and are ``owner``'s; returns them."""
        jobs = self.desk.runner.jobs_of_owner(ids, owner)
        for job in jobs:
            self.desk.runner.cancel(job)
        return [job.id for job in jobs]

    @post("delete")
    def delete(self, ids: Ids, owner: Owner) -> list[str]:
        """Delete runs of ``owner``, their files too; returns those that are gone. Raises Refusal."""
        deleted_ids = []
        for key in ids:
            if self.may_change(key, owner):
                try:
                    if self.desk.library is not None:
                        self.desk.library.remove(key)
                except OSError as problem:
                    raise Refusal("library", f"A run's file cannot be deleted: {reason_of(problem)}.") from None
                if self.desk.store.remove(key):
                    deleted_ids.append(key)
        return deleted_ids
