"""Steps drafted again equal the recorded ones, for every method; other methods, candidates, the server."""

from __future__ import annotations

import copy
import json
import threading

import pytest

from decoders import Prompt, Sampling, methods, record, save
from decoders.drafters import verifiers
from decoders.drafters.sps import open_drafter
from decoders.errors import UserError
from decoders.method.part import kinds
from decoders.prompt.prompt import Pool
from decoders.study.judge.judge import chosen_rules, judge_steps
from decoders.study.look.run_settings import drawn_before, other_model, sampling_of
from decoders.study.look.teacher_forcing import forced_trace
from decoders.study.look.whatif import ReadRun, go_on
from decoders.trace.metrics import ranking_regret, regrets
from decoders.trace.trace import Trace
from specviz.cli import main
from specviz.pages import pages
from specviz.pages.whatif.reading import MOST_READ
from specviz.pages.whatif.whatif_page import Redraft
from specviz.server.desk import Desk
from specviz.server.loader import Loader
from specviz.server.runner import Runner

from .command import refusal
from .drafts import save_tiny_part
from .models import prompt_ids, save_model, tiny_target, tiny_tokenizer
from .recordings import step_ids
from .stubs import gallery_desk
from .tiers import matrix
from .waiting import until
from .whatifs import whatif

NEW = 14
NAMES = [name for name in methods() if name != "sps+ppd"]  # it needs a drafter of its own: see below
WORDS = "the old lamp at the station was sold to the city museum and the old lamp at the"
TABLES = ("nodes", "candidates", "probes", "targets", "guesses")
SMALL = {"depth": 2, "top_k": 3, "total_tokens": 12}
FEW = {"eagle2": SMALL, "eagle3": SMALL, "hydra": {"heads": 2}}  # among the guesses of 60 nodes some are near ties
VARIANTS = [(name, FEW.get(name, {}), None) for name in NAMES] + [
    ("sps", {"schedule": "heuristic"}, None),
    ("glide+cape", {"expansion": "beam 4"}, None),
    ("ppd", {"tree": False}, None),
    ("casd", {"delta": 0.02}, None),
    ("adapld", {"successor_on_lexical": True, "tau": -1.0}, None),
    ("lookahead", {"n": 3, "w": 5, "prompt": True}, None),
    ("pld+h", {}, Sampling(temperature=0.9, seed=4)),
    ("sps", {}, Sampling(temperature=0.9, top_k=20, seed=4)),
    ("sps", {"rule": "block"}, Sampling(temperature=0.9, top_k=20, seed=4)),
    ("ppd+typical", {}, Sampling(temperature=0.9, seed=4)),
]
FIRST = [one for one in VARIANTS if one[0] in ("pld+h", "adapld", "sps", "ppd", "eagle2") or "w" in one[1]]


@pytest.fixture(scope="module")
def target(module_home):
    made = tiny_target("qwen3")
    for kind in kinds():
        few = {"heads": 2, "draft_vocab": 64} if kind in ("medusa", "hydra") else {}  # fewer ranks are near ties
        save_tiny_part(made, kind, **few)
    return made


@pytest.fixture(scope="module")
def ranked_run(target):
    """A run with several candidates per step, read."""
    return ReadRun(target, record(target, Prompt.from_ids(prompt_ids(3)), "pld+h", {"k": 6}, max_new_tokens=24))


def equal(recorded, again):
    """True where two columns hold the same, numbers up to what one forward instead of many changes."""
    return len(recorded) == len(again) and all(
        abs(a - b) < 2e-4 if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(recorded, again, strict=True)
    )


@pytest.mark.parametrize(("name", "params", "sampling"), matrix(VARIANTS, FIRST, "the other methods"))
def test_every_step_is_drafted_again_as_recorded(target, prompt, name, params, sampling):
    """The oracle: the run's own method gives the recorded tree, verdict, ranking and numbers, at every step."""
    trace = record(target, prompt, name, params, sampling=sampling, max_new_tokens=NEW)
    read = ReadRun(target, trace)
    order = list(range(trace.rows("steps")))
    for step in order[::2] + order[1::2][::-1]:  # back and forth: nothing of one step stays for the next
        found = read.redraft(step)
        assert found.same and found.accepted == found.recorded and not found.notes, (name, step)
        assert found.emitted == tuple(step_ids(trace, step))
        for table in TABLES:
            rows = [row for row, number in enumerate(trace.tables[table]["step"]) if number == step]
            for column, values in found.trace.tables[table].items():
                if column != "step":
                    recorded = [trace.tables[table][column][row] for row in rows]
                    assert equal(recorded, values), (name, step, table, column)
    assert found.trace.run["prompt_length"] == trace.tables["steps"]["context"][found.step]
    Trace.from_json(found.trace.to_json())  # a whole trace of its own


