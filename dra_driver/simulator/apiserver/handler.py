"""One connection of the simulated API server: HTTP/1.1 with keep-alive, from bytes to `Store` and back."""

import json
import select
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from dra_driver.simulator.apiserver.audit import REVIEWS, Request
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.resources import RESOURCES, Target, parse_path
from dra_driver.simulator.apiserver.status import Refusal, success
from dra_driver.simulator.apiserver.store import visible

if TYPE_CHECKING:
    from dra_driver.simulator.apiserver.server import ApiServer

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_PATCH_TYPES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
Query = Mapping[str, str]
Body = dict[str, Any]
_WATCH_SECONDS = 1800.0  # without timeoutSeconds


class _Cut(Exception):  # noqa: N818 not a failure: a planted end of the connection
    """Close the connection now."""


class Handler(BaseHTTPRequestHandler):
    """Serves requests of one connection; `api` is set by the server's subclass of it.

    A request that the table knows goes to the method of its verb: `_get`, `_list`, `_create` and so on.
    """

    api: "ApiServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits for the client's delayed ACK
    wbufsize = 65536
    default_request_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 inherited name
        """The audit log replaces lines on stderr."""

    def handle(self) -> None:
        """As inherited, but a client that goes away is no error."""
        try:
            super().handle()
        except (_Cut, OSError):
            self.close_connection = True

    def finish(self) -> None:
        """As inherited; what can't be flushed to a closed socket is lost on purpose."""
        try:
            super().finish()
        except (OSError, ValueError):
            self.rfile.close()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = parse_path(url.path)
        verb = self._verb(target, query)
        fault = self.api.faults.take(verb, url.path)
        self._audited = (verb, url.path, url.query, _dry(query))
        try:
            self._authenticate()
            if fault:
                fault.enter()
            if fault and fault.cut == "before":
                self._audit(0)
                raise _Cut
            if verb == "watch" and target:
                self._watch(target, query)
                return
            code, answer = self._answer(url.path, verb, target, query, json.loads(raw) if raw else {})
        except Refusal as refusal:
            code, answer = refusal.code, refusal.status
        self._reply(code, answer, fault or Fault())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 names that the library calls

    def _verb(self, target: Target | None, query: Query) -> str:
        verb = _VERBS[self.command]
        if target is None or target.name:
            return verb
        if verb == "get":
            return "watch" if query.get("watch") in ("1", "true") else "list"
        return "deletecollection" if verb == "delete" else verb

    def _authenticate(self) -> None:
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if self.api.tokens and (scheme.lower() != "bearer" or token not in self.api.tokens):
            raise Refusal(401, "Unauthorized")

    def _answer(self, path: str, verb: str, target: Target | None, query: Query, body: Body) -> tuple[int, Body]:
        if path == "/version":
            minor = self.api.store.minor
            return 200, {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0"}
        if path == REVIEWS and verb == "create":
            return 201, self._review(body)
        if target is None:
            raise Refusal(404, "the server could not find the requested resource")
        return (201 if verb == "create" else 200), getattr(self, f"_{verb}")(target, query, body)

    def _review(self, body: Body) -> Body:
        """May the client do that? Everything but what a planted fault forbids."""
        asked = body["spec"]["resourceAttributes"]
        resource = RESOURCES.get(asked["resource"])
        served = resource is not None and resource.group == asked.get("group", "")
        allowed = resource is not None and served and not self.api.faults.forbids(asked["verb"], resource.path())
        return {**body, "status": {"allowed": allowed}}

    def _get(self, target: Target, _query: Query, _body: Body) -> Body:
        return self.api.store.get(target.resource.plural, target.name, target.namespace)

    def _create(self, target: Target, query: Query, body: Body) -> Body:
        return self.api.store.create(target.resource.plural, body, namespace=target.namespace, dry_run=_dry(query))

    def _update(self, target: Target, query: Query, body: Body) -> Body:
        meta = {**body.get("metadata", {}), "name": target.name}  # the path wins
        if target.namespace:
            meta["namespace"] = target.namespace
        return self.api.store.update(
            target.resource.plural,
            {**body, "metadata": meta},
            subresource=target.subresource,
            dry_run=_dry(query),
        )

    def _list(self, target: Target, query: Query, _body: Body) -> Body:
        fields = self._fields(target, query)
        rows, version = self.api.store.list_at(target.resource.plural, namespace=target.namespace, fields=fields)
        kind = {"kind": target.resource.kind + "List", "apiVersion": target.resource.api_version}
        rows, after = _page(rows, query)
        return {**kind, "metadata": {"resourceVersion": str(version), **after}, "items": rows}

    def _fields(self, target: Target, query: Query) -> dict[str, str]:
        fields = {}
        for term in filter(None, query.get("fieldSelector", "").split(",")):
            name, _, value = term.partition("=")
            if not target.resource.selects_on(name, self.api.store.minor):
                raise Refusal(400, f"field label not supported: {name}")
            fields[name] = value.removeprefix("=")
        return fields

    def _patch(self, target: Target, query: Query, body: Body) -> Body:
        if self.headers.get("Content-Type", "") not in _PATCH_TYPES:
            raise Refusal(415, "the simulated API server takes merge patches only")
        return self.api.store.patch(
            target.resource.plural,
            target.name,
            body,
            namespace=target.namespace,
            subresource=target.subresource,
            dry_run=_dry(query),
        )

    def _delete(self, target: Target, query: Query, body: Body) -> Body:
        wanted = body.get("preconditions") or {}
        gone = self.api.store.delete(
            target.resource.plural,
            target.name,
            namespace=target.namespace,
            uid=wanted.get("uid", ""),
            version=wanted.get("resourceVersion", ""),
            dry_run=_dry(query),
        )
        return success({"name": target.name, "uid": gone["metadata"]["uid"]})

    def _deletecollection(self, target: Target, query: Query, body: Body) -> Body:
        listed = self._list(target, query, body)
        for row in listed["items"]:
            meta = row["metadata"]
            try:
                self.api.store.delete(target.resource.plural, meta["name"], namespace=meta.get("namespace", ""))
            except Refusal as refusal:
                if refusal.code != 404:  # noqa: PLR2004 gone meanwhile is what was asked for
                    raise
        return listed

    def _reply(self, code: int, answer: Body, fault: Fault) -> None:
        data = json.dumps(fault.spoil(answer)).encode()
        self._audit(0 if fault.cut else code)
        if fault.cut == "after":
            raise _Cut
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if fault.cut == "half" else data)
        self.wfile.flush()
        if fault.cut:
            raise _Cut

    def _watch(self, target: Target, query: Query) -> None:
        self._fields(target, query)
        version = int(query.get("resourceVersion") or self.api.store.version)
        if version < self.api.store.version:
            self.api.store.since(version, target.resource.plural)  # 410 before the stream begins
        end = time.monotonic() + float(query.get("timeoutSeconds") or _WATCH_SECONDS)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self._audit(200)
        with self.api.watching() as errors:
            self._stream(target, query, version, end, errors)
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _stream(
        self,
        target: Target,
        query: Query,
        version: int,
        end: float,
        errors: list[Body],
    ) -> None:
        store, plural, fields = self.api.store, target.resource.plural, self._fields(target, query)
        while (left := end - time.monotonic()) > 0 and not self.api.stopping and not self._client_gone():
            try:
                changes, version = store.since(version, plural)
            except Refusal as refusal:
                errors.append(refusal.status)
                changes = []
            for change in changes:
                if event := visible(change, fields, target.namespace):
                    self._event(*event)
            if errors:
                self._event("ERROR", errors.pop(0))
                return
            store.wait(version, min(left, 0.5))
        if query.get("allowWatchBookmarks") != "true":
            return
        kind = {"kind": target.resource.kind, "apiVersion": target.resource.api_version}
        self._event("BOOKMARK", {**kind, "metadata": {"resourceVersion": str(version)}})

    def _client_gone(self) -> bool:
        """A watching client sends nothing: what can be read is the end of its connection."""
        return bool(select.select([self.connection], [], [], 0)[0])

    def _event(self, event: str, obj: Body) -> None:
        data = json.dumps({"type": event, "object": obj}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _audit(self, code: int) -> None:
        verb, path, query, dry = self._audited
        agent = self.headers.get("User-Agent", "")
        self.api.audit.add(Request(verb, path, query, code, agent, dry))


def _page(rows: list[Body], query: Query) -> tuple[list[Body], dict[str, str]]:
    """The rows asked for, and how to ask for the next. Unlike a real server's, pages aren't of one moment."""
    begin, limit = int(query.get("continue") or 0), int(query.get("limit") or 0) or len(rows)
    end = begin + limit
    return rows[begin:end], {"continue": str(end)} if end < len(rows) else {}


def _dry(query: Query) -> bool:
    return query.get("dryRun") == "All"
