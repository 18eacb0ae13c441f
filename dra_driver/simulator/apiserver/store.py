"""The objects of the simulated API server, with versions, watches and garbage collection.

Everything is JSON: an object goes in and comes out as a copy. One lock, one counter for resource versions,
one list of everything that ever happened (`history`): a test can ask it whether a state has ever been there.
Controllers of a demo use this class directly, clients go through HTTP to the same methods.
"""

import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import choices
from typing import Any

from dra_driver.simulator.apiserver import slice_rules
from dra_driver.simulator.apiserver.resources import RESOURCES, Obj, Resource
from dra_driver.simulator.apiserver.status import Refusal

Key = tuple[str, str, str]  # plural, namespace, name
Fields = Mapping[str, str]
Rows = list[Obj]  # `list` is a method below
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what generated names end in: nothing that spells a word
_FIRST_VERSION = 1000


@dataclass(frozen=True)
class Change:
    """One entry of the history. `old` is the object before, for selectors that it has left."""

    version: int
    type: str  # ADDED, MODIFIED, DELETED
    plural: str
    obj: Obj
    old: Obj | None = None


class Store:
    """Thread-safe. Methods raise `Refusal` as the API would refuse; `plural` is a key of RESOURCES."""

    def __init__(self, *, minor: int = 37, partitionable: bool = True) -> None:
        self.minor = minor
        self.partitionable = partitionable  # the DRAPartitionableDevices gate
        self.observers: list[Callable[[Change], None]] = []  # called under the lock: keep them short
        self.history: list[Change] = []
        self._objects: dict[Key, Obj] = {}
        self._version = _FIRST_VERSION
        self._compacted = 0
        self._changed = threading.Condition(threading.RLock())

    @property
    def version(self) -> int:
        """The newest resource version."""
        with self._changed:
            return self._version

    def get(self, plural: str, name: str, namespace: str = "") -> Obj:
        """A copy of one object; 404 where there is none."""
        with self._changed:
            return copy.deepcopy(self._stored(RESOURCES[plural], name, namespace))

    def list(self, plural: str, *, namespace: str = "", fields: Fields | None = None) -> list[Obj]:
        """Copies of all that match, in order of name; all namespaces where none is given."""
        return self.list_at(plural, namespace=namespace, fields=fields)[0]

    def list_at(self, plural: str, *, namespace: str = "", fields: Fields | None = None) -> tuple[Rows, int]:
        """As `list`, with the version at which the list holds."""
        with self._changed:
            rows = [
                copy.deepcopy(self._objects[key])
                for key in sorted(self._objects)
                if key[0] == plural and namespace in ("", key[1])
            ]
            return [row for row in rows if matches(row, fields)], self._version

    def create(self, plural: str, obj: Obj, *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Store a new object; 409 where the name is taken."""
        resource, new = RESOURCES[plural], copy.deepcopy(obj)
        meta = new.setdefault("metadata", {})
        if resource.namespaced:
            meta["namespace"] = namespace or meta.get("namespace") or "default"
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = meta["generateName"][:58] + "".join(choices(_SUFFIX, k=5))  # noqa: S311 a name
        if not meta.get("name"):
            raise Refusal(422, f"{resource.name}: metadata.name: Required value: name or generateName is required")
        if resource.status and resource.plural != "nodes":
            new.pop("status", None)
        with self._changed:
            self._admit(resource, new, None)
            key = (plural, meta.get("namespace", ""), meta["name"])
            if key in self._objects:
                raise Refusal(409, f'{resource.name} "{meta["name"]}" already exists', "AlreadyExists")
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
            return self._commit("ADDED", resource, new, None, dry_run=dry_run)

    def update(self, plural: str, obj: Obj, *, subresource: str = "", dry_run: bool = False) -> Obj:
        """Replace an object, or its status only; 409 on a stale resourceVersion; none: last one wins."""
        resource, new = RESOURCES[plural], copy.deepcopy(obj)
        meta = new.setdefault("metadata", {})
        with self._changed:
            old = self._stored(resource, meta.get("name", ""), meta.get("namespace", ""))
            _check_preconditions(resource, old, meta.get("uid"), meta.get("resourceVersion"))
            if subresource:
                new = {**copy.deepcopy(old), subresource: new.get(subresource)}
            elif resource.status:
                new = {**new, "status": copy.deepcopy(old.get("status"))}
                if new["status"] is None:
                    del new["status"]
            new["metadata"] = _kept_metadata(old, new["metadata"])
            self._admit(resource, new, old)
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            if new == old:
                return copy.deepcopy(old)
            if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
                return self._remove(resource, old, dry_run=dry_run)
            return self._commit("MODIFIED", resource, new, old, dry_run=dry_run)

    def patch(
        self,
        plural: str,
        name: str,
        patch: Obj,
        *,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Merge-patch an object (RFC 7386)."""
        with self._changed:
            new = merge_patch(self.get(plural, name, namespace), patch)
            return self.update(plural, new, subresource=subresource, dry_run=dry_run)

    def delete(
        self,
        plural: str,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Delete an object, and what it alone owns; with finalizers it is only marked."""
        resource = RESOURCES[plural]
        with self._changed:
            old = self._stored(resource, name, namespace)
            _check_preconditions(resource, old, uid, version)
            if old["metadata"].get("finalizers"):
                marked = copy.deepcopy(old)
                marked["metadata"].setdefault("deletionTimestamp", _now())
                return self._commit("MODIFIED", resource, marked, old, dry_run=dry_run)
            return self._remove(resource, old, dry_run=dry_run)

    def compact(self) -> None:
        """Forget old versions: a watch from before now gets 410."""
        with self._changed:
            self._compacted = self._version
            self._changed.notify_all()

    def since(self, version: int, plural: str) -> tuple[Iterable[Change], int]:
        """Changes of one kind after `version`, and the version they reach to; 410 if it is compacted."""
        with self._changed:
            if version < self._compacted:
                raise Refusal(410, f"too old resource version: {version} ({self._compacted})")
            index = len(self.history)
            while index and self.history[index - 1].version > version:
                index -= 1
            return [row for row in self.history[index:] if row.plural == plural], self._version

    def wait(self, version: int, timeout: float) -> None:
        """Return when something newer than `version` is there, after `timeout` seconds or on `wake`."""
        with self._changed:
            if self._version <= version:
                self._changed.wait(timeout)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()

    def watch(
        self, plural: str, *, since: int | None = None, stop: threading.Event, fields: Fields | None = None
    ) -> Iterator[tuple[str, Obj]]:
        """Events for a controller in this process until `stop` is set (call `wake` with it)."""
        version = self.version if since is None else since
        while not stop.is_set():
            changes, version = self.since(version, plural)
            for change in changes:
                if event := visible(change, fields):
                    yield event
            self.wait(version, timeout=1.0)

    def _stored(self, resource: Resource, name: str, namespace: str) -> Obj:
        try:
            return self._objects[resource.plural, namespace, name]
        except KeyError:
            raise Refusal(404, f'{resource.name} "{name}" not found') from None

    def _admit(self, resource: Resource, new: Obj, old: Obj | None) -> None:
        new["apiVersion"], new["kind"] = resource.api_version, resource.kind
        if resource.plural == "resourceslices":
            if not self.partitionable:
                slice_rules.drop_disabled(new, old)
            slice_rules.validate(new, old, self.minor)

    def _commit(self, event: str, resource: Resource, new: Obj, old: Obj | None, *, dry_run: bool) -> Obj:
        if not dry_run:
            self._version += 1
            new["metadata"]["resourceVersion"] = str(self._version)
            meta = new["metadata"]
            key = (resource.plural, meta.get("namespace", ""), meta["name"])
            if event == "DELETED":
                del self._objects[key]
            else:
                self._objects[key] = new
            change = Change(self._version, event, resource.plural, new, old)
            self.history.append(change)
            for observer in self.observers:
                observer(change)
            self._changed.notify_all()
        return copy.deepcopy(new)

    def _remove(self, resource: Resource, old: Obj, *, dry_run: bool) -> Obj:
        gone = self._commit("DELETED", resource, copy.deepcopy(old), old, dry_run=dry_run)
        if not dry_run:
            self._collect_garbage(old["metadata"]["uid"])
        return gone

    def _collect_garbage(self, owner: str) -> None:
        for (plural, _, _), row in list(self._objects.items()):
            owners = row["metadata"].get("ownerReferences") or []
            if owners and all(ref.get("uid") == owner for ref in owners):
                self._remove(RESOURCES[plural], row, dry_run=False)


def matches(obj: Obj, fields: Fields | None) -> bool:
    """Whether a field selector takes the object; an absent field is an empty string."""
    return all(_field(obj, path) == value for path, value in (fields or {}).items())


def visible(change: Change, fields: Fields | None, namespace: str = "") -> tuple[str, Obj] | None:
    """The change as a watcher with this selector sees it: what leaves its view is DELETED there."""
    if namespace and change.obj["metadata"].get("namespace") != namespace:
        return None
    now, before = matches(change.obj, fields), change.old is not None and matches(change.old, fields)
    if change.type == "DELETED" or not now:
        return ("DELETED", change.obj) if before else None
    return ("MODIFIED" if before else "ADDED", change.obj)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, an object merges, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _field(obj: Obj, path: str) -> str:
    value: Any = obj
    for key in path.split("."):
        value = (value or {}).get(key)
    return "" if value is None else str(value)


def _check_preconditions(resource: Resource, old: Obj, uid: str | None, version: str | None) -> None:
    meta = old["metadata"]
    for name, wanted, is_now in (
        ("UID", uid, meta["uid"]),
        ("ResourceVersion", version, meta["resourceVersion"]),
    ):
        if wanted and wanted != is_now:
            raise Refusal(
                409,
                f'Operation cannot be fulfilled on {resource.name} "{meta["name"]}": '
                f"the {name} in the precondition ({wanted}) does not match the one in record ({is_now})",
            )


def _kept_metadata(old: Obj, meta: dict[str, Any]) -> dict[str, Any]:
    """What a client can't change comes from the stored object."""
    fixed = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")
    return {**meta, **{key: old["metadata"][key] for key in fixed if key in old["metadata"]}}


def _now() -> str:
    return datetime.fromtimestamp(int(time.time()), UTC).isoformat().replace("+00:00", "Z")
