"""`coreslice uninstall-check`: which claims of the cluster still hold devices of this driver.

For the time before the driver is taken away: without it a pod whose claim is prepared can't end in order, since the
kubelet waits for an Unprepare that nobody answers. Reads claims of all namespaces, changes nothing.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

from dra_driver import settings
from dra_driver.cluster.client import Api, items
from dra_driver.cluster.errors import Gone

Obj = dict[str, Any]
GOOD, FAILED = 0, 1
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_PAGE = "500"
_PODS = 8  # that are named


def add_parser(commands: Any) -> None:
    """Adds `uninstall-check`."""
    text = "claims that still hold devices of the driver; exit status 1 if there are any"
    parser = commands.add_parser("uninstall-check", help=text, description=__doc__)
    settings.add_arguments(parser, ("driver_name", "kubeconfig"))
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when no claim holds a device, 1 with their list, 2 for wrong use."""
    wanted = settings.load(arguments, {"NODE_NAME": "any", **os.environ})
    with Api(kubeconfig=wanted.kubeconfig) as api:
        found = [claim for claim in _listed(api) if _devices(claim, wanted.driver_name)]
    for claim in found:
        print(_line(claim, wanted.driver_name))
    if not found:
        print(f"no claim holds a device of {wanted.driver_name}")
        return GOOD
    print(
        f"{len(found)} claims still hold devices of {wanted.driver_name}: delete their pods, then the claims that "
        "aren't deleted with them, and check again"
    )
    return FAILED


def _listed(api: Api) -> list[Obj]:
    """All claims; begun anew, once, where the server has forgotten the page that comes next."""
    try:
        return list(_pages(api))
    except Gone:
        return list(_pages(api))


def _pages(api: Api) -> Iterator[Obj]:
    after = ""
    while True:
        page = api.list(CLAIMS, query={"limit": _PAGE} | ({"continue": after} if after else {}))
        yield from items(page)
        after = str((page.get("metadata") or {}).get("continue") or "")
        if not after:
            return


def _devices(claim: Obj, driver: str) -> list[str]:
    """`device on node` for each allocated device of the driver."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    return [
        f"{result['device']} on {str(result['pool']).rpartition('/')[2]}"
        for result in results
        if result.get("driver") == driver
    ]


def _line(claim: Obj, driver: str) -> str:
    meta = claim["metadata"]
    users = [str(user.get("name")) for user in (claim.get("status") or {}).get("reservedFor") or []]
    more = f" and {len(users) - _PODS} more" if len(users) > _PODS else ""
    pods = f"pods {', '.join(users[:_PODS])}{more}" if users else "no pod"
    return f"{meta['namespace']}/{meta['name']}: {', '.join(_devices(claim, driver))}; used by {pods}"
