"""The DeviceClasses: two families by size, each class one selector that is cheap and can't fail.

`neuron-cores-N` matches any device of exactly N contiguous cores, `neuron-chips-N` N whole chips. Every
selector first tests the driver, so that a foreign device is harmless, and reads its attribute as optional, so
that nodes with another version of the driver are: a selector that fails on one device stops pods everywhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory.devices import DeviceType

CORE_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32, 64, 128)
CHIP_COUNTS = (1, 2, 4, 6, 8, 12, 16)


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
    selectors = {core_class(count): _cores(driver, count) for count in cores}
    selectors |= {chip_class(count): _chips(driver, count) for count in chips}
    return [_class(name, expression, names.get(name)) for name, expression in selectors.items()]


def core_class(count: int) -> str:
    """The class of that many contiguous cores."""
    return "neuron-core" if count == 1 else f"neuron-cores-{count}"


def chip_class(count: int) -> str:
    """The class of that many whole chips."""
    return "neuron-chip" if count == 1 else f"neuron-chips-{count}"


def _cores(driver: str, count: int) -> str:
    if count == 1:
        return _selector(driver, f'?type.orValue("") == "{DeviceType.CORE}"')
    return _selector(driver, f"?cores.orValue(0) == {count}")


def _chips(driver: str, count: int) -> str:
    if count == 1:
        return _selector(driver, f'?type.orValue("") == "{DeviceType.CHIP}"')
    return _selector(driver, f"?chips.orValue(0) == {count}")  # only groups have more than one


def _selector(driver: str, test: str) -> str:
    return f'device.driver == "{driver}" && device.attributes["{driver}"].{test}'


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
