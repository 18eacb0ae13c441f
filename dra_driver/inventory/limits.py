"""What resource.k8s.io/v1 allows, in the strictest form of all minors: each number stands here once.

Limits that only one minor has, or that it has otherwise, say so in their name.
"""

import re

DEVICES_PER_SLICE = 64  # 128 without counters and taints; always the lower one, so that a taint never re-splits
COUNTER_SETS_PER_SLICE = 8
COUNTERS_PER_SET = 32
COUNTER_SETS_PER_DEVICE = 2
ATTRIBUTES_AND_CAPACITIES = 32  # per device, together
STRING_BYTES = 64  # of a string or version attribute
DEVICE_NAME = 63
DRIVER_NAME = 63
POOL_NAME = 253
OBJECT_NAME = 253

SEPARATE_COUNTERS_MINOR = 35  # from 1.35 on a slice lists either devices or counter sets

# Up to 1.34 counters stand beside the devices that draw on them, in one slice:
DEVICES_PER_COMBINED_SLICE = 128
COUNTERS_PER_COMBINED_SLICE = 32  # of all sets together
DRAWS_PER_COMBINED_SLICE = 1024  # counters that devices name, all devices together

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
