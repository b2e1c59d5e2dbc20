"""Plain Jobs and Pods of Kubernetes, in and out. Called by formats.foreign, and by whoever writes a workflow as Jobs."""

from __future__ import annotations

from penstock.formats import job_read, job_write
from penstock.formats.documents import Document, Library
from penstock.formats.reading import Read, Written
from penstock.graph.model import Workflow


def read_job(library: Library, root: Document) -> Read:
    """A Job, CronJob or Pod as a workflow of one step. Raises DocumentError with everything that is wrong."""
    return job_read.read(library, root)


def write_job(workflow: Workflow, bundle: bytes | None = None) -> Written:
    """One Job for each step, if none needs another. `bundle` is the author's code, as author.pack made it. Raises UserError."""
    return job_write.write(workflow, bundle)
