"""Python functions as scripts whose image needs only Python. Called by the writers of all formats.

The author's code (the zip of author.pack) is passed once for a whole workflow, with the program that calls functions (shim_main), as base64
text in one or a few files: a parameter or a ConfigMap. The script of a function is a few lines that unpack it and name the function and its
inputs. The writer gives a Python expression for the text of each input.
"""

from __future__ import annotations

import base64
import io
import json
import pkgutil
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import Problem, Source, UserError
from penstock.graph.model import Function, Output, Value, Workflow

CODE: Final = "/tmp/penstock/code"
"""The file with the code in the pod, as base64 text; or a folder whose sorted files together are that text."""
OUTPUTS: Final = "/tmp/penstock/outputs"
RETRY: Final = 75
"""Exit code of a function that raised an exception for which the step is retried."""
IMAGE: Final = f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
"""The default image. A function that is passed by value needs the Python version that it was made with."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

_SCRIPT: Final = """\
import base64, io, os, zipfile
CALL = {call}
GIVEN = {{
{given}}}
code = {code}
names = [code]
if os.path.isdir(code):
    names = [os.path.join(code, name) for name in sorted(os.listdir(code)) if name[0] != "."]
text = "".join(open(name).read() for name in names)
archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(text)))
shim = {{"__name__": "penstock_shim"}}
exec(compile(archive.read("penstock_shim.py"), "penstock_shim.py", "exec"), shim)
shim["main"](archive, CALL, GIVEN)
"""


@dataclass(frozen=True, slots=True)
class FunctionInput:
    """One input of a function."""

    name: str
    wire: str
    """How its text is read: a type as text (`str`: as it is; everything else: JSON), or `each T` for a list that the foreign
    system has collected from the results of a loop."""
    source: str
    """A Python expression for the text: `os.environ["X"]`, `open("/x").read()`, or a literal that is filled in."""


@dataclass(frozen=True, slots=True)
class FunctionScript:
    """A function as a script."""

    image: Value
    command: tuple[str, ...]
    source: str
    outputs: Mapping[str, str]
    """Output -> the file with its text; for files and folders, the file or folder itself."""


def function_container(
    function: Function,
    given: Iterable[FunctionInput],
    outputs: Sequence[Output],
    *,
    retry_on: Sequence[str] = (),
    imports: Sequence[str] = (),
    code: str = CODE,
    folder: str = OUTPUTS,
) -> FunctionScript:
    """`imports`: modules that the expressions in `given` need."""
    paths = {output.name: f"{folder}/{output.name}" for output in outputs}
    call = {
        "module": function.module,
        "name": function.name,
        "code": function.code,
        "outputs": [[output.name, str(output.type), paths[output.name]] for output in outputs],
        "retry_on": list(retry_on),
    }
    lines = "".join(f"    {json.dumps(one.name)}: [{json.dumps(one.wire)}, {one.source}],\n" for one in given)
    source = _SCRIPT.format(call=_literal(call), given=lines, code=json.dumps(code))
    if imports:
        source = f"import {', '.join(imports)}\n{source}"
    return FunctionScript(function.image, ("python3",), source, paths)


def _literal(call: Mapping[str, Any]) -> str:
    """As Python. One entry on each line: two braces in a row would be a tag of Argo."""
    inner = "".join(f"    {json.dumps(name)}: {json.dumps(value)},\n" for name, value in call.items())
    return f"{{\n{inner}}}"


def payload(bundle: bytes | None) -> str:
    """The code of a workflow as text: the zip of author.pack, if there is one, and the program that calls functions."""
    files: dict[str, bytes] = {}
    if bundle:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    files["penstock_shim.py"] = _program()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED)
    return base64.b64encode(target.getvalue()).decode("ascii")


def _program() -> bytes:
    return pkgutil.get_data("penstock.formats", "shim_main.txt") or b""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The functions and modules of a bundle, to report what is missing."""

    functions: frozenset[tuple[str, str, str]]
    by_value: frozenset[tuple[str, str, str]]

    @staticmethod
    def of(bundle: bytes | None) -> Bundle:
        if not bundle:
            return Bundle(frozenset(), frozenset())
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
        keys = {(one["module"], one["name"], one["code"]): "pickle" in one for one in manifest["functions"]}
        return Bundle(frozenset(keys), frozenset(key for key, pickled in keys.items() if pickled))


def missing_code(workflow: Workflow, bundle: bytes | None, code: str) -> list[Problem]:
    """Functions whose code is missing: a workflow that was read from a document has only their names. With a bundle, what it lacks is
    installed, and the image must have it."""
    if bundle is not None:
        return []
    found: dict[tuple[str, str], tuple[str, Source | None]] = {}
    for one in (workflow, *workflow.definitions):
        for step in (*one.steps, *one.on_exit):
            if isinstance(step.action, Function) and step.action.code and not _installed(step.action):
                found.setdefault((step.action.module, step.action.name), (step.name, step.source))
    fix = "write it from the Python file itself, which packs the code; or give the step an image and a command"
    return [
        Problem(code, f"the code of {module}.{name}() is not at hand", fix, where=f"steps.{step}", source=source)
        for (module, name), (step, source) in found.items()
    ]


def _installed(function: Function) -> bool:
    """Every image has the modules of Python itself."""
    return function.module.partition(".")[0] in sys.stdlib_module_names


def require_code(workflow: Workflow, bundle: bytes | None, code: str) -> None:
    problems = missing_code(workflow, bundle, code)
    if problems:
        raise UserError(problems)
