"""Golden cases of manifests of Argo and Tekton, walked through and run on this machine. Called by test_golden."""

from __future__ import annotations

from tests.golden.stage import Cases, Stage

cases = Cases()

ARGO = r"""
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: argo}
spec:
  entrypoint: main
  onExit: bye
  parallelism: 1
  arguments: {parameters: [{name: who, value: you}]}
  templates:
  - name: main
    dag:
      tasks:
      - {name: gen, template: gen}
      - name: each
        depends: gen
        template: double
        withParam: "{{tasks.gen.outputs.result}}"
        when: "{{item.n}} > 1"
        arguments: {parameters: [{name: n, value: "{{item.n}}"}]}
      - {name: never, template: gen, depends: gen, when: "{{workflow.parameters.who}} == me"}
      - {name: bad, template: bad, depends: each}
      - {name: mend, template: say, depends: bad.Failed, arguments: {parameters: [{name: x, value: "{{tasks.each.outputs.parameters.out}}"}]}}
      - {name: behind, template: say, depends: bad.Succeeded, arguments: {parameters: [{name: x, value: "no"}]}}
      - {name: loop, template: loop, depends: mend, arguments: {parameters: [{name: n, value: "0"}]}}
      - {name: use, template: use, depends: loop, arguments: {artifacts: [{name: f, from: "{{tasks.gen.outputs.artifacts.f}}"}]}}
  - name: gen
    script: {image: busybox, command: [sh], source: "echo hello > /tmp/f; echo '[{\"n\": 1}, {\"n\": 2}, {\"n\": 3}]'"}
    outputs: {artifacts: [{name: f, path: /tmp/f}]}
  - name: double
    inputs: {parameters: [{name: n}]}
    script: {image: busybox, command: [sh], source: "echo $(( {{inputs.parameters.n}} * 2 )) | tee /tmp/out"}
    outputs: {parameters: [{name: out, valueFrom: {path: /tmp/out}}]}
  - name: bad
    retryStrategy: {limit: "1"}
    script: {image: busybox, command: [sh], source: "echo try {{retries}}; exit 7"}
  - name: say
    inputs: {parameters: [{name: x}]}
    container: {image: busybox, command: [echo], args: ["{{inputs.parameters.x}}"]}
  - name: loop
    inputs: {parameters: [{name: n}]}
    steps:
    - - {name: next, template: add, arguments: {parameters: [{name: n, value: "{{inputs.parameters.n}}"}]}}
    - - {name: again, template: loop, when: "{{steps.next.outputs.result}} < 2", arguments: {parameters: [{name: n, value: "{{steps.next.outputs.result}}"}]}}
  - name: add
    inputs: {parameters: [{name: n}]}
    script: {image: busybox, command: [sh], source: "echo $(( {{inputs.parameters.n}} + 1 ))"}
  - name: use
    inputs: {artifacts: [{name: f, path: /in/f}]}
    container: {image: busybox, command: [cat, /in/f]}
  - {name: bye, container: {image: busybox, command: [echo, "{{workflow.status}}"]}}
"""

TEKTON = r"""
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: tekton}
spec:
  params: [{name: who, value: you}]
  workspaces: [{name: shared, volumeClaimTemplate: {spec: {}}}]
  pipelineSpec:
    params: [{name: who, type: string}]
    workspaces: [{name: shared}]
    tasks:
    - name: gen
      params: [{name: who, value: $(params.who)}]
      workspaces: [{name: d, workspace: shared}]
      taskSpec:
        params: [{name: who}]
        workspaces: [{name: d}]
        results: [{name: word}, {name: list, type: array}]
        steps:
        - {name: one, image: busybox, script: "echo -n hello $(params.who) | tee $(results.word.path) > $(workspaces.d.path)/f"}
        - {name: two, image: busybox, script: "echo -n '[\"a\", \"b\"]' > $(results.list.path)"}
    - name: matrix
      runAfter: [gen]
      matrix: {params: [{name: x, value: ["$(tasks.gen.results.list[*])"]}]}
      taskSpec: {params: [{name: x}], steps: [{name: say, image: busybox, script: "echo $(params.x)"}]}
    - name: guarded
      runAfter: [matrix]
      when: [{input: $(tasks.gen.results.word), operator: in, values: ["hello me"]}]
      taskSpec: {results: [{name: r}], steps: [{name: say, image: busybox, script: "echo -n never > $(results.r.path)"}]}
    - name: reads
      runAfter: [guarded]
      workspaces: [{name: d, workspace: shared}]
      taskSpec: {workspaces: [{name: d}], steps: [{name: cat, image: busybox, script: "cat $(workspaces.d.path)/f"}]}
    - name: fails
      runAfter: [reads]
      retries: 1
      onError: continue
      taskSpec: {steps: [{name: bad, image: busybox, script: "exit 3"}]}
    - name: behind
      runAfter: [fails]
      taskSpec: {steps: [{name: say, image: busybox, command: [echo], args: [behind]}]}
    finally:
    - name: last
      params: [{name: how, value: $(tasks.fails.status)}]
      taskSpec: {params: [{name: how}], steps: [{name: say, image: busybox, script: "echo $(params.how)"}]}
"""


@cases.of("argo")
def argo(stage: Stage) -> None:
    """A dag with loops, conditions, outcomes, tries, files, recursion and an exit handler."""
    stage.write("argo.yaml", ARGO)
    stage.type("run", "argo.yaml", "-q", "-j", "1", "--dry")
    stage.type("run", "argo.yaml", "-q", "-j", "1", "--on", "container=process", code=3)  # a leaf is omitted


@cases.of("tekton")
def tekton(stage: Stage) -> None:
    """A pipeline with results, a matrix, a guard, a workspace, tries, a failure that is passed over, and a last task."""
    stage.write("tekton.yaml", TEKTON)
    stage.type("run", "tekton.yaml", "-q", "-j", "1", "--dry")
    stage.type("run", "tekton.yaml", "-q", "-j", "1", "--on", "container=process")
