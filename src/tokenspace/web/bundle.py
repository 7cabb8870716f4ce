"""The page's modules as one script, for a page that is one file.

They keep to a few forms, so that no parser is needed: imports by name from ``"./other.js"`` at the top, and
``export`` in front of a declaration. Each becomes a function of its own, so that no names meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function\*?|function\*?|const|let|class) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundled(modules: Mapping[str, str], entry: str) -> str:
    """``entry`` and all that it imports, each before who needs it. ``ValueError`` for another form.

    >>> needing = 'import { b as c } from "./b.js";\\nc();'
    >>> print(bundled({"a.js": needing, "b.js": "export const b = f;"}, "a.js"))
    "use strict";
    const modules = {};
    modules["b.js"] = (() => {
    const b = f;
    return { b };
    })();
    modules["a.js"] = (() => {
    const { b: c } = modules["b.js"];
    c();
    return {  };
    })();
    <BLANKLINE>
    """
    lines = ['"use strict";', "const modules = {};"]
    for name in _in_order(modules, entry, ()):
        lines += [f'modules["{name}"] = (() => {{', _function(name, modules[name]), "})();"]
    return "\n".join([*lines, ""])


def inline(script: str) -> str:
    """``script`` so that it can stand in an HTML script element: nothing in it ends the element.

    What would stands in strings and patterns alone, where ``\\x3c`` means the same.

    >>> inline('"</script><!--"')
    '"\\\\x3c/script>\\\\x3c!--"'
    """
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("<(?=/script|script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _in_order(modules: Mapping[str, str], name: str, importers: tuple[str, ...]) -> list[str]:
    if name in importers:
        raise ValueError(f"modules import each other in a circle: {' -> '.join([*importers, name])}")
    if name not in modules:
        raise ValueError(f"there is no module {name}, imported along {' -> '.join(importers)}")
    order: list[str] = []
    for needed in _imported(modules[name]):
        order += [each for each in _in_order(modules, needed, (*importers, name)) if each not in order]
    return [*order, name]


def _imported(source: str) -> Iterator[str]:
    return (match[2] for match in _IMPORT.finditer(source))


def _function(name: str, source: str) -> str:
    exported = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(_constants, source))
    if found := _OTHER.search(body):
        raise ValueError(f"{name} has an import or export of a form that can't be bundled: {found[0]}")
    return f"{body.rstrip()}\nreturn {{ {', '.join(exported)} }};"


def _constants(match: re.Match[str]) -> str:
    names = [part.strip().replace(" as ", ": ") for part in match[1].split(",") if part.strip()]
    return f'const {{ {", ".join(names)} }} = modules["{match[2]}"];\n'
