"""Objects over HTTP: create, read, replace, patch, delete, and the refusals of each."""

import pytest

from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import Client, Obj

PODS = "/api/v1/namespaces/ns/pods"
NODES = "/api/v1/nodes"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
MERGE = "application/merge-patch+json"


def pod(name: str, **spec: object) -> Obj:
    return {"metadata": {"name": name}, "spec": spec}


def test_a_created_object_gets_what_the_server_gives(call: Client) -> None:
    code, got = call("POST", PODS, pod("p", nodeName="n"))
    meta = got["metadata"]
    assert (code, got["apiVersion"], got["kind"]) == (201, "v1", "Pod")
    assert (meta["name"], meta["namespace"], meta["generation"]) == ("p", "ns", 1)
    assert meta["creationTimestamp"].endswith("Z")
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert call("GET", f"{PODS}/p") == (200, got)


def test_generated_names_differ(call: Client) -> None:
    names = [call("POST", PODS, {"metadata": {"generateName": "p-"}})[1]["metadata"]["name"] for _ in range(5)]
    assert all(name.startswith("p-") and len(name) == 7 for name in names)
    assert len(set(names)) == 5


def test_refusals_are_status_objects_with_code_and_reason(call: Client) -> None:
    call("POST", PODS, pod("p"))
    for method, path, body, code, reason in (
        ("GET", f"{PODS}/none", None, 404, "NotFound"),
        ("POST", PODS, pod("p"), 409, "AlreadyExists"),
        ("POST", PODS, {"metadata": {}}, 422, "Invalid"),
        ("PUT", f"{PODS}/none", pod("none"), 404, "NotFound"),
        ("DELETE", f"{PODS}/none", None, 404, "NotFound"),
        ("GET", "/apis/none/v1/things", None, 404, "NotFound"),
        ("GET", "/api/v1/resourceslices", None, 404, "NotFound"),
        ("GET", f"{NODES}?fieldSelector=spec.none%3D1", None, 400, "BadRequest"),
        ("PATCH", f"{PODS}/p", {}, 415, "UnsupportedMediaType"),
    ):
        got, answer = call(method, path, body)
        assert (got, answer["code"], answer["reason"]) == (code, code, reason), (method, path)
        assert (answer["kind"], answer["status"]) == ("Status", "Failure")
        assert answer["message"]


def test_paths_of_cluster_scoped_and_namespaced_kinds(call: Client) -> None:
    call("POST", PODS, pod("p"))
    call("POST", PODS.replace("/ns/", "/other/"), pod("p"))
    assert len(call("GET", PODS)[1]["items"]) == 1
    assert len(call("GET", "/api/v1/pods")[1]["items"]) == 2
    assert call("GET", "/api/v1/pods/p")[0] == 404
    assert call("GET", "/api/v1/namespaces/ns/nodes")[0] == 404
    assert call("GET", "/apis/resource.k8s.io/v1/deviceclasses/none/status")[0] == 404


def test_version_says_the_minor(call: Client, server: ApiServer) -> None:
    server.store.minor = 35
    assert call("GET", "/version") == (200, {"major": "1", "minor": "35", "gitVersion": "v1.35.0"})


def test_a_list_has_a_version_of_its_own(call: Client) -> None:
    call("POST", PODS, pod("p"))
    newer = call("POST", NODES, {"metadata": {"name": "n"}})[1]["metadata"]["resourceVersion"]
    listed = call("GET", PODS)[1]
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert listed["metadata"]["resourceVersion"] == newer


def test_field_selectors_select(call: Client) -> None:
    call("POST", PODS, pod("a", nodeName="n1"))
    call("POST", PODS, pod("b", nodeName="n2"))
    call("POST", PODS, pod("c"))

    def names(selector: str) -> list[str]:
        rows = call("GET", f"{PODS}?fieldSelector={selector}")[1]["items"]
        return [row["metadata"]["name"] for row in rows]

    assert names("spec.nodeName%3Dn1") == ["a"]
    assert names("spec.nodeName%3D%3Dn2") == ["b"]
    assert names("spec.nodeName%3D") == ["c"]
    assert names("spec.nodeName%3Dn1,metadata.name%3Db") == []


@pytest.mark.parametrize(("minor", "code"), [(36, 400), (37, 200)])
def test_slices_are_selected_by_pool_from_37_on(call: Client, server: ApiServer, minor: int, code: int) -> None:
    server.store.minor = minor
    path = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.pool.name%3Dp"
    assert call("GET", path)[0] == code


def test_a_replace_counts_generations_and_versions(call: Client) -> None:
    first = call("POST", PODS, pod("p", a=1))[1]
    code, second = call("PUT", f"{PODS}/p", {**first, "spec": {"a": 2}})
    assert code == 200
    assert second["metadata"]["generation"] == 2
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    labelled = {**second, "metadata": {**second["metadata"], "labels": {"x": "y"}}}
    assert call("PUT", f"{PODS}/p", labelled)[1]["metadata"]["generation"] == 2


def test_a_replace_without_change_is_none(call: Client, server: ApiServer) -> None:
    first = call("POST", PODS, pod("p"))[1]
    before = server.store.version
    assert call("PUT", f"{PODS}/p", first) == (200, first)
    assert server.store.version == before


def test_a_stale_replace_is_a_conflict_and_one_without_version_wins(call: Client) -> None:
    first = call("POST", PODS, pod("p", a=1))[1]
    call("PUT", f"{PODS}/p", {**first, "spec": {"a": 2}})
    code, answer = call("PUT", f"{PODS}/p", {**first, "spec": {"a": 3}})
    assert (code, answer["reason"]) == (409, "Conflict")
    assert call("PUT", f"{PODS}/p", pod("p", a=4))[1]["spec"] == {"a": 4}
    assert call("PUT", f"{PODS}/p", {"metadata": {"name": "p", "uid": "other"}})[0] == 409


