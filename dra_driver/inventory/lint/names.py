"""Formats of names and values, each a rule that reports from where it is called.

Lengths are bytes of UTF-8, as the server counts them.
"""

import re

from dra_driver.inventory import limits
from dra_driver.inventory.lint.findings import At

_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER, _BUILD = r"(0|[1-9][0-9]*)", r"[0-9A-Za-z-]+"
_PRE = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
)
LABEL, IDENTIFIER, DOMAIN = 63, 32, 63
SUBDOMAIN = 253


def size(text: str) -> int:
    """Bytes of UTF-8; half of a surrogate pair counts as the character that replaces it."""
    return len(text.encode("utf-8", "surrogatepass"))


def short(text: str) -> str:
    """For messages."""
    return repr(text if len(text) <= 2 * SUBDOMAIN else f"{text[:60]}…")


def dns_label(at: At, text: str) -> None:
    """Names of devices, counter sets and counters."""
    if not limits.DNS_LABEL.fullmatch(text):
        at.refuse("dns-label", f"{short(text)} isn't a DNS label: a-z, 0-9 and inner '-', at most {LABEL} characters")


def dns_subdomain(at: At, text: str) -> None:
    """Names of objects, nodes and the parts of a pool's name."""
    if size(text) > SUBDOMAIN or not limits.DNS_SUBDOMAIN.fullmatch(text):
        at.refuse("dns-subdomain", f"{short(text)} isn't a DNS subdomain of at most {SUBDOMAIN} characters")


def driver_name(at: At, text: str) -> None:
    """Capitals are taken, with a warning."""
    if size(text) > DOMAIN or not limits.DNS_SUBDOMAIN.fullmatch(text.lower()):
        at.refuse("driver-name", f"{short(text)} isn't a DNS subdomain of at most {DOMAIN} characters")


def label_key(at: At, text: str) -> None:
    """Keys of labels and taints, binding conditions, finalizers: `[<subdomain>/]<name>`."""
    prefix, slash, name = text.rpartition("/")
    good = len(name) <= LABEL and bool(_KEY.fullmatch(name))
    if slash:
        good = good and len(prefix) <= SUBDOMAIN and bool(limits.DNS_SUBDOMAIN.fullmatch(prefix))
    if not good:
        at.refuse("label-key", f"{short(text)} isn't [<DNS subdomain>/]<name of at most {LABEL} characters>")


def label_value(at: At, text: str) -> None:
    """Values of labels and taints; an empty one is good."""
    if text and (len(text) > LABEL or not _KEY.fullmatch(text)):
        at.refuse("label-value", f"{short(text)} isn't a label value of at most {LABEL} characters")


def qualified_name(at: At, text: str) -> None:
    """Keys of attributes and capacities: `[<domain>/]<C identifier>` (BC-018)."""
    parts = text.split("/")
    if len(parts) > 2:  # noqa: PLR2004 - the server looks at such a key no further
        at.warn("qualified-name-parts", f"{short(text)} has more than one '/': no selector finds it")
        return
    if len(parts) == 2:  # noqa: PLR2004 - domain and name
        driver_name(at, parts[0])
    if size(parts[-1]) > IDENTIFIER or not _C_IDENTIFIER.fullmatch(parts[-1]):
        text = f"{short(text)} doesn't end in a C identifier: letters, digits and '_', at most {IDENTIFIER}"
        at.refuse("qualified-name", text)


def version(at: At, text: str) -> None:
    """A version attribute (BC-014): SemVer 2.0.0 in full."""
    if not _SEMVER.fullmatch(text):
        at.refuse("version", f"{short(text)} isn't a version as of semver.org 2.0.0 (MAJOR.MINOR.PATCH[-pre][+build])")
    value_length(at, text)


def value_length(at: At, text: str) -> None:
    """A string or version attribute."""
    if (count := size(text)) > limits.STRING_BYTES:
        at.refuse("value-length", f"{count} bytes, at most {limits.STRING_BYTES} are allowed")
