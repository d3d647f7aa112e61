"""The widget's traits and size, and its script in Chromium: the run is shown, and what is selected goes both ways."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from typing import Any

import pytest

from decoders import load
from decoders.errors import UserError
from specviz.extras.notebook import widget as widget_module
from specviz.places import GALLERY
from tests import recordings
from tests.waiting import becomes, expect

# a notebook's side of anywidget: a model with its traits, and a place to draw
NOTEBOOK = """async ({ script, packed, state }) => {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  window.state = { ...state, packed: new DataView(bytes.buffer) };
  window.saves = 0;
  const listeners = {};
  const model = {
    get: (name) => window.state[name],
    set: (name, value) => {
      const before = window.state[name];
      window.state[name] = value;
      if (before !== value) for (const act of listeners[`change:${name}`] ?? []) act();
    },
    on: (name, act) => (listeners[name] ??= []).push(act),
    off: (name, act) => (listeners[name] = listeners[name].filter((one) => one !== act)),
    save_changes: () => window.saves++,
  };
  window.model = model;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  window.leave = widget.render({ model, el: document.body });
}"""


@pytest.fixture
def trace() -> Any:
    return recordings.tree()


def test_traits_take_what_the_run_has(trace: Any) -> None:
    traitlets = pytest.importorskip("traitlets")
    pytest.importorskip("anywidget")
    shown = trace.widget(step=3)
    assert (shown.step, shown.token, shown.node, shown.height) == (3, None, None, 720)
    shown.token, shown.node = 5, -1
    shown.token = shown.node = None
    nodes, steps = trace.tables["nodes"]["step"].count(3), trace.rows("steps")
    for name, value in {"step": steps, "token": trace.rows("tokens"), "node": nodes, "height": 10}.items():
        with pytest.raises(traitlets.TraitError):
            setattr(shown, name, value)
    with pytest.raises(traitlets.TraitError, match=f"0 to {steps - 1}"):
        trace.widget(step=-1)
    other = trace.tables["nodes"]["step"].count(4)
    shown.set_state({"step": 4, "node": other - 1, "token": 300})  # as the page tells it: at once
    assert (shown.step, shown.node, shown.token) == (4, other - 1, 300)
    assert repr(shown) in shown._repr_mimebundle_()[0]["text/plain"]


def displayed(shown: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a cell that ends with the widget has as outputs."""
    outputs = list[dict[str, Any]]()

    def display(data: dict[str, Any], metadata: dict[str, Any] | None = None, raw: bool = False) -> None:
        assert raw
        outputs.append({"output_type": "display_data", "data": data, "metadata": metadata or {}})

    monkeypatch.setattr("IPython.display.display", display)
    shown._ipython_display_()
    return outputs


