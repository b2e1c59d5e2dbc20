"""CI: lint and test side by side on several versions, build, and deploy from one branch only. The last word is said whatever happens.

penstock run examples/ci.py -p branch=main
"""

import zipfile
from pathlib import Path

from penstock import task, workflow

SOURCE = "def add(a, b):\n    return a + b\n"


@task
def lint(source: str) -> bool:
    compile(source, "add.py", "exec")
    return all(len(line) <= 120 and "\t" not in line for line in source.splitlines())


@task(cpu=1, retry=1)
def test(source: str, version: str) -> str:
    names: dict = {}
    exec(source, names)
    assert names["add"](2, 2) == 4
    return f"{version}: 1 passed"


@task(cpu=1)
def build(source: str) -> Path:
    path = Path("add.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("add.py"), source)  # no time in it: the same source, the same bytes
    return path


@task(cache=False, locks=["production"])
def deploy(package: Path) -> str:
    return f"deployed {package.name}, {package.stat().st_size} bytes"


@task
def tell(outcome: str) -> None:
    print(f"the pipeline has {outcome}")


@workflow(on_exit=[tell.job(outcome="${{ workflow.outcome }}")])
def ci(branch: str = "topic", versions: list[str] = ["3.11", "3.12", "3.13"]):  # noqa: B006
    clean = lint(SOURCE)
    tested = [test(SOURCE, version) for version in versions]
    package = build.after(clean, tested)(SOURCE)
    message = "built, and left at that"
    if branch == "main" and clean:
        message = deploy(package)
    return message
