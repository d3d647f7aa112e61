"""Numbers, dates and names of an answer that stand in no source."""

from __future__ import annotations

import doctest

import pytest

from decoders.study.attribute import absent
from decoders.study.attribute.absent import claims
from decoders.trace.trace import Trace

from .test_attribution import trace_of

SOURCE = (
    "The Grand Hotel opened on 12 March 1911 next to the station of Marken. It had ninety rooms, 1,200 beds and about "
    "three hundred guests; Anna Visser paid 3.50 euros. Ruth Keller came in 2024-03-12."
)


def answer_trace(answer: str, source: str = SOURCE) -> Trace:
    parts = [("context", 0, [f"[1] {source}"]), ("template", -1, [" Berlin 77 "]), ("question", -1, ["What of Oslo?"])]
    return trace_of(parts, [(answer, -1)])


def absent_in(answer: str, source: str = SOURCE) -> list[str]:
    return [answer[claim.start : claim.stop] for claim in claims(answer_trace(answer, source)) if not claim.is_given]


@pytest.mark.parametrize(
    "answer",
    [
        "The Grand Hotel had 90 rooms, 1200 beds and 300 guests.",
        "It had 1 200 beds, twelve hundred in all; she paid 3.5 euros, or 3,50.",
        "It opened on March 12, 1911, that is 1911-03-12, or the 12th of March 1911.",
        "On 12 March 2024 Ms Keller came, and so did Mr Visser. Anna Visser's money was enough.",
        "Yesterday nothing happened. One of them left. Oslo is what was asked.",
        "1. Rooms\n2. Beds [2]\n",
        "```python\nclass Account:\n    Total = Sum\n```",
        "酒店于1911年开业",
    ],
)
def test_what_stands_in_the_sources_is_not_marked(answer: str) -> None:
    assert absent_in(answer) == []


@pytest.mark.parametrize(
    ("answer", "marked"),
    [
        ("It had 91 rooms and 301 guests.", ["91", "301"]),
        ("It opened on 13 March 1911.", ["13 March 1911"]),
        ("She paid 35.0 euros and five hundred pounds.", ["35.0", "five hundred"]),
        ("Anna Keller came from Berlin with Ruth Visser.", ["Anna Keller", "Berlin", "Ruth Visser"]),  # mixed-up names
        ("In the end UNESCO and NASA came. UNICEF too.", ["UNESCO", "NASA", "UNICEF"]),
        ("There were 77 of them, and [1] says so.", ["77"]),  # the template's number is none that was given
        ("It had 12% of all.", []),
    ],
)
def test_what_stands_in_no_source_is_marked(answer: str, marked: list[str]) -> None:
    assert absent_in(answer)[: len(marked) or None] == marked or (not marked and absent_in(answer) == ["12"])


def test_a_language_that_capitalises_nouns_has_no_names_here() -> None:
    source = (
        "das alte Haus stand im Wald, der Weg zum Dorf war weit, die Frau des Wirts trug einen Korb, das Kind lief " * 2
    )
    assert absent_in("Gestern kam der Bauer mit 7 Kühen aus dem Tal.", source) == ["7"]


def test_an_answer_in_another_language_has_no_names_here_but_numbers() -> None:
    german = "Das Hotel wurde 1911 eröffnet und besitzt 91 Zimmer von Anna Keller."
    assert absent_in(german) == ["91"]
    french = "L'Hôtel a ouvert en 1911, et Anna Keller a payé."
    assert absent_in(french, "L'Hôtel de Marken a ouvert en 1911. Anna Visser a payé.") == ["Anna Keller"]


def test_it_reads_a_pool_and_the_worked_examples_hold() -> None:
    trace = trace_of([("text", -1, ["x"])], [("In 1911 and 1912.", -1)], [(0, "built 1911", 0)])
    assert [claim.is_given for claim in claims(trace)] == [True, False]
    assert doctest.testmod(absent).failed == 0 and claims(trace_of([("text", -1, ["x"])], [])) == []
