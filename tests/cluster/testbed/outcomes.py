"""The outcomes that the files of deploy/examples state, a function each.

Asserts here are rewritten by pytest (see the install rung's conftest.py).
"""

from collections.abc import Callable, Mapping

from testbed.examples import SECONDS, Examples, Seen, is_ready
from testbed.waiting import until


def shown(examples: Examples, name: str) -> Seen:
    """What the pod of that file's name saw, once it runs."""
    examples.apply(name)
    examples.node.wait_pod(name)
    return examples.seen(name)


def one_core(examples: Examples) -> None:
    seen = shown(examples, "one-core")
    assert (seen.cores in {"0", "1"}, seen.chips) == (True, ("neuron0",))


def one_chip(examples: Examples) -> None:
    assert shown(examples, "one-chip") == Seen(None, ("neuron0",))


def fallback(examples: Examples) -> None:
    assert shown(examples, "fallback") == Seen(None, ("neuron0",))
    assert chosen(examples, "fallback") == "device/one-chip"


def fallback_where_part_of_the_chip_is_taken(examples: Examples) -> None:
    examples.apply("one-core")
    examples.node.wait_pod("one-core")
    examples.apply("fallback")
    examples.node.wait_pod("fallback")
    assert {examples.seen(pod).cores for pod in ("one-core", "fallback")} == {"0", "1"}
    assert chosen(examples, "fallback") == "device/one-core"


def chosen(examples: Examples, pod: str) -> str:
    """The alternative that a pod's claim was allocated by."""
    name = examples.node.api.get("pods", pod)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    (result,) = examples.node.api.get("resourceclaims", name)["status"]["allocation"]["devices"]["results"]
    return str(result["request"])


def shared_claim(examples: Examples) -> None:
    examples.apply("shared-claim")
    for pod in ("reader", "writer"):
        examples.node.wait_pod(pod)
    seen = {examples.seen(pod) for pod in ("reader", "writer")}
    assert len(seen) == 1
    assert seen.pop().cores in {"0", "1"}
    examples.node.delete_pods("reader")
    assert is_ready(examples.node.api.get("pods", "writer"))


def init_container(examples: Examples) -> None:
    examples.apply("init-container")
    examples.node.wait_pod("init-container")
    seen = {examples.seen("init-container", name) for name in ("warm-up", "main")}
    assert len(seen) == 1
    assert seen.pop().cores in {"0", "1"}


def two_containers(examples: Examples) -> None:
    examples.apply("two-containers")
    examples.node.wait_pod("two-containers")
    seen = [examples.seen("two-containers", name) for name in ("a", "b")]
    assert {one.cores for one in seen} == {"0", "1"}
    assert {one.chips for one in seen} == {("neuron0",)}


