"""Bytes to a `Spec`: JSON always, YAML where PyYAML can be imported (only when one is read).

What is checked here is syntax and types; what the fields mean is checked by `cdi.validate`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cdi.errors import Fault, InvalidSpecError
from cdi.models import Spec

# Where the words of the models' library are Python's, the file's own.
_PLAIN = {
    "missing": "is missing",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def parse(content: bytes, *, source: str = "(text)") -> Spec:
    """Read a spec from JSON.

    Raises:
        InvalidSpecError: no JSON, a key twice, or a wrong type; the faults name the fields.
    """
    try:
        document = json.loads(content, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError(source, [Fault("", f"not JSON: {error}")]) from error
    return from_document(document, source=source)


def parse_yaml(content: bytes, *, source: str = "(text)") -> Spec:
    """Read a spec from YAML.

    Raises:
        InvalidSpecError: as `parse`; also if PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 - optional, and no daemon pays for it
    except ImportError:
        fault = Fault("", "YAML can't be read: PyYAML is not installed (runtimes do read it)")
        raise InvalidSpecError(source, [fault]) from None
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidSpecError(source, [Fault("", f"not YAML: {error}")]) from error
    return from_document(document, source=source)


def read(path: Path) -> Spec:
    """Read the spec in a file; `.yaml` is YAML, anything else JSON.

    Raises:
        InvalidSpecError: the content is no spec.
        OSError: the file can't be read.
    """
    content = path.read_bytes()
    reader = parse_yaml if path.name.endswith(".yaml") else parse
    return reader(content, source=str(path))


def from_document(document: Any, *, source: str = "(document)") -> Spec:
    """Make a `Spec` of decoded JSON or YAML.

    Raises:
        InvalidSpecError: a wrong type or a missing field; the faults name the fields.
    """
    if not isinstance(document, dict):
        what = "empty" if document is None else f"a {type(document).__name__}"
        raise InvalidSpecError(source, [Fault("", f"must be an object, is {what}")])
    try:
        return Spec.model_validate(document, by_name=False, by_alias=True)
    except ValidationError as error:
        faults = [
            Fault(field_path(one["loc"]), _PLAIN.get(one["type"], one["msg"]))
            for one in error.errors(include_url=False)
        ]
        raise InvalidSpecError(source, faults) from error


def field_path(parts: Sequence[str | int]) -> str:
    """`("devices", 0, "name")` as `devices[0].name`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Runtimes decode strictly: a key that stands twice makes them refuse the file."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    keys = [key for key, _ in pairs]
    raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON value")
