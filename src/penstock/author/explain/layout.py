"""Python source text: names, imports, calls, quotes, types. Called by the other modules of this package."""

from __future__ import annotations

import keyword
import re

from penstock.expressions.types import Type

WIDTH = 110
_PYTHON_TYPES = {"int": "int", "float": "float", "str": "str", "bool": "bool"}


class Imports:
    """What the text imports."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {"penstock": {"Workflow"}}
        self._modules: set[str] = set()

    def use(self, name: str, module: str = "penstock") -> str:
        """`from module import name`. Returns the name."""
        self._names.setdefault(module, set()).add(name)
        return name

    def use_module(self, module: str) -> None:
        self._modules.add(module)

    def text(self) -> str:
        lines = [f"import {module}" for module in sorted(self._modules)]
        lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._names.items())]
        return "\n".join(lines)


class VariableNames:
    """Names of variables, each given out once. `taken`: names that are in use already."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def new(self, name: str) -> str:
        base = re.sub(r"\W", "_", name)
        base = f"_{base}" if not base or base[0].isdigit() or keyword.iskeyword(base) else base
        found, number = base, 2
        while found in self._taken:
            found, number = f"{base}_{number}", number + 1
        self._taken.add(found)
        return found


def call(head: str, args: list[str], indent: str = "") -> str:
    """On one line if it fits, else one argument to a line."""
    line = f"{head}({', '.join(args)})"
    if len(indent + line) <= WIDTH and "\n" not in line:
        return indent + line
    return f"{indent}{head}(\n" + "".join(f"{indent}    {arg},\n" for arg in args) + f"{indent})"


def quoted(text: str) -> str:
    """In triple quotes, line by line, if the text has several lines and needs no escapes; any other as its repr."""
    if "\n" in text.strip("\n") and needs_no_escapes(text) and not text.endswith('"'):
        return f'"""\\\n{text}"""'
    return repr(text)


def needs_no_escapes(text: str) -> bool:
    return "\\" not in text and '"""' not in text and all(char in "\n\t" or char.isprintable() for char in text)


def python_type(type_: Type) -> str:
    """`list[float]` as Python has it; types that only Penstock has (file, object) in quotes."""
    return _annotation(type_) or repr(str(type_))


def _annotation(type_: Type) -> str | None:
    inner = [_annotation(arg) for arg in type_.args]
    if any(part is None for part in inner):
        return None
    parts = ", ".join(part for part in inner if part)
    match type_.name:
        case "list" | "tuple":
            return f"{type_.name}[{parts}]"
        case "dict":
            return f"dict[str, {parts}]"
        case "optional":
            return f"{parts} | None"
        case name:
            return _PYTHON_TYPES.get(name)