def extended_name(examples: Examples) -> None:
    examples.apply("extended-name")
    pod = examples.node.wait_pod("extended-name")
    assert examples.node.api.get("resourceclaims", pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"])
    seen = examples.seen("extended-name")
    assert (seen.cores in {"0", "1"}, seen.chips) == (True, ("neuron0",))


def job(examples: Examples) -> None:
    examples.apply("job")
    done = examples.node.kubectl("wait", "--for=condition=complete", "job/job", "--timeout=100s")
    assert "condition met" in done.text
    assert [pod["status"]["phase"] for pod in examples.pods("job-name=job")] == ["Succeeded"] * 4
    assert {examples.seen(pod["metadata"]["name"]).cores for pod in examples.pods("job-name=job")} <= {"0", "1"}


def deployment_hpa(examples: Examples) -> None:
    """The autoscaler isn't brought to its outcome: this node has no metrics server. It is taken by the server."""
    said = examples.apply("deployment-hpa", "--dry-run=server")
    assert "horizontalpodautoscaler.autoscaling/deployment created (server dry run)" in said
    examples.apply("deployment-hpa")
    names = examples.wait_pods("app=deployment", 2)
    assert {examples.seen(name).cores for name in names} == {"0", "1"}
    examples.node.kubectl("scale", "deployment/deployment", "--replicas=3")
    (third,) = until(
        lambda: {pod["metadata"]["name"] for pod in examples.pods("app=deployment")} - set(names),
        what="third replica",
        timeout=SECONDS,
    )
    assert "cannot allocate all claims" in examples.node.wait_unschedulable(third)
    examples.node.kubectl("delete", "pod", names[0], "--wait=false")
    examples.node.wait_pod(third, timeout=SECONDS)


def statefulset(examples: Examples) -> None:
    examples.apply("statefulset")
    assert examples.wait_pods("app=statefulset", 2) == ["statefulset-0", "statefulset-1"]
    assert {examples.seen(f"statefulset-{at}").cores for at in (0, 1)} == {"0", "1"}
    first = examples.node.api.get("pods", "statefulset-0")["metadata"]["uid"]
    examples.node.kubectl("delete", "pod", "statefulset-0")

    def came_back() -> bool:
        pod = examples.node.api.find("pods", "statefulset-0")
        return pod is not None and pod["metadata"]["uid"] != first

    until(came_back, what="statefulset-0 anew", timeout=SECONDS)
    examples.wait_pods("app=statefulset", 2)
    assert {examples.seen(f"statefulset-{at}").cores for at in (0, 1)} == {"0", "1"}


def serving(examples: Examples) -> None:
    examples.apply("serving")
    examples.node.wait_pod("serving", timeout=SECONDS)
    answer = examples.node.exec("serving", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/", container="server")
    assert answer.text.split() == ["/dev/neuron0"]


def two_cores(examples: Examples) -> None:
    """On Trainium1 the whole chip; that it is cores of a chip on Inferentia1, `two_cores_of_four` shows."""
    assert shown(examples, "two-cores") == Seen(None, chips(1))


def two_cores_of_four(examples: Examples) -> None:
    seen = shown(examples, "two-cores")
    assert (seen.cores in {"0-1", "2-3"}, seen.chips) == (True, chips(1))


def four_chips(examples: Examples) -> None:
    assert shown(examples, "four-chips") == Seen(None, chips(4))


def whole_node(examples: Examples) -> None:
    assert shown(examples, "whole-node") == Seen(None, chips(16))


def whole_node_while_a_core_is_taken(examples: Examples) -> None:
    examples.apply("one-core")
    examples.node.wait_pod("one-core")
    examples.apply("whole-node")
    assert "cannot allocate all claims" in examples.node.wait_unschedulable("whole-node")
    examples.node.delete_pods("one-core")
    examples.node.wait_pod("whole-node", timeout=SECONDS)
    assert examples.seen("whole-node") == Seen(None, chips(16))


def chips(count: int) -> tuple[str, ...]:
    """So many chips as a container sees them, in the order of `ls`."""
    return tuple(sorted(f"neuron{index}" for index in range(count)))


OUTCOMES: Mapping[str, Callable[[Examples], None]] = {
    "one-core": one_core,
    "one-chip": one_chip,
    "fallback": fallback,
    "fallback+one-core": fallback_where_part_of_the_chip_is_taken,
    "shared-claim": shared_claim,
    "init-container": init_container,
    "two-containers": two_containers,
    "extended-name": extended_name,
    "job": job,
    "deployment-hpa": deployment_hpa,
    "statefulset": statefulset,
    "serving": serving,
}  # by the files that are applied

# Those that one chip can't show: size of the machine and files → outcome.
LARGE_OUTCOMES: Mapping[tuple[str, str], Callable[[Examples], None]] = {
    ("trn1.32xlarge", "two-cores"): two_cores,
    ("trn1.32xlarge", "four-chips"): four_chips,
    ("trn1.32xlarge", "whole-node"): whole_node,
    ("trn1.32xlarge", "whole-node+one-core"): whole_node_while_a_core_is_taken,
    ("inf1.24xlarge", "two-cores"): two_cores_of_four,
}
