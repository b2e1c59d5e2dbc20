"""Functions that the tests of inline and workers run, good and bad."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class Config:
    rate: float


def add(a: int, b: int) -> int:
    return a + b


def echo(value: Any) -> Any:
    return value


def pid() -> int:
    return os.getpid()


def say(text: str) -> str:
    print(f"out {text}")
    print(f"err {text}", file=sys.stderr)
    subprocess.run(["echo", f"child {text}"], check=True)
    os.write(1, f"raw {text}\n".encode())
    return text


def boom() -> None:
    raise ValueError("a bad day\nand more of it")


def fails_inside() -> None:
    try:
        boom()
    except ValueError as error:
        raise KeyError("outer") from error


def leaves(code: Any) -> None:
    sys.exit(code)


def vanishes(code: int) -> None:
    os._exit(code)


def killed(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def interrupts() -> None:
    raise KeyboardInterrupt


def forks() -> str:
    if os.fork() == 0:
        return "child"
    return "parent"


def thread_left() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"


def lock() -> Any:
    return threading.Lock()


def large(size: int) -> str:
    return "x" * size


def wrong_type() -> int:
    return "seven"  # type: ignore[return-value]


def closes_stdout() -> str:
    os.close(1)
    os.close(2)
    return "closed"


def env(name: str) -> str | None:
    return os.environ.get(name)


def where() -> str:
    return os.getcwd()


def moves() -> None:
    os.chdir("/")


def rest(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def waits_for(path: str) -> str:
    """Until the file is there."""
    deadline = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return path


def stubborn(path: str) -> None:
    """Cannot be asked to end; starts a child that cannot either."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
    Path(path).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


def tidy(path: str) -> None:
    """Cleans up when it is asked to end."""
    try:
        Path(path).write_text("begun")
        time.sleep(600)
    finally:
        Path(path).write_text("cleaned up")


def busy_in_c(path: str) -> None:
    """Keeps the interpreter to itself, and has a child."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(f"{os.getpid()} {child.pid}")
    sum(range(10**12))


def makes_file(text: str) -> Path:
    path = Path(os.environ.get("TMPDIR", "/tmp"), f"made-{os.getpid()}.txt")
    path.write_text(text)
    return path


def reads_file(path: Path) -> str:
    text = path.read_text()
    path.write_text("changed by the reader")
    return text


def reads_by_name(path: str) -> str:
    return Path(path).read_text()


def configured(config: Config) -> float:
    return config.rate * 2


def makes_config(rate: float) -> Config:
    return Config(rate)


def two() -> tuple[int, str]:
    return 1, "b"


def maps() -> dict[str, Any]:
    return {"a": 2, "b": "c"}
