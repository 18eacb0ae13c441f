"""Tables for people: columns as wide as their longest word."""

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A text line for each line of words, all of one length; `right` sets all columns but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def cell(at: int, word: str) -> str:
        return word.rjust(widths[at]) if right and at else word.ljust(widths[at])

    return ["  ".join(cell(at, word) for at, word in enumerate(line)).rstrip() for line in lines]
