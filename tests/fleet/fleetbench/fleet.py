"""The nodes, slices and classes of a fleet of trn2.48xlarge at LNC 2, in every variant that is compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.published import DRIVER

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.classes import device_classes
from dra_driver.inventory.devices import Device, DeviceType, devices, publishing_order, totals
from dra_driver.inventory.offer import Offer
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
Order = Callable[[Device], tuple[int, ...]]

SIZE, LNC, CHIPS, CORES = "trn2.48xlarge", 2, 16, 64
MACHINE = nominal(SIZES[SIZE])
NODE_CPU, NODE_MEMORY_GIB = 192, 2048
CHIP_RESOURCE, CORE_RESOURCE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
AWS_CLASS = "aws-neuron"

_RANK = {DeviceType.CORE: 0, DeviceType.CORE_RUN: 1, DeviceType.CHIP: 2, DeviceType.CHIP_GROUP: 3}


def order(*, small_first: bool = True, cores: int = 1, chips: int = 1) -> Order:
    """By size of device, small or big first; among cores and among chips by index, up (1) or down (-1)."""
    size = 1 if small_first else -1

    def key(device: Device) -> tuple[int, ...]:
        sign = cores if device.part else chips
        return size * _RANK[device.type], size * device.cores, sign * device.chips[0], sign * device.first_core

    return key


def same(device: Wire) -> Wire:
    """As published."""
    return device


def only(wanted: Callable[[str], bool]) -> Callable[[Wire], Wire]:
    """Attributes of those names only."""

    def kept(device: Wire) -> Wire:
        return {**device, "attributes": {key: value for key, value in device["attributes"].items() if wanted(key)}}

    return kept


few_attributes = only(("type", "cores", "chips").__contains__)  # what classes select by
common_attributes = only(COMMON.__contains__)  # what every device has, on chips and groups too
aws_keys = only(lambda key: key in COMMON or "devicegroup" in key)  # what a driver of chips alone needs


def more_attributes(device: Wire) -> Wire:
    """Eight more on each device."""
    return {**device, "attributes": {**device["attributes"], **{f"more{at}": {"int": at} for at in range(8)}}}


def as_listed(selector: str) -> str:
    """As the classes have it."""
    return selector


def no_driver_test(selector: str) -> str:
    """Without the test of the driver: fails on devices of others."""
    return selector.partition(" && ")[2]


def no_optional(selector: str) -> str:
    """Plain reads: fails on devices without the attribute."""
    return selector.replace(".?", ".").replace('.orValue("")', "").replace(".orValue(0)", "")


@dataclass(frozen=True)
class Variant:
    """One way to publish. `style` is ours, aws (chips and counts) or extended (a device plugin's)."""

    name: str
    style: str = "ours"
    order: Order = publishing_order
    offer: Offer = field(default_factory=Offer)
    wire: Callable[[Wire], Wire] = same
    selector: Callable[[str], str] = as_listed
    node_first: bool = False  # in slice names
    counters: bool = True

    @property
    def types(self) -> frozenset[DeviceType]:
        """What devices it lists."""
        return frozenset() if self.style == "extended" else frozenset(each.type for each in self.devices())

    def devices(self) -> Sequence[Device]:
        """Of one node."""
        return self.offer.of(devices(MACHINE, lnc=LNC))

    def slices(self, node: str) -> list[Wire]:
        """Of one node."""
        if self.style == "extended":
            return []
        found = build(
            Pool(DRIVER, node),
            devices(MACHINE, lnc=LNC),
            totals(MACHINE),
            layout=Layout(37, self.counters),
            generation=1,
            offer=self.offer,
            order=self.order,
        )
        return [self._changed(at, each, node) for at, each in enumerate(found)]

    def _changed(self, at: int, item: Wire, node: str) -> Wire:
        spec = item["spec"]
        if "devices" in spec:
            spec = {**spec, "devices": [self.wire(each) for each in spec["devices"]]}
        name = f"{node}-{DRIVER}-{at:05d}" if self.node_first else item["metadata"]["name"]
        return {**item, "metadata": {"name": name}, "spec": spec}

    def classes(self) -> list[Wire]:
        """Cluster-wide."""
        if self.style == "aws":
            selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
            return [{**kind, "metadata": {"name": AWS_CLASS}, "spec": {"selectors": [selector]}}]
        found = device_classes(DRIVER) if self.style == "ours" else []
        for each in found:
            [selector] = each["spec"]["selectors"]
            selector["cel"]["expression"] = self.selector(selector["cel"]["expression"])
        return found


_PARTS = frozenset((DeviceType.CORE,))
_WHOLE = frozenset((DeviceType.CHIP, DeviceType.CHIP_GROUP))
_CHIPS = frozenset((DeviceType.CHIP,))

MAIN = (
    Variant("everything"),
    Variant("chips only", offer=Offer(types=_WHOLE)),
    Variant("cores only", offer=Offer(types=_PARTS)),
    Variant("AWS style", style="aws", offer=Offer(types=_CHIPS), counters=False),
    Variant("extended resource", style="extended"),
)
_CORES_FIRST = order(chips=-1)
LAYOUTS = (
    Variant("cores first", order=_CORES_FIRST),
    Variant("cores first, all up", order=order()),
    Variant("cores first, all down", order=order(cores=-1, chips=-1)),
    Variant("all up", order=order(small_first=False)),
    Variant("chips only, small first", order=_CORES_FIRST, offer=Offer(types=_WHOLE)),
    Variant("chips only, common attributes", offer=Offer(types=_WHOLE), wire=common_attributes),
    Variant("chips only, groups of 4 and 16", offer=Offer(types=_WHOLE, chip_counts=(1, 4, 16))),
    Variant("AWS style, common attributes", style="aws", offer=Offer(types=_CHIPS), counters=False, wire=aws_keys),
    Variant("common attributes", wire=common_attributes),
    Variant("few attributes", wire=few_attributes),
    Variant("eight attributes more", wire=more_attributes),
    Variant("no driver test", selector=no_driver_test),
    Variant("no optional reads", selector=no_optional),
    Variant("node first in slice names", node_first=True),
    Variant("cores on 4 chips", offer=Offer(chips_with_cores=4)),
)


def node_names(count: int) -> list[str]:
    """Of the fleet."""
    return [f"node-{number:03d}" for number in range(count)]


def node(name: str) -> Wire:
    """A node that no kubelet stands for."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def node_status(*, chips: int = 0) -> Wire:
    """Ready, with so many chips free of a device plugin's."""
    amounts = {
        "cpu": str(NODE_CPU),
        "memory": f"{NODE_MEMORY_GIB}Gi",
        "pods": "250",
        CHIP_RESOURCE: str(chips),
        CORE_RESOURCE: str(chips * CORES // CHIPS),
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


def chunks(names: Sequence[str], most: int = 32) -> Iterator[Sequence[str]]:
    """In parts of what one claim can hold."""
    for start in range(0, len(names), most):
        yield names[start : start + most]
