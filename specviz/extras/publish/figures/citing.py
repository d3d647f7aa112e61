"""Texts beside a figure: its caption, the command that makes its run again, BibTeX of the method and the tool."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from decoders.model.files.catalog import NAMES, precision_of, recorded_key, shipped_key
from decoders.trace.decisions import knows_verdicts
from decoders.trace.trace import Trace
from specviz.markup import tex
from specviz.views.terms import CITATION
from specviz.words import decimal, decimals, plural

MARKS = (
    "Filled: accepted; outlined: rejected by the target; +n: not drawn one by one; double: the target's own token. "
    "p(target) and rank are the target's, after the tokens above."
)
LANES = "A filled cell is what one forward accepted; the target's own tokens are white."


def caption(trace: Trace, step: int) -> str:
    """Of a step's figure, without markup."""
    steps = trace.tables["steps"]
    drafts = "its draft is not wholly recorded"
    if knows_verdicts(trace):
        drafts = f"{plural(steps['drafted'][step], 'drafted token')}, {steps['accepted'][step]} accepted"
    subject = f"Step {step + 1} of {trace.rows('steps')} of {method_words(trace)} on {_model(trace)}"
    return f"{subject}: {drafts}. {MARKS} {_setting(trace)}"


def comparison_caption(traces: Sequence[Trace]) -> str:
    """Of a comparison's figure, without markup."""
    methods = ", ".join(method_words(trace) for trace in traces)
    return f"One prompt decoded by {methods}, on {_model(traces[0])}. {LANES} {_setting(traces[0], run=False)}"


def method_words(trace: Trace) -> str:
    """A method with the parameters that were set or came out: "PLD+ by hidden states (k = 20, layer = 20)"."""
    method = trace.run["method"]
    resolved_params = method.get("resolved")
    values = {**(method.get("params") or {}), **(resolved_params if isinstance(resolved_params, dict) else {})}
    value_text = ", ".join(
        f"{name} = {_value(value)}" for name, value in values.items() if value not in (None, False, "")
    )
    return f"{method.get('title') or method['name']}{f' ({value_text})' if value_text else ''}"


def _value(value: Any) -> str:
    return "on" if value is True else decimal(value) if isinstance(value, int | float) else str(value)


def _model(trace: Trace) -> str:
    model = trace.run.get("model") or {}
    dtype = f" ({precision_of(model)})" if model.get("dtype") else ""
    name = model.get("name") or "an unnamed model"
    return f"{'a model that is not recorded' if name == 'not recorded' else name}{dtype}"


def _setting(trace: Trace, *, run: bool = True) -> str:
    temperature = (trace.run.get("sampling") or {}).get("temperature")
    if temperature is None and "imported" in trace.run:
        way = "How the server sampled is not recorded"
    elif isinstance(temperature, int | float) and temperature:
        way = f"Sampled at temperature {decimal(float(temperature))}"
    else:
        way = "Greedy decoding"
    per_step = (trace.run.get("metrics") or {}).get("tokens_per_step")
    whole = f"; {decimals(per_step, 2)} tokens per step over the whole run" if run and per_step else ""
    return f"{way}{whole}."


def command(trace: Trace, file: str) -> str:
    """The command that makes a run again from its file, and says whether the tokens are the same."""
    model, key = trace.run.get("model") or {}, recorded_key(trace.run)
    model_name = next((name for name in NAMES if key and shipped_key(name) == key), "")
    words = [
        "specviz",
        "run",
        "--again",
        file,
        "--model",
        model_name or f"PATH_OR_ID_OF_{model.get('name') or 'THE_MODEL'}",
    ]
    load_options = [
        word for name in ("dtype", "weights") if (value := model.get(name)) for word in (f"--{name}", str(value))
    ]
    load_options += ["--engine", "compiled"] if model.get("activations") else []  # whose kernels compute otherwise
    return " ".join(map(shlex.quote, [*words, *load_options]))


def entries(traces: Sequence[Trace]) -> dict[str, str]:
    """BibTeX entries by key: each method's paper as its registry entry has it, and this tool."""
    papers = {key: text for trace in traces for key, text in _papers(str(trace.run["method"]["name"]))}
    return {**papers, "specviz": CITATION}


def _papers(method: str) -> list[tuple[str, str]]:
    """None for a method that is not registered here, and none where methods cannot be loaded (torch is missing)."""
    try:
        from decoders import methods
    except ImportError:
        return []
    entry = methods().get(method)
    text = entry.bibtex.strip() if entry else ""
    key = re.match(r"@\w+\{([^,\s]+),", text)
    return [(key[1], text)] if key else []


def latex(words: str, keys: Sequence[str], label: str) -> str:
    """The figure as LaTeX's environment, one column wide."""
    cites = f" \\cite{{{','.join(keys)}}}" if keys else ""
    return (
        "% needs \\usepackage{graphicx}; the entries are in references.bib\n"
        "\\begin{figure}\n\\centering\n\\includegraphics[width=\\columnwidth]{figure.pdf}\n"
        f"\\caption{{{tex(words)} Drawn with specviz{cites}.}}\n\\label{{fig:{label}}}\n\\end{{figure}}\n"
    )
