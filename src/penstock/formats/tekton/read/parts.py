"""One step or sidecar of a Task -> one Part of a pod. Called by task.

Fields of a step override the stepTemplate. A step with a reference to a StepAction takes its program from there, with its own parameters. Results of
earlier steps (`$(steps.a.results.r)`) are filled in when the pod runs, and stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import nearest
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.formats.documents import Document
from penstock.formats.pods.secrets import secret_value
from penstock.formats.tekton.read.mounts import NOT_MOUNTED, object_data
from penstock.formats.tekton.read.scope import (
    KnownText,
    Located,
    Lookup,
    compose,
    frozen,
    legal,
    listed,
    spread,
    understood,
    understood_all,
    value_at,
    with_env,
)
from penstock.formats.tekton.read.task_scope import RESULTS, STEPS, TaskScope, with_default
from penstock.formats.tekton.variables import Var, split_vars
from penstock.graph.model import Part, Value

_UNSET = Located(Document({}), "", {})
_SHELL = ("/bin/sh", "-e")
_MADE_UP = re.compile(r"\$\(results\.([^).\n]{0,200}\$[^).\n]{0,200})\.path\)")
"""The name of a result that a shell would put together: `$(results.r-${i}.path)`. To Tekton that is a name like any other."""
"""The default beginning of a script: `#!/bin/sh` and `set -e`."""
READ = frozenset(
    "name displayName image command args script env envFrom workingDir onError when results timeout ref params workspaces volumeMounts"
    " computeResources resources stdoutConfig stderrConfig description".split()
)
"""Fields that have a place in the model; the others are handed on."""


@dataclass(slots=True)
class ReadPart:
    part: Part
    leftovers: dict[str, Any]
    mounts: list[tuple[Located, Lookup]]
    """volumeMounts, and the values of their variables."""
    workspaces: list[tuple[Located, str, str]]
    """Workspaces that this step declares itself: place, name, path."""
    unrunnable: str = ""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field, and whose variables it uses."""

    at: Located
    lookup: Lookup


