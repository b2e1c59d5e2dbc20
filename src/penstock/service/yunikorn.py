"""YuniKorn's queue configuration where Kueue's manifests are expected, and either as the other. Called by service.queues, service.access and `penstock queue`.

The store keeps Kueue's objects, on which every engine decides. The configuration that they were made from is kept beside them, because it says who may submit and what each
user may use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import DocumentError, Problem, UserError, nearest

if TYPE_CHECKING:
    from penstock.formats.documents import Document
    from penstock.formats.report import Report
    from penstock.scheduling.queues.model import Partition
    from penstock.service.conversion import Conversion

KIND: Final = "YuniKornQueues"
"""Of the row in which the store keeps a configuration."""
TARGETS: Final = ("kueue", "yunikorn")


@dataclass(frozen=True, slots=True)
class Translated:
    """A configuration of YuniKorn as Kueue's manifests."""

    text: str
    row: tuple[str, str, str]
    report: Report
    warnings: tuple[Problem, ...]


def is_yunikorn(text: str) -> bool:
    """Cheap: Kueue's manifests have no such word in front of a line."""
    return "partitions:" in text or '"partitions"' in text


def translated(text: str, file: str, capacity: Mapping[str, int] | None = None) -> Translated | None:
    """None: it is something else. `capacity`: of the cluster, in thousandths. Raises DocumentError, P824, with all that YuniKorn would refuse."""
    if not is_yunikorn(text):
        return None
    from penstock.formats.documents import read_text
    from penstock.scheduling.queues.read import is_yunikorn as is_configuration

    documents = [one for one in read_text(text, file) if is_configuration(one)]
    if not documents:
        return None
    if len(documents) > 1:
        message = "there are several queue configurations of YuniKorn, and it has only one"
        raise DocumentError(documents[1].problem("P824", "", message, "keep one of them"))
    from penstock.formats.yaml_writer import dump_all
    from penstock.scheduling.queues.to_kueue import to_kueue

    partition, warnings = checked(documents[0])
    found = to_kueue(partition, capacity=capacity)
    kept = {"kind": KIND, "metadata": {"name": ""}, "configuration": _configuration(documents[0])}
    return Translated(dump_all(found.documents), (KIND, "", json.dumps(kept)), found.report, warnings)


def checked(document: Document) -> tuple[Partition, tuple[Problem, ...]]:
    """The configuration in a document, and warnings. Raises DocumentError, P824."""
    from penstock.scheduling.queues.check import check
    from penstock.scheduling.queues.read import inside, read

    partition = read(document)
    problems = check(partition, inside(document))
    wrong = [one for one in problems if one.severity == "error"]
    if wrong:
        raise DocumentError(wrong)
    return partition, tuple(problems)


def _configuration(document: Document) -> Any:
    from penstock.scheduling.queues.read import inside

    return inside(document).data


def stored(rows: Iterable[tuple[str, str | None]]) -> Partition | None:
    """The configuration among (kind, text) of the objects of a store."""
    text = next((text for kind, text in rows if kind == KIND and text), None)
    if text is None:
        return None
    from penstock.formats.documents import Document
    from penstock.scheduling.queues.read import read

    return read(Document(json.loads(text)["configuration"], KIND))


def object_names(partition: Partition) -> set[tuple[str, str]]:
    """(kind, name) of the objects that it becomes, as the store names them."""
    from penstock.scheduling.queues.to_kueue import to_kueue

    found = set()
    for one in to_kueue(partition).documents:
        meta = one["metadata"]
        found.add((one["kind"], f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]))
    return found


# -- penstock queue convert -------------------------------------------------------------------------------------------


def convert(text: str, file: str, to: str, capacity: Mapping[str, int] | None = None) -> Conversion:
    """Queues for the other scheduler. Raises UserError."""
    from penstock.formats.documents import read_text
    from penstock.formats.yaml_writer import dump
    from penstock.scheduling.queues.from_kueue import from_kueue
    from penstock.service.conversion import Conversion

    if to not in TARGETS:
        fix = f"write one of {', '.join(TARGETS)}.{nearest(to, TARGETS)}"
        raise UserError(Problem("P838", f"queues cannot be written for {to!r}", fix))
    found = translated(text, file, capacity)
    if to == "kueue":
        if found is None:
            raise _other(
                file, "no queue configuration of YuniKorn", "give queues.yaml, or the ConfigMap yunikorn-configs"
            )
        return Conversion(found.text, found.report, tuple(one.message for one in found.warnings))
    if found is not None:
        raise _other(file, "a queue configuration of YuniKorn already", "penstock queue convert FILE --to kueue")
    from penstock.admission.manifests.read import manifest

    manifest(text, file)  # refuses what Kueue would refuse
    documents = [one for one in read_text(text, file) if one.kind]
    if not any(one.kind == "ClusterQueue" for one in documents):
        raise _other(file, "nothing that YuniKorn could have as a queue", "give Kueue's ClusterQueues and Cohorts")
    data, report = from_kueue(documents)
    return Conversion(dump(data), report)


def _other(file: str, what: str, fix: str) -> DocumentError:
    return DocumentError(
        Problem("P824", f"{file} has {what}" if what.startswith(("no", "nothing")) else f"{file} is {what}", fix)
    )
