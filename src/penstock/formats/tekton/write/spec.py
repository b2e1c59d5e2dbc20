"""One step of a flat workflow -> the taskSpec of a pipeline task and its arguments. Called by workflow.

Inputs become parameters of the task, outputs become results: the path of an output in words, script or environment is replaced by the path of the
result. Files go through a workspace that all tasks share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.expressions.parse import Expr, path_of, reference, references
from penstock.expressions.template import Template
from penstock.expressions.types import Type
from penstock.formats import shim
from penstock.formats.documents import items, part
from penstock.formats.pods.names import label
from penstock.formats.pods.secrets import entries_of, marked, secret_volume, unmarked
from penstock.formats.report import Report
from penstock.formats.tekton.write.flatten import substitute
from penstock.formats.tekton.write.texts import Kind, NotInTekton, TektonPath, TektonText, TextWriter, guarded
from penstock.formats.values import thawed
from penstock.graph import quantity
from penstock.graph.links import part_needs
from penstock.graph.model import (
    Container,
    Function,
    Input,
    Mount,
    Output,
    Part,
    Pod,
    Script,
    Step,
    Value,
    action_values,
    expressions,
    with_values,
)
from penstock.graph.order import topological

FILES = "penstock-files"
"""The workspace that files pass through."""
SHELL_IMAGE = "busybox"
_STEP_FIELDS = frozenset({"securityContext", "imagePullPolicy", "volumeDevices", "volumeMounts", "envFrom"})
_SIDECAR_FIELDS = _STEP_FIELDS | frozenset(
    "ports livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy stdin stdinOnce tty"
    " restartPolicy".split()
)
_LAID = "/tekton/home/penstock"
"""The folder for values in files; all steps of a task see it."""


@dataclass(slots=True)
class TaskSpec:
    """The spec and arguments of a pipeline task."""

    task: dict[str, Any]
    params: list[dict[str, Any]] = field(default_factory=list)
    """Arguments from the pipeline."""
    carriers: dict[str, str] = field(default_factory=dict)
    """Loop variable, or field of it (`x.os`) -> the parameter that carries it."""
    workspaces: list[dict[str, Any]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """Workspaces of the pipeline that it uses."""


@dataclass(slots=True)
class TaskContext:
    """What SpecWriter needs of the pipeline around the task."""

    report: Report
    outer: TextWriter
    kind_of: Callable[[tuple[str, ...]], Kind]
    """The kind of a parameter of the workflow or an output of a step."""
    keys_of: Callable[[tuple[str, ...]], set[str]]
    """The known fields of an object."""
    file_of: Callable[[Value], str | None]
    """The path of a file value."""
    config_map: Callable[[str, Mapping[str, Value], TextWriter], str]
    code: Callable[[], list[str]]
    """Names of the ConfigMaps with the author's code."""
    result_name: Callable[[str], str]


