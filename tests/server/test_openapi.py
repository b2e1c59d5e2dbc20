"""What the OpenAPI document says is true: requests made from it, right ones and wrong ones, get no other answers than it names, and none that is a
failure of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from penstock.store.served import SERVED
from tests.server.served import Served
from tests.server.test_access import add_schedule
from tests.server.test_same_there import QUEUES

EXAMPLES = 15
"""Of each operation and kind of request."""
CHECKS = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
)
KNOWN = {
    "run": "nothing-1",
    "schedule": "nightly",
    "process": "nothing",
    "name": "team",
    "query": "tasks",
    "code": "P101",
}
"""Names that there are: half of the requests are about them."""
ENDLESS = ("/api/v1/stream", "/api/v1/runs/{run}/stream")
"""They are read in test_api."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Nobody executes what is submitted."""
    url = request.getfixturevalue("postgres").database() if request.param == "postgresql" else None
    with Served(tmp_path_factory.mktemp("openapi") / ".penstock", store=url, worker=False) as found:
        assert (
            found.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers={"Content-Type": "application/yaml"}).status
            == 200
        )
        found.submit()
        add_schedule(found, found.own)
        yield found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_answers_are_those_of_the_document(server: Served, mode: GenerationMode) -> None:
    load_all_checks()
    document = server.get("openapi.json")
    schema = schemathesis.openapi.from_dict(document)
    known = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    done, wrong = 0, []
    for method, path in known:
        if path in ENDLESS:
            continue
        try:
            _play(server, schema[path][method].as_strategy(generation_mode=mode))
        except Unsatisfiable:
            continue  # nothing about it can be wrong
        except BaseExceptionGroup as group:
            wrong.append(f"{method} {path}: {'; '.join(str(one) for one in group.exceptions)}"[:900])
        except AssertionError as error:
            wrong.append(str(error))
        done += 1
    assert not wrong, "\n\n".join(wrong)
    assert done > len(known) / 2


def _play(server: Served, cases: st.SearchStrategy[Any]) -> None:
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(cases, st.booleans())
    def play(case: Any, known: bool) -> None:
        for name in KNOWN.keys() & (case.path_parameters or {}).keys() if known else ():
            case.path_parameters[name] = KNOWN[name]
        found = case.call(base_url=server.url, headers={"Authorization": f"Bearer {server.own}"}, timeout=30)
        said = f"{case.method} {case.formatted_path} {case.query!r} {str(case.body)[:500]!r} -> {found.status_code} {found.text[:500]}"
        assert found.status_code < 500, said
        case.validate_response(found, checks=CHECKS)

    play()


@pytest.mark.slow
def test_whatever_is_given_to_a_query_is_answered(server: Served) -> None:
    """Each query of the commands, with arguments of the right kinds and of wrong ones."""
    text, number = st.text(max_size=20), st.integers(-(1 << 70), 1 << 70)
    kinds = {
        "s": text,
        "S": text | st.none(),
        "i": number,
        "n": number,
        "N": number,
        "o": number,
        "f": number | st.floats(allow_nan=False, allow_infinity=False),
    }
    odd = st.lists(text | number | st.none() | st.booleans() | st.lists(number), max_size=6)

    @settings(max_examples=150, phases=[Phase.generate], deadline=None, derandomize=True, database=None)
    @given(st.data())
    def play(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(SERVED)))
        shape = SERVED[name]
        right = st.tuples(*(kinds[kind] for kind in shape.removeprefix("*")))
        body: dict[str, Any] = {"args": list(data.draw(right | odd))}
        if shape.startswith("*") or data.draw(st.booleans()):
            body["keys"] = data.draw(st.lists(text, max_size=3))
        found = server.ask("POST", f"/api/v1/store/rows/{name}", body)
        assert found.status in (200, 400), (name, body, found)

    play()
    for name in ("tokens", "audit", "meta", "submission", "put_run", "runs; DROP TABLE runs"):
        assert server.ask("POST", f"/api/v1/store/rows/{quote(name)}", {"args": []}).status == 400
