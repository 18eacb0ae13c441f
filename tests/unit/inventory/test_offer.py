"""What an owner leaves out, and how it is said in settings."""

import argparse

import pytest

from dra_driver.errors import SettingsError
from dra_driver.inventory.devices import Device, DeviceType, devices
from dra_driver.inventory.offer import Offer, Runs
from dra_driver.neuron.catalogue import SIZES
from dra_driver.settings import OFFER, add_arguments, load_offer, parse
from dra_driver.simulator.nominal import nominal


def given(offer: Offer, size: str, lnc: int = 1) -> dict[str, int]:
    counts: dict[str, int] = {}
    for device in offer.of(devices(nominal(SIZES[size]), lnc=lnc)):
        key = f"{device.type}s of {device.cores if device.part else len(device.chips)}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def offered(offer: Offer, size: str) -> list[Device]:
    return offer.of(devices(nominal(SIZES[size])))


def test_by_default_all_is_offered_but_runs_where_lnc_is_known() -> None:
    assert given(Offer(), "inf1.xlarge") == {"cores of 1": 4, "core-runs of 2": 2, "chips of 1": 1}
    assert given(Offer(), "trn2.3xlarge") == {"cores of 1": 8, "chips of 1": 1}
    assert given(Offer(), "trn3e.24xlarge", lnc=2) == {
        "cores of 1": 16,
        "chips of 1": 4,
        "chip-groups of 2": 2,
        "chip-groups of 4": 1,
    }


def test_runs_may_be_had_everywhere_or_nowhere() -> None:
    assert given(Offer(runs=Runs.ON), "trn2.3xlarge")["core-runs of 4"] == 2
    assert given(Offer(runs=Runs.ON), "trn2.3xlarge", lnc=2)["core-runs of 2"] == 2
    assert "core-runs of 2" not in given(Offer(runs=Runs.OFF), "inf1.xlarge")


def test_types() -> None:
    assert given(Offer(types=frozenset({DeviceType.CHIP_GROUP})), "inf2.24xlarge") == {
        "chip-groups of 2": 5,
        "chip-groups of 4": 3,
        "chip-groups of 6": 1,
    }
    assert given(Offer(types=frozenset()), "inf2.24xlarge") == {}
    assert "core-runs of 2" not in given(Offer(types=frozenset({DeviceType.CORE}), runs=Runs.ON), "inf1.xlarge")


def test_sizes_in_cores_and_in_chips() -> None:
    assert given(Offer(core_counts=(2,), chip_counts=(1, 4)), "inf1.6xlarge") == {
        "core-runs of 2": 8,
        "chips of 1": 4,
        "chip-groups of 4": 1,
    }


@pytest.mark.parametrize(("chips", "cores"), [(0, 0), (1, 2), (6, 12), (7, 12), (None, 12)])
def test_the_first_chips_have_cores(chips: int | None, cores: int) -> None:
    found = [device for device in offered(Offer(chips_with_cores=chips), "inf2.24xlarge") if device.part]
    assert len(found) == cores
    assert {device.chips[0] for device in found} == set(range(cores // 2))


def test_what_is_left_is_what_it_was() -> None:
    everything = devices(nominal(SIZES["inf1.6xlarge"]))
    for device in Offer(core_counts=(2,), chips_with_cores=2).of(everything):
        assert device in everything


# As settings


def loaded(*argv: str, **environment: str) -> Offer:
    parser = argparse.ArgumentParser()
    add_arguments(parser, OFFER)
    return load_offer(parser.parse_args(argv), environment)


def test_settings_default_to_everything() -> None:
    assert loaded() == Offer()
    assert parse(["--node-name", "n"], {}).offer == Offer()


def test_settings_by_flag_and_by_variable() -> None:
    flags = (
        *("--offer-types", "core, chip", "--offer-core-counts", "1,2"),
        *("--offer-chip-counts", "1", "--offer-chips-with-cores", "0", "--offer-runs", "on"),
    )
    expected = Offer(
        types=frozenset({DeviceType.CORE, DeviceType.CHIP}),
        core_counts=(1, 2),
        chip_counts=(1,),
        chips_with_cores=0,
        runs=Runs.ON,
    )
    assert loaded(*flags) == expected
    variables = {
        name.removeprefix("--").upper().replace("-", "_"): value
        for name, value in zip(flags[::2], flags[1::2], strict=True)
    }
    assert loaded(**variables) == expected
    assert parse(["--node-name", "n", *flags], {}).offer == expected


def test_words_for_all_and_for_none() -> None:
    everything = {"OFFER_CORE_COUNTS": "all", "OFFER_CHIP_COUNTS": "all", "OFFER_CHIPS_WITH_CORES": "all"}
    assert loaded(**everything) == Offer()
    assert loaded("--offer-types", "none").types == frozenset()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--offer-types", "core,gpu"),
        ("--offer-core-counts", "0"),
        ("--offer-core-counts", "two"),
        ("--offer-chip-counts", "-1"),
        ("--offer-chips-with-cores", "-1"),
        ("--offer-chips-with-cores", "some"),
        ("--offer-runs", "maybe"),
    ],
)
def test_settings_that_make_no_sense_are_named(flag: str, value: str) -> None:
    with pytest.raises(SettingsError, match=flag):
        loaded(flag, value)


def test_other_variables_are_no_concern_of_an_offer() -> None:
    assert loaded(LOG_LEVEL="nonsense", NODE_NAME="Not A Name") == Offer()


def test_help_says_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, OFFER)
    parser.print_help()
    text = " ".join(capsys.readouterr().out.split())
    assert "(env OFFER_TYPES; default core,core-run,chip,chip-group)" in text
    assert "(env OFFER_CHIPS_WITH_CORES; default all)" in text