class SpecWriter:
    def __init__(self, shop: TaskContext, step: Step, name: str) -> None:
        self.shop = shop
        self.step = step
        self.name = name
        self.refs: dict[str, TektonPath] = {}
        """Parameters of the task."""
        self.values: dict[str, Any] = {}
        self.carriers: dict[str, str] = {}
        self.swap: dict[tuple[str, ...], Value] = {}
        """Inputs that are substituted where they are read."""
        self.moved: dict[str, str] = {}
        """Paths in the texts of the step -> their replacements."""
        self.before: list[dict[str, Any]] = []
        self.folders: list[str] = []
        """Steps that run before the others."""
        self.shared: set[str] = set()
        self._outside: dict[tuple[str, ...], str] = {}
        self.of_pod = isinstance(step.action, Pod)
        self.words = TextWriter(self._resolve, inside=True, of_pod=self.of_pod)

    def made(self) -> TaskSpec:
        """Raises NotInTekton."""
        for given in self.step.inputs:
            self._input(given)
        for output in self.step.outputs:
            self._output(output)
        action = with_values(
            self.step.action, {name: substitute(value, self.swap) for name, value in action_values(self.step.action)}
        )
        steps, sidecars = self._programs(replace(self.step, action=action))
        if self.folders:
            made = " ".join(dict.fromkeys(self.folders))
            self.before.append(
                {"name": "make-folders", "image": SHELL_IMAGE, "script": f"#!/bin/sh\nmkdir -p {made}\n"}
            )
        volumes, mounts, workspaces, bound = self._folders()
        for one in (*steps, *sidecars):
            if mounts:
                one["volumeMounts"] = [*one.get("volumeMounts", ()), *(dict(mount) for mount in mounts)]
        self._resources(steps)
        task: dict[str, Any] = {}
        metadata = {
            key: thawed(value)
            for key, value in part(self.step.extra, "metadata").items()
            if key in ("labels", "annotations")
        }
        if metadata:
            task["metadata"] = metadata
        if self.refs:
            task["params"] = [
                {"name": name, "type": ref.kind, **self._properties(name)} for name, ref in self.refs.items()
            ]
        results = [self._result(output) for output in self.step.outputs if not _is_file(output.type)]
        if results:
            task["results"] = results
        if workspaces:
            task["workspaces"] = workspaces
        if volumes:
            task["volumes"] = volumes
        task["steps"] = [*self.before, *steps]
        if sidecars:
            task["sidecars"] = sidecars
        params = [{"name": name, "value": value} for name, value in self.values.items()]
        return TaskSpec(task, params, self.carriers, bound, self.shared)

    def _properties(self, name: str) -> dict[str, Any]:
        if self.refs[name].kind != "object":
            return {}
        value = self.values.get(name)
        keys = {*self._keys(name), *(value if isinstance(value, dict) else ())}
        return {"properties": {key: {"type": "string"} for key in sorted(keys)}}

    def _keys(self, name: str) -> list[str]:
        return sorted(keys_read(self.step).get(name, ()))

    # -- what it is given ---------------------------------------------------------------------------------------------

    def _input(self, given: Input) -> None:
        value = given.value
        file = self.shop.file_of(value)
        if file is not None:
            self.shared.add(FILES)
            self.swap["inputs", given.name] = file
            if given.path is not None:
                self.moved[given.path.rstrip("/")] = file
            return
        looped = any(path[0] == "item" for one in expressions(value) for path in references(one.text))
        variable = _variable(value) if looped else None
        if looped and (variable is None or variable in self.carriers):
            self.swap["inputs", given.name] = value
        elif variable is not None:
            self._declare(given.name, TektonPath(f"params.{given.name}"))
            self.carriers[variable] = given.name
        else:
            kind = self._kind(given)
            name = self._declare(given.name, TektonPath(f"params.{given.name}", kind))
            self.values[name] = self._constant(given) or self.shop.outer.given(value, kind)
        if given.path is not None:
            self._lay(given)

    def _constant(self, given: Input) -> str:
        """A function reads its inputs as JSON, except declared texts."""
        plain = isinstance(self.step.action, Function) and not any(True for _ in expressions(given.value))
        if not plain or given.type.name in ("str", "file", "dir") or isinstance(given.value, tuple):
            return ""
        return json.dumps(thawed(given.value), ensure_ascii=False)

    def _kind(self, given: Input) -> Kind:
        value = given.value
        if isinstance(value, Expr):
            path = path_of(value.node)
            if path is not None and path[0] in ("params", "steps"):
                return self.shop.kind_of(path)
        texts = isinstance(value, tuple) and all(isinstance(one, str | Expr | Template) for one in value)
        if texts and (given.type.name == "list" or given.type.name == "any"):
            return "array"
        return "object" if isinstance(value, dict) and value and self._keys(given.name) else "string"

    def _declare(self, name: str, ref: TektonPath) -> str:
        self.refs[name] = ref
        return name

    def _lay(self, given: Input) -> None:
        """A value that is written to a file."""
        assert given.path is not None
        place = f"{_LAID}/{given.name}"
        self.moved[given.path] = place
        name = f"INPUT_{len(self.before)}"
        value = substitute(Expr.tree(reference("inputs", given.name)), self.swap)
        text = self.words.text(_escaped(value, {}))
        self.before.append(
            {
                "name": label(f"lay-{given.name}"),
                "image": SHELL_IMAGE,
                "env": [{"name": name, "value": text}],
                "script": f'#!/bin/sh\nmkdir -p {_LAID}\nprintf %s "${name}" > {place}\n',
            }
        )

    def _resolve(self, path: tuple[str, ...]) -> tuple[TektonPath, tuple[str, ...]] | None:
        """The names inside the task. A value from outside becomes a parameter."""
        match path:
            case ("inputs", name, *rest) if name in self.refs:
                return self.refs[name], tuple(rest)
            case ("item", variable, *rest):
                key = ".".join((variable, *rest))
                if key not in self.carriers:
                    name = self._free(key.replace(".", "-"))
                    self._declare(name, TektonPath(f"params.{name}"))
                    self.carriers[key] = name
                return self.refs[self.carriers[key]], ()
            case ("attempt", "number"):
                return TektonPath("context.task.retry-count"), ()
            case ("params", name, *rest):
                return self._from_outside(("params", name)), tuple(rest)
            case ("steps", step, "outputs", output, *rest):
                return self._from_outside(("steps", step, "outputs", output)), tuple(rest)
            case ("run", "id") | ("workflow", "outcome") | ("steps", _, "outcome"):
                return self._from_outside(path), ()
        return None

    def _from_outside(self, path: tuple[str, ...]) -> TektonPath:
        name = self._outside.get(path)
        if name is None:
            name = self._free("-".join(one for one in path if one not in ("params", "steps", "outputs")))
            kind = self.shop.kind_of(path)
            self.values[name] = self.shop.outer.given(Expr.tree(reference(*path)), kind)
            self._declare(name, TektonPath(f"params.{name}", kind))
            self._outside[path] = name
        return self.refs[name]

    def _free(self, name: str) -> str:
        taken = {*self.refs, *(one.name for one in self.step.inputs)}
        found, number = name, 2
        while found in taken:
            found, number = f"{name}-{number}", number + 1
        return found

    # -- what it leaves -----------------------------------------------------------------------------------------------

    def _output(self, output: Output) -> None:
        name = self.shop.result_name(output.name)
        if _is_file(output.type):
            self.shared.add(FILES)
            folder = f"/workspace/{FILES}/{self.name}"
            place = f"{folder}/{output.name}"
            self.folders.append(place if _is_folder(output) else folder)
        else:
            place = f"$(results.{name}.path)"
        if output.path is None or output.path in ("/dev/stdout", f"/tekton/results/{name}"):
            if output.path is not None and output.path.startswith("/tekton"):
                self.moved[output.path] = place
            return
        path = output.path.rstrip("/")
        self.moved[path] = place
        texts = [text for _, value in action_values(self.step.action) for text in _texts(value)]
        if not any(path in text for text in texts):
            self.shop.report.lost(
                f"steps.{self.step.name}.outputs.{output.name}",
                f"nothing in the step names {output.path}, so the result stays empty",
                f"write to $PENSTOCK_OUTPUTS/{output.name}, or name the path in the command",
                self.step.source,
            )

    def _result(self, output: Output) -> dict[str, Any]:
        path = ("steps", self.step.name, "outputs", output.name)
        kind = self.shop.kind_of(path) if self.step.each is None else "string"
        found: dict[str, Any] = {"name": self.shop.result_name(output.name), "type": kind}
        if kind == "object":
            found["properties"] = {key: {"type": "string"} for key in sorted(self.shop.keys_of(path))}
        return found

    # -- what it does -------------------------------------------------------------------------------------------------

    def _programs(self, step: Step) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        action = step.action
        if isinstance(action, Pod):
            return self._pod(action)
        kept = part(step.extra, "container")
        if isinstance(action, Container):
            one = Part(name="main", image=action.image, command=action.command, args=action.args, env=action.env)
            made = self._program(replace(one, workdir=action.workdir), kept)
        elif isinstance(action, Script):
            one = Part(name="main", image=action.image, command=action.command, source=action.source, env=action.env)
            made = self._program(replace(one, workdir=action.workdir), kept)
        elif isinstance(action, Function):
            made = self._function(action)
            self._hand_on(made, kept)
        else:
            raise NotInTekton(f"Tekton has no {action.kind} steps")
        printed = next((one for one in step.outputs if one.path == "/dev/stdout"), None)
        if printed is not None:
            made["stdoutConfig"] = {"path": f"$(results.{self.shop.result_name(printed.name)}.path)"}
            said = "stdoutConfig is behind Tekton's flag enable-api-fields: alpha"
            near = "write the value to a file instead"
            self.shop.report.changed(f"steps.{step.name}.outputs.{printed.name}", said, near, step.source)
        return [made], []

    def _pod(self, pod: Pod) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        by_name = {one.name: one for one in pod.parts}
        order = topological({name: set(ups) for name, ups in part_needs(pod.parts).items()})
        rest = [by_name[name] for name in order if not by_name[name].sidecar]
        ups = [(), *((one.name,) for one in rest)]
        if any(one.needs not in (None, up) for one, up in zip(rest, ups, strict=False)):
            said = "the parts of the pod run one after another"
            self.shop.report.changed(f"steps.{self.step.name}.pod", said, source=self.step.source)
        for one in pod.parts:
            for result, path in one.results.items():
                self.moved[path] = f"$(step.results.{result}.path)"
        kept = part(self.step.extra, "containers")
        steps = [self._part(one, part(kept, one.name)) for one in rest]
        sidecars = [self._program(one, part(kept, one.name), sidecar=True) for one in pod.parts if one.sidecar]
        return steps, sidecars

    def _part(self, one: Part, kept: Mapping[str, Any]) -> dict[str, Any]:
        made = self._program(one, kept)
        if one.when:
            made["when"] = [self._when(test) for test in one.when]
        if one.on_error == "continue":
            made["onError"] = "continue"
        if one.timeout is not None:
            made["timeout"] = duration(one.timeout)
        if one.results:
            made["results"] = [{"name": name} for name in one.results]
        return made

    def _when(self, test: Mapping[str, Value]) -> dict[str, Any]:
        values = test["values"]
        listed = self.words.words(values) if isinstance(values, tuple | list) else [self.words.given(values, "array")]
        return {"input": self._text(test["input"]), "operator": test["operator"], "values": listed}

    def _program(self, one: Part, kept: Mapping[str, Any], sidecar: bool = False) -> dict[str, Any]:
        made: dict[str, Any] = {"name": label(one.name), "image": self._image(one)}
        if one.source is not None:
            made["script"] = _script(self._text(one.source), [self._text(word) for word in one.command])
        elif one.command:
            made["command"] = self._listed(one.command, one.env)
        if one.args:
            made["args"] = self._listed(one.args, one.env)
        env: dict[str, Value] = dict(one.env)
        if any(output.path is None for output in self.step.outputs) and not isinstance(self.step.action, Function):
            env.setdefault("PENSTOCK_OUTPUTS", self._outputs_folder())
        if env:
            made["env"] = [
                entry
                for name, value in env.items()
                for entry in entries_of(name, value, lambda value: self._word(value, one.env))
            ]
        if one.workdir:
            made["workingDir"] = self._text(one.workdir)
        self._hand_on(made, kept, sidecar)
        return made

    def _hand_on(self, made: dict[str, Any], kept: Mapping[str, Any], sidecar: bool = False) -> None:
        """Container fields that the model has no place for."""
        allowed = _SIDECAR_FIELDS if sidecar else _STEP_FIELDS
        for name, value in kept.items():
            if name in allowed:
                made[name] = thawed(value)
            elif name == "env":
                own = {one["name"] for one in made.get("env", ())}
                more = [one for _, one in items({"env": thawed(value)}, "env") if one.get("name") not in own]
                made["env"] = [*made.get("env", ()), *more]
            elif name not in ("resources", "computeResources", "name"):
                said = f"a {'sidecar' if sidecar else 'step'} of Tekton has no {name}"
                self.shop.report.lost(f"steps.{self.step.name}.{name}", said, source=self.step.source)

    def _outputs_folder(self) -> str:
        files = [output for output in self.step.outputs if output.path is None and _is_file(output.type)]
        if files and len(files) < sum(output.path is None for output in self.step.outputs):
            raise NotInTekton("some of its outputs are files and some are not, and all go to $PENSTOCK_OUTPUTS")
        return f"/workspace/{FILES}/{self.name}" if files else "/tekton/results"

    def _image(self, one: Part) -> str:
        if one.image not in (None, ""):
            return self.words.text(one.image)
        python = any("python" in word for word in one.command if isinstance(word, str))
        image = shim.IMAGE if python else SHELL_IMAGE
        said = f"it runs in {image}, for no image is named"
        self.shop.report.changed(f"steps.{self.step.name}.image", said, "name one", self.step.source)
        return image

    # -- texts --------------------------------------------------------------------------------------------------------

    def _text(self, value: Value) -> str:
        return self.words.text(self._relocated(value))

    def _word(self, value: Value, env: Mapping[str, Value]) -> str:
        """Escapes `$(NAME)`, which Kubernetes would replace."""
        return self._text(_escaped(value, env))

    def _listed(self, values: Iterable[Value], env: Mapping[str, Value]) -> list[str]:
        found: list[str] = []
        for value in values:
            plain, marks = marked(value, env)
            found += (unmarked(text, marks) for text in self.words.words([self._relocated(_escaped(plain, env))]))
        return found

    def _relocated(self, value: Value) -> Value:
        """With the places of inputs and outputs in it moved, in Tekton's syntax."""
        known = "|".join(re.escape(path) for path in sorted(self.moved, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w./~)}}-])(?:{known})(?![\w-]|\.\w)") if known else None

        def move(text: str) -> str:
            text = guarded(text, self.of_pod)
            return text if pattern is None else TektonText(pattern.sub(lambda found: self.moved[found[0]], text))

        if isinstance(value, str):
            return move(value)
        if isinstance(value, Template):
            return Template(tuple(move(one) if isinstance(one, str) else one for one in value.parts))
        return value

    # -- functions ----------------------------------------------------------------------------------------------------

    def _function(self, function: Function) -> dict[str, Any]:
        given: list[shim.FunctionInput] = []
        env: dict[str, str] = {}
        args: list[str] = []
        for number, one in enumerate(self.step.inputs):
            value = substitute(Expr.tree(reference("inputs", one.name)), self.swap)
            array = self.words.array(value)
            if array is not None:
                mark = f"penstock:{one.name}"
                args += [mark, f"$({array.text}[*])"]
                given.append(shim.FunctionInput(one.name, f"each {_item(one.type)}", _between(mark)))
            else:
                name = f"PENSTOCK_INPUT_{number}"
                env[name] = self.words.text(_escaped(value, {}))
                given.append(shim.FunctionInput(one.name, _wire(one), f'os.environ["{name}"]'))
        if args:
            args.append("penstock:")
        image = function.image
        if image in (None, ""):
            said = f"the function runs in {shim.IMAGE}, for no image is named"
            self.shop.report.changed(f"steps.{self.step.name}.function.image", said, "name one", self.step.source)
            image = shim.IMAGE
        retry_on = self.step.retry.exceptions if self.step.retry is not None else ()
        folder = self._outputs_folder() if self.step.outputs else "/tekton/results"
        shipped = shim.function_container(
            function, given, self.step.outputs, retry_on=retry_on, imports=("json", "os", "sys"), folder=folder
        )
        env |= {name: self.words.text(_escaped(value, env)) for name, value in function.env.items()}
        made: dict[str, Any] = {
            "name": "main",
            "image": self.words.text(image),
            "script": _script(shipped.source, ["python3"]),
        }
        if args:
            made["args"] = args
        if env:
            made["env"] = [{"name": name, "value": text} for name, text in env.items()]
        return made

    # -- folders ------------------------------------------------------------------------------------------------------

    def _folders(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Volumes, mounts, workspaces of the task, and their bindings in the pipeline."""
        volumes: dict[str, dict[str, Any]] = {}
        mounts: list[dict[str, Any]] = []
        workspaces: list[dict[str, Any]] = []
        bound: list[dict[str, Any]] = []
        for number, mount in enumerate(self.step.mounts):
            name = label(mount.name)
            sub = self.shop.outer.text(mount.sub_path) if mount.scope == "run" else self.words.text(mount.sub_path)
            if mount.scope == "run":
                own = label(f"{mount.name}-{number}") if any(one["name"] == name for one in workspaces) else name
                workspaces.append(
                    {"name": own, "mountPath": mount.path, **({"readOnly": True} if mount.read_only else {})}
                )
                bound.append({"name": own, "workspace": name, **({"subPath": sub} if sub else {})})
                self.shared.add(name)
                continue
            secrets = self._secrets(mount) if mount.scope == "given" else None
            if secrets is not None:
                volumes.setdefault(name, {"name": name, **secrets})
            elif mount.scope == "given":
                made = self.shop.config_map(mount.name, mount.files, self.words)
                volumes.setdefault(name, {"name": name, "configMap": {"name": made}})
            volumes.setdefault(name, {"name": name, "emptyDir": {}})
            place: dict[str, Any] = {"name": name, "mountPath": mount.path}
            mounts.append(place | ({"subPath": sub} if sub else {}) | ({"readOnly": True} if mount.read_only else {}))
        if FILES in self.shared:
            workspaces.append({"name": FILES})
            bound.append({"name": FILES, "workspace": FILES})
        if isinstance(self.step.action, Function):
            sources = [{"configMap": {"name": name}} for name in self.shop.code()]
            volumes["penstock-code"] = {"name": "penstock-code", "projected": {"sources": sources}}
            mounts.append({"name": "penstock-code", "mountPath": shim.CODE})
        return list(volumes.values()), mounts, workspaces, bound

    def _secrets(self, mount: Mount) -> dict[str, Any] | None:
        return secret_volume(mount.files, lambda files: {"name": self.shop.config_map(mount.name, files, self.words)})

    def _resources(self, steps: list[dict[str, Any]]) -> None:
        """The pod requests the sum over its steps, so the first step requests everything."""
        asked = {name: quantity.show(amount, name) for name, amount in sorted(self.step.resources.items()) if amount}
        if not asked:
            return
        devices = {name: amount for name, amount in asked.items() if "/" in name}
        steps[0]["computeResources"] = {"requests": asked, **({"limits": devices} if devices else {})}
        if devices and len(steps) > 1:
            said = f"{', '.join(devices)}: only the first step of the task has it"
            self.shop.report.changed(f"steps.{self.step.name}.resources", said, source=self.step.source)


def keys_read(step: Step) -> dict[str, set[str]]:
    """Input -> the fields of it that the step reads."""
    found: dict[str, set[str]] = {}
    exprs = [one for _, value in action_values(step.action) for one in expressions(value)]
    for path in (path for one in exprs for path in references(one.text)):
        if path[0] == "inputs" and len(path) > 2:
            found.setdefault(path[1], set()).add(path[2])
    return found


def duration(seconds: float) -> str:
    """In the form of Go."""
    whole = f"{seconds:.3f}".rstrip("0").rstrip(".")
    return f"{whole}s"


def _is_file(type_: Type) -> bool:
    inner = type_.args[0] if type_.name == "optional" else type_
    return inner.name in ("file", "dir")


def _is_folder(output: Output) -> bool:
    return "dir" in str(output.type) or (output.path or "").endswith("/")


def _variable(value: Value) -> str | None:
    """`item.x` or `item.x.field` alone."""
    path = path_of(value.node) if isinstance(value, Expr) else None
    return ".".join(path[1:]) if path is not None and path[0] == "item" else None


def _texts(value: Value) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Template):
        yield from (one for one in value.parts if isinstance(one, str))
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _texts(one)


def _escaped(value: Value, env: Mapping[str, Value]) -> Value:
    """Kubernetes makes one dollar sign of two, and replaces `$(NAME)` of a variable of the container."""
    names = rf"|\((?:{'|'.join(map(re.escape, env))})\)" if env else ""
    pattern = re.compile(rf"\$(?=\${names})|(?<=\$)\$")

    def escape(text: str, last: bool = True) -> str:
        found = pattern.sub("$$", text) if "$" in text else text
        return found if last or not found.endswith("$") or found.endswith("$$") else f"{found}$"

    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Template):
        end = len(value.parts) - 1
        return Template(
            tuple(escape(one, n == end) if isinstance(one, str) else one for n, one in enumerate(value.parts))
        )
    return value


def _script(source: str, command: list[str]) -> str:
    """With a shebang line. Without one Tekton uses `sh -e`."""
    if source.startswith("#!") or command == ["/bin/sh", "-e"]:
        return source
    words = command or ["sh"]
    if words[0].startswith("/") and len(words) <= 2:
        return f"#!{' '.join(words)}\n{source}"
    split = "-S " if len(words) > 1 else ""
    return f"#!/usr/bin/env {split}{' '.join(words)}\n{source}"


def _item(type_: Type) -> str:
    return str(type_.item) if type_.name in ("list", "tuple") else "any"


def _wire(given: Input) -> str:
    return str(given.type)


def _between(mark: str) -> str:
    """The words after a marker, up to the next, as a JSON list of texts."""
    first = f"sys.argv.index({json.dumps(mark)})"
    rest = f"[n for n, word in enumerate(sys.argv) if word.startswith('penstock:') and n > {first}][0]"
    return f"json.dumps(sys.argv[{first} + 1:{rest}])"
