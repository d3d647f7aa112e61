"""What results say of the claims of their paper, in sentences and as a verdict."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from decoders.errors import capital
from specviz.words import plural

from ..experiments import Results
from ..experiments.comparison import Claim, PaperComparison, comparisons, order
from ..experiments.findings import claim_phrases, claimed_metric, claimed_noun, findings, level_of, summary, verdict
from ..experiments.results import points
from ..experiments.shipped import SHIPPED, example
from ..experiments.wording import UNITS, phrase


def claimed(name: str, *claims: Claim) -> PaperComparison:
    return PaperComparison(name, {str(n): claim for n, claim in enumerate(claims)})


THREE = claimed("three", Claim(("PLD", "PLD+", "AdaPLD"), (1.7, 2.04, 2.27), "table 1", "tokens_per_step"))


def test_methods_are_named_from_the_highest_on() -> None:
    results = example(SHIPPED / "adapld-table1.zip")
    most = "AdaPLD has the most tokens per step of the three: 4.62, against 4.10 with PLD+ and 3.84 with PLD."
    assert findings(results, THREE)[0].text == most
    found = findings(results, comparisons(SHIPPED)["adapld-table1"])  # a speedup beside a speedup
    assert found[0].paper == "The paper: 1.70× with PLD, 2.04× with PLD+"
    assert [finding.mark for finding in found] == ["≈", "✓", "≈", "✗"]  # four prompts
    assert verdict(found) == "1 of 4 comparisons comes out in the paper's order, 1 in another, 2 are undecided"


def test_a_sentence_is_of_the_rows() -> None:
    """Other rows, other numbers, another order."""
    results = example(SHIPPED / "adapld-table1.zip")
    rows = [
        {**row, "accepted": 0.0, "tokens_per_step": 1.0} if row["series"] == "AdaPLD" else row for row in results.rows
    ]
    rows = [{**row, "tokens": row["steps"]} if row["series"] == "AdaPLD" and "steps" in row else row for row in rows]
    (first,) = findings(Results(results.about, rows), THREE)
    most = "PLD+ has the most tokens per step of the three: 4.10, against 3.84 with PLD and 1.00 with AdaPLD."
    assert first.text == most
    assert not first.alike


def test_values_along_an_axis_are_told_in_its_order_and_levels_by_their_side() -> None:
    results = example(SHIPPED / "adapld-fig1.zip")
    rising, level = findings(
        results,
        claimed(
            "adapld-fig1", Claim(("k=2", "k=32"), "<", "fig. 1", "tokens_per_step"),
            Claim(("k=2", "1"), ">", "fig. 1", "speedup"),
        ),
    )  # fmt: skip
    assert rising.text == "Tokens per step rise from 2.71 with 2 branches to 3.20 with 32."
    assert rising.paper == "The paper: it rises" and level.paper == "The paper: above 1.00×"
    assert level.text == "With 2 branches, decoding is faster than plain decoding: 2.47×."


@pytest.mark.parametrize(
    ("name", "text"),
    [("glide-fig7", "The acceptance rate is 19 % at target layer 0, 15 % at 8 and 21 % at 29."),  # it falls first
     ("adapld-fig3", "With AdaPLD, tokens per step are 2.91 at a similarity threshold of 0 and 2.71 at 0.8."),  # turns
     ("pldplus-fig5", "Tokens per step are 3.48 at hidden state 9 and 3.40 at 30."),  # 2 % of difference
     ("casd-fig3", "The time of a lookup is 0.052 ms with a pool of 1,000 tokens and 0.065 ms with 1,000,000."),  # 24 %
     ("ppd-fig10", "The accuracy of the first guess one token ahead is 26 % on chats and 23 % on code edits.")],
)  # fmt: skip
def test_a_trend_is_told_where_all_measured_places_follow_it(name: str, text: str) -> None:
    assert findings(example(SHIPPED / f"{name}.zip"), comparisons(SHIPPED)[name])[0].text == text


def test_a_trend_depends_on_places_between_the_compared_ones() -> None:
    results, claim = example(SHIPPED / "glide-fig7.zip"), comparisons(SHIPPED)["glide-fig7"].claims
    ends = claimed("glide-fig7", next(iter(claim.values())))
    between = {"4", "8", "12", "17", "21", "25"}
    rows = [row for row in results.rows if not between & {str(v) for k, v in row.items() if k.startswith("param:")}]
    assert 0 < len(rows) < len(results.rows)
    assert "rises from 19 % at target layer 0 to 21 % at 29" in findings(Results(results.about, rows), ends)[0].text


def test_what_is_the_same_everywhere_is_not_found() -> None:
    told = summary(example(SHIPPED / "adapld-table5.zip"), None)["text"]
    assert told == "Tokens in the prompt are highest on chats (178) and lowest on sums (61)."


def test_a_claim_without_runs_is_left_out_and_without_claims_the_ends_are_told() -> None:
    results = example(SHIPPED / "adapld-fig1.zip")
    missing = Claim(("k=3", "k=5"), "<", "fig. 1", "tokens_per_step")
    assert findings(results, claimed("adapld-fig1", missing)) == [] and verdict([]) == ""
    told = summary(results, None)
    assert told == {
        "text": "Tokens per step are highest with 32 branches (3.20) and lowest with 2 branches (2.71).",
        "claims": 0,
        "alike": 0,
        "open": 0,
    }


@pytest.mark.parametrize(
    ("alike", "words"),
    [("y", "Comes out in the paper's order"), ("n", "Comes out in another order than the paper"),
     ("nn", "Both comparisons come out in another"), ("yyy", "All 3 comparisons come out in the paper's"),
     ("yyn", "2 of 3 comparisons come out in the paper's"), ("o", "Undecided: the difference is not"),
     ("yno", "1 of 3 comparisons comes out in the paper's order, 1 in another, 1 is undecided"),
     ("noo", "1 of 3 comparisons comes out in another order than the paper, 2 are undecided"),
     ("ynb", "1 of 2 comparisons comes out in the paper's order"), ("b", "The paper has both orders")],
)  # fmt: skip
def test_the_verdict_counts(alike: str, words: str) -> None:
    found = findings(example(SHIPPED / "adapld-fig2.zip"), comparisons(SHIPPED)["adapld-fig2"])
    entries = [
        replace(found[0], alike=letter == "y", within_spread=letter == "o", both_orders=letter == "b")
        for letter in alike
    ]
    assert verdict(entries).startswith(words)


def test_what_its_spread_could_have_made_comes_out_neither_way() -> None:
    """2.2 ± 2.2 against 0, of four prompts: one line break of six."""
    name = "pldplus-fig2"
    results, comparison = example(SHIPPED / f"{name}.zip"), comparisons(SHIPPED)[name]
    assert verdict(findings(results, comparison)).startswith("Undecided: the difference is not known")
    counts = {"mark": "≈", "paper": "The paper: the same order.", "claims": 1, "alike": 0, "open": 1}
    assert summary(results, comparison) | {"text": ""} == {"text": "", **counts}
    (found,) = findings(results, comparison)  # the sentence, the bars and the difference are of the same numbers
    assert " is 2.2 for the copy that PLD+ chooses and 0.0 for the copy that PLD chooses." in found.text
    assert found.spread == "The difference is 2.2 ± 2.2 tokens (standard error over 6 places in 4 prompts)."
    place = ("where PLD+ copies", "line break")
    accepted = next(point for point in points(results) if (point["series"], point["x"]) == place)
    numbers = accepted["values"]["accepted_there"]
    assert (round(numbers["value"], 1), round(numbers["se"], 1)) == (2.2, 2.2)
    doubled = [
        {**row, "accepted_there": 3.0 + n / len(results.rows) if "PLD+" in row["series"] else 0.0}
        for n, row in enumerate(results.rows)
    ]
    assert verdict(findings(Results(results.about, doubled), comparison)) == "Comes out in the paper's order"


def test_two_compared_lines_are_not_the_highest_of_all() -> None:
    """A third line, Medusa with typical acceptance, is higher and not compared."""
    found = findings(example(SHIPPED / "ppd-table1.zip"), comparisons(SHIPPED)["ppd-table1"])
    assert found[1].text == "Medusa has a higher verifying time (100 ms) than PPD (51 ms)."
    assert found[2].text == "Medusa has more tokens per step (1.75) than PPD (1.59)."
    both = "The paper has both orders: 2.54 with PPD, 2.51 with Medusa (table 1, Vicuna-7B); 2.44 and 2.59 (Vicuna-13B)"
    assert found[2].paper == both and found[2].mark == "–" and found[2].source == ""
    assert found[0].spread == "It is the same on each of the 6 prompts." and found[0].mark == "✓"
    assert found[4].text == "With PPD, the size of the drafted tree is 10 tokens both with 1 prompt token and with 3."


def test_a_difference_stands_beside_its_error_in_pairs() -> None:
    """The whiskers of 21 and 17 % overlap; the pairs of the same prompts differ by more than their standard error."""
    results, comparison = example(SHIPPED / "glide-fig4.zip"), comparisons(SHIPPED)["glide-fig4"]
    paired, single = findings(results, comparison)
    assert paired.spread == "The difference is 4.1 ± 1.6 points (standard error over 4 prompts)."
    assert paired.alike and not paired.within_spread
    assert single.spread == "Too few measurements for a spread." and single.within_spread  # a training each
    memory = findings(example(SHIPPED / "ppd-fig1.zip"), comparisons(SHIPPED)["ppd-fig1"])[0]
    assert memory.spread == "" and memory.alike and not memory.within_spread  # counted, not measured
    apart = [{**row, "prompt": f"{row['prompt']} again"} if row["series"] == "GLIDE" else row for row in results.rows]
    unpaired, _ = findings(Results(results.about, apart), comparison)
    assert unpaired.within_spread and unpaired.text == paired.text
    assert unpaired.spread == "The difference is 4.1 ± 8.2 points (standard errors of different prompts, added)."


@pytest.mark.parametrize("name", comparisons(SHIPPED))
def test_every_example_result_says_what_was_found(name: str) -> None:
    """In one sentence without a word of the code, of a claim that came out as most of the verdict says."""
    comparison = comparisons(SHIPPED)[name]
    results = example(SHIPPED / f"{name}.zip")
    told, found = summary(results, comparison), findings(results, comparison)
    marks = [finding.mark for finding in found]
    assert len(found) == len(comparison.claims) == len({finding.text for finding in found})  # none stands twice
    assert told["claims"] == len(found) - marks.count("–")
    assert (told["alike"], told["open"]) == (marks.count("✓"), marks.count("≈"))
    assert not found or told["mark"] == next(mark for mark in "✓✗≈–" if mark in marks)
    assert re.search(r"\d", told["text"]) and told["text"].endswith(".") and "@ " not in told["text"]
    assert not re.search(r"_\w+=|\bof \w+:|None|nan", told["text"])


RAW = re.compile(r"=|\w_\w|\bparam:|\b(EPTs?|min_run|top-1)\b|@")


@pytest.mark.parametrize("name", comparisons(SHIPPED))
def test_no_sentence_has_a_name_of_the_code_or_a_number_without_its_unit(name: str) -> None:
    results, comparison = example(SHIPPED / f"{name}.zip"), comparisons(SHIPPED)[name]
    columns = {column for column in results.columns if "_" in column or ":" in column}
    found = findings(results, comparison)
    texts = [summary(results, comparison)["text"], comparison.sentence, verdict(found)]
    for finding in found:
        texts += [finding.text, finding.spread, finding.paper, finding.source]
    for text in texts:
        assert not RAW.search(text), text
        assert not any(re.search(rf"\b{re.escape(column)}\b", text) for column in columns), text
    for finding, claim in zip(found, comparison.claims.values(), strict=True):
        unit, noun = results.quantity(claimed_metric(claim).partition(":")[0]).unit, claimed_noun(results, claim)
        if unit not in UNITS and unit.replace("/", " per ") in noun:
            continue
        places = claim_phrases(results, claim)
        places += [phrase(results, [part], claimed_metric(claim)) for part in claim.ours[0].split(" @ ")]
        said = capital(finding.text.replace(noun, "").replace("plain decoding (1×)", ""))
        for words in sorted({words for place in places for words in (place.text, place.repeat) if words}, key=len)[
            ::-1
        ]:
            said = said.replace(words, "").replace(capital(words), "")  # what is left are the numbers of the quantity
        numbers = [re.escape(text) for text in claim.texts(results)[: 1 if level_of(claim) else None]]
        bare = rf"(?<![\d.,])({'|'.join(numbers)})(?![\d.,]*\d)(?!{re.escape(UNITS.get(unit, f' {unit}'))})"
        assert re.search(r"\d", said) and not re.search(bare, said), (finding.text, unit)


def test_a_sentence_of_few_prompts_says_of_which() -> None:
    """Its numbers are not those of a chart of all prompts."""
    for name, comparison in comparisons(SHIPPED).items():
        results = example(SHIPPED / f"{name}.zip")
        prompts = {row.get("prompt") for row in results.rows}
        tasks = {task: phrase(results, [task], "").text for row in results.rows if (task := row.get("category"))}
        for claim, finding in zip(comparison.claims.values(), findings(results, comparison), strict=True):
            parts = [{*selector.split(" @ ")} & {*tasks} for selector in claim.ours]
            for task in set().union(*parts):
                task_prompts = {row.get("prompt") for row in results.rows if row.get("category") == task}
                count = f" ({plural(len(task_prompts), 'prompt')})"
                is_shared = all(task in part for part in parts) and task_prompts < prompts
                assert tasks[task] + count * is_shared in finding.text.replace("After", "after").replace("On ", "on ")


def test_no_order_is_ruled_where_the_paper_has_both() -> None:
    """Of another model in the same column."""
    for name, comparison in comparisons(SHIPPED).items():
        columns: dict[tuple[str, str, str], dict[str, float]] = {}  # metric, place and model → line
        for series in example(SHIPPED / f"{name}.zip").about["papers"]:
            for place, number in series["points"]:
                columns.setdefault((series["metric"], str(place), series["model"]), {})[series["label"]] = number
                columns.setdefault((series["metric"], "", series["label"]), {})[str(place)] = number
        for claim in comparison.claims.values():
            rows = {key: [column.get(line) for line in claim.ours] for key, column in columns.items()}
            places = {key[:2] for key, row in rows.items() if row == [*claim.paper] and key[0] == claim.metric}
            orders = {order(row, claim.level) for key, row in rows.items() if key[:2] in places and None not in row}
            assert len(orders) < 2 or claim.contrary, (name, claim.ours, orders)
            assert not claim.contrary or order(claim.contrary, claim.level) != claim.paper_order