def test_sps_by_ppd_near_the_end_of_a_run_that_ended_early(target, tmp_path, home):
    """Its drafter is named by a folder, of which a trace keeps the name alone: given anew, the drafts are the same."""
    folder = save_model(tmp_path / "drafter")
    save_tiny_part(open_drafter(target, folder), "ppd")
    given = {"drafter": folder}
    asked = Prompt.from_ids(prompt_ids(3))
    whole = record(target, asked, "sps+ppd", given, max_new_tokens=NEW, stop_ids=())
    stop = whole.output_ids[-3]
    trace = record(target, asked, "sps+ppd", given, max_new_tokens=300, stop_ids=[stop])
    assert trace.run["stop"] == "eos" and trace.run["method"]["params"]["drafter"] == "drafter"
    read = ReadRun(target, trace)
    for step in range(trace.rows("steps")):
        found = read.redraft(step, "sps+ppd", given)
        assert found.same and not found.notes, step
    with pytest.raises(ValueError, match="name one with the same tokenizer"):
        read.redraft(0)  # the path is not in the trace
    save_tiny_part(target, "drafter")
    plain = ReadRun(target, record(target, asked, "sps", given, max_new_tokens=6))
    assert "drafter = drafter, which names files" in plain.redraft(0).notes[0], "the part at hand took its place"


def test_ppd_with_two_vectors_that_watches(target, prompt, home):
    save_tiny_part(target, "ppd", vectors=2)
    trace = record(target, prompt, "ppd", {"watch": 1, "size": 24}, max_new_tokens=NEW)
    assert "joint" in trace.tables["probes"]["kind"] and trace.rows("attention")
    read = ReadRun(target, trace)
    for step in range(trace.rows("steps")):
        found = read.redraft(step)
        assert found.same, step
        rows = [row for row, number in enumerate(trace.tables["attention"]["step"]) if number == step]
        places = [(trace.tables["attention"]["node"][r], trace.tables["attention"]["position"][r]) for r in rows]
        again = found.trace.tables["attention"]
        assert set(places) == set(zip(again["node"], again["position"], strict=True))


def test_every_candidate_accepts_what_was_recorded(ranked_run):
    trace = ranked_run.trace
    c, steps = trace.tables["candidates"], trace.tables["steps"]
    losers = checked = 0
    for step in range(trace.rows("steps")):
        room = trace.run["prompt_length"] + trace.run["max_new_tokens"] - steps["context"][step] - 1
        for number, row in enumerate(ranked_run.rows("candidates", step)):
            found = ranked_run.redraft(step, candidate=number)
            assert found.accepted == min(c["would_accept"][row], room)
            assert found.trace.tables["nodes"]["source"][1:2] in ([], [c["position"][row] + 1])
            losers += not c["chosen"][row]
            checked += found.accepted > 0
    assert losers > 10 and checked > 3


def test_other_methods_and_parameters(target, ranked_run):
    """The draft is the one of that method in a run of its own that stands at the same text."""
    step = 3
    for name, params in (("adapld", {"k": 3}), ("pld", {"clip": True}), ("pld+a", {}), ("glide", {"gamma": 3})):
        found = ranked_run.redraft(step, name, params)
        own = record(target, **go_on(target, ranked_run.trace, step, name, params))
        assert found.accepted == own.tables["steps"]["accepted"][0]
        first = own.tables["steps"]["drafted"][0] + 1
        assert found.trace.tables["nodes"]["token"] == own.tables["nodes"]["token"][:first]
        assert found.trace.run["method"]["name"] == name and not found.notes
    shorter = ranked_run.redraft(step, params={"k": 2})
    assert shorter.trace.tables["steps"]["drafted"][0] == min(2, ranked_run.trace.tables["steps"]["drafted"][step])
    primed = ranked_run.redraft(step, "ppd")
    assert primed.trace.tables["steps"]["term:state"] == [3.0] and "starts as after a step" in primed.notes[0]
    assert ranked_run.redraft(0, "ppd").trace.tables["steps"]["drafted"] == [0]
    assert ranked_run.redraft(step).same, "what was tried in between left nothing behind"


