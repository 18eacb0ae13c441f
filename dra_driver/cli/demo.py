"""`coreslice demo`: the whole path on a simulated machine, in a few seconds and without a cluster.

Exit status 0 only if everything that was shown held, 1 otherwise, 2 for a size that the story can't be told on.
"""

import argparse
import dataclasses
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dra_driver.cli import demo_text
from dra_driver.cli.demo_story import Story
from dra_driver.errors import CoresliceError
from dra_driver.neuron.catalogue import SIZES

if TYPE_CHECKING:
    from dra_driver.cli.demo_run import Run

DEFAULT = "trn1.2xlarge"
_LONGEST = 30  # bytes of a temporary folder that leave room for the sockets' names
GOOD, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `demo`."""
    parser = subparsers.add_parser("demo", help="two ledgers go wrong, one pool doesn't: a run of a few seconds")
    parser.add_argument("--machine", metavar="SIZE", default=DEFAULT, help=f"one of: {', '.join(_sizes())}")
    parser.add_argument("--json", action="store_true", help="print the facts and checks for machines")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Tells the story; every temporary file and process is gone when it returns."""
    if args.machine not in _sizes():
        text = f"coreslice demo: --machine {args.machine}: the story is of one chip; take {', '.join(_sizes())}"
        print(text, file=sys.stderr)
        return WRONG_USE
    tell = _run_json if args.json else _run_text
    try:
        with _terminable(), _scratch() as scratch:
            story = tell(_runner(), args.machine, scratch)
    except KeyboardInterrupt:
        print("coreslice demo: interrupted; everything was cleaned up", file=sys.stderr)
        return INTERRUPTED
    return GOOD if story.held else FAILED


def _sizes() -> list[str]:
    return [size.name for size in SIZES.values() if size.chips == 1]


def _runner() -> "type[Run]":
    """Imported late: the other commands must work where the demo's packages aren't installed."""
    try:
        from dra_driver.cli.demo_run import Run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dra_driver"):
            raise
        raise CoresliceError(f"the demo lacks the module {error.name}: pip install 'coreslice[demo]'") from error
    return Run


def _run_text(run: "type[Run]", size: str, scratch: Path) -> Story:
    """Each part is printed as soon as it is known."""
    told = [Story()]

    def tell(now: Story) -> None:
        for line in demo_text.part(told[-1], now):
            print(line, flush=True)
        told.append(now)

    story = run(size, scratch, tell).run()
    for line in demo_text.verdict(story):
        print(line)
    return story


def _run_json(run: "type[Run]", size: str, scratch: Path) -> Story:
    story = run(size, scratch).run()
    print(json.dumps({**dataclasses.asdict(story), "held": story.held}, indent=2))
    return story


@contextmanager
def _scratch() -> Iterator[Path]:
    """A short path: sockets lie in it, and one of more than 107 bytes can't be bound."""
    usual = tempfile.gettempdir()
    path = Path(tempfile.mkdtemp(prefix="cs-", dir=usual if len(usual) <= _LONGEST else "/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does, with everything cleaned up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
