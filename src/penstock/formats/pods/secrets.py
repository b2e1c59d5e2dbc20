"""Secrets in the environment of a pod: `secretKeyRef` <-> `secrets.NAME`. Called by the readers and writers of all formats.

`secrets["db/password"]` is the key `password` of the Secret `db`. A name without a slash is a key of the Secret `penstock`. A `?` at the
end stands for `optional: true`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.expressions.parse import Expr, path_of, reference
from penstock.expressions.secret import ROOT, Secret
from penstock.expressions.template import Template
from penstock.graph.model import Value

OWN: Final = "penstock"


def secret_value(name: Any, key: Any, optional: Any = False) -> Expr | None:
    """None: the name or key is not known before the run."""
    if (
        not (isinstance(name, str) and isinstance(key, str) and name and key)
        or "{{" in name + key
        or "$(" in name + key
    ):
        return None
    return Expr.tree(reference(ROOT, (key if name == OWN else f"{name}/{key}") + ("?" if optional is True else "")))


def secret_source(value: Value) -> dict[str, Any] | None:
    """What `valueFrom` is; None if the value is not a secret."""
    path = path_of(value.node) if isinstance(value, Expr) else None
    if path is None or len(path) != 2 or path[0] != ROOT:
        return None
    name, _, key = path[1].rstrip("?").rpartition("/")
    ref: dict[str, Any] = {"name": name or OWN, "key": key}
    return {"secretKeyRef": ref | ({"optional": True} if path[1].endswith("?") else {})}


def entries_of(name: str, value: Value, text: Callable[[Value], str]) -> list[dict[str, Any]]:
    """The entries for one variable. A text with secrets in it reads them from variables of their own."""
    source = secret_source(value)
    if source is not None:
        return [{"name": name, "valueFrom": source}]
    if not isinstance(value, Template) or not any(secret_source(part) for part in value.parts):
        return [{"name": name, "value": text(value)}]
    parts = [part for part in value.parts if isinstance(part, Expr) and secret_source(part)]
    helpers: dict[str, Value] = {f"{name}_SECRET_{number}": part for number, part in enumerate(dict.fromkeys(parts), 1)}
    entries = [{"name": helper, "valueFrom": secret_source(part)} for helper, part in helpers.items()]
    return [*entries, {"name": name, "value": worded(value, helpers, text)}]


def from_entry(entry: Mapping[str, Any]) -> Expr | None:
    """The secret that an entry of `env` reads, if it reads one."""
    source = entry.get("valueFrom")
    ref = source.get("secretKeyRef") if isinstance(source, Mapping) else None
    return secret_value(ref.get("name"), ref.get("key"), ref.get("optional")) if isinstance(ref, Mapping) else None


def secret_volume(
    files: Mapping[str, Value], others: Callable[[Mapping[str, Value]], dict[str, Any]]
) -> dict[str, Any] | None:
    """The volume with these files; None if none of them is a secret. `others`: makes a ConfigMap of those that are not."""
    by_name: dict[tuple[str, bool], list[dict[str, str]]] = {}
    rest: dict[str, Value] = {}
    for path, value in files.items():
        source = secret_source(value)
        if source is None:
            rest[path] = value
            continue
        ref = source["secretKeyRef"]
        by_name.setdefault((ref["name"], "optional" in ref), []).append({"key": ref["key"], "path": path})
    found = [(name, {"items": items, **({"optional": True} if may else {})}) for (name, may), items in by_name.items()]
    if not found:
        return None
    if len(found) == 1 and not rest:
        return {"secret": {"secretName": found[0][0], **found[0][1]}}
    sources: list[dict[str, Any]] = [{"secret": {"name": name, **more}} for name, more in found]
    return {"projected": {"sources": sources + ([{"configMap": others(rest)}] if rest else [])}}


def as_written(value: Secret) -> Value:
    """A secret that an expression gave, as the expression."""
    parts = [Expr.tree(reference(ROOT, part)) if place % 2 else part for place, part in enumerate(value.parts)]
    kept = [part for part in parts if part != ""]
    return kept[0] if len(kept) == 1 else Template(tuple(kept))


def worded(value: Value, env: Mapping[str, Value], text: Callable[[Value], str]) -> str:
    """A word of a command. A secret in it is read from the variable that has it, as `$(NAME)`."""
    plain, marks = marked(value, env)
    return unmarked(text(plain), marks)


def marked(value: Value, env: Mapping[str, Value]) -> tuple[Value, dict[str, str]]:
    """The value with marks in place of its secrets, and for each mark the variable to read. Raises UserError if no variable has it."""
    by_secret = {one.text: name for name, one in env.items() if isinstance(one, Expr)}
    marks: dict[str, str] = {}
    made: list[str | Expr] = []
    for part in value.parts if isinstance(value, Template) else (value,):
        if not isinstance(part, Expr) or secret_source(part) is None:
            made.append(part)
            continue
        if part.text not in by_secret:
            fix = "give it as a variable (env), and read that in the command"
            raise UserError(
                Problem("P284", f"{part.text} is part of a command, and no variable of the step has it", fix)
            )
        marks[f"\ue000{len(marks)}\ue001"] = f"$({by_secret[part.text]})"
        made.append([*marks][-1])
    if not marks:
        return value, marks
    plain = [part for part in made if isinstance(part, str)]
    return "".join(plain) if len(plain) == len(made) else Template(tuple(made)), marks


def unmarked(text: str, marks: Mapping[str, str]) -> str:
    for mark, reading in marks.items():
        text = text.replace(mark, reading)
    return text
