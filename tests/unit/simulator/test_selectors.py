"""Selectors give what a real scheduler gives, or an error; never a guess."""

from typing import Any

import pytest

from dra_driver.simulator.selectors import SelectorError, compile_selector, rewrite

DEVICE: dict[str, Any] = {
    "name": "core-0-1",
    "attributes": {
        "type": {"string": "core"},
        "index": {"int": 0},
        "spare": {"bool": True},
        "driverVersion": {"version": "2.30.2+0"},
        "resource.kubernetes.io/numaNode": {"int": 1},
    },
    "capacity": {"memory": {"value": "16Gi"}},
}


def matches(expression: str, device: dict[str, Any] = DEVICE) -> bool:
    return compile_selector(expression).matches("d", device)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "d"',
        'device.attributes["d"].type == "core"',
        "device.attributes['d'].type == 'core'",
        'device.attributes["d"]["type"] == "core"',
        'device.attributes["d"].index == 0 && device.attributes["d"].spare',
        'device.attributes["resource.kubernetes.io"].numaNode == 1',
        'device.attributes["d"].type.startsWith("co")',
        'device.attributes["d"].index in [0, 2]',
        '"type" in device.attributes["d"]',
        '!("type" in device.attributes["other"])',
        '!("other" in device.attributes)',
        'has(device.attributes["d"].type) && !has(device.attributes["other"].type)',
        'device.driver != "d" || device.attributes["d"].type == "core" // why',
    ],
)
def test_holds(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["d"].?type.orValue("") == "core"', True),
        ('device.attributes["d"].?type.orValue("") == "chip"', False),
        ('device.attributes["d"].?nope.orValue("x") == "x"', True),
        ('device.attributes["other"].?nope.orValue(-1) == -1', True),
        ('device.attributes["other"].?nope.orValue(false)', False),
        ("device . attributes [ 'd' ] .?nope . orValue( 7 ) == 7", True),
        ('device.attributes["d"].?type.orValue("a ) b") == "core"', True),
        ('device.capacity["d"].?memory.orValue(0) == quantity("16Gi")', True),
        (
            'device.driver == "d" && device.attributes["d"].?index.orValue(-1) == 0 ? true : false',
            True,
        ),
    ],
)
def test_optional_with_default(expression: str, *, expected: bool) -> None:
    assert matches(expression) is expected


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["d"].?type',
        'device.attributes["d"].?type.hasValue()',
        'device.attributes["d"].?type.orValue(1 + 1) == 2',
        'device.attributes["d"].?type.orValue(device.driver) == "x"',
        'device.attributes["d"].?type.optMap(x, x == "core").orValue(false)',
        'device.attributes[?"d"].type == "core"',
        'device.attributes["d"][?"type"].orValue("") == "core"',
    ],
)
def test_other_optionals_are_refused_by_name(expression: str) -> None:
    with pytest.raises(SelectorError, match="of optional types the simulator evaluates") as caught:
        matches(expression)
    assert repr(expression) in str(caught.value)


def test_domain_that_is_no_literal_is_refused() -> None:
    """An unknown one would have to be an empty map, which the evaluator can't be told."""
    with pytest.raises(SelectorError, match="must be a literal"):
        matches('device.attributes[device.driver].type == "core"')


@pytest.mark.parametrize("domain", ["d", "other"])
def test_unknown_attribute_is_a_runtime_error(domain: str) -> None:
    with pytest.raises(SelectorError, match=r"on device core-0-1: no such key: nope"):
        matches(f'device.attributes["{domain}"].nope == "x"')


def test_false_on_one_side_hides_the_error_of_the_other() -> None:
    """Which is why a class begins with the driver's name: a foreign device is then harmless."""
    assert not matches('device.driver == "mine" && device.attributes["mine"].type == "core"')
    assert not matches('device.attributes["mine"].type == "core" && device.driver == "mine"')


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.capacity["d"].memory.compareTo(quantity("16384Mi")) == 0', True),
        ('device.capacity["d"].memory.isGreaterThan(quantity("16G"))', True),
        ('device.capacity["d"].memory.isLessThan(quantity("16Gi"))', False),
        ('device.capacity["d"].memory == quantity("16384Mi")', True),
        ('device.capacity["d"].memory == "16Gi"', False),
        ('device.attributes["d"].driverVersion == "2.30.2+0"', False),
        ('device.attributes["d"].driverVersion.compareTo(semver("2.30.2")) == 0', True),
        ('device.attributes["d"].driverVersion.isGreaterThan(semver("2.30.2-rc.1"))', True),
        ('device.attributes["d"].driverVersion.isLessThan(semver("2.100.0"))', True),
        ('semver("1.0.0-rc.2").isLessThan(semver("1.0.0-rc.10"))', True),
        ('semver("1.0.0-1").isLessThan(semver("1.0.0-alpha"))', True),
        ('semver("1.0.0-rc").isLessThan(semver("1.0.0-rc.1"))', True),
    ],
)
def test_quantities_and_versions_are_types_of_their_own(expression: str, *, expected: bool) -> None:
    assert matches(expression) is expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ('device.capacity["d"].memory.isLessThan(quantity("much"))', "'much' is not a quantity"),
        (
            'device.attributes["d"].driverVersion.isLessThan(semver("2.30.2.0"))',
            "'2.30.2.0' is not a semantic",
        ),
        ('device.capacity["d"].memory.isLessThan(semver("1.0.0"))', "different types"),
        ('cel.bind(x, device.driver, x == "d")', "Undefined variable or function"),
        ("device.allowMultipleAllocations", "no such key: allowMultipleAllocations"),
        ('device.attributes["d"].type', "must give a bool, gives str"),
        ("foo", "Undefined variable or function: 'foo'"),
        ('device.driver + 1 == "d1"', "on device core-0-1"),
    ],
)
def test_what_fails_on_a_device_says_why(expression: str, reason: str) -> None:
    with pytest.raises(SelectorError) as caught:
        matches(expression)
    assert reason in str(caught.value)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize("expression", ["", "1 +", "device.", 'device.driver = "d"', '"open'])
def test_what_is_no_cel_is_refused_when_it_is_compiled(expression: str) -> None:
    with pytest.raises(SelectorError, match="can't be compiled"):
        compile_selector(expression)


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [({}, "core"), ({"string": "a", "int": 1}, "exactly one value, this one has string, int")],
)
def test_half_made_attribute_is_an_error(attribute: dict[str, Any], reason: str) -> None:
    with pytest.raises(SelectorError, match=reason):
        matches('device.driver == "d"', {"name": "core", "attributes": {"a": attribute}})


@pytest.mark.parametrize(
    "text",
    [
        '"device.attributes[\\"d\\"].?x"',
        "'device.attributes[x]'",
        '"// no comment"',
        '"""a " ?[? b"""',
        'r"\\"',
    ],
)
def test_text_in_literals_is_left_alone(text: str) -> None:
    assert rewrite(f"{text} == device.driver") == f"{text} == device.driver"
    assert not matches(f"{text} == device.driver")


def test_a_name_that_merely_ends_in_device_is_left_alone() -> None:
    assert rewrite('my_device.attributes["d"].x') == 'my_device.attributes["d"].x'
