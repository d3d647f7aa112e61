"""Runs of other servers: a prompt is sent to a vLLM, a llama.cpp or a server of their like, its acceptance is shown
while it answers, and the run arrives as any other.

The app's process connects to the address that was typed, so only the owner of an app of their own may: a server that
others use (``Rules.shared``) would let them reach what only it can (server-side request forgery).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.importers.values import clean
from decoders.trace.files import SUFFIX, load
from specviz.places import new_id
from specviz.server.bodies import Body, Id, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.forms import Refusal, TypedPrompt
from specviz.server.http import Owner, problem
from specviz.server.server_files import import_runs
from specviz.server.tasks import Task, Tasks
from specviz.words import sentence

from .client import AnswerStream, Server, ServerFault, find_server
from .watching import COUNTS, Metrics, ServerAcceptance, WatchedFolder

log = logging.getLogger(__name__)

AT_ONCE, MOST_KEPT = 4, 16  # connections that go on, and that are remembered
LOOK_S, RECORDER_S = 0.5, 20.0  # between two looks at the numbers; most seconds until a recorder's file is there
MOST_TEXT = 200_000  # characters of an answer that are shown while it arrives
MOST_RUNS = 50  # of a watched folder that arrive
FORGOTTEN = "This connection is over and forgotten: its runs are on the page Runs."
SHARED = "Only the owner of an app may connect servers: run specviz on a computer of your own."

Line = Annotated[
    str, Field(max_length=1000), needs("an address, a folder and a key are texts of at most 1,000 characters")
]
Length = Annotated[
    int, Field(ge=1, le=4096), needs("the new tokens are {given}: a whole number from 1 to 4,096, please")
]
Heat = Annotated[float, Field(ge=0, le=2), needs("the temperature is {given}: a number from 0 to 2, please")]


class PromptRequest(Body):
    """A server, and the prompt that it is sent. Without an address the recorder's folder is watched."""

    address: Line = ""
    folder: Line = ""
    key: Line = ""
    prompt: TypedPrompt = TypedPrompt()
    max_new_tokens: Length = 256
    temperature: Heat = 0.0


@dataclasses.dataclass(eq=False, kw_only=True)
class ServerConnection(Task):
    """A server that is asked, or a folder that is watched: what came of it so far. ``look`` gives its numbers, of which
    ``before`` were there at its start.
    """

    title: str
    server: Server | None = None
    stream: AnswerStream | None = None
    folder: WatchedFolder | None = None
    look: Callable[[], ServerAcceptance] = ServerAcceptance
    earlier_totals: ServerAcceptance = dataclasses.field(default_factory=ServerAcceptance)
    totals: ServerAcceptance = dataclasses.field(default_factory=ServerAcceptance)
    text: str = ""
    traces: list[str] = dataclasses.field(default_factory=list)
    note: str = ""
    problem: str = ""
    taken_files: set[str] = dataclasses.field(default_factory=set)  # names of the recorder's files that became runs

    def stop(self) -> None:
        """End it; what came until then stays."""
        self.cancel.set()
        if self.stream is not None:
            self.stream.close()

    def refresh(self) -> None:
        """Look at the numbers; a look that fails leaves those of before."""
        with contextlib.suppress(UserError):
            self.totals = self.look().since(self.earlier_totals)

    def show(self, offset: int = 0) -> dict[str, Any]:
        """For the page: the text behind ``offset`` characters, and the numbers that ``specviz watch`` shows."""
        acceptance = self.totals
        names = (*COUNTS, "mean_length", "rate", "by_position", "per_second")
        source = f"{self.server.kind}: {Path(self.server.model).name}" if self.server else "the recorder's folder"
        return {
            "id": self.id, "server": source, "text": self.text[offset:], "length": len(self.text),
            "acceptance": {name: getattr(acceptance, name) for name in names}, "traces": self.traces, "note": self.note,
            "problem": self.problem, "done": not self.goes_on,
        }  # fmt: skip