class PartReader:
    def __init__(self, names: TaskScope, at: Located, number: int, sidecar: bool, taken: Mapping[str, Any]) -> None:
        self.names = names
        self.context = names.context
        self.at = at
        self.sidecar = sidecar
        said = understood(at.word("name"), names.lookup).fixed if at.given("name") else ""
        self.own = said if isinstance(said, str) and said else f"{'sidecar' if sidecar else 'unnamed'}-{number}"
        self.name = legal(self.own, taken)
        self.template = names.call.spec.map("stepTemplate") if not sidecar else _UNSET
        self.action, self.unrunnable = self._action()
        self._values = self._action_params() if self.action is not None else {}
        self._results = {
            result.name(): f"{STEPS}/step-{self.own}/results/{result.name()}"
            for place in (at, self.action or _UNSET)
            for result in place.maps("results")
        }

    # -- step actions -------------------------------------------------------------------------------------------------

    def _action(self) -> tuple[Located | None, str]:
        """The spec of the referenced StepAction, or the reason that there is none."""
        if not self.at.given("ref"):
            return None, ""
        ref = self.at.map("ref")
        resolver = ref.word("resolver")
        name = understood(ref.word("name"), self.names.lookup).fixed
        report = self.context.report
        if resolver:
            why = f"its StepAction is fetched by the resolver {resolver!r}"
            report.lost(ref.path, why, "put the StepAction beside the document", ref.source)
            return None, why
        found = self.context.library.find("StepAction", str(name))
        if found is None:
            known = [document.name for document in self.context.library.of_kind("StepAction")]
            why = f"there is no StepAction {name!r} among the documents"
            near = nearest(str(name), known).strip() or "put it into the file or beside it"
            report.lost(ref.path, why, near, ref.source)
            return None, why
        return Located.root(found).map("spec"), ""

    def _action_params(self) -> dict[str, KnownText]:
        assert self.action is not None
        given = {param.name(): value_at(param.at("value"), self.names.lookup) for param in self.at.maps("params")}
        specs = {spec.name(): spec for spec in self.action.maps("params")}
        found: dict[str, KnownText] = {}
        opening: set[str] = set()

        def value(name: str) -> KnownText | None:
            spec = specs.get(name)
            if spec is None or name in found:
                return found.get(name)
            if name in opening:
                raise spec.error("P833", f"the default of {name!r} leads back to itself", "write a value")
            opening.add(name)
            default = value_at(spec.at("default"), read) if spec.given("default") else None
            own = with_default(given[name], default) if name in given else default
            if own is None:
                raise self.at.error(
                    "P832", f"the StepAction needs the parameter {name!r}", f"give it under {self.at.path}.params"
                )
            found[name] = own
            return own

        def read(var: Var) -> KnownText | None:
            known = value(var.path[1]) if var.path[0] == "params" and len(var.path) > 1 else None
            return None if known is None else known.picked(var.path[2:], var)

        for name in specs:
            value(name)
        return found

    # -- variables ----------------------------------------------------------------------------------------------------

    def lookup(self, var: Var) -> KnownText | None:
        """Variables of this step and of the task."""
        match var.path:
            case ("step", "results", *rest) if rest[-1:] == ["path"]:
                place = self._results.get(".".join(rest[:-1]))
                return None if place is None else KnownText.plain(place)
            case ("step", "artifacts", "path"):
                return KnownText.plain(f"{STEPS}/step-{self.own}/artifacts/provenance.json")
            case ("steps", *_):
                return None  # of earlier steps: known when the pod runs
            case ("workspaces", name, "path"):
                return KnownText.plain(self.path_of(name)) if self.names.workspace(name) else self.names.lookup(var)
        return self.names.lookup(var)

    def _of_action(self, var: Var) -> KnownText | None:
        """Inside a StepAction, its own parameters come first."""
        if var.path[0] == "params" and len(var.path) > 1 and var.path[1] in self._values:
            known = self._values[var.path[1]]
            return _of_step(known, var) or known.picked(var.path[2:], var)
        return self.lookup(var)

    def path_of(self, workspace: str) -> str:
        """The path of a workspace in this step."""
        found = self.names.workspaces[workspace]
        usage = next((one for one in self.at.maps("workspaces") if one.name() == workspace), None)
        if found.folder is None:
            return ""
        if usage is not None:
            # Kubernetes ignores the case of field names, and examples rely on it.
            return usage.word("mountPath") or usage.word("mountpath") or found.path
        return f"{NOT_MOUNTED}/{workspace}" if workspace in self.names.isolated else found.path

    # -- fields -------------------------------------------------------------------------------------------------------

    def _field(self, name: str) -> _Field | None:
        """From the StepAction, the step or the template, in this order."""
        if self.action is not None and self.action.given(name):
            return _Field(self.action.at(name), self._of_action)
        if self.at.given(name):
            return _Field(self.at.at(name), self.lookup)
        return _Field(self.template.at(name), self.lookup) if self.template.given(name) else None

    def _text(self, name: str) -> KnownText | None:
        found = self._field(name)
        return None if found is None else understood(self._codes(found.at.text()), found.lookup)

    def _codes(self, text: str) -> str:
        """The file with the exit code of another step, by its variable; its path differs here."""
        steps = [at.word("name") or f"unnamed-{number}" for number, at in enumerate(self.names.call.spec.maps("steps"))]

        def variable(match: re.Match[str]) -> str:
            said = match[1]
            name = steps[int(said)] if said.isdecimal() and int(said) < len(steps) else said.removeprefix("step-")
            return f"$(steps.step-{name}.exitCode.path)" if name in steps else match[0]

        return _CODE.sub(variable, text) if "exitCode" in text else text

    def _words(self, name: str, env: Mapping[str, KnownText]) -> tuple[Value, ...]:
        found = self._field(name)
        if found is None:
            return ()
        if not isinstance(found.at.data, list):
            raise found.at.wrong("a list")
        items = [
            Located(found.at.document, f"{found.at.path}[{n}]", self._codes(item) if isinstance(item, str) else item)
            for n, item in enumerate(found.at.data)
        ]
        for item, known in zip(items, understood_all(items, found.lookup), strict=True):
            if isinstance(known.value, Expr) and known.type.name == "list" and known.is_fixed:
                self._tell_of_words(item, len(known.fixed))
        return tuple(with_env(word, env).value for word in spread(items, found.lookup))

    def _tell_of_words(self, at: Located, number: int) -> None:
        if self.context.once(f"words {self.names.call.step} {at.path}"):
            said = f"{at.data} stands for {number} words, whatever else the run is given"
            self.context.report.changed(at.path, said, "change the document to change them", at.source)

    def made(self) -> ReadPart:
        env = self._env()
        self._check_results()
        script = self._text("script")
        command, args = self._words("command", env), self._words("args", env)
        source: Value = None
        if script is not None and script.value != "":
            command, source = _interpreter(script.value), script.value
        image = self._text("image")
        command, args, source = self._streams(command, args, source)
        workdir = self._text("workingDir")
        part = Part(
            name=self.name,
            image=image.value
            if image is not None and image.value != ""
            else ("unresolved" if self.unrunnable else None),
            command=command,
            args=args,
            source=source,
            env={name: known.value for name, known in env.items()},
            workdir=None if workdir is None or workdir.value == "" else workdir.value,
            when=tuple(self._when()),
            on_error=self._on_error(),
            timeout=self.at.seconds("timeout") or None,
            sidecar=self.sidecar,
            results=dict(self._results),
        )
        if part.image is None and not part.command and source is None:
            raise self.at.error("P835", f"the step {self.own!r} has no image", "give it an image")
        asked = [
            (at, at.name(), self.path_of(at.name())) for at in self.at.maps("workspaces") if self._knows(at.name())
        ]
        return ReadPart(part, self._leftovers(), list(self._volume_mounts()), asked, self.unrunnable)

    def _check_results(self) -> None:
        """Tekton refuses a script with the path of a result that the task does not declare."""
        text = self.at.word("script") if self.at.given("script") and not self.sidecar else ""
        named = [(one[0], one[1]) for one in _MADE_UP.finditer(text)]
        for var in split_vars(text):
            match var:
                case Var(path=("results", *rest)) if rest[-1:] == ["path"]:
                    named.append((var.raw, ".".join(rest[:-1])))
        known = self.names.results
        for raw, name in named:
            if name not in known:
                fix = nearest(name, known).strip() or "declare it under the results of the task"
                raise self.at.at("script").error("P832", f"{raw}: the task has no result {name!r}", fix)

    def _knows(self, workspace: str) -> bool:
        found = self.names.workspace(workspace)
        return found is not None and found.folder is not None

    # -- environment --------------------------------------------------------------------------------------------------

    def _env(self) -> dict[str, KnownText]:
        found: dict[str, KnownText] = {}
        places = [_Field(self.template, self.lookup), _Field(self.at, self.lookup)]
        if self.action is not None:
            places.append(_Field(self.action, self._of_action))
        for place in places:
            for source in place.at.maps("envFrom"):
                found |= self._env_from(source, place.lookup)
        for place in [*places, *(_Field(template, self.names.lookup) for template in self.names.call.templates)]:
            for variable in place.at.maps("env"):
                known = self._variable(variable, place.lookup)
                if known is not None:
                    found[variable.name()] = with_env(known, found)
        return found

    def _variable(self, at: Located, lookup: Lookup) -> KnownText | None:
        if not at.given("valueFrom"):
            return understood(at.word("value"), lookup)
        source = at.map("valueFrom")
        for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            if source.given(key):
                return self._from_key(source.map(key), kind, lookup)
        field = source.map("fieldRef").word("fieldPath")
        if field in ("metadata.name", "metadata.uid"):
            return self.names.call.run_name
        if field == "metadata.namespace":
            return KnownText.plain(self.context.namespace)
        self.context.report.lost(source.path, "it is known only inside a pod", "write the value out", source.source)
        return None

    def _from_key(self, at: Located, kind: str, lookup: Lookup) -> KnownText | None:
        name, key = (understood(at.word(word), lookup).fixed for word in ("name", "key"))
        secret = secret_value(name, key, at.flag("optional")) if kind == "Secret" else None
        if secret is not None:
            return KnownText(secret)
        data = object_data(self.context.library, kind, str(name))
        if data is not None and str(key) in data:
            return _known(data[str(key)])
        if not at.flag("optional"):
            self.context.report.changed(
                at.path,
                f"there is no {kind} {name!r} with {key!r}: the variable is not set",
                "put it beside",
                at.source,
            )
        return None

    def _env_from(self, at: Located, lookup: Lookup) -> dict[str, KnownText]:
        prefix = at.word("prefix")
        found: dict[str, KnownText] = {}
        for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if at.given(key):
                name = understood(at.map(key).word("name"), lookup).fixed
                data = object_data(self.context.library, kind, str(name))
                if data is None and not at.map(key).flag("optional"):
                    said = f"there is no {kind} {name!r} among the documents: its variables are not set"
                    self.context.report.changed(at.path, said, "put it into the file or beside it", at.source)
                found |= {prefix + name: _known(text) for name, text in (data or {}).items()}
        return found

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _on_error(self) -> str:
        if not self.at.given("onError"):
            return "stop"
        known = understood(self.at.word("onError"), self.lookup)
        if known.fixed not in ("continue", "stopAndFail"):
            if known.is_fixed:
                raise self.at.at("onError").wrong("continue or stopAndFail")
            self.context.report.changed(
                f"{self.at.path}.onError", "it is known only when it runs: a failure stops the task", "", self.at.source
            )
        return "continue" if known.fixed == "continue" else "stop"

    def _when(self) -> Iterator[dict[str, Value]]:
        for at in self.at.maps("when"):
            if at.given("cel"):
                self.context.report.lost(
                    f"{at.path}.cel",
                    "CEL is not looked at between the steps of a task",
                    "use input, operator and values",
                    at.source,
                )
                continue
            operator = at.word("operator")
            if operator not in ("in", "notin"):
                raise at.at("operator").wrong("in or notin")
            values = listed(at.list("values"), self.lookup).value
            yield {"input": understood(at.word("input"), self.lookup).value, "operator": operator, "values": values}

    def _streams(
        self, command: tuple[Value, ...], args: tuple[Value, ...], source: Value
    ) -> tuple[tuple[Value, ...], tuple[Value, ...], Value]:
        """stdoutConfig and stderrConfig: its output goes to a file."""
        files = {stream: self.at.map(f"{stream}Config") for stream in ("stdout", "stderr")}
        paths = {stream: understood(at.word("path"), self.lookup) for stream, at in files.items() if at.given("path")}
        if not paths:
            return command, args, source
        at = files[next(iter(paths))]
        if self._is_the_result(paths):
            return command, args, source
        shell = isinstance(command[0] if command else None, str) and str(command[-1]).rpartition("/")[2] in _SHELLS
        if source is not None and (command == _SHELL or shell):
            self.context.report.changed(at.path, "what it prints goes to the file, and not to the log", "", at.source)
            return command, args, _redirected(source, paths)
        if source is None and command:
            self.context.report.changed(at.path, "what it prints goes to the file, and not to the log", "", at.source)
            line = " ".join(("exec", *(_redirection(stream, paths, n) for n, stream in enumerate(paths))))
            files_first = [paths[stream].value for stream in paths]
            script = f'{line}; shift {len(paths)}; exec "$@"'
            return ("/bin/sh", "-c", script, "sh", *files_first, *command), args, None
        said = "what it prints is not written to the file"
        self.context.report.lost(at.path, said, "give the step a command, or a shell script", at.source)
        return command, args, source

    def _is_the_result(self, paths: Mapping[str, KnownText]) -> bool:
        """If the output of the only step of a task is a result: the model has a field for that."""
        place = paths["stdout"].fixed if set(paths) == {"stdout"} else None
        name = str(place).removeprefix(f"{RESULTS}/")
        alone = len(self.names.call.spec.list("steps")) == 1 and not self.sidecar
        if not alone or place != f"{RESULTS}/{name}" or name not in self.names.results:
            return False
        self.names.printed = name
        return True

    def _leftovers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place in (self.template, self.at, self.action or _UNSET):
            for name in sorted(place.data):
                if name not in READ:
                    found[name] = frozen(place.data[name])
                    if self.sidecar and name in ("readinessProbe", "startupProbe"):
                        said = "the steps do not wait until the sidecar is ready"
                        self.context.report.changed(
                            f"{place.path}.{name}", said, "wait in the first step", place.source
                        )
                        continue
                    if self.context.once(f"kept {place.document.name} {place.path}.{name}"):
                        self.context.report.kept(f"{place.path}.{name}", f"{name} is handed on as it is", place.source)
        return found

    def _volume_mounts(self) -> Iterator[tuple[Located, Lookup]]:
        for mount in self.template.maps("volumeMounts"):
            yield mount, self.lookup
        chosen = self._field("volumeMounts")
        if chosen is None or chosen.at.path == f"{self.template.path}.volumeMounts":
            return
        owner = self.action if self.action is not None and self.action.given("volumeMounts") else self.at
        for mount in owner.maps("volumeMounts"):
            yield mount, chosen.lookup


