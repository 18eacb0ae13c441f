"""One table of reasons: complete, stable, and each of them reached by a test."""

import re
from pathlib import Path

import pytest

import dra_driver.claims
from dra_driver.claims.refusals import Reason, Refusal

SOURCE = Path(dra_driver.claims.__file__).parent
TESTS = Path(__file__).parents[2]
USED = re.compile(r"Reason\.([A-Z_]+)")


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_each_reason_has_a_code_for_events_and_an_earlier_gate(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason.code)
    assert re.match(r"(none|admission|documented): .|(the|that) ", reason.gate)


def test_codes_are_unique() -> None:
    assert len({reason.code for reason in Reason}) == len(Reason)


def _named(files: list[Path], skip: str) -> set[str]:
    return {name for path in files if path.name != skip for name in USED.findall(path.read_text())}


def test_each_reason_is_raised_somewhere() -> None:
    assert _named(sorted(SOURCE.glob("*.py")), "refusals.py") == {reason.name for reason in Reason}


def test_each_reason_is_reached_by_a_test() -> None:
    tests = [path for kind in ("unit", "contract") for path in (TESTS / kind / "claims").glob("test_*.py")]
    texts = [path.read_text() for path in tests if path.name != Path(__file__).name]
    missing = {reason for reason in Reason if not any(f"Reason.{reason.name}" in text for text in texts)}
    assert not missing


def test_a_refusal_says_whether_the_pod_has_to_be_made_again() -> None:
    assert str(Refusal(Reason.DEVICE_HELD, "it is held")) == "DeviceHeld: it is held"
    assert str(Refusal(Reason.NOT_CONTIGUOUS, "a gap")).startswith("NotContiguous: a gap; the pod has to be deleted")
