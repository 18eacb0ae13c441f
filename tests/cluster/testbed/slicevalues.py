"""Values for the fields of ResourceSlices: just good, just bad, empty, null, of another type."""

from typing import Any

LABELS = ("a", "a" * 63, "a" * 64, "A", "-a", "a-", "a.b", "", "é", "a_b", "0", "core-0-1", "a\n", None, 5)
SUBDOMAINS = ("node-1", "a.b.c", "a..b", "a." * 126 + "a", "a." * 126 + "ab", "-a", "A.b", "", "x" * 253, "é", None, 7)
DRIVERS = ("neuron.example.com", "d" * 63, "d" * 64, "Neuron.example.com", "", "a b", "a/b", "ÄB", None, 1)
POOLS = ("p", "d/node", "a/b/c", "", "/a", "a/", "a//b", "p" * 253, "p" * 254, "A/b", "a/" * 126 + "a", None, 3)
IDENTIFIERS = ("model", "a/b/c", "x" * 32, "x" * 33, "a-b", "9a", "_a", "example.com/x", "/x", "x/", "/", "Dom.ain/x")
KEYS = (*IDENTIFIERS, f"{'d' * 63}/x", f"{'d' * 64}/x", "", "é", "a b", "neuron.example.com/model", "a.b/x-y", "a//b")
VERSIONS = ("1.2.3", "2.30.2+0", "2.30.2.0", "01.2.3", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3-01", "1.2.3+" + "b" * 58)
BAD_VERSIONS = ("1.2.3+" + "b" * 59, "", "garbage", "1.2.3-", "1.2.3+", "1.2.3-é", "1.2.3-a+b.c", "1.2.3\n", None, 1.2)
STRINGS = ("", "x", "x" * 64, "x" * 65, "é" * 32, "é" * 33, "日本", None, 5, True, ["x"])
PLAIN = ("1", "0", "2", "8", "10", "64", "1k", "1Ki", "1Mi", "32Gi", "1.5Gi", "100m", "2500m", "1e3", "5", 4, 1.5)
ODD = ("-1", "-1500m", "1n", "0.1n", "0.0000000001", "1E", "16Ei", "9223372036854775807", "9223372036854775808")
ODDER = ("18446744073709551616", "1e30", "+5", ".5", "5.", "+", ".", "1e-3", "1.Ki", "0.5Ki", "1e5", "1E3", "007")
NO_QUANTITY: tuple[Any, ...] = (
    "abc",
    "",
    " ",
    "1 Gi",
    "1Gi5",
    "1e",
    "1ki",
    "1KI",
    "0x10",
    "1,5",
    "\u0661",
    None,
    True,
    {},
    [],
)
QUANTITIES = (*PLAIN * 3, *ODD, *ODDER, *NO_QUANTITY)
LABEL_KEYS = (
    "a",
    "example.com/a",
    "k8s.io/x",
    "a" * 63,
    "a" * 64,
    "A_b.c",
    "",
    "/a",
    "a/",
    "a/b/c",
    "-a",
    "é",
    None,
    1,
)
LABEL_VALUES = ("", "v", "v" * 63, "v" * 64, "a_b", "-a", "a b", "é", None, 2)
EFFECTS = ("NoSchedule", "NoExecute", "None", "PreferNoSchedule", "", "noschedule", None, 1)
TIMES = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.5Z", "2026-13-02T03:04:05Z", "")
ODD_TIMES = ("2026-01-02", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2026-01-02T24:00:00Z", "now", None, 5)
BOOLS = (True, False, None, "true", 1)
INTEGERS = (0, 1, -1, 2**63 - 1, -(2**63), 2**63, None, "1", 1.5, True)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", "", None)
OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources", "*", "Other", "", None)
NATIVE = (
    "cpu",
    "memory",
    "hugepages-2Mi",
    "hugepages-",
    "ephemeral-storage",
    "pods",
    "example.com/x",
    "kubernetes.io/x",
    "",
)
ANYTHING: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    1,
    -1,
    1.5,
    True,
    False,
    [],
    {},
    [None],
    {"x": None},
    [{}],
    {"": {}},
    "1",
    ["a"],
)
