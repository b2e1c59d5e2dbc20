"""Python source made by a test -> a module whose functions have that source."""

from __future__ import annotations

import itertools
import linecache
import sys
import types

_number = itertools.count()

PRELUDE = """
from penstock import *
from penstock import task, workflow

@task
def inc(x: int) -> int:
    return x + 1

@task
def add(a: int, b: int) -> int:
    return a + b

@task
def even(x: int) -> bool:
    return x % 2 == 0

@task
def pair(x: int) -> tuple[int, int]:
    return x, x + 10

@task
def upto(n: int) -> list[int]:
    return list(range(abs(n) % 5))

@task
def total(xs: list[int]) -> int:
    return sum(xs)

@task
def half(x: int) -> float:
    return x / 2

@task
def words(text: str) -> list[str]:
    return text.split()

@task
def info(x: int) -> dict[str, int]:
    return {"n": x, "double": 2 * x}

@task
def show(*, text: str) -> str:
    return text

"""


def module(source: str, prelude: str = PRELUDE) -> types.ModuleType:
    name = f"made_{next(_number)}"
    file = f"<{name}>"
    text = prelude + source
    made = types.ModuleType(name)
    made.__file__ = file
    sys.modules[name] = made
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), made.__dict__)
    return made
