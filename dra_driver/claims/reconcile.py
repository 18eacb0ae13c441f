"""Orphans: records whose claim is gone although no Unprepare came, since the kubelet can lose its own state.

A record of an earlier boot is freed when its claim is gone, was made anew, or holds none of its devices any more. One
of this boot is reported only: its container may still run. When the API doesn't answer, nothing is done; ask again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

from dra_driver.claims.allocation import holds
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.planning import Reader
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import Refusal
from dra_driver.cluster.errors import ApiError, NotFound

log = logging.getLogger(__name__)


def free_orphans(ledger: Ledger, reader: Reader, *, driver: str) -> list[str]:
    """Free orphans of earlier boots; the UIDs of the claims that were freed. What can't be done is logged."""
    orphans = list(_orphans(_read(ledger.of_earlier_boot), reader, driver))
    return [record.claim.uid for record in orphans if _free(ledger, record)]


def report_orphans(ledger: Ledger, reader: Reader, *, driver: str) -> list[str]:
    """Log orphans of this boot; the UIDs of their claims."""
    orphans = list(_orphans(_read(ledger.of_this_boot), reader, driver))
    for record in orphans:
        log.warning(
            "%s holds no device of its record any more, but wasn't unprepared: they stay held until it is, or until"
            " the node reboots",
            record.claim,
            extra={"claim_uid": record.claim.uid},
        )
    return [record.claim.uid for record in orphans]


def _read(records: Callable[[], list[Record]]) -> list[Record]:
    try:
        return records()
    except Refusal as refusal:
        log.error("can't look for orphans: %s", refusal.detail)  # noqa: TRY400
        return []


def _orphans(records: Sequence[Record], reader: Reader, driver: str) -> Iterator[Record]:
    """Records whose claim surely holds none of their devices now."""
    for record in records:
        claim = record.claim
        try:
            held = holds(reader.get_claim(claim.namespace, claim.name), driver=driver, claim=claim)
        except NotFound:
            held = frozenset()
        except (ApiError, Refusal) as error:
            log.warning("can't tell whether %s still holds its devices: %s", claim, error)
            continue
        if held.isdisjoint(one.device.name for one in record.devices):
            yield record


def _free(ledger: Ledger, record: Record) -> bool:
    try:
        freed = ledger.release_outdated(record.claim.uid)
    except Refusal as refusal:
        log.warning("the orphaned record of %s can't be removed: %s", record.claim, refusal.detail)
        return False
    if freed:
        log.warning("orphaned record of %s freed", record.claim, extra={"claim_uid": record.claim.uid})
    return freed
