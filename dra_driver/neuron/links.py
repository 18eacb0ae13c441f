"""How chips are wired: the shapes, and their neighbour lists in the order that the kernel driver prints them."""

from enum import StrEnum

Links = tuple[tuple[int, ...], ...]  # by chip: its neighbours

ROW = 4  # chips in a row of a torus
BLOCK = 16  # chips of a torus; a host with more has several, side by side


class Fabric(StrEnum):
    """The shape of the links between a machine's chips."""

    SINGLE = "single"
    LINE = "line"
    RING = "ring"
    TORUS = "torus"  # four rows of four, both directions wrap
    SWITCHED = "switched"  # every chip reaches every other, whatever links are printed
    UNKNOWN = "unknown"


# trn2 and trn3: the same sets as on trn1 in an order of their own.
_TRN2_ORDER: Links = (
    *((12, 1, 3, 4), (0, 13, 5, 2), (14, 3, 1, 6), (2, 15, 7, 0)),
    *((8, 5, 7, 0), (4, 9, 1, 6), (10, 7, 5, 2), (6, 11, 3, 4)),
    *((4, 9, 11, 12), (8, 5, 13, 10), (6, 11, 9, 14), (10, 7, 15, 8)),
    *((0, 13, 15, 8), (12, 1, 9, 14), (2, 15, 13, 10), (14, 3, 11, 12)),
)


def none(chips: int) -> Links:
    """Chips without a link."""
    return ((),) * chips


def line(chips: int) -> Links:
    """A line: previous, next."""
    return tuple(tuple(other for other in (chip - 1, chip + 1) if 0 <= other < chips) for chip in range(chips))


def ring(chips: int) -> Links:
    """A ring: previous, next; the last is linked to the first."""
    return tuple(((chip - 1) % chips, (chip + 1) % chips) for chip in range(chips))


def reverse(links: Links) -> Links:
    """The same links as Inferentia1 prints them: next, previous."""
    return tuple(tuple(reversed(neighbours)) for neighbours in links)


def torus() -> Links:
    """Four rows of four as trn1 prints them: above, left, below, right."""
    return tuple(torus_neighbours(chip) for chip in range(BLOCK))


def torus_neighbours(chip: int) -> tuple[int, ...]:
    """Above, left, below, right within the chip's own torus of sixteen."""
    base, row, column = chip // BLOCK * BLOCK, chip % BLOCK // ROW, chip % ROW
    at = ((row - 1, column), (row, column - 1), (row + 1, column), (row, column + 1))
    return tuple(base + down % ROW * ROW + right % ROW for down, right in at)


def trn2_torus() -> Links:
    """The torus as trn2 and trn3 print it."""
    return _TRN2_ORDER
