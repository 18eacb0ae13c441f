"""`coreslice driver`: the daemon."""

import argparse
import logging
import os
import signal
from typing import Any

from dra_driver import settings
from dra_driver.observe import logs

log = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT)


def add_parser(commands: Any) -> None:
    """Its flags are the settings."""
    parser = commands.add_parser("driver", help="run the daemon", description=__doc__)
    settings.add_arguments(parser)
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    effective = settings.load(arguments, os.environ)
    logs.configure(level=effective.log_level, as_json=effective.log_format is settings.LogFormat.JSON)
    # Blocked before there are threads, which inherit it. The kernel may give a signal to any thread, and a handler in
    # Python then waits for a main thread that sleeps on a lock: one SIGTERM in ten was lost that way.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC's core writes lines of its own, such as of each GOAWAY
    from dra_driver.driver import Driver  # noqa: PLC0415 (a wrong setting is told before the libraries load)

    Driver(effective).run(_wait_for_the_end)
    return 0


def _wait_for_the_end() -> None:
    """Until one of the signals comes; a second one ends a stop that hangs."""
    number = signal.sigwait(_ENDING)
    log.info("stopping", extra={"signal": signal.Signals(number).name})
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
