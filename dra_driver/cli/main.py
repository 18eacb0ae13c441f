"""The `coreslice` command: finds the command's module and runs it.

Only the named command's module is imported, so that the daemon doesn't pay for the others.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from dra_driver import __version__
from dra_driver.errors import CoresliceError, SettingsError

COMMANDS = ("driver", "demo", "machine", "slices", "classes", "ls", "state", "uninstall-check")

OK, FAILED, WRONG_USE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 good, 1 what was asked for doesn't hold, 2 wrong use."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parsed = _parser(arguments).parse_args(arguments)
    try:
        return int(parsed.func(parsed))
    except SettingsError as error:
        print(f"coreslice: {error}", file=sys.stderr)
        return WRONG_USE
    except CoresliceError as error:
        print(f"coreslice: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has gone: no second complaint at exit
        return FAILED


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="coreslice", description="DRA driver for AWS Neuron chips")
    parser.add_argument("--version", action="version", version=f"coreslice {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    named = [name for name in arguments[:1] if name in COMMANDS]
    for name in named or COMMANDS:
        import_module(f"dra_driver.cli.{name.replace('-', '_')}").add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
