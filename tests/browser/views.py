"""Every page of the app and every view that can be opened on it: for axe, for pictures, for whoever looks at them all.

``VIEWS[name](page)`` opens one from an app that ``app_to_look_at`` serves, of a page that is at that site (``NO_APP``
will do); it returns once the view is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from decoders import Prompt, load_target, record
from decoders.folders import ASSETS
from decoders.model.files.catalog import BUNDLED, model_place
from decoders.trace import files as tracefile
from specviz.places import GALLERY
from tests.stubs import gallery_desk, serving

CODE = "def area(width, height):\n    total = width * height\n    return total\n\nRename total to product.\n\ndef area("
# a transition at its end stays listed until something is drawn
DRAWN = "document.getAnimations().every((one) => !(one instanceof CSSTransition) || one.playState === 'finished')"
NO_APP = "/api/status"  # an address of the app's site at which no app starts
OPENED = "1-class-docstring-adapld"
MERGED = "library-points-composite"  # two drafters, a run of the lessons
ACCEPTANCE = ("definitions", "calibration", "judges")
REFUSED = {"error": "there is no model at no/such model: name a folder, a GGUF file or a hub id"}


@contextmanager
def app_to_look_at() -> Iterator[int]:
    """The port of an app with the gallery, runs of draft heads and blocks, and two runs that its model can redraft."""
    target = load_target(model_place(BUNDLED))
    prompt = Prompt.from_text(target.tokenizer, CODE)
    runs = {f"own-{name[:3]}": record(target, prompt, name, max_new_tokens=32) for name in ("pld+h", "plain")}
    files = sorted(GALLERY.glob("*.spectrace")) + sorted((ASSETS / "lessons").glob("toy-[bd]*.spectrace"))
    files.append(ASSETS / "lessons" / f"{MERGED}.spectrace")
    runs |= {path.stem: tracefile.load(path) for path in files}
    desk = gallery_desk(target, {OPENED: runs.pop(OPENED), **runs})
    desk.loader.pick, desk.loader.model = lambda *_: target, BUNDLED  # its picker can be opened
    with serving(desk) as port:
        yield port


def wait_drawn(page: Any, *selectors: str) -> None:
    """Waits until something is in sight and all colours are the last ones."""
    for selector in selectors:
        page.locator(f"{selector} >> visible=true").first.wait_for()
    page.wait_for_function(DRAWN)


def open_app(page: Any, query: str = "", *selectors: str) -> Any:
    """The app at an address, once it can be used."""
    page.goto(f"{page.evaluate('location.origin')}/{query and '?'}{query}")
    page.wait_for_selector("body.sv-mounted")
    page.wait_for_selector("#sv-run:not([disabled])", state="attached")
    wait_drawn(page, *selectors)
    return page


def at(query: str, *selectors: str) -> Callable[[Any], None]:
    """A view that has an address."""
    return lambda page: open_app(page, query, *selectors)


def click_through(view: Callable[[Any], Any], *steps: str) -> Callable[[Any], None]:
    """A view and what is clicked there; the last of ``steps`` is what is then in sight."""

    def go(page: Any) -> None:
        view(page)
        for step in steps[:-1]:
            page.locator(f"{step} >> visible=true").first.click()
        wait_drawn(page, steps[-1])

    return go


def press_key(view: Callable[[Any], Any], key: str, selector: str) -> Callable[[Any], None]:
    def go(page: Any) -> None:
        view(page)
        page.keyboard.press(key)
        wait_drawn(page, selector)

    return go


def panel(trace: str, name: str, selector: str, step: int = 2) -> Callable[[Any], None]:
    """A panel beside the text."""

    def go(page: Any) -> None:
        open_app(page, f"trace={trace}&step={step}", ".sv-lower [role=tab]")
        page.wait_for_function("specviz.app.whatif?.catalog || specviz.app.whatif?.reason")
        page.locator(".sv-lower [role=tab]", has_text=name).first.click()
        wait_drawn(page, selector)

    return go


def first_visit(page: Any) -> None:
    page.goto(page.evaluate("location.origin") + NO_APP)  # where no app is about to say that it was seen
    page.evaluate("localStorage.removeItem('specviz-opening')")
    open_app(page, "", ".svo:not(.svo-racing)")


def pin_node(page: Any) -> None:
    panel(OPENED, "Tree", ".sv-tree [role=button]", 8)(page)
    page.locator(".sv-tree [role=button]").nth(1).click()
    wait_drawn(page, ".sv-token-tab, .sv-lower [role=tabpanel]")


def race(page: Any) -> None:
    open_app(page, "tab=compare", ".svp-compare[data-ready]")
    page.locator("summary:has-text('Or compare recorded runs')").click()
    page.locator("button:has-text('Compare these runs')").click()
    wait_drawn(page, ".svc-results")
    page.wait_for_selector(".svp-chart[data-drawn]")


def open_of_two(name: str, selector: str) -> Callable[[Any], None]:
    """Two runs of one prompt, selected, and what is opened of them."""

    def go(page: Any) -> None:
        open_app(page, "tab=runs", ".svp-grid")
        for label in ("AdaPLD", "PLD"):
            row = f".svp-grid tr:has-text('document a class'):has(.svr-method:text-is('{label}'))"
            page.locator(f"{row} input").first.check()
        page.locator(f".svr-bar button:has-text('{name}')").click()
        wait_drawn(page, selector)

    return go


def acceptance(view: str) -> Callable[[Any], None]:
    runs = open_of_two("Acceptance", ".svd-views button")
    return click_through(runs, f"[data-view={view}]", f"[data-ready={view}] .svd-body table")


def in_narrow_window(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 820})
    inspect(page)
    page.locator("#sv-tabs .overflow-menu > button").click()
    wait_drawn(page, "#sv-tabs .overflow-dropdown button")


def answer_with(view: Callable[[Any], None], answers: Mapping[str, Any], status: int = 200) -> Callable[[Any], None]:
    """A view whose server answers these addresses so, as it does after minutes of work, or where something fails; it
    does until the page's routes are taken away.
    """

    def go(page: Any) -> None:
        for address, answer in answers.items():
            page.route(f"**/{address}", lambda route, _, json=answer: route.fulfill(json=json, status=status))
        view(page)

    return go


def load_model(page: Any) -> None:
    """The model picker while another model is being loaded."""
    status = page.request.get(f"{page.evaluate('location.origin')}/api/status").json()
    status["model"]["coming"] = {"name": "SmolLM2", "text": "Reading SmolLM2: 40%"}
    show = click_through(inspect, ".svp-pill", ".svm[open]:has(li) progress")
    answer_with(show, {"api/status": status})(page)


def refuse_prompt(page: Any) -> None:
    click_through(inspect, ".svp-edit", "#sv-mode label:has-text('Plain text')", "#sv-panel textarea")(page)
    page.locator("#sv-panel textarea >> visible=true").fill("")
    wait_drawn(page, "#sv-prompt-note.svp-error")


def offline_server(page: Any) -> None:
    VIEWS["inspect, server"](page)
    page.locator("[name=server-address]").fill("http://127.0.0.1:9")
    page.locator(".sv-connect button:has-text('Send the prompt')").click()
    wait_drawn(page, ".sv-connect-wrong")


def choose_model(selector: str) -> Callable[[Any], None]:
    def go(page: Any) -> None:
        VIEWS["inspect, model"](page)
        page.locator("#svm-typed").fill("no/such model")
        page.locator(".svm-other button").click()
        wait_drawn(page, selector)

    return go


inspect = at("", ".sv-timeline")
compare = at("tab=compare", ".svp-compare[data-ready] .sve-prompt:not(.sve-waits)")
attribution = at("tab=attribution", ".svp-attribution[data-ready]")
lesson = at("tab=lessons&lesson=3-ranking&at=2", ".sv-lesson .sv-row")

VIEWS: dict[str, Callable[[Any], None]] = {
    "inspect": inspect,
    "inspect, first visit": first_visit,
    "inspect, everything after it": click_through(first_visit, ".svo-everything", ".sv-lower"),
    "inspect, a miss": click_through(first_visit, ".svo button:has-text('a miss')", ".svo button:has-text('What if')"),
    "inspect, details": press_key(inspect, "d", ".sv-details"),
    "inspect, share": click_through(inspect, ".sv-actions [aria-haspopup=menu]", ".ui-menu"),
    "inspect, prompt": click_through(inspect, ".svp-edit", "#sv-text textarea, #sv-instruction textarea"),
    "inspect, chat": click_through(
        inspect, ".svp-edit", "#sv-mode label:has-text('Chat')", ".sve-add", ".sve-message:last-child textarea"
    ),
    "inspect, more of the prompt": click_through(inspect, ".svp-edit", "#sv-more summary", "#sv-reference textarea"),
    "inspect, form of the answer": click_through(inspect, ".svp-edit", "#sv-answer summary", "#sv-answer select"),
    "inspect, parameters": click_through(inspect, ".svp-methods", ".svf-params"),
    "inspect, server": click_through(inspect, ".svp-edit", "button:has-text('Connect a server')", ".sv-connect"),
    "inspect, help": press_key(inspect, "?", ".sv-help"),
    "inspect, presenter": press_key(inspect, "f", ".sv-presenting"),
    "inspect, model": click_through(inspect, ".svp-pill", ".svm[open]"),
    "inspect, model that loads": load_model,
    "inspect, model that is refused": answer_with(choose_model(".svm-wrong"), {"api/models/choose": REFUSED}, 400),
    "inspect, prompt that is refused": refuse_prompt,
    "inspect, run that is not there": at("trace=no-such-run", ".svp-banner[data-kind=error]"),
    "inspect, server that is offline": offline_server,
    "inspect, tabs in a narrow window": in_narrow_window,
    "inspect, verifiers": panel(OPENED, "Rules", ".svj-table"),
    "inspect, token": pin_node,
    "inspect, two drafters": at(f"trace={MERGED}&step=8", ".sv-shares"),
    "inspect, two drafters' tree": panel(MERGED, "Tree", ".sv-disc", 8),
    "inspect, candidates": panel(OPENED, "Candidates", ".sv-candidates"),
    "inspect, what if": panel("own-pld", "What if", ".svw-words"),
    "inspect, lens": panel("own-pld", "Lens", "section.sv-lens tbody"),
    "inspect, lattice": click_through(
        panel("toy-bug-dflash", "Tree", ".sv-forms"), ".sv-forms button:has-text('Lattice')", ".sv-lattice"
    ),
    "inspect, drafter": panel("toy-docstring-eagle2", "Candidates", ".sv-drafter"),
    "inspect, attention": panel("6-class-docstring-glide", "Candidates", ".sv-drafter"),
    "inspect, heads": panel("toy-docstring-medusa", "Candidates", ".sv-drafter"),
    "inspect, prompt tokens": panel("9-class-docstring-ppd", "Candidates", ".sv-prompts"),
    "inspect, lossy": at("trace=10-account-check-casd", ".sv-diff"),
    "compare": compare,
    "compare, race": race,
    "compare, more of the prompt": click_through(compare, "#svc-more summary", "#svc-reference textarea"),
    "compare, parameters": click_through(compare, "summary:has-text('Parameters')", "details[open]"),
    "compare, two outputs": click_through(compare, ".svc-outputs summary", ".svc-outputs[open] textarea"),
    "runs": at("tab=runs", ".svp-grid"),
    **{f"runs, {view}": acceptance(view) for view in ACCEPTANCE},
    "runs, difference": open_of_two("Difference", ".svr-gains"),
    "lessons": at("tab=lessons", ".svp-lessons[data-ready]"),
    "lessons, stop": lesson,
    "lessons, everything": click_through(lesson, "button:has-text('Show everything')", ".sv-lesson .sv-row"),
    "lessons, presenter": press_key(lesson, "f", ".sv-lesson.sv-presenting"),
    "attribution": attribution,
    "attribution, text": click_through(attribution, "[data-opens=own]", ".sva-own textarea"),
    "attribution, quotes": click_through(attribution, "[data-opens=quotes]", ".sva-quotes textarea"),
}  # fmt: skip
