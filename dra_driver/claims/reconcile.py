"""Records that nobody will ever unprepare: the kubelet can lose its own state, and then no call comes.

Freed is only what can't run: a record of an earlier boot whose claim is gone, was made anew, or no longer holds the
device. Where the API doesn't answer, nothing is decided.
"""

import logging

from dra_driver.claims.allocation import holds
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.planning import Reader
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import Refusal
from dra_driver.cluster.errors import ApiError, NotFound

log = logging.getLogger(__name__)


def free_orphans(ledger: Ledger, reader: Reader, *, driver: str) -> int:
    """Free the records of earlier boots that the API no longer backs; how many went."""
    return sum(_free(ledger, record) for record in ledger.of_earlier_boot() if _orphaned(record, reader, driver))


def _orphaned(record: Record, reader: Reader, driver: str) -> bool:
    try:
        raw = reader.get_claim(record.claim.namespace, record.claim.name)
    except NotFound:
        return True
    except ApiError as error:
        log.info("a record of an earlier boot can't be checked: %s", error, extra={"claim_uid": record.claim.uid})
        return False
    wanted = {str(held.wire["name"]) for held in record.devices}
    return wanted.isdisjoint(holds(raw, driver=driver, uid=record.claim.uid))


def _free(ledger: Ledger, record: Record) -> bool:
    try:
        ledger.release(record.claim.uid)
    except Refusal as refusal:
        log.warning("a record of an earlier boot can't be freed: %s", refusal, extra={"claim_uid": record.claim.uid})
        return False
    log.warning("record of an earlier boot freed: its claim is gone", extra={"claim_uid": record.claim.uid})
    return True
