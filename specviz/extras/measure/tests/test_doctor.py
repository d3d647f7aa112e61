"""The drafter doctor: its chains are the drafters' own, planted faults are found, healthy parts and texts are data."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from decoders import Prompt, UserError, find_method, generate
from decoders.draft_models.forced_chain import with_settings
from decoders.model.target_model.target import Target
from decoders.names import QUICK
from decoders.parts import load_part
from decoders.prompt.files import PromptRecord
from specviz.cli import main
from specviz.extras.servers.tests.test_pasted import SERVERS
from specviz.server.backend_host import Holder
from specviz.server.http import COOKIE
from specviz.server.limits import Rules
from specviz.views import examples
from tests import recordings
from tests.command import refusal
from tests.drafts import needs_kinds, save_tiny_part
from tests.models import prompt_ids
from tests.stubs import StubDesk, client_of
from tests.waiting import WAIT_S, until, until_over

from ..doctor import examination
from ..doctor.controls import ControlOutcome, controls
from ..doctor.doctor import FAULT, Finding, Report, _record, examine, verdict
from ..doctor.forced_drafts import Drafting, PlacedDrafts, ReadText, drafts
from ..doctor.report_page import doctor_page
from ..doctor.server import ServerNumbers, compare
from ..doctor.setup import drafting_of, forms_of
from ..doctor.wirings import rewire, rewirings
from .planting import FAULTS, examine_fault, finds, is_possible

pytestmark = [pytest.mark.usefixtures("home"), needs_kinds("medusa", "eagle", "dflash")]
METHODS = {
    "dflash": ("dflash", {}), "dspark": ("dspark", {}), "dflash2": ("dflash2", {}), "mtp": ("mtp", {}),
    "peagle": ("peagle", {}),
    "eagle": ("eagle2", {"top_k": 1, "depth": 2, "total_tokens": 4}), "medusa": ("medusa", {"tree": "chain"}),
    "hydra": ("hydra", {"tree": "chain"}), "drafter": ("sps", {"gamma": 3}), "glide": ("glide", {"gamma": 3}),
}  # fmt: skip


def text_of(target: Target, drafting: Drafting, answer: int = 12) -> ReadText:
    """A prompt and an answer of a tiny target, read with all states."""
    prompt = Prompt.from_ids(prompt_ids(3, 20))
    tokens = [*prompt.tokens, *generate(target, prompt, max_new_tokens=answer, stop_ids=())]
    places = range(len(prompt.tokens) - 1, len(tokens) - drafting.depth - 1)
    return ReadText.read(target, tokens, len(prompt.tokens), range(target.shape.layers + 1), places)


@pytest.mark.parametrize("kind", METHODS)
def test_a_forced_chain_is_what_the_method_drafts(target: Target, kind: str) -> None:
    save_tiny_part(target, kind)
    name, params = METHODS[kind]
    method = find_method(name)
    drafting = Drafting(target, load_part(target, kind), depth=3)
    text = text_of(target, drafting)
    drafter, chain, memory = method.build(target, method.params(**params)), drafting.chain(), text.memory(drafting)
    for place in text.places:
        draft = drafter.propose(text.context(drafting, place + 1, memory), 3)
        tokens = list(draft.tree.tokens[1:])
        assert len(tokens) == drafting.deepest and draft.distributions is not None
        said = chain(text.context(drafting, place + 1, memory), tokens).softmax(-1)
        for node in range(len(tokens)):
            whole = draft.distributions[node]
            own = whole if len(said[node]) == len(whole) else whole[drafting.network.drafted.long()]
            torch.testing.assert_close(said[node], own.float(), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("kind, windows", [*((kind, False) for kind in METHODS), ("eagle", True)])
def test_chains_behind_several_places_are_those_behind_each(target: Target, kind: str, windows: bool) -> None:
    save_tiny_part(target, kind)
    drafting = Drafting(target, load_part(target, kind), depth=4)
    if windows:
        network = with_settings(drafting.network, windows=(8,) * drafting.network.config.layers)
        drafting = replace(drafting, network=network)
    text = text_of(target, drafting, 24)
    memory, chain = text.memory(drafting), drafting.chain()
    contexts = [text.context(drafting, place + 1, memory) for place in text.places]
    tokens = [text.tokens[place + 1 : place + 1 + drafting.deepest].tolist() for place in text.places]
    each = torch.stack([chain(*pair) for pair in zip(contexts, tokens, strict=True)])
    torch.testing.assert_close(drafting.chains()(contexts, tokens), each, atol=1e-5, rtol=1e-4)
    if kind == "eagle":
        other = [[(token + 1) % 100 for token in draft] for draft in tokens]
        assert not torch.allclose(drafting.chains()(contexts, other)[:, 1:], each[:, 1:], atol=1e-2)


def test_hits_are_counted_against_the_text(target: Target) -> None:
    save_tiny_part(target, "medusa")
    drafting = Drafting(target, load_part(target, "medusa"))
    text = text_of(target, drafting)
    made = drafts(drafting, [text])
    assert (text.choices[list(text.places)] == text.tokens[[place + 1 for place in text.places]]).all()  # its own text
    assert made.hits.shape == (len(text.places), drafting.deepest) and (made.is_own == made.hits[:, 0]).all()
    assert (made.drawn_probs <= 1).all() and (made.lengths == np.asarray(text.places) + 1).all()
    assert made.length == 1 + np.minimum.accumulate(made.hits, 1).sum(1).mean()
    assert made.by_position[0] == made.conditional[0] and made.by_position == sorted(made.by_position, reverse=True)


def test_a_drafter_that_is_the_target_itself_has_all_accepted(target: Target) -> None:
    drafting = Drafting(target, target, depth=3)
    made = drafts(drafting, [text_of(target, drafting)])
    assert made.hits.all() and made.length == 4 and not made.is_outside.any()
    np.testing.assert_allclose(made.drawn_probs, 1, atol=1e-4)
    unread = drafts(drafting.with_reads(unread=True), [text_of(target, drafting)])
    assert unread.text_logprobs.mean() < made.text_logprobs.mean()  # it needs its prompt


def test_states_are_handed_as_the_control_says(target: Target) -> None:
    save_tiny_part(target, "eagle")
    drafting = Drafting(target, load_part(target, "eagle"), depth=2)
    text, last = text_of(target, drafting), target.shape.layers
    states = {name: text.memory(one).hidden[last] for name, one in {
        "own": drafting, "before": drafting.with_reads(layers={last: last - 1}), "raw": drafting.with_reads(norm=True),
        "earlier": drafting.with_reads(shift=-1), "unread": drafting.with_reads(unread=True),
    }.items()}  # fmt: skip
    assert torch.equal(states["before"], text.states[last - 1])
    assert torch.equal(states["earlier"][1:], states["own"][:-1])
    norm: Any = target.stack.norm
    torch.testing.assert_close(norm(states["raw"]), states["own"])
    assert len(states["own"]) - len(states["unread"]) == text.start - 4
    causes = {control.cause for control in controls(drafting)}
    assert {"layer ids", "anchor", "norm", "prompt unread"} <= causes and "layer order" not in causes
    with pytest.raises(UserError, match="too short"):
        examine(drafting, [Prompt.from_ids([5, 6])], max_new_tokens=2)


@pytest.mark.parametrize("kind", METHODS)
def test_every_control_of_every_kind_of_part_drafts(target: Target, kind: str) -> None:
    save_tiny_part(target, kind)
    drafting = Drafting(target, load_part(target, kind), depth=2)
    text = text_of(target, drafting, 6)
    before = {name: tensor.clone() for name, tensor in drafting.network.state_dict().items()}
    plain = drafts(drafting, [text])
    listed = list(controls(drafting))
    assert sum(control.tensors is not None for control in listed) >= 5
    same = 0
    for control in listed:
        changed = control.build()
        tensors = changed.network.state_dict()
        assert {name: tensor.shape for name, tensor in tensors.items()} == {
            name: tensor.shape for name, tensor in before.items()
        } or control.tensors is None, control.change
        made = drafts(changed, [text])
        assert made.hits.shape == plain.hits.shape, control.change
        same += np.allclose(made.text_logprobs, plain.text_logprobs, atol=1e-7)
    if kind != "dflash2":  # whose five candidates never hold the text's tokens: all are at the lowest log-probability
        assert same < len(listed) / 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in drafting.network.state_dict().items())
    assert len({(control.cause, control.change) for control in listed}) > 0.9 * len(listed)


def test_a_rewiring_and_its_reverse_are_the_network(target: Target) -> None:
    save_tiny_part(target, "eagle3")
    network = load_part(target, "eagle3")
    twice = 0
    for wiring in rewirings(network):
        if "exchanged" in wiring.change or "transposed" in wiring.change:
            other = rewire(network, wiring.tensors())
            again = next(one for one in rewirings(other) if one.change == wiring.change)
            back = rewire(other, again.tensors()).state_dict()
            assert all(torch.equal(tensor, back[name]) for name, tensor in network.state_dict().items()), wiring.change
            twice += 1
    assert twice >= 4


def drafts_of(rate: float, places: int = 100, depth: int = 3) -> PlacedDrafts:
    """Drafts whose first token stands at a rate, and all others after it."""
    hits = np.zeros((places, depth), bool)
    hits[: round(rate * places)] = True
    flat, none = np.full(places, rate), np.zeros((places, depth))
    return PlacedDrafts(hits, none, none - 1, none - 1, none > 0, hits[:, 0], flat, flat, np.arange(places))


def test_a_server_is_compared_with_the_controls() -> None:
    broken = ControlOutcome("prompt unread", "without the prompt", 1.3, [0.1] * 3, [0.1] * 3, -1.0, -9.0)
    other = ControlOutcome("norm", "states before the norm", 1.0, [0.0] * 3, [0.0] * 3, -5.0, -20.0)
    (finding,) = compare(ServerNumbers(1.33, (0.12, 0.1, 0.09)), drafts_of(0.6), [other, broken])
    assert finding[:2] == ("fault", "server") and "prompt unread" in finding[3] and "1.33" in finding[2]
    (unknown,) = compare(ServerNumbers(1.9, (0.4, 0.3, 0.2)), drafts_of(0.6), [other, broken])
    assert unknown[3] == "no control's acceptance looks like the server's"
    assert not list(compare(ServerNumbers(2.8, (0.6, 0.6, 0.55)), drafts_of(0.6), [other, broken]))
    assert not list(compare(ServerNumbers(2.7), drafts_of(0.6), [other, broken]))


def test_a_servers_log_is_read() -> None:
    line = (
        "INFO 11-21 10:00:00 metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.50, Accepted throughput: "
        "3.0 tokens/s, Drafted throughput: 9.0 tokens/s, Accepted: 50 tokens, Drafted: 300 tokens, Per-position "
        "acceptance rate: 0.300, 0.150, 0.050, Avg Draft acceptance rate: 16.7%\n"
    )
    numbers = ServerNumbers.read(line.encode(), "vllm.log")
    assert numbers.length == pytest.approx(1.5) and numbers.by_position == pytest.approx((0.3, 0.15, 0.05))
    with pytest.raises(ValueError, match="holds nothing"):
        ServerNumbers.read(b"nothing here", "x.log")


@pytest.mark.parametrize(("name", "length"), [("vllm_bench.txt", 2.8), ("vllm_metrics.prom", 2.5), ("mlc.json", 1.7)])
def test_the_doctor_takes_every_servers_length(name: str, length: float):
    numbers = ServerNumbers.read((SERVERS / name).read_bytes(), name)
    assert numbers.length == pytest.approx(length) and numbers.by_position


def test_prompts_are_written_in_other_forms(target: Target) -> None:
    tokenizer = target.tokenizer
    records = [PromptRecord("a", turns=("Who was it?",)), PromptRecord("b", text="Say it")]
    templated = [record.prompt(tokenizer, chat=True) for record in records]
    made = forms_of(tokenizer, records, templated, raw=False)
    assert [form.cause for form in made][:2] == ["chat template", "system prompt"]
    assert [tokenizer.decode(prompt.tokens) for prompt in made[0].prompts] == ["Who was it?", "Say it"]
    talk = [PromptRecord("c", messages=(("user", "a"), ("assistant", "b"), ("user", "c")))]
    assert forms_of(tokenizer, talk, templated[:1], raw=False) == []


def test_a_part_goes_by_any_of_its_names(target: Target, tmp_path: Path) -> None:
    folder = save_tiny_part(target, "medusa", tmp_path / "mine")
    save_tiny_part(target, "eagle")
    save_tiny_part(target, "ppd")
    assert drafting_of(target, str(folder)).layers == (target.shape.layers,)
    assert drafting_of(target, "eagle").network.config.features == (target.shape.layers,)
    with pytest.raises(UserError, match="the doctor takes drafter, glide"):
        drafting_of(target, "ppd")
    with pytest.raises(UserError, match="there is no set of Hydra heads"):
        drafting_of(target, "hydra")


def test_the_report_is_a_page_of_text() -> None:
    evil = "<script>alert(1)</script>"
    one = ControlOutcome(evil, evil, 1.2, [0.2, 0.1], [0.2, 0.05], 0.3, 5.0)
    report = Report(evil, evil, 3, 30, 1.0, one, 0.2, 0.03, [one], [], [evil])
    page = doctor_page(replace(report, findings=[Finding(FAULT, evil, evil, evil, evil, 1.0)]).to_json())
    assert "<script" not in page and "&lt;script&gt;" in page and "1 fault found" in page
    assert "no fault found" in doctor_page(report.to_json()) and "default-src 'none'" in page
    doubt = Finding("note", "record", ".2 here, .5 there", evil, evil, 0.0)
    doubted = doctor_page(replace(report, findings=[doubt]).to_json())
    assert "no cause found, but .2 here, .5 there" in doubted and "no fault found" not in doubted


@pytest.mark.slow("opens the bundled target and examines a part of it")
def test_the_command_examines_and_fails_in_ci(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.extras.measure.doctor.doctor.OUTSIDE_SHARE", -1.0)  # a fault in any part
    more = ["--model", "bundled", "--part", "medusa", "--limit", "2", "--places", "6", "--max-new-tokens", "16"]
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    assert main(["doctor", *more, "--html", str(page), "--out", str(data)]) == 1
    shown = capsys.readouterr().out
    assert "1. fault: draft vocabulary" in shown and "1 fault found" in shown and "medusa beside" in shown
    report = json.loads(data.read_text("utf-8"))
    assert report["schema"] == "specdoctor/1" and report["places"] >= 6
    assert "draft vocabulary" in page.read_text("utf-8")
    assert "none" in refusal(capsys, "doctor", *more[:2], "--part", tmp_path / "none")


# --- the page


FILE = {"name": "x.jsonl", "text": "".join(f'{{"turns": ["Who was number {n}?"]}}\n' for n in range(3))}


@pytest.fixture
def client(target: Target) -> Iterator[TestClient]:
    save_tiny_part(target, "medusa")
    save_tiny_part(target, "ppd")
    desk = StubDesk(load=lambda: target, gallery=(recordings.chain(),))
    with client_of(desk) as made:
        made.cookies.set(COOKIE, "0" * 32)
        made.desk = desk
        yield made


def test_a_part_far_below_its_own_training_log_is_named() -> None:
    """160 places; .246 of the first guesses were right on held-out text (Medusa's, as shipped for SmolLM2)."""
    flat, network = np.zeros(160), SimpleNamespace(about={"training": {"top1": 0.246}})

    def findings_of(right: int, network: Any = network, beta: float = 0.0) -> list[Finding]:
        hits = (np.arange(160) < right)[:, None]
        logs, places = hits * 1.0, flat.astype(int)
        drafted = PlacedDrafts(hits, logs, logs, logs, hits & False, hits[:, 0], flat, flat + beta, places)
        return list(_record(network, drafted, 40))

    assert [finding.level for finding in findings_of(6)] == [FAULT]  # as without its first head
    assert findings_of(39) == [] and verdict(findings_of(39)) == "no fault found"  # on text like its training's
    (doubt,) = findings_of(15)  # far below it, and no cause was found: never "no fault found"
    assert doubt.level == "note" and "none of 40 controls helps" in doubt.control
    assert verdict([doubt]).startswith("no cause found, but 0.094 of its first guesses are right here, where its own ")
    drafter = SimpleNamespace(about={"training": {"acceptance": 0.9712}})  # GLIDE reading another layer
    (doubt,) = findings_of(0, drafter, 0.386)
    assert "0.386 of its first drafts are accepted (β) here, where its own training measured 0.971" in doubt.number
    assert findings_of(0, drafter, 0.95) == []
    assert findings_of(0, SimpleNamespace()) == [] and findings_of(0, SimpleNamespace(about={})) == []


def begin(client: Any, **more: Any) -> Any:
    sent = {"part": "own:medusa", "prompts": FILE, "count": 2, "max_new_tokens": 16, "places": 20, **more}
    return client.post("/api/doctor/start", json=sent)


def test_the_page_lists_parts_and_refuses_what_will_not_do(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = client.get("/api/doctor").json()
    (listed,) = shown["parts"]
    assert listed == {"id": "own:medusa", "title": "Set of Medusa heads", "kind": "medusa", "own": True, "curve": None}
    assert {"examples", "gsm8k", "mt-bench"} <= shown["sets"].keys() and shown["examinations"] == []
    for sent, words in (
        ({"part": "../medusa"}, "no such part"), ({"prompts": "/etc/passwd"}, "no prompts called '/etc/passwd'"),
        ({"count": 0}, "number of prompts is 0"), ({"server": {"name": "a.log", "text": "no"}}, "holds nothing"),
        ({"prompts": {"name": "../x.jsonl", "text": "{}"}}, "x.jsonl, line 1: none of 'turns'"),
        ({"temperature": 0.0}, "temperature is 0.0"),
    ):  # fmt: skip
        answer = begin(client, **sent)
        assert answer.status_code == 422 and words in answer.json()["error"], answer.text
    assert client.get("/api/doctor/of/none").status_code == 404
    client.desk.rules = Rules(public=True)
    assert begin(client).status_code == 403 and "own" in client.get("/api/doctor").json()["reason"]
    stages = iter([])
    monkeypatch.setattr("specviz.extras.measure.doctor.examination._begin", lambda *_: stages)
    holder = Holder(client.desk.loader.target)
    with pytest.raises(UserError, match="the model was exchanged, or its backend lost"):
        examination.advance(holder, {"key": "a"})
    with pytest.raises(AttributeError):  # an empty report: nothing of it stays
        examination.advance(holder, {"key": "a", "begin": {}})
    assert holder.memory == {examination.MEMORY: {}}


@pytest.mark.slow("examines a part with every control, twice")
def test_the_page_examines_in_the_background_and_stops(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = begin(client).json()
    over = until_over(lambda: state(client, one), "it")
    assert over["state"] == "done" and over["done"] == over["total"] > 5, over
    report = over["report"]
    assert report["part"] == "Set of Medusa heads (your own)" and report["places"] >= 20 and report["texts"] == 2
    assert {"anchor", "norm"} <= {control["cause"] for control in report["controls"]}
    page = client.get(f"/api/doctor/of/{one['id']}/report")
    assert page.headers["content-disposition"].startswith("attachment") and "<h2>Controls</h2>" in page.text
    assert client.get(f"/api/doctor/of/{one['id']}/report?format=json").json() == report
    assert client.get("/api/doctor").json()["examinations"][0]["state"] == "done"
    client.cookies.set(COOKIE, "1" * 32)  # another browser
    assert client.get(f"/api/doctor/of/{one['id']}").status_code == 404
    gate, real = threading.Event(), examination.advance

    def advance(holder: Any, asked: Any) -> Any:
        assert gate.wait(WAIT_S)
        return real(holder, asked)

    monkeypatch.setattr(examination, "advance", advance)
    two = begin(client).json()
    client.post("/api/doctor/stop", json={"id": two["id"]})
    gate.set()
    until(lambda: state(client, two)["state"] == "stopped", "it was stopped")
    assert client.get(f"/api/doctor/of/{two['id']}/report").status_code == 404
    until(lambda: client.desk.memory.get(examination.MEMORY) == {}, "nothing of it is held")


def state(client: Any, one: dict[str, Any]) -> dict[str, Any]:
    return client.get(f"/api/doctor/of/{one['id']}").json()


# --- planted faults


@pytest.fixture(scope="module")
def healthy() -> dict[str, tuple[Target, list[Prompt], Report]]:
    return {}


@pytest.mark.slow("examines the bundled target's parts with every control")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}: {fault.words}")
def test_a_planted_fault_is_found(fault: Any, healthy: dict[str, Any], tmp_path: Path) -> None:
    from decoders import load_target

    if "target" not in healthy:
        target = healthy["target"] = load_target("bundled", device="cpu")
        prompts = healthy["prompts"] = [one.record.prompt(target.tokenizer) for one in examples.examples(True)[:8]]
        healthy["answers"] = [generate(target, prompt, QUICK, max_new_tokens=40) for prompt in prompts]
    target, prompts = healthy["target"], healthy["prompts"]
    if not is_possible(fault, target):
        pytest.skip("the bundled part has no such thing: `python -m benchmarks.planting` plants it in SmolLM2's")
    # rates that a server reports are told apart at more places than a drafter's own faults need
    places = 100 if fault.kind in ("eagle", "glide") else 60
    settings: dict[str, Any] = {"answers": healthy["answers"], "places": places}
    if fault.kind not in healthy:
        healthy[fault.kind] = examine(drafting_of(target, fault.kind), prompts, part=fault.kind, **settings)
    assert not healthy[fault.kind].faults
    report = examine_fault(fault, target, prompts, healthy[fault.kind], tmp_path / "part", **settings)
    assert finds(fault, report), report.findings