def test_a_run_is_read_only_for_what_is_asked_where_it_is_long(target, ranked_run, monkeypatch):
    monkeypatch.setattr("decoders.study.look.whatif.MOST_KEPT", 10)
    found = whatif(target, ranked_run.trace, 2)
    assert found.same and found.read_ms > 0
    narrow = ReadRun(target, ranked_run.trace)
    assert narrow.bytes < ranked_run.bytes and not narrow.serves(ranked_run.needs)
    with pytest.raises(ValueError, match="too long to keep"):
        narrow.redraft(2, "pld+a")


def test_forced_sampled_and_pooled_runs(target, prompt):
    given = prompt_ids(5, 12)
    read = ReadRun(target, forced_trace(target, Prompt.from_ids(prompt_ids(3)), given, "pld+h"))
    for step in range(read.trace.rows("steps")):
        found = read.redraft(step)
        assert found.same and "was given" in found.notes[0]
    assert read.redraft(1, "adapld").emitted[0] == step_ids(read.trace, 1)[0]

    sampled = ReadRun(target, record(target, prompt, "pld", sampling=Sampling(1.0, seed=2), max_new_tokens=NEW))
    for name in ("pld+h", "plain", "adapld"):  # matched with the same draws: the run's own tokens
        found = sampled.redraft(4, name)
        output = sampled.trace.output_ids[sampled.trace.tables["steps"]["context"][4] - len(prompt.tokens) :]
        assert list(found.emitted) == output[: len(found.emitted)] and "drew its tokens" in found.notes[0]
    assert "by drawing too" in sampled.redraft(4, "sps").notes[0]
    taken, agreed = drawn_before(sampled.trace), 0
    for step in range(sampled.trace.rows("steps")):  # other verifiers judge it by the numbers that the run drew there
        again = sampled.redraft(step)
        if again.trace.rows("nodes") == 1:
            continue
        for one in judge_steps(again.trace, chosen_rules(["match"]), offset=taken[step]):
            assert one.rules["match"].open or one.rules["match"].accepted == again.accepted
            agreed += not one.rules["match"].open
    assert agreed > 2

    pool = Pool.from_text(tiny_tokenizer(), f"{WORDS}\n\n{WORDS[::-1]}", "notes")
    pooled = Prompt(prompt.tokens, prompt.segments, pool)
    trace = record(target, pooled, "casd", max_new_tokens=NEW)
    assert all(ReadRun(target, trace).redraft(step).same for step in range(trace.rows("steps")))
    trace.run["pool"]["tokens"] += 1  # as of a pool that was too long to record
    with pytest.raises(ValueError, match="only parts of notes"):
        ReadRun(target, trace).redraft(0)
    with pytest.raises(ValueError, match="another prompt"):
        sampled.redraft(0, "casd", {"compression": "3x"})


def test_other_models_are_refused(target, ranked_run):
    other = tiny_target("qwen3", seed=2)
    assert other_model(target, ranked_run.trace.run) is None
    assert "another model of that name" in str(other_model(other, ranked_run.trace.run))
    old = Trace.from_json(ranked_run.trace.to_json())
    old.run = {**old.run, "model": {k: v for k, v in old.run["model"].items() if k != "key"}}
    assert ReadRun(target, old).redraft(1).same
    assert other_model(other, old.run) is None
    with pytest.raises(ValueError, match="was made with tiny-qwen3"):
        ReadRun(other, old)  # of the same shape, but it says other things of the output
    assert "tiny-llama is loaded" in str(other_model(tiny_target("llama"), old.run))


@pytest.mark.parametrize("key", [["a"], {"a": 1}, 3])
def test_a_models_key_that_is_no_text_is_another_models(target, ranked_run, key):
    run = {**ranked_run.trace.run, "model": {**ranked_run.trace.run["model"], "key": key}}
    assert "another model of that name" in str(other_model(target, run))


