"""`coreslice driver`: the daemon."""

import argparse
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from dra_driver import settings
from dra_driver.observe import logs

if TYPE_CHECKING:
    from types import FrameType


def add_parser(commands: Any) -> None:
    """Its flags are the settings."""
    parser = commands.add_parser("driver", help="run the daemon", description=__doc__)
    settings.add_arguments(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    effective = settings.load(arguments, os.environ)
    logs.configure(level=effective.log_level, as_json=effective.log_format is settings.LogFormat.JSON)
    stop = threading.Event()

    def on_signal(number: int, _frame: "FrameType | None") -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends a stop that hangs
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    from dra_driver.driver import Driver  # noqa: PLC0415 (a wrong setting is told before the libraries load)

    Driver(effective).run(stop)
    return 0
