"""Other tools, if they happen to be installed beside Penstock: the same thousand functions that do nothing, per step. They are
not installed by `make setup`; `.venv/bin/pip install luigi parsl` adds them to the table."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator

from bench.measure import Figure

SIZE = 1000
LUIGI = """
    import logging, time, luigi
    logging.disable(logging.CRITICAL)
    done = set()
    class Step(luigi.Task):
        number = luigi.IntParameter()
        def complete(self):
            return self.number in done
        def run(self):
            done.add(self.number)
    began = time.perf_counter()
    assert luigi.build([Step(number=i) for i in range({size})], local_scheduler=True, log_level="CRITICAL")
    print(time.perf_counter() - began)
"""
PARSL = """
    import time, parsl
    from parsl.config import Config
    from parsl.executors import ThreadPoolExecutor
    parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=2)], usage_tracking=0))
    @parsl.python_app
    def step(number):
        return number
    began = time.perf_counter()
    assert len([future.result() for future in [step(i) for i in range({size})]]) == {size}
    print(time.perf_counter() - began)
"""


def figures() -> Iterator[Figure]:
    for name, what, code in (("luigi", "no durable state", LUIGI), ("parsl", "threads, no durable state", PARSL)):
        if importlib.util.find_spec(name) is None:
            continue
        text = textwrap.dedent(code).format(size=SIZE)
        with tempfile.TemporaryDirectory() as folder:  # some leave logs where they are run
            done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True, cwd=folder)
        seconds = float(done.stdout.split()[-1])
        yield Figure(f"{name}: fan-out of {SIZE:,} functions ({what}), per step", 1e6 * seconds / SIZE, None, "µs")
