"""A method's card in the registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, Protocol

from decoders.draft.needs import Needs
from decoders.draft.terms import Term
from decoders.errors import UserError
from decoders.model.target_model.target import Target
from decoders.names import UNDER
from decoders.prompt.prompt import Prompt
from decoders.trace.origins import MAIN, Origin
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser, Sampling
from decoders.verifiers.verifier import Verifier, VerifierCard

from .drafter import Drafter
from .part import Kind


@dataclass(frozen=True, slots=True)
class Parts:
    """A method's parts of one run, from which the engine is made. ``chooser`` is the verifier's."""

    prompt: Prompt
    drafter: Drafter
    verifier: Verifier
    needs: Needs
    chooser: Chooser


class PartCard(Protocol):
    """A method's trained part: ``decoders.parts.TrainedPart``."""

    @property
    def kind(self) -> Kind: ...
    @property
    def parameter(self) -> str: ...
    @property
    def offered(self) -> str: ...
    @property
    def owner(self) -> Callable[[Target, Any], Target] | None: ...

    def is_named(self, params: Any) -> bool: ...
    def missing(self, target: Target) -> str | None: ...
    def load(self, target: Target, params: Any) -> Any: ...
    def about(self, target: Target, params: Any) -> dict[str, Any]: ...


FAMILIES = ("copy", "ngram", "draft model", "heads", "")  # what methods draft with; "": something else, or nothing


@dataclass(frozen=True)
class Method:
    """A registry entry. One method, one file; nothing else has to know of it.

    ``params`` is a frozen dataclass made with ``decoders.draft.params.param``: the app's controls, ``--set`` and
    sweeps are made from it. ``bibtex`` is the paper's entry. ``family`` (of ``FAMILIES``) says what it drafts with.
    ``origins`` are those that its nodes name. ``terms``, ``node_terms`` and ``step_terms`` declare the numbers that
    it records per candidate, tree node and step. ``verifier`` makes the verifier from the parameters, the chooser
    and the stop tokens, and ``verifier_params`` names those that it alone reads. ``prompt`` may rewrite the prompt
    before anything is read. ``order`` places the method in lists. ``part`` is the trained part that it drafts with.
    ``available`` returns None, or one sentence that says what else is missing for this target and which command
    makes it (``brings`` says of parameters that they name it, so that nothing is missing); ``applies`` returns
    None, or one sentence that says what a prompt lacks. ``fallback`` gives the method, with its parameters, that
    drafts where this one does not. ``joins`` gives the methods, with their parameters, whose drafts it merges, and
    ``declares`` the origins and numbers of a run where these depend on the parameters. ``signal`` says in a clause
    by what the method finds an answer's sources, where attribution may use it. ``cold`` gives the parameters of the
    same run without what earlier runs left behind, where parameters can ask for that: no trace records it.
    ``keeps`` names what its runs leave behind for later ones, if anything (``decoders.method.kept``). ``null``: not
    a method but a model of chance, which no comparison of all methods takes in.
    """

    name: str
    title: str
    paper: str
    summary: str
    params: type
    build: Callable[[Target, Any], Drafter]
    needs: Callable[[Target, Any], Needs] = lambda target, params: Needs()
    bibtex: str = ""
    lossless: bool = True
    family: str = ""
    origins: tuple[Origin, ...] = (MAIN,)
    terms: tuple[Term, ...] = ()
    node_terms: tuple[Term, ...] = ()
    step_terms: tuple[Term, ...] = ()
    verifier: Callable[[Any, Chooser, frozenset[int]], Verifier] = lambda params, chooser, stops: MatchVerifier(chooser)
    verifier_params: tuple[str, ...] = ()
    prompt: Callable[[Target, Any, Prompt], Prompt] | None = None
    part: PartCard | None = None
    available: Callable[[Target], str | None] = lambda target: None
    brings: Callable[[Any], bool] = lambda params: False
    applies: Callable[[Prompt], str | None] = lambda prompt: None
    fallback: Callable[[Any], tuple[Method, Any] | None] = lambda params: None
    joins: Callable[[Any], Sequence[tuple[Method, Any]]] = lambda params: ()
    declares: Callable[[Any], Mapping[str, Any]] = lambda params: {}
    signal: str = ""
    cold: Callable[[Any], Any] = lambda params: params
    keeps: str = ""
    null: bool = False
    order: int = 50

    def missing(self, target: Target, params: Any = None) -> str | None:
        """A sentence on what is missing for this target and the command that makes it; None if the method can draft.
        Nothing is missing that ``params`` name.
        """
        if params is not None and (self.brings(params) or (self.part is not None and self.part.is_named(params))):
            return None
        for method, values in () if params is None else self.joins(params):
            if missing := method.missing(target, values):
                return f"{method.name}: {missing}, or choose another method than {method.name}"
        return self.available(target) or (self.part.missing(target) if self.part is not None else None)

    def for_params(self, params: Any) -> Method:
        """The card with the origins and numbers that a run with ``params`` has."""
        return replace(self, **self.declares(params))

    def part_about(self, target: Target, params: Any) -> dict[str, Any] | None:
        """A run's record of the trained part that drafts (``spectrace``: part), a fallback's too; None without one."""
        if (fallback := self.fallback(params)) is not None:
            return fallback[0].part_about(target, fallback[1])
        for method, values in self.joins(params):
            if (about := method.part_about(target, values)) is not None:
                return about
        return None if self.part is None else self.part.about(target, params)

    def parts(
        self,
        target: Target,
        params: Any,
        prompt: Prompt,
        chooser: Chooser | None = None,
        stop_ids: Collection[int] = (),
        *,
        keep_prompt: bool = False,
    ) -> Parts:
        """Make the parts of a run of this method with ``params``, whose tokens a ``chooser`` chooses (default: greedy).
        ``keep_prompt`` leaves the prompt as it is.

        Raises UserError, before any work, for what is missing for the target and what the prompt lacks.
        """
        if missing := self.missing(target, params):
            raise UserError(missing)
        for method in (self, *(method for method, _ in self.joins(params))):
            if lacking := method.applies(prompt):
                raise UserError(lacking)
        if self.prompt is not None and not keep_prompt:
            prompt = self.prompt(target, params, prompt)
        chooser = chooser or Chooser(Sampling())
        needs, drafter = self.needs(target, params), self.build(target, params)
        drafter.sample_with(chooser)
        return Parts(prompt, drafter, self.verifier(params, chooser, frozenset(stop_ids)), needs, chooser)


