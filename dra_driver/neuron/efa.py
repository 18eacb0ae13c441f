"""Which network adapter (EFA) stands beside which chip, by EC2 size: the base of AWS's device-group ids.

The values are AWS's published ones; a size that isn't here has none.
"""

from dra_driver.neuron.catalogue import unprefixed


def _bdfs(text: str) -> tuple[str, ...]:
    return tuple(f"0000:{each}.0" for each in text.split())


_TRN1 = _bdfs(
    "10:1a 10:1a a0:1a a0:1a 20:19 20:19 90:19 90:19 20:1a 20:1a 90:1a 90:1a 10:19 10:19 a0:19 a0:19"
)  # two chips an adapter
_TRN1N = _bdfs("10:17 10:1a a0:17 a0:1a 20:19 20:18 90:19 90:18 20:17 20:1a 90:17 90:1a 10:19 10:18 a0:19 a0:18")
_TRN2 = _bdfs("c9:00 b4:00 b3:00 ca:00 6c:00 57:00 56:00 6d:00 98:00 83:00 82:00 99:00 f5:00 e0:00 df:00 f6:00")
_TRN3 = _bdfs("be:00 a9:00 a8:00 bf:00 61:00 4c:00 4b:00 62:00 8d:00 78:00 77:00 8e:00 ea:00 d5:00 d4:00 eb:00")
_TRN3_DEV = _bdfs("a9:00 a8:00 bf:00 be:00 d5:00 d4:00 eb:00 ea:00 4c:00 4b:00 62:00 61:00 78:00 77:00 8e:00 8d:00")

_ADAPTERS = {
    "trn1.32xlarge": _TRN1,
    "trn1n.32xlarge": _TRN1N,
    **dict.fromkeys(("trn2.48xlarge", "trn2e.48xlarge", "trn2u.48xlarge"), _TRN2),
    **dict.fromkeys(("trn3.48xlarge", "trn3p.48xlarge", "trn3pd98.48xlarge", "trn3s.48xlarge"), _TRN3),
    **dict.fromkeys(("trn3-dev0.48xlarge", "trn3-dev1.48xlarge"), _TRN3_DEV),
}


def adapters(size: str) -> tuple[str, ...]:
    """The PCI addresses of the adapters by chip, empty where the size has none that are known."""
    return _ADAPTERS.get(unprefixed(size), ())
