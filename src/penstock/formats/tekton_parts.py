"""One step or sidecar of a Task -> one Part of a pod. Called by tekton_task.

What a step says is laid over the stepTemplate; a step that refers to a StepAction takes its program from there, with the parameters
it gives. Results that one step leaves for the next (`$(steps.a.results.r)`) are filled in by whoever runs the pod, and stay as they
are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import nearest
from penstock.formats.documents import Document
from penstock.formats.lang.tekton_vars import Var, split_vars
from penstock.formats.tekton_mounts import NOT_MOUNTED, object_data
from penstock.formats.tekton_names import RESULTS, STEPS, Names, with_default
from penstock.formats.tekton_scope import (
    At,
    Known,
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
from penstock.graph.expr import Expr
from penstock.graph.model import Part, Value

_UNSET = At(Document({}), "", {})
_SHELL = ("/bin/sh", "-e")
"""What Tekton begins a script with that does not say: `#!/bin/sh` and `set -e`."""
READ = frozenset(
    "name displayName image command args script env envFrom workingDir onError when results timeout ref params workspaces volumeMounts"
    " computeResources resources stdoutConfig stderrConfig description".split()
)
"""Fields that have a place in the model; the others are handed on."""


@dataclass(slots=True)
class Made:
    part: Part
    leftovers: dict[str, Any]
    mounts: list[tuple[At, Lookup]]
    """volumeMounts, and what their variables stand for."""
    workspaces: list[tuple[At, str, str]]
    """Workspaces that this step asks for itself: where, which, and where it finds them."""
    unrunnable: str = ""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field, and in whose words it is written."""

    at: At
    lookup: Lookup


class PartReader:
    def __init__(self, names: Names, at: At, number: int, sidecar: bool, taken: Mapping[str, Any]) -> None:
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

    def _action(self) -> tuple[At | None, str]:
        """The spec of the StepAction that is referred to; or why there is none."""
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
        return At.root(found).map("spec"), ""

    def _action_params(self) -> dict[str, Known]:
        assert self.action is not None
        given = {param.name(): value_at(param.at("value"), self.names.lookup) for param in self.at.maps("params")}
        specs = {spec.name(): spec for spec in self.action.maps("params")}
        found: dict[str, Known] = {}
        opening: set[str] = set()

        def value(name: str) -> Known | None:
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

        def read(var: Var) -> Known | None:
            known = value(var.path[1]) if var.path[0] == "params" and len(var.path) > 1 else None
            return None if known is None else known.picked(var.path[2:], var)

        for name in specs:
            value(name)
        return found

    # -- variables ----------------------------------------------------------------------------------------------------

    def lookup(self, var: Var) -> Known | None:
        """Those of this step, and of the task."""
        match var.path:
            case ("step", "results", *rest) if rest[-1:] == ["path"]:
                place = self._results.get(".".join(rest[:-1]))
                return None if place is None else Known.plain(place)
            case ("step", "artifacts", "path"):
                return Known.plain(f"{STEPS}/step-{self.own}/artifacts/provenance.json")
            case ("steps", *_):
                return None  # of earlier steps: whoever runs the pod knows it
            case ("workspaces", name, "path"):
                return Known.plain(self.path_of(name)) if self.names.workspace(name) else self.names.lookup(var)
        return self.names.lookup(var)

    def _of_action(self, var: Var) -> Known | None:
        """Inside a StepAction, its own parameters come first."""
        if var.path[0] == "params" and len(var.path) > 1 and var.path[1] in self._values:
            known = self._values[var.path[1]]
            return _of_step(known, var) or known.picked(var.path[2:], var)
        return self.lookup(var)

    def path_of(self, workspace: str) -> str:
        """Where this step finds a workspace."""
        found = self.names.workspaces[workspace]
        usage = next((one for one in self.at.maps("workspaces") if one.name() == workspace), None)
        if found.folder is None:
            return ""
        if usage is not None:
            # Kubernetes reads field names whatever their case, and examples rely on it.
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

    def _text(self, name: str) -> Known | None:
        found = self._field(name)
        return None if found is None else understood(self._codes(found.at.text()), found.lookup)

    def _codes(self, text: str) -> str:
        """The file with the exit code of another step, by its variable; it lies elsewhere here."""
        steps = [at.word("name") or f"unnamed-{number}" for number, at in enumerate(self.names.call.spec.maps("steps"))]

        def variable(match: re.Match[str]) -> str:
            said = match[1]
            name = steps[int(said)] if said.isdecimal() and int(said) < len(steps) else said.removeprefix("step-")
            return f"$(steps.step-{name}.exitCode.path)" if name in steps else match[0]

        return _CODE.sub(variable, text) if "exitCode" in text else text

    def _words(self, name: str, env: Mapping[str, Known]) -> tuple[Value, ...]:
        found = self._field(name)
        if found is None:
            return ()
        if not isinstance(found.at.data, list):
            raise found.at.wrong("a list")
        items = [
            At(found.at.document, f"{found.at.path}[{n}]", self._codes(item) if isinstance(item, str) else item)
            for n, item in enumerate(found.at.data)
        ]
        for item, known in zip(items, understood_all(items, found.lookup), strict=True):
            if isinstance(known.value, Expr) and known.type.name == "list" and known.is_fixed:
                self._tell_of_words(item, len(known.fixed))
        return tuple(with_env(word, env).value for word in spread(items, found.lookup))

    def _tell_of_words(self, at: At, number: int) -> None:
        if self.context.once(f"words {self.names.call.step} {at.path}"):
            said = f"{at.data} stands for {number} words, whatever else the run is given"
            self.context.report.changed(at.path, said, "change the document to change them", at.source)

    def made(self) -> Made:
        env = self._env()
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
        return Made(part, self._leftovers(), list(self._volume_mounts()), asked, self.unrunnable)

    def _knows(self, workspace: str) -> bool:
        found = self.names.workspace(workspace)
        return found is not None and found.folder is not None

    # -- environment --------------------------------------------------------------------------------------------------

    def _env(self) -> dict[str, Known]:
        found: dict[str, Known] = {}
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

    def _variable(self, at: At, lookup: Lookup) -> Known | None:
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
            return Known.plain(self.context.namespace)
        self.context.report.lost(source.path, "it is known only inside a pod", "write the value out", source.source)
        return None

    def _from_key(self, at: At, kind: str, lookup: Lookup) -> Known | None:
        name, key = (understood(at.word(word), lookup).fixed for word in ("name", "key"))
        data = object_data(self.context.library, kind, str(name))
        if data is not None and str(key) in data:
            return Known.plain(data[str(key)])
        if not at.flag("optional"):
            self.context.report.changed(
                at.path,
                f"there is no {kind} {name!r} with {key!r}: the variable is not set",
                "put it beside",
                at.source,
            )
        return None

    def _env_from(self, at: At, lookup: Lookup) -> dict[str, Known]:
        prefix = at.word("prefix")
        found: dict[str, Known] = {}
        for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            if at.given(key):
                name = understood(at.map(key).word("name"), lookup).fixed
                data = object_data(self.context.library, kind, str(name))
                if data is None and not at.map(key).flag("optional"):
                    said = f"there is no {kind} {name!r} among the documents: its variables are not set"
                    self.context.report.changed(at.path, said, "put it into the file or beside it", at.source)
                found |= {prefix + name: Known.plain(text) for name, text in (data or {}).items()}
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
                    f"{at.path}.cel", "CEL is not looked at between the steps of a task", "use input, operator and values", at.source
                )  # fmt: skip
                continue
            operator = at.word("operator")
            if operator not in ("in", "notin"):
                raise at.at("operator").wrong("in or notin")
            values = listed(at.list("values"), self.lookup).value
            yield {"input": understood(at.word("input"), self.lookup).value, "operator": operator, "values": values}

    def _streams(
        self, command: tuple[Value, ...], args: tuple[Value, ...], source: Value
    ) -> tuple[tuple[Value, ...], tuple[Value, ...], Value]:
        """stdoutConfig and stderrConfig: what it prints goes to a file."""
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

    def _is_the_result(self, paths: Mapping[str, Known]) -> bool:
        """What the only step of a task prints is a result of the task: the model has a word for that."""
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

    def _volume_mounts(self) -> Iterator[tuple[At, Lookup]]:
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


