"""Times as the server reads them: RFC 3339, a little more loosely than the standard.

Hours of one digit and a comma before the fraction are taken; leap seconds aren't.
"""

import re
from calendar import monthrange
from typing import Any

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,][0-9]+)?"
    r"(?:Z|[+-]([0-9]{2}):([0-9]{2}))"
)


def readable(value: Any) -> bool:
    """Whether it is a text that the server takes for a time."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return False
    year, month, day, hour, minute, second, *zone = (int(part or 0) for part in found.groups())
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year or 4, month)[1]:  # noqa: PLR2004 - months
        return False
    return hour < 24 and minute < 60 and second < 60 and zone[0] <= 24 and zone[1] < 60  # noqa: PLR2004 - clocks