_CODE = re.compile(rf"{STEPS}/([\w-]{{1,200}})/exitCode")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})


def _of_step(known: KnownText, var: Var) -> KnownText | None:
    """A parameter that is the result of an earlier step, with the index or field that is read."""
    text = known.value if isinstance(known.value, str) else ""
    match split_vars(text) if text.startswith("$(steps.") else []:
        case [Var(path=("steps", *rest), index=None)]:
            inner = ".".join(("steps", *rest, *var.path[2:]))
            end = "[*]" if var.star else "" if var.index is None else f"[{var.index}]"
            return KnownText.plain(f"$({inner}{end})")
    return None


def _interpreter(source: Value) -> tuple[Value, ...]:
    """The interpreter, from the first line of a script. Linux passes the rest of the line as one argument."""
    first = source if isinstance(source, str) else source.parts[0] if isinstance(source, Template) else ""
    if not isinstance(first, str) or not first.startswith("#!"):
        return _SHELL
    line = first[2:].partition("\n")[0].strip()
    if re.match(r"win\b", line):
        return tuple(line.split()[1:]) or ("cmd.exe", "/c")
    program, _, rest = line.partition(" ")
    return tuple(word for word in (program, rest.strip()) if word) or _SHELL


def _redirected(source: Value, paths: Mapping[str, KnownText]) -> Value:
    """A shell script that redirects its output to files."""
    streams: list[str | KnownText] = ["exec"]
    both = len(paths) == 2 and len({str(known.value) for known in paths.values()}) == 1
    for stream, known in paths.items():
        sign = ">" if stream == "stdout" else "2>"
        if both and stream == "stderr":
            streams.append(" 2>&1")
        else:
            streams += [f" {sign}'", known, "'"]
    streams.append("\n")
    if isinstance(source, str) and source.startswith("#!"):
        head, _, body = source.partition("\n")
        return compose([f"{head}\n", *streams, body]).value
    return compose([*streams, KnownText(source)]).value


def _redirection(stream: str, paths: Mapping[str, KnownText], number: int) -> str:
    same = stream == "stderr" and len({str(known.value) for known in paths.values()}) == 1 and len(paths) == 2
    return "2>&1" if same else f'{">" if stream == "stdout" else "2>"}"${number + 1}"'


def _known(text: Value) -> KnownText:
    """A text of a ConfigMap, or a secret."""
    return KnownText.plain(text) if isinstance(text, str) else KnownText(text)