def _of_step(known: Known, var: Var) -> Known | None:
    """A parameter that is the result of an earlier step: an element or a field of it is still to be looked up."""
    text = known.value if isinstance(known.value, str) else ""
    match split_vars(text) if text.startswith("$(steps.") else []:
        case [Var(path=("steps", *rest), index=None)]:
            inner = ".".join(("steps", *rest, *var.path[2:]))
            end = "[*]" if var.star else "" if var.index is None else f"[{var.index}]"
            return Known.plain(f"$({inner}{end})")
    return None


def _interpreter(source: Value) -> tuple[Value, ...]:
    """From the first line of a script. Linux hands what follows the program on as one word."""
    first = source if isinstance(source, str) else source.parts[0] if hasattr(source, "parts") else ""
    if not isinstance(first, str) or not first.startswith("#!"):
        return _SHELL
    line = first[2:].partition("\n")[0].strip()
    if re.match(r"win\b", line):
        return tuple(line.split()[1:]) or ("cmd.exe", "/c")
    program, _, rest = line.partition(" ")
    return tuple(word for word in (program, rest.strip()) if word) or _SHELL


def _redirected(source: Value, paths: Mapping[str, Known]) -> Value:
    """A shell script that sends what it prints to files."""
    streams: list[str | Known] = ["exec"]
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
    return compose([*streams, Known(source)]).value


def _redirection(stream: str, paths: Mapping[str, Known], number: int) -> str:
    same = stream == "stderr" and len({str(known.value) for known in paths.values()}) == 1 and len(paths) == 2
    return "2>&1" if same else f'{">" if stream == "stdout" else "2>"}"${number + 1}"'
