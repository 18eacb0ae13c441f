"""What people are told where they look: Events on the Node, on a claim and on its pods.

Nothing here waits or fails: the recorder has a queue of its own. The log has all of it too, from whoever found it.
"""

from dra_driver.claims.refusals import Refusal
from dra_driver.cluster.events import EventRecorder
from dra_driver.kubelet.types import ClaimRef

PODS_TOLD = 8  # a shared claim may be reserved for 256


class Notices:
    """Warnings of one node's driver."""

    def __init__(self, events: EventRecorder, *, node_name: str) -> None:
        self._events = events
        self._node = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_name}

    def on_node(self, reason: str, text: str) -> None:
        """On the Node; by its name as UID, as the kubelet does, since that is what `describe node` looks for."""
        self._events.warning(self._node, reason, text)

    def refused(self, claim: ClaimRef, refusal: Refusal) -> None:
        """On the claim and on its pods; the kubelet's own Event comes beside it."""
        involved = [("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid)]
        involved += [("v1", "Pod", pod.name, pod.uid) for pod in refusal.pods[:PODS_TOLD]]
        for version, kind, name, uid in involved:
            obj = {"apiVersion": version, "kind": kind, "namespace": claim.namespace, "name": name, "uid": uid}
            self._events.warning(obj, refusal.reason.code, str(refusal))
