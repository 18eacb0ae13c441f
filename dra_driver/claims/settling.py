"""What LNC is in force from now on, decided beside the records and under their lock (see `lnc`)."""

from dra_driver.claims.lnc import InForce, recorded
from dra_driver.claims.store import RecordStore


def settle(store: RecordStore, wish: int, decider: int) -> InForce:
    """Inside the lock: what is in force from now on; the wish if this instance decides and nothing is prepared.

    Raises:
        Refusal: the disk refused; what was in force still is.
    """
    old = store.lnc()
    known = old.value if old else recorded(store.records().values())
    free = not store.records() and not store.damaged() and (old is None or old.decider <= decider)
    new = InForce(wish if free or known is None else known, max(decider, old.decider if old else 0))
    if new != old:
        store.save_lnc(new)
    return new
