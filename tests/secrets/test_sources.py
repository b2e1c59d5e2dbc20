"""Where the texts of secrets come from."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from penstock.backends.secrets.sources import SecretSources
from penstock.errors import UserError


def test_environment_file_and_command_in_this_order(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "db").mkdir(parents=True)
    (folder / "TOKEN").write_text("of the folder\n")
    (folder / "db" / "password").write_text("multi\nline\n")
    command = "sh -c 'test $0 = LAST && echo of-the-command'"
    environ = {"PENSTOCK_SECRETS": str(folder), "PENSTOCK_SECRETS_COMMAND": command, "PATH": "/usr/bin:/bin"}
    sources = SecretSources({**environ, "PENSTOCK_SECRET_A_B": " as it is\n"})
    assert sources.find("a-b") == " as it is\n"
    assert sources.find("TOKEN") == "of the folder" and sources.find("db/password") == "multi\nline"
    assert sources.find("LAST") == "of-the-command"
    assert sources.find("NOWHERE") is None and sources.find("../all/TOKEN") is None


def test_a_file_with_names_and_secrets_of_kubernetes(tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    coded = base64.b64encode(b"hush").decode()
    file.write_text(
        f"TOKEN: abc\ndb:\n  password: def\n---\nkind: Secret\nmetadata: {{name: s}}\ndata: {{k: {coded}}}\n"
        "---\nkind: Secret\nmetadata: {name: penstock}\nstringData: {OWN: mine}\n"
    )
    sources = SecretSources({"PENSTOCK_SECRETS": str(file)})
    found = [sources.find(name) for name in ("TOKEN", "db/password", "s/k", "OWN", "s/other", "OWN?")]
    assert found == ["abc", "def", "hush", "mine", None, "mine"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"X: ''", "is empty"),
        (b"X: 12", "is int and not text"),
        (b"\xff\xfe", "is not text"),
        (b"X: [never-say", "is not YAML"),
        (b'X: "never\\0say"', "zero byte"),
    ],
)
def test_what_is_of_no_use_is_an_error_without_the_text(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        SecretSources({"PENSTOCK_SECRETS": str(file)}).find("X")
    assert caught.value.problems[0].code == "P465"
    assert said in str(caught.value) and "never" not in str(caught.value)


def test_a_file_or_command_that_is_not_there(tmp_path: Path) -> None:
    for environ in ({"PENSTOCK_SECRETS": str(tmp_path / "no")}, {"PENSTOCK_SECRETS_COMMAND": str(tmp_path / "no")}):
        with pytest.raises(UserError, match="P465"):
            SecretSources(environ).find("X")
