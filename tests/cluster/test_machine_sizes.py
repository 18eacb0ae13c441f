"""Large machines on the real node: a pod for every class that the size promises, and what its container saw.

As many at once as have room beside each other; each ends when it has said what it sees.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.examples import Examples
from testbed.grants import seen
from testbed.outcomes import LARGE_OUTCOMES
from testbed.published import Published

from dra_driver.inventory.devices import Device, physical_cores
from dra_driver.neuron.catalogue import SIZES

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]

Seen = dict[str, str]
VISIBLE, LNC = "NEURON_RT_VISIBLE_CORES", "NEURON_LOGICAL_NC_CONFIG"
SECONDS = 90.0
EVEN = "chip chips-2 chips-4 chips-6 chips-8 chips-12"  # rings and lines; a torus has powers of two
# Size, LNC, and the classes that it promises there.
MACHINES = [
    ("trn2.48xlarge", 2, "core cores-4 cores-8 cores-16 cores-32 cores-64 chip chips-2 chips-4 chips-8 chips-16"),
    ("trn2.48xlarge", 1, "core cores-8 cores-16 cores-32 cores-64 cores-128 chip chips-2 chips-4 chips-8 chips-16"),
    ("inf2.48xlarge", 1, f"core cores-2 cores-4 cores-8 cores-12 cores-16 cores-24 {EVEN}"),
    ("inf1.24xlarge", 1, f"core cores-2 cores-4 cores-8 cores-12 cores-16 cores-24 cores-32 cores-64 {EVEN} chips-16"),
    ("trn1.32xlarge", 1, "core cores-2 cores-4 cores-8 cores-16 cores-32 chip chips-2 chips-4 chips-8 chips-16"),
]


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Size and LNC."""
    size, lnc = request.param
    return str(size), int(lnc)


@pytest.fixture
def driver_arguments(machine: tuple[str, int]) -> Mapping[str, Any]:
    size, lnc = machine
    return {"size": size, "options": [f"--lnc={lnc}"], "stats": False}


def to_see(device: Device, major: int, size: str) -> Seen:
    """What a container with that device has to see, by the physical cores that the device covers."""
    per_chip, two = SIZES[size].physical_cores, SIZES[size].core_architecture in {"NCv3", "NCv4"}
    cores = sorted(physical_cores(device))
    chips = sorted({chip for chip, _ in cores})
    expected = {f"/dev/neuron{at}": f"{major}:{chip}" for at, chip in enumerate(chips)}
    if len(cores) < per_chip * len(chips):
        first, last = (core // device.lnc for _, core in (cores[0], cores[-1]))
        expected[VISIBLE] = str(first) if first == last else f"{first}-{last}"
    return expected | ({LNC: str(device.lnc)} if two else {})


def pod_of(device_class: str) -> list[Object]:
    """A template and a pod that says what it sees and ends."""
    main = objects.container(claims=["c"], stays=False)
    return [
        objects.template(device_class, r=device_class),
        objects.pod(device_class, main, claims={"c": f"template/{device_class}"}),
    ]


def waves(chips: Mapping[str, int]) -> list[Sequence[str]]:
    """Classes that fit together, large first, by how many chips each takes; a part counts as a chip."""
    found: list[list[str]] = []
    for name in sorted(chips, key=lambda each: -chips[each]):
        room = (wave for wave in found if sum(chips[each] for each in [*wave, name]) <= max(chips.values()))
        if wave := next(room, None):
            wave.append(name)
        else:
            found.append([name])
    return list(found)


def line(size: str, lnc: int, device_class: str, saw: Seen) -> str:
    minors = [int(number.partition(":")[2]) for path, number in saw.items() if path.startswith("/dev/")]
    hosts = f"{min(minors)}" if len(minors) == 1 else f"{min(minors)}-{max(minors)}"
    inside = "neuron0" if len(minors) == 1 else f"neuron0-{len(minors) - 1}"
    return f"{size:14} {lnc}    {device_class:17} {hosts:10} {inside:12} {saw.get(VISIBLE, '-'):14} {saw.get(LNC, '-')}"


@pytest.mark.parametrize(
    ("machine", "promised"),
    [((size, lnc), names.split()) for size, lnc, names in MACHINES],
    indirect=["machine"],
    ids=[f"{size}-lnc{lnc}" for size, lnc, _ in MACHINES],
)
def test_every_class_of_the_size_is_granted_as_its_device_says(
    driver: Driver,
    classes: list[Object],
    machine: tuple[str, int],
    promised: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (size, lnc), node = machine, driver.node
    published = Published(driver.slices(), node.name)
    names = [f"neuron-{each}" for each in promised]
    assert list(published.promised) == names
    assert {device.lnc for device in published.devices.values()} == {lnc}
    table = {}
    for together in waves({name: len(published.devices[found[0]].chips) for name, found in published.promised.items()}):
        for name in together:
            node.apply(*pod_of(name))
        for name in together:
            node.wait_pod(name, "Succeeded", timeout=SECONDS)
            saw = seen(driver, name)
            expected = [to_see(published.devices[each], driver.major, size) for each in published.promised[name]]
            assert saw in expected, (name, saw)
            table[name] = line(size, lnc, name, saw)
    with capsys.disabled():
        print("\nSIZE           LNC  CLASS             HOST CHIPS /dev/        VISIBLE_CORES  LOGICAL_NC_CONFIG")
        print("\n".join(table[name] for name in names))


@pytest.mark.parametrize(
    ("machine", "name"),
    [((size, 1), name) for size, name in LARGE_OUTCOMES],
    indirect=["machine"],
    ids=[f"{name}-{size}" for size, name in LARGE_OUTCOMES],
)
def test_example_that_one_chip_cannot_show(
    driver: Driver, classes: list[Object], machine: tuple[str, int], name: str
) -> None:
    examples = Examples(driver)
    LARGE_OUTCOMES[machine[0], name](examples)
    examples.delete()