def test_what_the_server_gave_can_not_be_changed(call: Client) -> None:
    first = call("POST", PODS, pod("p"))[1]
    fake = {"uid": first["metadata"]["uid"], "creationTimestamp": "1970-01-01T00:00:00Z", "generation": 99}
    got = call("PUT", f"{PODS}/p", {"metadata": fake, "spec": {}})[1]["metadata"]
    assert (got["creationTimestamp"], got["generation"]) == (first["metadata"]["creationTimestamp"], 1)


def test_a_merge_patch_merges_replaces_and_removes(call: Client) -> None:
    call("POST", PODS, pod("p", a={"b": 1, "c": [1, 2]}, d="e"))
    code, got = call("PATCH", f"{PODS}/p", {"spec": {"a": {"b": None, "c": [3]}, "f": 1}}, kind=MERGE)
    assert (code, got["spec"]) == (200, {"a": {"c": [3]}, "d": "e", "f": 1})
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"f": 2}}
    assert call("PATCH", f"{PODS}/p", stale, kind=MERGE)[0] == 409


def test_status_is_written_by_its_subresource_only(call: Client) -> None:
    created = call("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": {"a": 1}, "status": {"allocation": {}}})[1]
    assert "status" not in created
    status = {**created, "spec": {"a": 2}, "status": {"reservedFor": []}}
    got = call("PUT", f"{CLAIMS}/c/status", status)[1]
    assert (got["spec"], got["status"]) == ({"a": 1}, {"reservedFor": []})
    got = call("PUT", f"{CLAIMS}/c", {"metadata": {"name": "c"}, "spec": {"a": 2}, "status": {"x": 1}})[1]
    assert (got["spec"], got["status"]) == ({"a": 2}, {"reservedFor": []})
    got = call("PATCH", f"{CLAIMS}/c/status", {"status": {"y": 1}, "spec": {"a": 3}}, kind=MERGE)[1]
    assert (got["spec"], got["status"]) == ({"a": 2}, {"reservedFor": [], "y": 1})


def test_a_delete_heeds_its_preconditions(call: Client) -> None:
    created = call("POST", PODS, pod("p"))[1]["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        assert call("DELETE", f"{PODS}/p", {"preconditions": wrong})[0] == 409
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    code, answer = call("DELETE", f"{PODS}/p", {"preconditions": right})
    assert (code, answer["status"]) == (200, "Success")
    assert call("GET", f"{PODS}/p")[0] == 404


def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_off(call: Client) -> None:
    call("POST", CLAIMS, {"metadata": {"name": "c", "finalizers": ["f"]}, "spec": {}})
    call("DELETE", f"{CLAIMS}/c")
    held = call("GET", f"{CLAIMS}/c")[1]
    assert held["metadata"]["deletionTimestamp"]
    held["metadata"]["finalizers"] = []
    call("PUT", f"{CLAIMS}/c", held)
    assert call("GET", f"{CLAIMS}/c")[0] == 404


def test_deletecollection_takes_what_the_selector_takes(call: Client) -> None:
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        call("POST", PODS, pod(name, nodeName=node))
    assert call("DELETE", f"{PODS}?fieldSelector=spec.nodeName%3Dn1")[0] == 200
    assert [row["metadata"]["name"] for row in call("GET", PODS)[1]["items"]] == ["c"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PODS, {"metadata": {"name": "new"}}),
        ("PUT", f"{PODS}/p", {"metadata": {"name": "p"}, "spec": {"a": 2}}),
        ("DELETE", f"{PODS}/p", None),
    ],
)
def test_a_dry_run_answers_and_changes_nothing(
    call: Client, server: ApiServer, method: str, path: str, body: Obj | None
) -> None:
    call("POST", PODS, pod("p", a=1))
    before = (server.store.version, server.store.list("pods"))
    assert call(method, f"{path}?dryRun=All", body)[0] in (200, 201)
    assert (server.store.version, server.store.list("pods")) == before
    assert server.audit.rows()[-1].dry_run


def test_a_dry_run_is_refused_like_the_real_thing(call: Client) -> None:
    call("POST", PODS, pod("p"))
    assert call("POST", f"{PODS}?dryRun=All", pod("p"))[0] == 409


def test_what_an_object_owns_goes_with_it_unless_somebody_else_owns_it_too(call: Client) -> None:
    uid = call("POST", NODES, {"metadata": {"name": "n"}})[1]["metadata"]["uid"]
    other = call("POST", NODES, {"metadata": {"name": "o"}})[1]["metadata"]["uid"]
    for name, owners in (("a", [uid]), ("b", [uid, other]), ("c", [])):
        refs = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": owner} for owner in owners]
        call("POST", PODS, {"metadata": {"name": name, "ownerReferences": refs}})
    call("DELETE", f"{NODES}/n")
    assert [row["metadata"]["name"] for row in call("GET", PODS)[1]["items"]] == ["b", "c"]


def test_an_object_that_was_read_can_be_changed_without_changing_the_store(server: ApiServer) -> None:
    created = server.store.create("pods", pod("p", a=[1]), namespace="ns")
    created["spec"]["a"].append(2)
    server.store.get("pods", "p", "ns")["spec"]["a"].append(3)
    server.store.list("pods")[0]["spec"]["a"].append(4)
    assert server.store.get("pods", "p", "ns")["spec"] == {"a": [1]}
