"""The node's LNC in force: one value beside the records and under their lock, changed while nothing is prepared.

A logical core is one physical core or two, and device names carry which. So a change under claims that are prepared
would give the same cores away under other names; and whoever prepares compares with this file, not with what a setting
wishes. Of two instances the one that started last decides: each takes a number at its first look, so that clocks don't
matter. Only hardware that knows more than one LNC has the file. Where it is lost, what records hold tells the value.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dra_driver.claims.records import API_VERSION, Record, RecordError, sealed, unsealed
from dra_driver.inventory.devices import lnc_of

FILE = "lnc.state"  # no claim's: those have no dot in their UID
KIND = "LogicalNeuronCore"


@dataclass(frozen=True)
class InForce:
    """The LNC of this node, and the number of the newest instance that has looked at it."""

    value: int
    decider: int = 0


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    apiVersion: Literal["state.coreslice.dev/v1"]  # noqa: N815
    kind: Literal["LogicalNeuronCore"]
    value: Literal[1, 2]
    decider: int = 0


def encode(state: InForce) -> bytes:
    """The file's content."""
    body = {"apiVersion": API_VERSION, "kind": KIND, "value": state.value, "decider": state.decider}
    return sealed(json.dumps(body, separators=(",", ":")).encode())


def decode(content: bytes) -> InForce:
    """What the file says.

    Raises:
        RecordError: cut off, altered, or of another kind or version.
    """
    try:
        read = _File.model_validate_json(unsealed(content))
    except ValidationError as error:
        raise RecordError(f"not an LNC this release reads: {error}") from error
    return InForce(read.value, read.decider)


def load(directory: Path) -> InForce | None:
    """Without a lock, for people who look; None where there is none, or none that can be read."""
    try:
        return decode((directory / FILE).read_bytes())
    except (OSError, RecordError):
        return None


def recorded(records: Iterable[Record]) -> int | None:
    """What the devices were published at that records hold; None where none has it in its name."""
    names = (held.device.name for record in records for held in record.devices)
    return next(filter(None, map(lnc_of, names)), None)
