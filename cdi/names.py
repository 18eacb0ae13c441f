"""Names: the grammar of vendor, class and device, the qualified name, and the file of a spec.

A device's qualified name is `<vendor>/<class>=<device>`; `<vendor>/<class>` is the spec's kind.
The grammar functions return what is wrong, or None, so that validation can collect faults.
"""

import re
from dataclasses import dataclass

from cdi.errors import InvalidNameError

_KIND_PART = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def kind_fault(kind: str) -> str | None:
    """What is wrong with `<vendor>/<class>`, or None."""
    vendor, slash, klass = kind.partition("/")
    if not slash:
        return f"{kind!r} is not <vendor>/<class>"
    for what, text in (("vendor", vendor), ("class", klass)):
        # One character is in the grammar, but the library up to 0.5 (podman 4.3) panics on it
        # and takes the whole container engine's command down.
        if not _KIND_PART.fullmatch(text):
            return (
                f"{what} {text!r} must have two characters or more, start with a letter, end with a letter"
                " or digit, and hold only letters, digits, '_', '-' and '.' between"
            )
    return None


def device_fault(name: str) -> str | None:
    """What is wrong with a device's own name, or None."""
    if _DEVICE.fullmatch(name):
        return None
    return (
        f"device name {name!r} must start and end with a letter or digit, and hold only letters, digits,"
        " '_', '-', '.' and ':' between"
    )


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """One device as a container asks for it. Made by `parse_name`, or from parts known to be good."""

    kind: str
    device: str

    def __str__(self) -> str:
        return f"{self.kind}={self.device}"


def parse_name(text: str) -> QualifiedName:
    """Read `<vendor>/<class>=<device>`.

    Raises:
        InvalidNameError: the text is not a qualified name; says which part is wrong.
    """
    kind, equals, device = text.partition("=")
    if not equals:
        raise InvalidNameError(f"{text!r} is not a qualified CDI device name <vendor>/<class>=<device>")
    fault = kind_fault(kind) or device_fault(device)
    if fault:
        raise InvalidNameError(f"{text!r} is not a qualified CDI device name: {fault}")
    return QualifiedName(kind, device)


def file_name(kind: str, identifier: str = "") -> str:
    """The conventional file name: `<vendor>-<class>.json`, with an identifier `…_<id>.json`.

    Only a convention (content decides); a `/` in the identifier becomes `_`.

    Raises:
        InvalidNameError: the kind is not `<vendor>/<class>`.
    """
    if fault := kind_fault(kind):
        raise InvalidNameError(f"no file name for CDI kind {kind!r}: {fault}")
    stem = kind.replace("/", "-")
    return f"{stem}_{identifier.replace('/', '_')}.json" if identifier else f"{stem}.json"
