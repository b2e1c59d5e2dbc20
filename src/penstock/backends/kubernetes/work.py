"""An attempt's spec -> what its pods do. Called by attempt, in a thread: it reads and writes the artifact store.

Short texts (scripts, inputs, given files) travel in the pod itself. Everything else is in the artifact store, and a helper container
fetches it before the command starts. Another one stores what the command left, after it has ended: the command's container is then the
last of the init containers, so that the order needs nothing of its image. A function fetches and stores by itself.

An output with a path of its own is copied from there by a few lines of shell around the command (see packing). A step of several containers
is in parts.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import text_of
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes.boot import BOOT
from penstock.backends.kubernetes.names import attempt_key
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.backends.kubernetes.packing import Packing, env_of, helper, image_of, no_command, reachable, with_files
from penstock.backends.kubernetes.parts import PodPacking
from penstock.backends.kubernetes.programs import INSIDE, SCRIPT, Program, Work
from penstock.backends.kubernetes.shell import wrapper
from penstock.backends.local import function_main
from penstock.errors import Problem, UserError
from penstock.graph.model import Container, Function, Pod, Script


def work_of(
    spec: AttemptSpec,
    options: KubernetesOptions,
    blobs: Blobs,
    library: Callable[[], str],
    native_sidecars: bool = True,
) -> Work:
    """`library`: stores the program of in_pod, and returns its digest. `native_sidecars`: does the cluster have init containers that stay? Raises CannotRun, UserError, ValueError, OSError."""
    action = spec.action
    if isinstance(action, Function):
        return _function(spec, action, options, blobs, library)
    if isinstance(action, Container | Script):
        return _command(spec, action, options, blobs, library)
    if isinstance(action, Pod):
        return PodPacking(spec, action, options, blobs, library, native_sidecars).work()
    message = f"the backend kubernetes does not run steps of the kind {action.kind}"
    raise UserError(Problem("P726", message, "use another backend"))


def _function(
    spec: AttemptSpec, action: Function, options: KubernetesOptions, blobs: Blobs, library: Callable[[], str]
) -> Work:
    reachable(options, "functions take their code and their inputs from there")
    inside = Blobs(options.store, pickles=blobs.pickles, limits=blobs.limits)
    inputs = dict(spec.inputs)
    for given in spec.step.inputs:
        if given.name in inputs:
            inputs[given.name] = with_files(given.type, inputs[given.name], blobs)
    spec = dataclasses.replace(spec, inputs=inputs)
    call = blobs.put(function_main.call_text(spec, inside, f"{INSIDE}/cache").encode())
    env, hidden = env_of(spec, blobs)
    image = image_of(text_of(action.image, blobs) if action.image is not None else options.image)
    return Work(
        programs=[Program(image=image, command=helper(options, library(), "call", call))],
        env=env,
        secret_env=hidden,
        is_function=True,
    )


def _command(
    spec: AttemptSpec,
    action: Container | Script,
    options: KubernetesOptions,
    blobs: Blobs,
    library: Callable[[], str],
) -> Work:
    env, hidden = env_of(spec, blobs)
    image = image_of(text_of(action.image, blobs) if action.image is not None else options.image)
    workdir = posixpath.normpath(action.workdir) if action.workdir else ""
    program = Program(image=image, command=[text_of(word, blobs) for word in action.command], workdir=workdir)
    work = Work(programs=[program], env=env, secret_env=hidden)
    packing = Packing(spec, options, blobs, library, work, workdir)
    packing.mounts()
    packing.inputs()
    if isinstance(action, Script):
        program.command = [*(program.command or ["sh"]), SCRIPT]
        packing.file(SCRIPT, text_of(action.source, blobs), work.files, work.places)
    else:
        program.args = [text_of(word, blobs) for word in action.args]
    copies, printed = packing.outputs(bool(program.command))
    if copies or printed:
        if not program.command:
            raise no_command(spec)
        program.command = ["sh", "-c", wrapper(copies, printed), "penstock", *program.command]
    if spec.step.outputs:
        packing.put("put", "the outputs of this step are handed on there")
    packing.fetch()
    return work


def warm_work_of(spec: AttemptSpec, options: KubernetesOptions, blobs: Blobs, library: str, settings: str) -> Work:
    """A pod that makes calls like this one until there are none for a while. `settings`: the blob that says of which mailbox. Raises
    CannotRun, UserError."""
    action = spec.action
    assert isinstance(action, Function)
    store = reachable(options, "functions take their code and their inputs from there")
    image = image_of(text_of(action.image, blobs) if action.image is not None else options.image)
    command = [options.python, "-c", BOOT, store, library, "serve", settings]
    program = Program(image=image, command=command)
    return Work(programs=[program], env=fixed_env(spec, blobs), is_function=True)


def fixed_env(spec: AttemptSpec, blobs: Blobs) -> dict[str, str]:
    """The variables of its step that are the same for every task: a library may read them when it is imported."""
    written: Mapping[str, Any] = spec.step.action.env if isinstance(spec.step.action, Function) else {}
    given: Mapping[str, Any] = spec.action.env if isinstance(spec.action, Function) else {}
    return {
        name: text_of(value, blobs)
        for name, value in given.items()
        if type(value) is str and written.get(name) == value
    }


def warm_call_of(spec: AttemptSpec, blobs: Blobs) -> dict[str, Any]:
    """A call, for a letter to a warm pod. It stores what the call reads. Raises CannotRun, UserError, ValueError, OSError."""
    action = spec.action
    assert isinstance(action, Function)
    inputs = dict(spec.inputs)
    for given in spec.step.inputs:
        if given.name in inputs:
            inputs[given.name] = with_files(given.type, inputs[given.name], blobs)
    return {
        "key": attempt_key(spec),
        "alone": spec.attempt > 1,
        "bundle": spec.bundle,
        "module": action.module,
        "name": action.name,
        "code": action.code,
        "inputs": inputs,
        "texts": [given.name for given in spec.step.inputs if given.type.name == "str"],
        "outputs": [[output.name, str(output.type)] for output in spec.step.outputs],
        "env": env_of(spec, blobs)[0],
    }
