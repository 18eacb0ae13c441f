"""ResourceSlices for comparing verdicts: valid ones of every layout, and ones with a few faults.

A slice depends on the seed and its number alone, so a disagreement is repeated by naming both.
"""

import copy
from typing import Any

from testbed.slicefaults import DEVICE_FAULTS, SPEC_FAULTS
from testbed.slicemaker import Maker, Wire
from testbed.slicevalues import ANYTHING


class Fuzz(Maker):
    """One slice after another; `slice(n)` is the n-th of this seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.root = seed

    def slice(self, number: int) -> Wire:
        """A v1 ResourceSlice, valid in about a third of all cases."""
        self.seed(f"{self.root}/{number}")
        made = self.valid()
        for _ in range(self.choice((0, 0, 1, 1, 1, 2, 3))):
            self.choice((self.aimed, self.aimed, self.anywhere))(made)
        return made

    def aimed(self, made: Wire) -> None:
        """One fault where a rule looks, if the slice has the place."""
        spec = made.get("spec")
        if not isinstance(spec, dict):
            return
        devices = spec.get("devices")
        on_device = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
        if on_device and self.chance(0.7):
            self.choice(DEVICE_FAULTS)(self, self.choice(on_device))
        else:
            self.choice(SPEC_FAULTS)(self, made, spec)

    def anywhere(self, made: Wire) -> None:
        """Any value replaced, removed or doubled; any field added."""
        places = [(inside, key) for inside, key in walk(made) if key not in ("apiVersion", "kind")]
        if not places:
            return
        inside, key = self.choice(places)
        match self.randrange(5):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, list):
                inside.append(copy.deepcopy(inside[key]))
            case 2 if isinstance(inside, dict):
                inside[self.choice(("extra", "Name", "nodename", "strings", "value", "é"))] = self.choice(ANYTHING)
            case _:
                alike = [value for value in ANYTHING if type(value) is type(inside[key]) or value is None]
                inside[key] = copy.deepcopy(self.choice(alike if self.chance(0.6) else ANYTHING))


def walk(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below; of long lists the ends are enough."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value))) if len(value) < 8 else [0, len(value) - 1]
    else:
        return []
    return [place for key in keys for place in ((value, key), *walk(value[key]))]