def under(method: Method, card: VerifierCard) -> Method:
    """The method with its drafts judged by another verifier: called ``METHOD@VERIFIER``, with the parameters of both
    but those that the method's own verifier alone reads. A method that rewrites the prompt stays as lossy as it was.
    """
    entry = _under.get((method.name, card.name))
    if entry is None or entry[:2] != (method, card):
        entry = method, card, _under_anew(method, card)
        _under[method.name, card.name] = entry
    return entry[2]


_under: dict[tuple[str, str], tuple[Method, VerifierCard, Method]] = {}  # one class of parameters of each


def judges_of(method: Method, cards: Collection[VerifierCard]) -> dict[str, bool]:
    """Verifiers that can judge a method's drafts, by name: whether its output is then lossless. One that shares a
    parameter's name with the method is left out, as ``under`` refuses it.
    """
    return {card.name: _lossless(method, card) for card in cards if not _shared_parameters(method, card)}


def _lossless(method: Method, card: VerifierCard) -> bool:
    return card.lossless and (method.lossless or method.prompt is None)


def _shared_parameters(method: Method, card: VerifierCard) -> set[str]:
    drafting = set(method.params.__dataclass_fields__) - set(method.verifier_params)
    return drafting & set(card.params.__dataclass_fields__)


def _under_anew(method: Method, card: VerifierCard) -> Method:
    method_fields, card_fields = method.params.__dataclass_fields__, card.params.__dataclass_fields__
    if twice := _shared_parameters(method, card):
        raise UserError(
            f"the verifier {card.name} and the method {method.name} both have a parameter {min(twice)!r}: the method's "
            "drafts cannot be judged by it until the verifier's is renamed"
        )
    fields: list[Any] = [
        (name, method_fields[name].type, field(default=method_fields[name].default))
        for name in method.verifier_params
        if name in method_fields and name not in card_fields
    ]  # fmt: skip
    fields += [
        (name, setting.type, field(default=setting.default, metadata=setting.metadata))
        for name, setting in card_fields.items()
    ]
    params = make_dataclass(f"{method.params.__name__}Under", fields, bases=(method.params,), frozen=True)
    params.__module__ = card.params.__module__
    terms = {term.key for term in method.node_terms}
    short, colon, tail = method.title.partition(":")
    return replace(
        method, name=f"{method.name}{UNDER}{card.name}", title=f"{short}, {card.title}{colon}{tail}", params=params,
        verifier=lambda values, chooser, stops: card.build(values, chooser, stops), verifier_params=(),
        lossless=_lossless(method, card),
        node_terms=(*method.node_terms, *(term for term in card.node_terms if term.key not in terms)),
    )  # fmt: skip
