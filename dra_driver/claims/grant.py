"""What one container gets: chips in order, one run of cores, environment. Pure.

The runtime opens /dev/neuron0, 1, … by counting up and takes core numbers relative to the container's first chip; the
kernel then assumes that the container's chip k is the host's chip first+k. So a grant is host-contiguous, renamed from
0 in ascending host order, and its cores are one ascending run: anything else is refused. Devices that are only watched
(adminAccess) add nodes; beside devices of the container's own their cores don't count, since somebody else holds them.
"""

from collections.abc import Iterable, Sequence

from cdi.models import ContainerEdits, DeviceNode
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.inventory.devices import Device, DeviceType
from dra_driver.neuron.machine import Chip, Machine

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
LOGICAL_CORE_CONFIG = "NEURON_LOGICAL_NC_CONFIG"
_PARTS = {DeviceType.CORE, DeviceType.CORE_RUN}
_MODE = 0o666  # without it containerd copies the host node's, if there is one


def edits(
    devices: Iterable[Device],
    machine: Machine,
    *,
    watched: Iterable[Device] = (),
    visible_cores_on_chips: bool = False,
) -> ContainerEdits:
    """The complete edits of a container that gets these devices, whatever their order; at least one of both kinds.

    Raises:
        Refusal: chips or cores with a gap, a chip that is gone, or mixed logical core configurations.
    """
    own, watched = _in_order(devices), _in_order(watched)
    every = _in_order([*own, *watched])
    counted = own or watched
    chips = _contiguous_chips(every, machine)
    environment = []
    # Without the variable the runtime takes all cores of every node, a watched one's too.
    whole = all(device.type not in _PARTS for device in counted) and _chips(counted) == _chips(every)
    if visible_cores_on_chips or not whole:
        environment.append(f"{VISIBLE_CORES}={_visible(counted, chips)}")
    if chips[0].max_lnc > 1:
        environment.append(f"{LOGICAL_CORE_CONFIG}={_one_lnc(every)}")
    nodes = [_node(position, chip) for position, chip in enumerate(chips)]
    return ContainerEdits(env=tuple(environment), device_nodes=tuple(nodes))


def _in_order(devices: Iterable[Device]) -> list[Device]:
    """Each device once, in one order: the same set always gives the same edits."""
    by_name = {device.name: device for device in devices}
    return sorted(by_name.values(), key=lambda device: (device.chips, device.first_core, device.name))


def _chips(devices: Iterable[Device]) -> set[int]:
    return {index for device in devices for index in device.chips}


def _contiguous_chips(devices: Sequence[Device], machine: Machine) -> list[Chip]:
    indices = sorted(_chips(devices))
    if indices != list(range(indices[0], indices[0] + len(indices))):
        raise Refusal(
            Reason.NOT_CONTIGUOUS,
            f"devices {_names(devices)} lie on the chips {indices}, which aren't neighbours in number;"
            " ask one device of a class of the size instead",
        )
    found = [machine.chip(index) for index in indices]
    if missing := [index for index, chip in zip(indices, found, strict=True) if chip is None]:
        raise Refusal(Reason.UNKNOWN_DEVICE, f"chip {missing[0]} of {_names(devices)} isn't there any more")
    return [chip for chip in found if chip is not None]


def _visible(devices: Sequence[Device], chips: Sequence[Chip]) -> str:
    """`a` or `a-b`, counted from the container's first chip."""
    lnc, first_of, total = _one_lnc(devices), {}, 0
    for chip in chips:
        first_of[chip.index] = total
        total += chip.physical_cores // lnc
    cores = sorted({core for device in devices for core in _cores(device, first_of)})
    if cores[-1] - cores[0] + 1 != len(cores):
        raise Refusal(
            Reason.NOT_CONTIGUOUS,
            f"cores {cores} of the devices {_names(devices)} have a gap, the runtime takes one run only;"
            " ask one device of a class of the size instead",
        )
    return str(cores[0]) if len(cores) == 1 else f"{cores[0]}-{cores[-1]}"


def _cores(device: Device, first_of: dict[int, int]) -> range:
    first = first_of[device.chips[0]] + device.first_core
    return range(first, first + device.cores)


def _one_lnc(devices: Sequence[Device]) -> int:
    found = {device.lnc for device in devices}
    if len(found) > 1:
        raise Refusal(
            Reason.DIFFERENT_GRANTS,
            f"devices {_names(devices)} were published at different logical core sizes",
        )
    return found.pop()


def _node(position: int, chip: Chip) -> DeviceNode:
    return DeviceNode(
        path=f"/dev/neuron{position}",
        host_path=f"/dev/neuron{chip.index}",
        type="c",
        major=chip.major,
        minor=chip.minor,
        file_mode=_MODE,
        permissions="rw",
    )


def _names(devices: Iterable[Device]) -> str:
    return ", ".join(device.name for device in devices)
