"""The commands as a user calls them, through an argument parser."""

import argparse
from collections.abc import Callable

import pytest

from dra_driver.cli import classes, machine, slices

Call = Callable[..., int]


@pytest.fixture
def call() -> Call:
    parser = argparse.ArgumentParser(prog="coreslice")
    commands = parser.add_subparsers(required=True)
    machine.add_parser(commands)
    slices.add_parser(commands)
    classes.add_parser(commands)

    def run(*arguments: object) -> int:
        args = parser.parse_args([str(argument) for argument in arguments])
        status: int = args.func(args)
        return status

    return run
