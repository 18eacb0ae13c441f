"""What sizes publish in numbers, counted by hand. The whole table is docs/sizes.md."""

import pytest

from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.inventory.summary import Summary, summarise
from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.nominal import nominal


def summary(size: str, lnc: int, minor: int) -> Summary:
    machine = nominal(SIZES[size])
    pool = Pool("neuron.coreslice.dev", "n")
    found = devices(machine, lnc=lnc)
    return summarise(build(pool, found, totals(machine), layout=Layout(minor), generation=1))


@pytest.mark.parametrize(
    ("size", "lnc", "minor", "numbers"),
    [
        # One chip of 2 cores: 2 + 1. A slice of counters, one of devices.
        ("trn1.2xlarge", 1, 37, {"core": 2, "chip": 1, "slices": 2, "sets": 1, "counters": 1}),
        # 16 chips of 2: 32 cores, 16 chips, groups 8 + 4 + 2 + 1: 63, just in one slice.
        ("trn1.32xlarge", 1, 37, {"core": 32, "chip": 16, "chip-group": 15, "slices": 2, "sets": 1, "counters": 16}),
        # 16 chips of 8 at LNC 2: chips and groups are 31, the 64 cores have the next slice.
        ("trn2.48xlarge", 2, 37, {"core": 64, "chip": 16, "chip-group": 15, "slices": 3, "sets": 1, "counters": 16}),
        # At LNC 1 128 cores: 159 devices are 31 + 64 + 64.
        ("trn2.48xlarge", 1, 37, {"core": 128, "chip": 16, "chip-group": 15, "slices": 4, "sets": 1, "counters": 16}),
        # In one slice of 128: 31 that aren't cores, 97 left, 12 chips of 8.
        ("trn2.48xlarge", 1, 34, {"core": 96, "chip": 16, "chip-group": 15, "slices": 1, "sets": 1, "counters": 16}),
        # A ring of 12 without wrapping: 11 windows of 2, 9 of 4, 7 of 6, 5 of 8, 1 of 12. 45 and 24 cores.
        ("inf2.48xlarge", 1, 37, {"core": 24, "chip": 12, "chip-group": 33, "slices": 3, "sets": 1, "counters": 12}),
        # A line of 4 chips of 4: windows 3 of 2, 2 of 3 (12 cores), 1 of 4; 2 runs a chip. 34 in all.
        # Counters: 4 chips, and one set of 16 cores.
        (
            "inf1.6xlarge",
            1,
            37,
            {"core": 16, "core-run": 8, "chip": 4, "chip-group": 6, "slices": 2, "sets": 2, "counters": 20},
        ),
        # 16 chips of 4: windows 15 of 2, 14 of 3, 13 of 4, 11 of 6, 9 of 8, 5 of 12, 1 of 16: 68. With chips 84: two
        # slices, and as many for the 96 cores and runs.
        # Counters: 16 chips, and 4 sets of 16 cores.
        (
            "inf1.24xlarge",
            1,
            37,
            {"core": 64, "core-run": 32, "chip": 16, "chip-group": 68, "slices": 5, "sets": 5, "counters": 80},
        ),
    ],
)
def test_by_hand(size: str, lnc: int, minor: int, numbers: dict[str, int]) -> None:
    found = summary(size, lnc, minor)
    by_type = {kind.value: count for kind, count in found.by_type.items() if count}
    counted = {"slices": found.slices, "sets": found.counter_sets, "counters": found.counters}
    assert by_type | counted == numbers
    assert found.devices == sum(by_type.values())


def test_what_a_scan_costs() -> None:
    """About 5 µs a device, as measured."""
    assert summary("trn2.48xlarge", 2, 37).scan == pytest.approx(95 * 5e-6)