@pytest.mark.parametrize("settings", [{"seed": "x"}, {"seed": 1e300}, {"temperature": "hot"}, {"top_p": None}])
def test_sampling_settings_that_are_no_numbers_are_refused(settings):
    with pytest.raises(UserError, match="settings are not numbers"):
        sampling_of({"sampling": settings})


def test_bad_questions_are_answered_in_one_sentence(target, ranked_run):
    last = ranked_run.trace.rows("steps")
    for asked, said in (
        ((last,), f"steps 1 to {last}"),
        ((0, "nonsense"), "there is no method"),
        ((0, "pld", {"k": 0}), "out of range"),
        ((0, "casd"), "needs a context"),
    ):
        with pytest.raises(ValueError, match=said):
            ranked_run.redraft(*asked)
    with pytest.raises(ValueError, match="none with the number 1000"):
        ranked_run.redraft(3, candidate=999)
    with pytest.raises(ValueError, match="cannot be cut"), ranked_run.session.at(10**6, ranked_run.needs):
        pass
    assert ranked_run.redraft(3).same


def test_regret_of_steps_adds_up(ranked_run):
    found = regrets(ranked_run.trace)
    assert sum(one.tokens for one in found) / len(found) == pytest.approx(ranking_regret(ranked_run.trace))
    assert all(one.tokens >= 0 for one in found) and any(one.tokens for one in found)
    c = ranked_run.trace.tables["candidates"]
    for one in found:
        would = [w for s, w in zip(c["step"], c["would_accept"], strict=True) if s == one.step]
        assert one.best == max(would)


# --- on a server ---


@pytest.fixture(scope="module")
def desk(target, ranked_run):
    other = Trace.from_json(copy.deepcopy(ranked_run.trace.to_json()))
    other.run["model"] = {**other.run["model"], "name": "somebody's", "key": "0" * 24}
    return gallery_desk(target, {"mine": ranked_run.trace, "theirs": other})


def ask(client, key="mine", what="draft", **given):
    return client.post(f"/api/whatif/{key}/{what}", json=given)


def test_the_server_drafts_again_and_keeps_what_it_read(client, ranked_run):
    assert client.get("/api/whatif/mine").json() == {"reason": ""}
    first = ask(client, step=2).json()
    assert first["same"] and first["read_ms"] > 0 and first["accepted"] == first["recorded"]
    second = ask(client, step=5, method="adapld", params={"k": 3}).json()
    assert second["read_ms"] == 0 and Trace.from_json(second["trace"]).run["method"]["name"] == "adapld"
    rows = ranked_run.rows("candidates", 3)
    would = [ranked_run.trace.tables["candidates"]["would_accept"][row] for row in rows]
    under = ask(client, step=5, method="adapld@relaxed", params={"k": 3}).json()  # as the rules said of that draft
    for name, answer in (("match", second), ("relaxed", under)):
        rule = second["judged"]["step"]["rules"][name]
        assert rule["accepted"] == answer["accepted"] and not rule["open"]
    assert {one["name"] for one in second["judged"]["rules"]} == verifiers().keys()
    assert ask(client, step=2, method="plain", params={}).json()["judged"] is None
    picked = ask(client, step=3, candidate=len(rows) - 1).json()
    assert picked["accepted"] == would[-1]


def test_a_run_goes_on_from_a_step_with_another_method(client, desk, ranked_run):
    told = ask(client, what="continue", step=4, method="pld", params={"k": 3}).json()
    assert "from step 5 with PLD" in told["title"]
    until(lambda: told["id"] in desk.store, "the run that goes on is stored")
    made = desk.store.get(told["id"])
    assert made.run["title"] == told["title"] and made.run["method"]["params"]["k"] == 3
    length = ranked_run.trace.tables["steps"]["context"][4]
    assert made.prompt_ids == ranked_run.trace.tables["tokens"]["id"][:length]
    assert made.output_ids == ranked_run.trace.tables["tokens"]["id"][length:], "lossless: the same text goes on"


