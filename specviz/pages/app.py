"""Opens the desk with every page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.server.library import Library
from specviz.server.limits import Rules
from specviz.server.runner import Loader, Runner
from specviz.server.store import EVERYBODY, TraceStore, home, load_folder

if TYPE_CHECKING:
    pass
from specviz.server.desk import BUNDLED, GALLERY, Desk
from specviz.server.forms import Rejected


def open_desk(
    model: str | None = None,
    trace: str | Path | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    drafter: str | None = None,
    rules: Rules | None = None,
) -> Desk:
    """A desk for the server: the gallery, what earlier servers left, and the model, which loads in the background.

    With a ``trace`` and no ``model`` nothing is loaded: for viewing only. Raises Rejected if the trace cannot be read.
    """
    store = TraceStore()
    library = Library(home() / "runs")
    load_folder(store, GALLERY, "gallery")
    if trace is not None and model is None:
        loader = Loader(None, reason="Opened for viewing only: start “python app.py” to run methods.")
    else:
        chosen = str(model) if model is not None else str(BUNDLED)

        def load() -> Any:
            from decoders import load_target
            from decoders.drafters.sps import offer_drafter

            target = load_target(chosen, device=device, dtype=dtype)
            if drafter is not None:
                offer_drafter(target, drafter)
            return target

        loader = Loader(load, name=Path(chosen).name if model is None or Path(chosen).exists() else chosen)
    desk = Desk(store, Runner(store, library), loader)
    desk.keep_to(rules or Rules())
    listing = store.listing("")
    desk.first = listing[0]["id"] if listing else ""
    if trace is not None:
        if not Path(trace).is_file():
            raise Rejected("file", f"There is no trace file {trace}.")
        desk.first = desk.open_file(Path(trace), owner=EVERYBODY)
    desk.library = library
    return desk
