"""A CDI spec as frozen models: typed for what versions up to 0.5.0 hold, and some of later ones.

Reading is tolerant: a field not known here is kept and written back. Whether a runtime would take
the spec is the business of `cdi.validate`; the models only hold types. Python names are snake_case,
files hold camelCase. Absent and empty are the same thing, as they are for the runtimes: an empty
string, list or None is not written. `major` and `minor` are None when absent (0 is written).
"""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel


def _as_tuple(value: object) -> object:
    if value is None:  # Go writes a nil slice as null
        return ()
    return tuple(value) if isinstance(value, list) else value


def _as_text(value: object) -> object:
    return "" if value is None else value


def _as_mapping(value: object) -> object:
    return {} if value is None else value


_T = TypeVar("_T")
Items = Annotated[tuple[_T, ...], BeforeValidator(_as_tuple)]
Text = Annotated[str, BeforeValidator(_as_text)]
Annotations = Annotated[dict[str, str], BeforeValidator(_as_mapping)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,  # runtimes refuse "major": "1" and 1.0
        extra="allow",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    @property
    def unknown(self) -> dict[str, Any]:
        """The fields that these models have no type for, by their name in the file."""
        return self.model_extra or {}


class DeviceNode(_Model):
    """A device node: at `path` in the container, the node `host_path` of the host."""

    path: Text
    host_path: Text = ""
    type: Text = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: Text = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Model):
    """A mount, as the OCI runtime spec has them."""

    host_path: Text
    container_path: Text
    options: Items[str] = ()
    type: Text = ""


class Hook(_Model):
    """An OCI hook: a program run at `hook_name`; `timeout` in seconds."""

    hook_name: Text
    path: Text
    args: Items[str] = ()
    env: Items[str] = ()
    timeout: int | None = None


class ContainerEdits(_Model):
    """What is changed in a container. `additional_gids` came with 0.7.0."""

    env: Items[str] = ()
    device_nodes: Items[DeviceNode] = ()
    mounts: Items[Mount] = ()
    hooks: Items[Hook] = ()
    additional_gids: Items[int] = ()

    @property
    def empty(self) -> bool:
        """True if nothing would be changed."""
        return not self.model_dump(exclude_defaults=True)


def _as_edits(value: object) -> object:
    return ContainerEdits() if value is None else value


Edits = Annotated[ContainerEdits, BeforeValidator(_as_edits)]


class Device(_Model):
    """One device: its own name within the spec's kind, and its edits. Annotations: 0.6.0."""

    name: Text
    annotations: Annotations = {}
    container_edits: Edits = ContainerEdits()


class Spec(_Model):
    """One spec file. `container_edits` act once on a container that uses any of its devices."""

    cdi_version: Text
    kind: Text
    annotations: Annotations = {}
    devices: Items[Device] = ()
    container_edits: Edits = ContainerEdits()

    def to_json(self) -> bytes:
        """The spec as a file's content: sorted keys, no blanks, so equal specs are equal bytes."""
        content = self.model_dump(exclude_defaults=True)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode() + b"\n"
