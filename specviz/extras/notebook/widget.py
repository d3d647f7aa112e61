"""``trace.widget()``: the inspector as an anywidget. It is the exported page in a frame of its own, so that neither it
nor the notebook disturbs the other; what is selected goes both ways as messages.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from decoders.errors import UserError
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.views import web
from specviz.views.export import POLICY, begin_script, page
from specviz.words import decimals, mark_unseen, plural

if TYPE_CHECKING:
    from anywidget import AnyWidget

ENTRY = "specviz/notebook/standalone.js"
SCRIPT = Path(__file__).with_name("widget.js")
PACKED = "@packed@"  # in the page: where the script puts what is packed
STYLE = "html { color-scheme: light; } html.dark { color-scheme: dark; } body { margin: 0; padding: 4px; }"
# the page's own words: what it unpacks goes where the modules look for it
TAKE = (
    "document.head.append(Object.assign(document.createElement('style'), { textContent: data.style })); "
    "const { trace } = data; "
    "if (trace.attention) trace.attention.weight = trace.attention.weight.map((n) => n === null ? n : n / 1000); "
    "document.getElementById('trace').textContent = JSON.stringify(trace)"
)
MISSING = (
    "The steps are drawn by the package anywidget, which this page does not have: open the notebook where it is "
    "installed, or save it with trace.show(), which keeps the whole run in the page."
)
PROB_DIGITS = 5  # decimals of the probabilities of first guesses; pages show three at most


def widget(trace: Trace, step: int = 0, height: int = 720) -> AnyWidget:
    """The widget of a run, opened at ``step`` (from 0), ``height`` pixels high. Raises UserError where anywidget is
    missing, and traitlets.TraitError for a step that the run does not have.
    """
    return _widget_class()(trace, step=step, height=height)


def pack(trace: Trace) -> bytes:
    """The modules, the style and the run, compressed, as the page reads them."""
    data = {"style": STYLE + web.styles(web.reachable(ENTRY)), "trace": _light(payload(trace))}
    document = {"imports": web.inline_map(ENTRY), "data": data}
    return gzip.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), 9, mtime=0)


def _light(document: dict[str, Any]) -> dict[str, Any]:
    """A run as the page shows it: attention in thousandths, which it turns back, guesses' probabilities rounded."""
    light = dict(document)
    if attention := document.get("attention"):
        light["attention"] = {**attention, "weight": [_thousandths(weight) for weight in attention["weight"]]}
    if guesses := document.get("guesses"):
        probs = {name: [_round_prob(p) for p in guesses[name]] for name in ("prob", "draft_prob") if name in guesses}
        light["guesses"] = {**guesses, **probs}
    return light


def _thousandths(weight: float | None) -> int | None:
    """A weight in thousandths that reads the same at two decimals (below .01 at three).

    >>> [_thousandths(weight) for weight in (0.152686, 0.0246, 0.0251, 0.025, 0.0051, None)]
    [153, 24, 26, 25, 5, None]
    """
    if weight is None:
        return None
    nearest = round(1000 * round(weight, 3))
    if nearest % 10 != 5 or weight < 0.01 or weight == nearest / 1000:
        return nearest
    return nearest - 1 if weight < nearest / 1000 else nearest + 1


def _round_prob(prob: float | None) -> float | None:
    return None if prob is None else round(prob, PROB_DIGITS)


def headline(trace: Trace) -> str:
    """A run in a sentence, for whoever sees the notebook without the widget: method, model, tokens per step."""
    method, model = trace.run["method"], (trace.run.get("model") or {}).get("name")
    per_step = (trace.run.get("metrics") or {}).get("tokens_per_step")
    rate = f": {decimals(per_step, 2)} tokens per step" if per_step else ""
    counts = f"{plural(len(trace.output_ids), 'token')} in {plural(trace.rows('steps'), 'step')}"
    source = f"{method.get('title') or method['name']} on {model or 'an unnamed model'}"
    return mark_unseen(f"{source}, {counts}{rate}.")


def script() -> str:
    """The widget's ES module, with the page that it fills in."""
    body = (
        '<main id="inspector" data-step="0"></main><script type="application/json" id="trace"></script>'
        f"<script>{begin_script(json.dumps(PACKED), 'data', TAKE, ENTRY)}</script>"
    )
    return f"const PAGE = {json.dumps(page('specviz', '', body, POLICY))};\n{SCRIPT.read_text('utf-8')}"


@cache
def _widget_class() -> Any:
    """The class, made when the first widget is: anywidget is imported then."""
    try:
        import anywidget
        import traitlets
    except ImportError as problem:
        raise UserError(
            f'trace.widget() needs the package anywidget ({problem}): pip install "specviz-drafts[widget]", or use '
            "trace.show()"
        ) from None

    class TraceWidget(anywidget.AnyWidget):
        """The inspector of one run. ``step`` counts from 0; ``token`` is the position of the selected token in the
        run's tokens; ``node`` the selected node of the step's draft, -1 for the target's own token; None: nothing is.
        """

        _esm = script()
        packed = traitlets.Bytes().tag(sync=True)
        key = traitlets.Unicode().tag(sync=True)  # of the sentence that the drawn widget hides
        height = traitlets.Int(720, min=200).tag(sync=True)
        step = traitlets.Int(0).tag(sync=True)
        token = traitlets.Int(None, allow_none=True).tag(sync=True)
        node = traitlets.Int(None, allow_none=True).tag(sync=True)

        def __init__(self, trace: Trace, **traits: Any) -> None:
            self.trace = trace
            super().__init__(packed=pack(trace), key=uuid4().hex, **traits)

        def __repr__(self) -> str:
            title = self.trace.run.get("title") or self.trace.run.get("id")
            return f"TraceWidget({title!r}, step {self.step} of {self.trace.rows('steps')})"

        def _ipython_display_(self) -> None:
            """Display two outputs: the run in a sentence, which the drawn widget hides, and the widget. A reader of the
            saved notebook who lacks anywidget, or the network that nbconvert's page needs, has the first alone.
            """
            from IPython.display import display

            sentence = f"{headline(self.trace)} {MISSING}"
            text = f'<p class="specviz-{self.key}">{escape(sentence)}</p>'
            display({"text/html": text, "text/plain": sentence}, raw=True)
            data, metadata = self._repr_mimebundle_() or ({}, {})
            display(data, metadata=metadata, raw=True)

        @traitlets.validate("step")
        def _check_step(self, proposal: Any) -> int | None:
            return _within("step", proposal.value, 0, max(0, self.trace.rows("steps") - 1))

        @traitlets.validate("token")
        def _check_token(self, proposal: Any) -> int | None:
            return _within("token", proposal.value, 0, self.trace.rows("tokens") - 1)

        @traitlets.validate("node")
        def _check_node(self, proposal: Any) -> int | None:
            return _within("node", proposal.value, -1, self.trace.tables["nodes"]["step"].count(self.step) - 1)

    def _within(name: str, value: int | None, low: int, high: int) -> int | None:
        if value is not None and not low <= value <= high:
            raise traitlets.TraitError(
                f"{name} {value} is out of range: this run has {low} to {high}, give one of those"
            )
        return value

    return TraceWidget
