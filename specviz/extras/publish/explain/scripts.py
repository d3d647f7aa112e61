"""ES modules as one script for an engine that looks up no modules (QuickJS): each becomes a function of those before
it. The page's modules import each other in no circle, so a name has its value when another module takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from specviz.views import web

SPECIFIER = r"\s*[\"']([^\"']+)[\"'];?"
IMPORT = re.compile(rf"(?:^|(?<=;))import\s*(?:\*\s*as\s+(\w+)|(\w+))?\s*,?\s*(\{{[^}}]*\}})?\s*from{SPECIFIER}", re.M)
EXPORT_LIST = re.compile(rf"(?:^|(?<=[;}}]))export\s*(\{{[^}}]*\}})(?:\s*from{SPECIFIER})?;?", re.M)
EXPORT_NAME = re.compile(r"^export ((?:async )?(?:const|function\*?|class) (\w+))", re.M)
EXPORT_DEFAULT = re.compile(r"(?:^|(?<=[;}]))export default ", re.M)


def _import(match: re.Match[str]) -> str:
    whole, default, names, module = match.groups()
    target = f"modules[{json.dumps(module)}]"
    takes = ((whole, target), (default, f"{target}.default"), (names and names.replace(" as ", ": "), target))
    return "".join(f"const {name} = {value};" for name, value in takes if name)


def _export_list(match: re.Match[str]) -> str:
    """``export {a as b}``: what the module has, or another one (``from``)."""
    pairs = [entry.split(" as ") for entry in match[1].strip("{} \n").split(",") if entry.strip()]
    owner = f"modules[{json.dumps(match[2])}]." if match[2] else ""
    return "".join(f"exports.{pair[-1].strip()} = {owner}{pair[0].strip()};" for pair in pairs)


def as_function(name: str, source: str) -> str:
    """A module as a statement that fills ``modules[name]``.

    >>> print(as_function("b", "export const two = 2;"))
    modules["b"] = ((exports) => { "use strict";const two = 2;
    exports.two = two;return exports; })({});
    """
    names = EXPORT_NAME.findall(source)
    source = EXPORT_LIST.sub(_export_list, IMPORT.sub(_import, source))
    source = EXPORT_DEFAULT.sub("exports.default = ", EXPORT_NAME.sub(r"\1", source))
    assignments = "".join(f"exports.{name} = {name};" for _, name in names)
    body = f'"use strict";{source}\n{assignments}return exports;'
    return f"modules[{json.dumps(name)}] = ((exports) => {{ {body} }})({{}});"


def script_of(entries: Iterable[str]) -> str:
    """The modules that ``entries`` need, each behind those it imports, as one classic script."""
    names = dict.fromkeys(name for entry in entries for name in web.reachable(entry))
    return "const modules = {};\n" + "\n".join(as_function(name, web.modules()[name]) for name in names)