class Servers(Service):
    """Asks servers and watches recorders' folders, for the app's owner."""

    name, order = "servers", 120  # its dialog is opened beside the runs
    cannot = "A server cannot be asked to"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[ServerConnection]("ask a server", FORGOTTEN, at_once=AT_ONCE, limit=MOST_KEPT)

    def close(self) -> None:
        for connection in self._tasks.all():
            connection.stop()

    @get("of/{key}")
    def of(self, key: str, owner: Owner, after: int = 0) -> dict[str, Any]:
        """A connection as far as it went. Raises Missing."""
        return self._tasks.find(key, owner).show(max(0, after))

    @post("stop")
    def stop(self, id: Id, owner: Owner) -> dict[str, Any]:
        """End a connection; what arrived becomes a run. Raises Missing."""
        connection = self._tasks.find(id, owner)
        connection.stop()
        return connection.show()

    @post("ask")
    def ask(self, request: PromptRequest, owner: Owner) -> dict[str, Any] | Response:
        """Ask a server, or watch a folder where no address is given. Raises Refusal; UserError without an answer."""
        if self.desk.rules.is_shared:
            return problem(403, SHARED)
        folder = WatchedFolder(typed_path(request.folder.strip())) if request.folder.strip() else None
        if folder is None and not request.address.strip():
            raise Refusal("file", "Give a server's address, a recorder's folder, or both.")
        _check_room([connection for connection in self._tasks.all() if connection.goes_on])
        connection = ServerConnection(id=new_id(), owner=owner, title="a recorder's folder", folder=folder)
        if request.address.strip():
            form = request.prompt.form()
            self.desk.check_size(form, request.max_new_tokens)
            prompt, connection.title = form.messages(), form.title
            connection.server = find_server(request.address, request.key.strip())
            length, heat = request.max_new_tokens, request.temperature
            connection.stream = AnswerStream(connection.server, prompt, max_tokens=length, temperature=heat)
        connection.look = self._source(connection)
        with contextlib.suppress(UserError):
            connection.earlier_totals = connection.look().since(
                ServerAcceptance()
            )  # a copy: a folder counts on in what it gave
        self._tasks.begin(connection, self._follow, _check_room)
        return connection.show()

    def _source(self, connection: ServerConnection) -> Callable[[], ServerAcceptance]:
        """The source of its numbers: the recorder, the chunks (llama.cpp tells drafts in them), the metrics."""
        if connection.folder is not None:
            return connection.folder.look
        assert connection.server is not None and connection.stream is not None
        if connection.server.kind == "llama.cpp":
            return connection.stream.look
        metrics = Metrics(connection.server.address)
        try:
            metrics.look()
        except UserError as fault:
            connection.note = f"Its acceptance is not shown, since {fault}."
            return connection.stream.look
        return metrics.look

    # --- while it goes on ---

    def _follow(self, connection: ServerConnection) -> bool:
        """The connection's work: reads, looks, and puts the runs among the owner's."""
        begun = time.time()
        watcher = threading.Thread(target=self._watch, args=(connection, begun), name="watch a server", daemon=True)
        watcher.start()
        try:
            if connection.stream is not None:
                self._read(connection, begun)
            else:
                connection.cancel.wait()
        except Exception:
            log.exception("following a server failed")
            connection.problem = "Something went wrong here; the server's log says what."
        finally:
            connection.cancel.set()
            watcher.join()
            if connection.stream is None and connection.folder is not None:
                self._arrive(connection, begun)
            connection.refresh()
        return True

    def _watch(self, connection: ServerConnection, begun: float) -> None:
        while not connection.cancel.wait(LOOK_S):
            connection.refresh()
            if connection.stream is None:
                self._arrive(connection, begun)

    def _read(self, connection: ServerConnection, begun: float) -> None:
        """Read the stream to its end, then take the run: from the recorder where it wrote one, else from the stream."""
        assert connection.stream is not None
        try:
            for piece in connection.stream:
                if len(connection.text) < MOST_TEXT:
                    connection.text += piece
        except ServerFault as fault:
            connection.problem = sentence(fault)
        if connection.folder is not None and connection.stream.key:
            name = re.sub(r"[^A-Za-z0-9._-]", "_", connection.stream.key)[:80]
            until = time.monotonic() + RECORDER_S
            while not (paths := self._files(connection, begun, name)) and time.monotonic() < until:
                time.sleep(LOOK_S / 2)
            if paths:
                return self._keep(connection, paths[0])
            connection.note = (
                f"The recorder wrote no file of this request into {connection.folder.folder.name} within "
                f"{RECORDER_S:.0f} s "
                "(does the server's SPECVIZ_RECORD name that folder?): the run is what the stream tells."
            )
        if connection.stream.lines:
            self._keep(connection, connection.stream.file)
        elif not connection.problem:
            connection.problem = "The server answered with nothing." if not connection.stream.closed else ""

    def _arrive(self, connection: ServerConnection, begun: float) -> None:
        """Runs that a watched recorder has written since the watching began."""
        assert connection.folder is not None
        for path in self._files(connection, begun):
            if len(connection.traces) < MOST_RUNS:
                self._keep(connection, path)

    def _files(self, connection: ServerConnection, begun: float, name: str = "") -> Sequence[Path]:
        """The recorder's new files, those of a request alone where it is named; each is given once."""
        assert connection.folder is not None
        new = []
        for path in sorted(connection.folder.folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                if (
                    path.stat().st_mtime >= begun - 1
                    and f"-{name}" in path.name
                    and path.name not in connection.taken_files
                ):
                    new.append(path)
        connection.taken_files.update(path.name for path in new)
        return new

    def _keep(self, connection: ServerConnection, source: Path | bytes) -> None:
        """A run among the owner's, on disk too: no file of theirs has it."""
        try:
            trace = (
                load(source) if isinstance(source, Path) else import_runs(source, ServerFault("it cannot be read"))[0]
            )
        except ValueError as fault:  # a trace's fault, too
            connection.problem = " ".join(filter(None, (connection.problem, sentence(fault))))
            return
        trace.run.update(id=new_id(), complete=True)
        if connection.stream is not None:
            trace.run["title"] = clean(connection.title)
        if connection.problem and "imported" in trace.run:
            trace.run["imported"]["notes"].append(clean(connection.problem))
        key = self.desk.store.put(trace, kind="opened", owner=connection.owner)
        if (library := self.desk.library) is not None:
            library.finish(trace)
            if connection.owner:
                library.describe(key, owner=connection.owner)
        connection.traces.append(key)


def _check_room(going: Sequence[ServerConnection]) -> None:
    if len(going) >= AT_ONCE:
        raise Refusal("queue", f"{AT_ONCE} servers are being asked: wait for one of them, or stop it.", retry_s=5)
