"""Objects that are watched, as a Lookup. Used by watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.controller.objects import ApiResource, Object
from penstock.errors import Problem, UserError
from penstock.kubernetes.cache import ObjectCache


class CachedObjects:
    """Kinds that are not watched, or may not be, cannot be read: whoever asks knows how to do without. `readable`: may this kind be, and was it?"""

    def __init__(self, caches: Mapping[ApiResource, ObjectCache], readable: Callable[[ApiResource], bool]) -> None:
        self._caches = {(one.api, one.plural): cache for one, cache in caches.items()}
        self._readable = readable

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        return self._cache(resource).get(namespace, name)

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        return self._cache(resource).list(namespace)

    def _cache(self, resource: ApiResource) -> ObjectCache:
        found = self._caches.get((resource.api, resource.plural))
        if found is None or not self._readable(found.resource):
            fix = "ask in a terminal: penstock why KIND/NAME -n NAMESPACE"
            raise UserError(Problem("P893", f"{resource.plural} are not watched here", fix))
        return found