def test_a_place_picked_by_hand_goes_on_with_the_runs_own_method(client, desk, ranked_run):
    would = ranked_run.trace.tables["candidates"]["would_accept"]
    rows = list(ranked_run.rows("candidates", 3))
    best = max(range(len(rows)), key=lambda k: would[rows[k]])
    told = ask(client, what="continue", step=3, candidate=best).json()
    own = ranked_run.trace.run["method"]
    assert "from step 4 after a place picked by hand" in told["title"]
    until(lambda: told["id"] in desk.store, "the run that goes on is stored")
    made = desk.store.get(told["id"])
    ids = ranked_run.trace.tables["tokens"]["id"]
    start = ranked_run.trace.tables["steps"]["context"][3]
    taken = start + would[rows[best]] + 1  # what the place gives, and the target's own token
    assert made.prompt_ids == ids[:taken] and made.output_ids == ids[taken:]
    assert made.run["method"]["name"] == own["name"] and made.run["method"]["params"] == own["params"]
    with pytest.raises(UserError, match="nothing is left to write"):
        go_on(ranked_run.target, ranked_run.trace, 3, own["name"], emitted=[1] * ranked_run.trace.run["max_new_tokens"])
    nobody = ask(client, what="continue", step=3)
    assert nobody.status_code == 422 and "name the method" in nobody.json()["error"].lower()


def test_what_cannot_be_asked_is_refused_with_a_sentence(client, desk, monkeypatch):
    assert "was made with somebody's" in client.get("/api/whatif/theirs").json()["reason"]
    for status, said, answer in (
        (422, "was made with somebody's", ask(client, "theirs", step=0)),
        (404, "no run called", ask(client, "nobody", step=0)),
        (422, "whole number", ask(client, step="1")),
        (422, "There is no step", ask(client, step=10_000)),
        (422, "There is no method", ask(client, step=0, method="nonsense")),
        (422, "needs a whole number", ask(client, step=0, method="pld", params={"k": -1})),
        (422, "names a file", ask(client, step=0, method="glide", params={"part": "/etc"})),
        (404, "cannot be asked", ask(client, what="dance", step=0)),
        (422, "as JSON", client.post("/api/whatif/mine/draft", data={"step": "0"})),
    ):
        assert answer.status_code == status and said in answer.json()["error"], answer.text
    monkeypatch.setattr(desk.services["whatif"], "_waiting", threading.BoundedSemaphore(1))
    desk.services["whatif"]._waiting.acquire()
    busy = ask(client, step=0)
    assert busy.status_code == 429 and "try again" in busy.json()["error"]


def test_few_runs_stay_read_and_viewers_are_told_why(client, desk, target):
    for number in range(5):
        trace = record(target, Prompt.from_ids(prompt_ids(number)), "pld", max_new_tokens=4)
        trace.run["id"] = f"more-{number}"
        desk.store.put(trace, owner="*")
        assert ask(client, f"more-{number}", step=0).json()["same"]
    assert len(desk.memory["whatif"]) == MOST_READ
    viewer = Desk(desk.store, Runner(desk.store), Loader(None, reason="Opened for viewing only."), pages=pages())
    assert viewer.services["whatif"].reason("mine") == "Opened for viewing only."
    with pytest.raises(ValueError, match="viewing only"):
        viewer.services["whatif"].redraft("mine", Redraft(step=0))


def test_the_command_drafts_again_and_lists_regret(target, ranked_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("specviz.commands.common.open_target", lambda args: target)
    path = tmp_path / "run.spectrace"
    save(ranked_run.trace, path)
    assert main(["whatif", str(path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["ranking_regret"] == pytest.approx(ranking_regret(ranked_run.trace))
    assert main(["whatif", str(path)]) == 0
    assert f"oracle: {listed['oracle']['needs']} steps, so the ranking costs " in capsys.readouterr().out
    worst = listed["steps"][0]
    assert worst["step"] >= 1 and worst["tokens"] == max(one.tokens for one in regrets(ranked_run.trace))
    assert main(["whatif", str(path), "--step", "4", "--method", "adapld", "--set", "k=3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == "adapld" and found["params"]["k"] == 3 and found["ms"] > 0
    assert main(["whatif", str(path), "--step", str(worst["step"]), "--candidate", "1"]) == 0
    assert "the same tree and verdict" in capsys.readouterr().out
    for wrong, why in (
        (("--method", "pld"), "--step is missing"),
        (("--step", 999), "--step 999 is out of range: the trace has steps 1 to "),
        (("--step", 1, "--candidate", 99), "--candidate 99 is out of range: step 1 has "),
    ):
        sentence = refusal(capsys, "whatif", path, *wrong)
        assert sentence.startswith("specviz whatif:") and why in sentence
