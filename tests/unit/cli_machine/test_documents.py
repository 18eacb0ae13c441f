"""What documents show of commands is what the commands print.

`python tests/unit/cli_machine/test_documents.py`, with the repository on PYTHONPATH, writes it anew, to be read before
it is committed.
"""

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cli.main import main

ROOT = Path(__file__).parents[3]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")]
_SHOWN = re.compile(r"^```console\n\$ coreslice (.*)\n(?s:(.*?))^```$", re.MULTILINE)


def shown() -> dict[tuple[Path, str], str]:
    """By document and command line: the output there."""
    return {(path, command): text for path in DOCUMENTS for command, text in _SHOWN.findall(path.read_text())}


def printed(command: str) -> str:
    """What it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(command.split()) == 0
    return out.getvalue()


@pytest.mark.parametrize(("path", "command"), shown(), ids=lambda value: str(getattr(value, "name", value)))
def test_what_a_document_shows_is_what_the_command_prints(path: Path, command: str) -> None:
    assert shown()[path, command] == printed(command)


def test_sizes_are_documented() -> None:
    assert {command for path, command in shown() if path.name == "sizes.md"} == {
        "classes",
        "slices --all-sizes",
        "slices --all-sizes --server-version 1.34",
    }


def rewritten(text: str, run: Callable[[str], str] = printed) -> str:
    """A document with the output of its commands in it."""
    return _SHOWN.sub(lambda found: f"```console\n$ coreslice {found[1]}\n{run(found[1])}```", text)


def test_writing_replaces_the_output_and_nothing_else() -> None:
    text = (
        "# A\n\n```console\n$ coreslice a --b\nold\n```\nbetween\n```yaml\nx: 1\n```\n```console\n$ coreslice c\n```\n"
    )
    new = rewritten(text, lambda command: f"({command})\n")
    assert new == text.replace("old", "(a --b)").replace("$ coreslice c\n", "$ coreslice c\n(c)\n")


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(rewritten(document.read_text()))
