"""State that methods keep from run to run, as the page shows it: the user's own, counted, and emptied."""

from __future__ import annotations

from typing import Any

from decoders import methods
from decoders.method.kept import MOST_OWNERS, Amount, PersistentState, kept_with, owned_by, owner
from specviz.places import new_id
from specviz.server.http import COOKIE

from .stubs import StubDesk, client_of, start_desk


class Rows(list[int]):
    unit = "rows"


def test_runs_are_counted_until_it_is_emptied() -> None:
    kept = PersistentState()
    for number in range(3):
        kept.of("recycling", Rows).append(number)
    kept.of("suffix", Rows)
    assert kept.amounts() == {"recycling": Amount(3, "rows", 3)}, "what is empty is left out"
    kept.of("recycling", Rows, anew=True).append(1)
    assert kept.amounts() == {"recycling": Amount(1, "rows", 1)}
    assert kept.empty("recycling") == ["recycling"] and kept.amounts() == {} and kept.empty("recycling") == []


def test_what_is_kept_belongs_to_its_owner_until_there_are_very_many() -> None:
    kept = PersistentState()
    kept.of("recycling", Rows).append(1)
    with owned_by("somebody else"):
        assert kept.sizes() == {} and kept.of("recycling", Rows) == [] and kept.empty() == ["recycling"]
    assert kept.sizes() == {"recycling": "1 rows"}
    for number in (*range(MOST_OWNERS + 1), 0):
        with owned_by(f"user {number}"):
            kept.of("recycling", Rows).append(number)
    assert kept.sizes() == {}, "of very many owners the first ones go"
    with owned_by("user 0"):  # who was dropped begins at no runs
        assert kept.amounts() == {"recycling": Amount(1, "rows", 1)}


def test_methods_that_start_warm_say_what_they_keep() -> None:
    keeping = {name for name, method in methods().items() if method.keeps}
    assert keeping == {"recycling", "suffix", "rest"}
    warm = {name for name, method in methods().items() if hasattr(method.params, "warm")}
    assert warm <= keeping


def test_a_user_sees_and_empties_only_what_is_his() -> None:
    desk = StubDesk()
    with client_of(desk) as client:
        mine, other = new_id(), new_id()

        def ask(whose: str, *empty: str) -> Any:
            client.cookies.set(COOKIE, whose)
            if empty:
                return client.post("/api/inspect/empty", json={"method": empty[0]}).json()
            return client.get("/api/inspect/kept").json()

        for whose, count in ((mine, 2), (other, 5)):
            with owned_by(whose):
                kept_with(desk.target()).of("recycling", Rows).extend(range(count))
        assert ask(mine) == {"recycling": {"count": 2, "unit": "rows", "runs": 1}}
        assert ask(mine, "recycling") == {"done": ["recycling"]}
        assert ask(mine) == {} and ask(mine, "recycling") == {"done": []}
        assert ask(other)["recycling"]["count"] == 5
        assert client.post("/api/inspect/empty", json={"method": 3}).status_code == 422


def test_the_worker_keeps_for_whom_it_works() -> None:
    """Not for whoever had the last run: work of pages is done for the owner who asks for it."""
    desk = start_desk(StubDesk())
    desk.submit_text(owner="one user")
    assert desk.on_worker(owner.get) == ""
    with owned_by("another"):
        assert desk.on_worker(owner.get) == "another"


def test_without_a_model_nothing_is_kept() -> None:
    with client_of(StubDesk(load=None)) as client:
        assert client.get("/api/inspect/kept").json() == {}
