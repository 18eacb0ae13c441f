"""When the simulated kubelet wipes slices: 30 s after the last connection to a driver is lost, once."""

import pytest

from dra_driver.simulator import kubelet_plugins
from dra_driver.simulator.kubelet_plugins import SliceWiper


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(kubelet_plugins, "time", clock)
    return clock


@pytest.fixture
def wiped() -> list[str | None]:
    return []


@pytest.fixture
def wiper(wiped: list[str | None]) -> SliceWiper:
    return SliceWiper(wiped.append, 30.0)


def look(wiper: SliceWiper, clock: Clock, at: float, *, registered: bool, connected: bool) -> None:
    clock.now = at
    wiper.look(registered={"d"} if registered else set(), connected={"d"} if connected else set())


def test_a_connected_driver_keeps_its_slices(wiper: SliceWiper, clock: Clock, wiped: list[str | None]) -> None:
    for at in (0, 100, 200):
        look(wiper, clock, at, registered=True, connected=True)
    assert wiped == []


def test_the_slices_go_30_s_after_the_loss_and_once(wiper: SliceWiper, clock: Clock, wiped: list[str | None]) -> None:
    look(wiper, clock, 0, registered=True, connected=True)
    look(wiper, clock, 50, registered=False, connected=False)
    look(wiper, clock, 79, registered=False, connected=False)
    assert wiped == []
    for at in (80, 200, 300):
        look(wiper, clock, at, registered=False, connected=False)
    assert wiped == ["d"]


def test_a_connection_in_time_cancels(wiper: SliceWiper, clock: Clock, wiped: list[str | None]) -> None:
    look(wiper, clock, 0, registered=True, connected=True)
    look(wiper, clock, 10, registered=True, connected=False)
    look(wiper, clock, 35, registered=True, connected=True)
    look(wiper, clock, 45, registered=True, connected=False)
    look(wiper, clock, 74, registered=True, connected=False)
    assert wiped == []
    look(wiper, clock, 75, registered=True, connected=False)
    assert wiped == ["d"]


def test_registering_without_ever_connecting_starts_the_timer(
    wiper: SliceWiper, clock: Clock, wiped: list[str | None]
) -> None:
    look(wiper, clock, 0, registered=True, connected=False)
    look(wiper, clock, 30, registered=True, connected=False)
    assert wiped == ["d"]


def test_a_wipe_that_fails_is_tried_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str | None] = []

    def wipe(driver: str | None) -> None:
        asked.append(driver)
        if len(asked) == 1:
            raise ConnectionError("the API is away")

    wiper = SliceWiper(wipe, 30.0)
    for at in (0, 31, 32, 33):
        look(wiper, clock, at, registered=True, connected=False)
    assert asked == ["d", "d"]
    assert "the API is away" in caplog.text
