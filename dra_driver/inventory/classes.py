"""The DeviceClasses: two families by size, each class one selector that is cheap and can't fail.

`neuron-cores-N` matches any device of exactly N contiguous cores, `neuron-chips-N` N whole chips. Every
selector first tests the driver, so that a foreign device is harmless, and reads its attribute as optional, so
that nodes with another version of the driver are: a selector that fails on one device stops pods everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory.devices import DeviceType
from dra_driver.neuron import topology

CORE_COUNTS = topology.CORE_COUNTS
CHIP_COUNTS = topology.CHIP_COUNTS


@dataclass(frozen=True)
class SizedClass:
    """A class and the one attribute that it selects by."""

    name: str
    attribute: str
    value: str | int

    def expression(self, driver: str) -> str:
        """The selector in CEL. A device without the attribute has a value that no class asks for."""
        default, wanted = ('""', f'"{self.value}"') if isinstance(self.value, str) else ("0", str(self.value))
        return f'device.driver == "{driver}" && {_read(driver, self.attribute, default)} == {wanted}'

    def selects(self, device: Mapping[str, Any]) -> bool:
        """The same, of a published device of this driver."""
        kind = "string" if isinstance(self.value, str) else "int"
        entry: Mapping[str, Any] = device["attributes"].get(self.attribute) or {}
        return entry.get(kind) == self.value


def sized_classes(*, cores: Iterable[int] = CORE_COUNTS, chips: Iterable[int] = CHIP_COUNTS) -> list[SizedClass]:
    """Both families, each by size. One core and one chip are types: a device of one core may be a chip."""
    return [*map(_cores, cores), *map(_chips, chips)]


def device_classes(
    driver: str,
    *,
    cores: Sequence[int] = CORE_COUNTS,
    chips: Sequence[int] = CHIP_COUNTS,
    extended_names: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """All classes as v1 objects. `extended_names` gives a class (by name) an extendedResourceName, 1.36+.

    Such a name acts on the whole cluster: off unless asked for.
    """
    names = extended_names or {}
    found = sized_classes(cores=cores, chips=chips)
    return [_class(each.name, each.expression(driver), names.get(each.name)) for each in found]


def core_class(count: int) -> str:
    """The class of that many contiguous cores."""
    return "neuron-core" if count == 1 else f"neuron-cores-{count}"


def chip_class(count: int) -> str:
    """The class of that many whole chips."""
    return "neuron-chip" if count == 1 else f"neuron-chips-{count}"


def _cores(count: int) -> SizedClass:
    if count == 1:
        return SizedClass(core_class(1), "type", DeviceType.CORE.value)
    return SizedClass(core_class(count), "cores", count)


def _chips(count: int) -> SizedClass:
    if count == 1:
        return SizedClass(chip_class(1), "type", DeviceType.CHIP.value)
    return SizedClass(chip_class(count), "chips", count)  # only groups have more than one


def _read(driver: str, attribute: str, default: str) -> str:
    return f'device.attributes["{driver}"].?{attribute}.orValue({default})'


def _class(name: str, expression: str, extended_name: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
    if extended_name is not None:
        spec["extendedResourceName"] = extended_name
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }
