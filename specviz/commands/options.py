"""Options of commands, spelt alike in all of them; those of a dataclass come from its fields (``add_settings``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from decoders.draft.params import Control, controls
from decoders.errors import UserError
from decoders.extra import names_of
from decoders.names import AUTO, engine_names, weight_names

DEVICES = {"compiled": " (CPU)", "graph": " (CUDA)"}  # on which an engine runs
MODEL_HELP = "model folder, GGUF file, hub id, smollm2 or bundled (default: smollm2 where it is installed)"


def _type_of(kind: type, rule: str, fits: Callable[[Any], bool]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {rule}") from None
        if not fits(value):
            raise argparse.ArgumentTypeError(f"{text} is out of range: {rule}")
        return value

    return convert


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number in a range."""
    rule = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    return _type_of(int, rule, lambda value: value >= low and (high is None or value <= high))


positive = _type_of(float, "a number above 0", lambda value: 0 < value < float("inf"))


def flag(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    """An option without a value."""
    parser.add_argument(name, action="store_true", help=help)


def file(parser: argparse._ActionsContainer, name: str, help: str, metavar: str = "F", **settings: Any) -> None:
    """An option (or, without dashes, an argument) that takes a path."""
    parser.add_argument(name, type=Path, metavar=metavar, help=help, **settings)


def several(parser: argparse._ActionsContainer, name: str, metavar: str, help: str, **settings: Any) -> None:
    """An option that may be repeated; its values are listed."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=help, **settings)


def count(
    parser: argparse._ActionsContainer, name: str, help: str, default: int | None = None, *, low: int = 1,
    high: int | None = None, metavar: str = "N", **settings: Any,
) -> None:  # fmt: skip
    """An option that takes a whole number from ``low`` to ``high``; its help says the default."""
    if default is not None:
        help += f" (default: {default})"
    parser.add_argument(name, type=whole(low, high), default=default, metavar=metavar, help=help, **settings)


def add_model(
    parser: argparse.ArgumentParser, model: str = MODEL_HELP, *, dtype: bool = True, plugins: bool = True,
    weights: bool = False,
) -> None:  # fmt: skip
    """Options that say which model is loaded, and how; ``plugins``: the command takes methods, those from files too."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="PATH_OR_ID", help=model)
    group.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    if dtype:
        group.add_argument("--dtype", metavar="T", help="float32, bfloat16, float16 or float64 (default: by device)")
    if weights:
        group.add_argument("--weights", choices=weight_names(), metavar="W", help=weights_help())
    group.add_argument("--engine", choices=engine_names(), metavar="E", help=engine_help())
    count(group, "--threads", "CPU threads (default: torch's choice)", high=4096)
    if plugins:
        add_plugin(parser)


def engine_help() -> str:
    """The help of ``--engine``."""
    names = [f"{name}{DEVICES.get(name, '')}" for name in engine_names() if name != AUTO]
    first = f": {engines[0]} where it is" if (engines := names_of("engines")) else ""
    return f"how forwards run: {', '.join(names)}, or auto (default){first}"


def weights_help() -> str:
    """The help of ``--weights``."""
    default, *names = weight_names()
    if not names:
        return f"of the layers: {default}"
    fewer = f"rounded to {' or '.join(names)}, smaller and faster at few rows"
    return f"of the layers, on a CPU: {default} (default), or {fewer}"


def model_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of ``load_target`` (and the threads), as ``add_model``'s options say them."""
    names = ("device", "dtype", "engine", "weights", "threads")
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def add_plugin(parser: argparse.ArgumentParser, kind: str = "method") -> None:
    """Files with methods or verifiers of the user's own: ``specviz.cli`` names them to the registry."""
    several(parser, "--plugin", "FILE", f"a Python file with a {kind} of your own; may be repeated", type=Path)


def add_prompts(parser: argparse.ArgumentParser, limit: int) -> None:
    file(
        parser, "--prompts", "a file: JSONL or Parquet (Spec-Bench, segments, messages), or plain text; or a set: "
        "gsm8k, humaneval, mt-bench, several with commas, demo[:task,...] (default: the examples)", "FILE",
    )  # fmt: skip
    count(parser, "--limit", "read at most N prompts", limit)
    flag(parser, "--by-category", "take the prompts from each of the file's categories in turn")
    count(parser, "--max-new-tokens", "tokens per answer", 64)


def add_methods(
    parser: argparse._ActionsContainer,
    help: str = "names, or all (default)",
    *,
    is_single: bool = False,
    sets: bool = True,
) -> None:
    """``--methods`` (in old spelling ``--method``) and ``--set``; ``is_single``: only one method makes sense."""
    parser.add_argument("--methods", nargs=1 if is_single else "+", metavar="NAME", action="extend", help=help)
    alias(parser, "--method", "--methods")
    if sets:
        wide = "a parameter; of several methods K=V is for those that have it, METHOD.K=V for one; may be repeated"
        several(parser, "--set", "K=V", "a parameter of the method; may be repeated" if is_single else wide)


def alias(parser: argparse._ActionsContainer, older: str, option: str) -> None:
    """Take an option's ``older`` spelling too, which no help shows."""
    parser._option_string_actions[older] = parser._option_string_actions[option]


def add_verifier(parser: argparse._ActionsContainer, *, is_single: bool = False) -> None:
    """``--verifier``: the rule by which the methods' drafts are judged."""
    help = "judge the drafts by another rule than the method's own (specviz methods lists them)"
    several = "; of several each in turn, own: the method's"
    parser.add_argument(
        "--verifier", nargs=None if is_single else "+", metavar="NAME", help=help if is_single else help + several
    )


def under_verifiers(names: Sequence[str], verifier: str | Sequence[str] | None) -> list[str]:
    """Methods by name, each judged by each of ``--verifier``'s rules; plain decoding drafts nothing and stays as it is.

    Raises UserError for a verifier that there is not.

    >>> under_verifiers(["plain", "sps"], ["own", "block"])
    ['plain', 'sps', 'sps@block']
    """
    from decoders.drafters import find_verifier
    from decoders.names import BASELINE, UNDER

    rules = split([verifier] if isinstance(verifier, str) else verifier or ["own"])
    for rule in rules:
        if rule != "own":
            find_verifier(rule)
    return list(dict.fromkeys(
        name if rule == "own" or name == BASELINE else f"{name}{UNDER}{rule}" for name in names for rule in rules
    ))  # fmt: skip


def one_method(args: argparse.Namespace, usual: str | None = None) -> str | None:
    """The one name that ``--methods`` gives, or the ``usual`` one, under ``--verifier``. Raises UserError for more."""
    names = split(args.methods or ())
    if len(names) > 1:
        raise UserError(
            f"--methods names {' and '.join(names)}, and specviz {args.command} takes one method: leave "
            f"{'one' if len(names) == 2 else 'all but one'} out (specviz compare and specviz bench take several)"
        )
    name = names[0] if names else usual
    return under_verifiers([name], args.verifier)[0] if name and getattr(args, "verifier", None) else name


def add_prompt(parser: argparse.ArgumentParser, *, required: bool = True) -> argparse._MutuallyExclusiveGroup:
    """One prompt (``prompt_record``, with ``add_reading``); gives the group, for what may stand in its place."""
    group = parser.add_mutually_exclusive_group(required=required)
    file(group, "--prompt-file", "plain text, JSONL or a set, such as gsm8k (its first prompt, see --index)")
    group.add_argument("--prompt", metavar="TEXT", help="the prompt itself")
    return group


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Options by which one prompt is read."""
    parser.add_argument("--index", type=whole(0), default=0, metavar="N", help="which prompt of a JSONL file (from 0)")
    flag(parser, "--chat", "send plain text through the model's chat template")


def add_processors(parser: argparse._ActionsContainer) -> None:
    """``--processor``: what changes the logits by which tokens are chosen (``common.processing_options``)."""
    several(
        parser, "--processor", "NAME=VALUE", "a setting of transformers' generation config, over the model's own: "
        "repetition_penalty=1.2, bad_words_ids=[[5]], …; or FILE.py:NAME, a logits processor of your own; or none: not "
        "even those that the model's own config asks for; may be repeated",
    )  # fmt: skip


def add_grammar(parser: argparse._ActionsContainer) -> None:
    """The form that an answer must have (``common.grammar_of``)."""
    parser.add_argument("--json-schema", metavar="TEXT_OR_FILE", help="the answer is JSON of this schema")
    parser.add_argument("--regex", metavar="TEXT", help="the answer is text that this regular expression matches")
    flag(parser, "--grammar-filter", "leave out drafted tokens that the grammar forbids before they are verified")


def add_tracker(parser: argparse._ActionsContainer) -> None:
    """Options for sending numbers as they come (``specviz.views.trackers``)."""
    parser.add_argument(
        "--log-to", choices=("tensorboard", "trackio", "wandb"), help="send the numbers there, too; each is an extra"
    )


def split(names: Sequence[str]) -> list[str]:
    """Names, each once, of words that may hold several.

    >>> split(["pld,pld+h", "plain"])
    ['pld', 'pld+h', 'plain']
    """
    return list(dict.fromkeys(part for name in names for part in name.replace(",", " ").split()))


def parse_sets(pairs: Sequence[str], option: str = "--set", form: str = "name=value") -> dict[str, str]:
    """``["k=12", "theta=off"]``, given with an ``option``, as a dict. Raises UserError for another ``form``.

    >>> parse_sets(["k=12", "theta = off"])
    {'k': '12', 'theta': 'off'}
    """
    sets: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise UserError(f"{option} {pair!r} is not of the form {form}")
        if name in sets:
            raise UserError(f"{option} gives {name} twice")
        sets[name] = value
    return sets


def sets_of(pairs: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """``--set``'s parameters of each of the methods ``names``: METHOD.K=V is of one, K=V of all that have K. Raises
    UserError for a pair that is of none.

    >>> sets_of(["k=12", "pld+h.theta=off"], ["pld", "pld+h", "plain"])
    {'pld': {'k': '12'}, 'pld+h': {'k': '12', 'theta': 'off'}, 'plain': {}}
    """
    from decoders import find_method

    values: dict[str, dict[str, str]] = {name: {} for name in names}
    pairs_of = parse_sets(pairs)
    for key, value in pairs_of.items():
        method, dot, name = key.rpartition(".")
        if dot and method not in values:
            raise UserError(f"--set {key}={value} is of the method {method!r}, and these run: {', '.join(values)}")
        having = [method] if dot else [
            candidate for candidate in values
            if name in {control.name for control in controls(find_method(candidate).params)}
        ]  # fmt: skip
        if not having and len(values) > 1:
            raise UserError(f"--set {key}={value} is of no use: none of {', '.join(values)} has a parameter {name!r}")
        for owner in having or values:
            if dot or f"{owner}.{name}" not in pairs_of:  # a method's own wins
                values[owner][name] = value
    return values


# --- options of a dataclass


def add_settings(
    parser: argparse._ActionsContainer, settings: type, *names: str, but: Collection[str] = (), usual: str = "",
    defaults: Mapping[str, Any] | None = None, **helps: str,
) -> None:  # fmt: skip
    """An option for each field of a dataclass that carries its control (``decoders.draft.params.param``), or for those
    with ``names``, and none for those in ``but``: range, default and help are the field's. ``usual``: options that are
    not given are None, which stands for this; ``defaults`` and ``helps`` replace a field's.

    >>> from decoders.draft.settings import Sampling
    >>> parser = argparse.ArgumentParser()
    >>> add_settings(parser, Sampling)
    >>> settings_of(parser.parse_args(["--top-k", "5"]), Sampling)
    Sampling(temperature=0.0, top_k=5, top_p=1.0, seed=0)
    """
    for control in controls(settings):
        if (names and control.name not in names) or control.name in but:
            continue
        option = control.option or control.name
        default = (defaults or {}).get(control.name, control.default)
        help, shared = helps.get(control.name, control.help), {"dest": option, "default": default}
        if usual:
            shared["default"] = None
            help += f" (default: {usual})"
        elif default is not None and default is not False and "(default" not in help:
            help += f" (default: {default:g})" if control.kind == "float" else f" (default: {default})"
        if control.kind == "bool":
            parser.add_argument(f"--{option.replace('_', '-')}", action="store_true", help=help, **shared)
        else:
            metavar = "NAME" if control.choices else {"int": "N", "float": "X", "str": "TEXT"}[control.kind]
            parser.add_argument(
                f"--{option.replace('_', '-')}", type=_parser_of(control), metavar=metavar, help=help, **shared
            )


def settings_of(args: argparse.Namespace, settings: type, **extra_fields: Any) -> Any:
    """An instance of the dataclass from its options, and from fields that are ``extra_fields`` to the command."""
    arguments = vars(args)
    options = {control.name: control.option or control.name for control in controls(settings)}
    return settings(
        **{name: arguments[option] for name, option in options.items() if option in arguments} | extra_fields
    )


def _parser_of(control: Control) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return control.check(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem).removeprefix(f"{control.name}=")) from None

    return convert
