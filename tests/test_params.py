"""Parameters: from a dataclass to controls, and from text to checked values."""

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.draft.params import Control, NoParams, controls, make_params, param

from .stubs import StubParams


@dataclass(frozen=True)
class Params(StubParams):
    heads: str | None = param(None, "Heads", "layer:head pairs.")
    warm: int = param(0, "Warm-up", "Steps before drafting.", low=0)


def test_controls_say_everything_the_app_needs():
    shown = {control.name: control for control in controls(Params)}
    assert list(shown) == ["k", "theta", "clip", "mode", "heads", "warm"]
    assert [c.kind for c in shown.values()] == ["int", "float", "bool", "choice", "str", "int"]
    assert [c.optional for c in shown.values()] == [False, True, False, False, True, False]
    assert shown["k"] == Control("k", "int", 10, "Draft length", "Tokens copied per draft.", 1, 128)
    assert shown["theta"].step == 0.05 and shown["mode"].choices == ("max", "sum")
    assert controls(NoParams) == ()


def test_defaults_and_conversions():
    assert make_params(Params, {}) == Params()
    given_ = {"k": "12", "theta": "0.5", "clip": "yes", "mode": "sum", "heads": "1:2", "warm": "3"}
    assert make_params(Params, given_) == Params(12, 0.5, True, "sum", "1:2", 3)
    assert make_params(Params, {"k": 7.0, "theta": 1, "clip": 0}) == Params(k=7, theta=1.0, clip=False)
    assert type(make_params(Params, {"k": "7.0"}).k) is int
    assert make_params(NoParams, {}) == NoParams()


@pytest.mark.parametrize("off", [None, "", "off", "None", " OFF "])
def test_optional_values_can_be_off(off: str | None):
    assert make_params(Params, {"theta": off, "heads": off}) == Params()
    with pytest.raises(ValueError, match="k needs a value: a whole number from 1 to 128"):
        make_params(Params, {"k": off})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("k", "0", "k='0' is out of range: a whole number from 1 to 128"),
        ("k", 129, "k=129 is out of range"),
        ("k", "many", "k='many' is not allowed: a whole number from 1 to 128"),
        ("k", 1.5, "k=1.5 is not allowed"),
        ("k", True, "k=True is not allowed"),
        ("k", [3], "is not allowed"),
        ("k", float("inf"), "is not allowed"),
        ("k", "nan", "is not allowed"),
        ("warm", -1, "warm=-1 is out of range: a whole number of at least 0"),
        ("theta", 1.01, "theta=1.01 is out of range: a number from -1 to 1, or 'off'"),
        ("theta", "nan", "theta='nan' is not allowed"),
        ("theta", float("inf"), "is not allowed"),
        ("clip", "perhaps", "clip='perhaps' is not allowed: true or false"),
        ("clip", 2, "clip=2 is not allowed"),
        ("mode", "mean", "mode='mean' is out of range: one of max, sum"),
        ("K", 3, "unknown parameter 'K': this method has k, theta, clip, mode, heads, warm"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_is(name: str, value: object, says: str):
    with pytest.raises(ValueError) as caught:
        make_params(Params, {name: value})
    assert says in str(caught.value)


def test_a_method_without_parameters_says_so():
    with pytest.raises(ValueError, match="this method has no parameters"):
        make_params(NoParams, {"k": 1})


@given(st.text(max_size=12), st.sampled_from(["k", "theta", "clip", "mode", "warm"]))
def test_any_text_is_a_value_or_one_sentence(text: str, name: str):
    try:
        params = make_params(Params, {name: text})
    except ValueError as fault:
        assert name in str(fault)
    else:
        assert 1 <= params.k <= 128 and params.warm >= 0 and params.mode in ("max", "sum")
        assert params.theta is None or -1 <= params.theta <= 1


def test_values_survive_their_own_text():
    """The text of a parameter in a trace or a command line gives the parameter back."""
    params = Params(k=3, theta=0.25, clip=True, mode="sum")
    shown = {control.name: str(getattr(params, control.name)) for control in controls(Params)}
    assert make_params(Params, shown) == params


def test_an_unknown_type_is_an_error_of_the_method():
    @dataclass(frozen=True)
    class Odd:
        kind: Literal["a"] = param("a", "Kind", "")

    with pytest.raises(ValueError, match="kind is to be of bool"):
        controls(Odd)


@pytest.mark.parametrize(("word", "value"), [("on", True), ("off", False), ("No", False), ("1", True), (False, False)])
def test_words_for_true_and_false(word: object, value: bool):
    assert make_params(Params, {"clip": word}).clip is value