def test_a_saved_page_without_a_network_has_the_run_in_a_sentence(
    page: Any, trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbconvert, embed = pytest.importorskip("nbconvert"), pytest.importorskip("ipywidgets.embed")
    nbformat = pytest.importorskip("nbformat")
    trace.run["model"]["name"] = "<img src=x onerror='window.__pwned = 1'>\u202e"
    shown = trace.widget()
    cell = nbformat.v4.new_code_cell("w", outputs=displayed(shown, monkeypatch), execution_count=1)
    state = {"version_major": 2, "version_minor": 0, "state": embed.dependency_state([shown])}
    widgets = {"application/vnd.jupyter.widget-state+json": state}
    notebook = nbformat.from_dict(nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": widgets}))
    nbformat.validate(notebook)
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    refused = list[str]()

    def refuse(route: Any) -> None:
        refused.append(route.request.url)
        route.abort()

    page.route("**/*", refuse)
    page.set_content(html)
    becomes(page, lambda: any("html-manager" in url for url in refused), True)
    text = page.locator("body").inner_text()
    rate = f"{trace.run['metrics']['tokens_per_step']:.2f} tokens per step"
    assert "onerror" in text and "⟨U+202E⟩" in text and text.count(rate) == 1 and "trace.show()" in text
    assert trace.run["method"]["title"] in text and page.evaluate("window.__pwned ?? null") is None


def test_the_drawn_widget_hides_the_sentence(page: Any, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    shown = trace.widget()
    sentence, widget = displayed(shown, monkeypatch)
    assert widget_module.headline(trace) in sentence["data"]["text/plain"] not in widget["data"]["text/plain"]
    assert widget["data"]["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    page.goto("about:blank")
    page.evaluate("html => { document.body.innerHTML = html }", sentence["data"]["text/html"])
    expect(page.get_by_text("tokens per step")).to_be_visible()
    packed = base64.b64encode(shown.packed).decode()
    state = {"step": 0, "token": None, "node": None, "height": 700}
    for key, visible in (("another", True), (shown.key, False)):
        page.evaluate(NOTEBOOK, {"script": widget_module.script(), "packed": packed, "state": {**state, "key": key}})
        expect(page.locator("p").get_by_text("tokens per step")).to_be_visible(visible=visible)
    page.evaluate("document.querySelectorAll('iframe, style').forEach((part) => part.remove())")
    expect(page.get_by_text("tokens per step")).to_be_visible()


def test_a_copied_run_weighs_less_than_400_kb() -> None:
    for trace in (recordings.chain(), recordings.tree(), recordings.ppd()):
        assert len(widget_module.pack(trace)) < 250_000
    assert len(widget_module.script()) < 8_000


def shown_share(value: float) -> float:
    """The number that the page writes for a share (``probability`` of base/numbers.js)."""
    return float(f"{value:.{3 if value < 0.01 else 2}f}")


def test_attention_is_packed_in_thousandths_that_read_the_same(page: Any) -> None:
    trace = load(GALLERY / "6-class-docstring-glide.spectrace")
    weights = trace.tables["attention"]["weight"]
    light = json.loads(gzip.decompress(widget_module.pack(trace)))["data"]["trace"]
    thousandths = light["attention"]["weight"]
    assert len(thousandths) == len(weights) > 1000 and all(isinstance(weight, int) for weight in thousandths)
    assert [shown_share(n / 1000) for n in thousandths] == [shown_share(weight) for weight in weights]
    for name in ("prob", "draft_prob"):
        assert light["guesses"][name] == pytest.approx(trace.tables["guesses"][name], abs=5.1e-6, rel=0)
    page.goto("about:blank")
    packed = base64.b64encode(widget_module.pack(trace)).decode()
    state = {"step": 2, "token": None, "node": None, "height": 700}
    page.evaluate(NOTEBOOK, {"script": widget_module.script(), "packed": packed, "state": state})
    page.frame_locator("iframe").locator(".sv-row").first.wait_for()
    read = page.frames[1].evaluate("specviz.inspector.model.trace.attention.weight")
    assert read == pytest.approx(weights, abs=0.001001)


def test_without_anywidget_a_sentence_says_what_to_install(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    widget_module._widget_class.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(UserError, match="specviz-drafts\\[widget\\]"):
        trace.widget()


def test_programs_that_import_decoders_alone_have_the_widget() -> None:
    code = (
        "from decoders.trace.trace import Trace; import sys; "
        "print('anywidget' in sys.modules, 'torch' in sys.modules, 'specviz' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "False", "False"]


def test_what_is_selected_goes_both_ways(page: Any, trace: Any) -> None:
    page.goto("about:blank")
    packed = base64.b64encode(widget_module.pack(trace)).decode()
    state = {"step": 2, "token": None, "node": None, "height": 700}
    page.evaluate(NOTEBOOK, {"script": widget_module.script(), "packed": packed, "state": state})
    frame = page.frame_locator("iframe")
    expect(frame.locator(".sv-counter")).to_contain_text("3")
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-downloads"

    def traits() -> list[Any]:
        return page.evaluate("['step', 'token', 'node'].map((name) => window.state[name])")

    # from the page: a step, a token, which brings its step and its node
    frame.locator(".sv-row").first.wait_for()
    frame.get_by_role("button", name="Next step").click()
    becomes(page, lambda: traits()[0], 3)
    position = next(p for p, kind in enumerate(trace.tables["tokens"]["kind"]) if kind == "accepted")
    step = trace.tables["tokens"]["step"][position]
    frame.locator(f".sv-t[data-p='{position}']").first.click()
    becomes(page, lambda: traits()[:2], [step, position])
    node = traits()[2]
    assert (
        trace.tables["nodes"]["token"][trace.tables["nodes"]["step"].index(step) + node]
        == (trace.tables["tokens"]["id"][position])
    )

    # from Python: each trait by itself
    page.evaluate("window.model.set('step', 5)")
    becomes(page, traits, [5, None, None])
    expect(frame.locator(".sv-counter")).to_contain_text("6")
    page.evaluate("window.model.set('node', 1)")
    becomes(page, lambda: [traits()[0], traits()[2]], [5, 1])
    page.evaluate("window.model.set('node', null)")
    becomes(page, traits, [5, None, None])
    page.evaluate("(token) => window.model.set('token', token)", position)
    becomes(page, traits, [step, position, node])
    expect(frame.locator(f".sv-t.sv-selected[data-p='{position}']")).to_have_count(1)
    assert page.evaluate("window.saves") > 3

    # other windows' messages are nobody's business here
    page.evaluate("window.postMessage({ specviz: { selected: { step: 0, token: 1, node: 1 } } }, '*')")
    page.evaluate("window.model.set('height', 400)")
    becomes(page, lambda: page.locator("iframe").bounding_box()["height"], 400)
    assert traits() == [step, position, node]
    page.evaluate("window.leave()")


def test_a_hostile_run_runs_nothing(page: Any) -> None:
    page.goto("about:blank")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")  # a dark notebook
    packed = base64.b64encode(widget_module.pack(recordings.nasty())).decode()
    state = {"step": 0, "token": None, "node": None, "height": 700}
    page.evaluate(NOTEBOOK, {"script": widget_module.script(), "packed": packed, "state": state})
    page.frame_locator("iframe").locator(".sv-row").first.wait_for()
    expect(page.frame_locator("iframe").locator("html.dark")).to_have_count(1)
    page.frame_locator("iframe").get_by_role("button", name="Share").click()  # its frame has no address
    expect(page.frame_locator("iframe").get_by_role("menuitem").first).to_contain_text("More files")
    assert [frame.evaluate("window.__pwned ?? null") for frame in page.frames] == [None, None]
