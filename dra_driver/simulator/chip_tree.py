"""The files of one chip's sysfs folder: paths, contents and modes as kernel driver 2.30 has them.

Files that came with a later driver than the one asked for aren't there; an unreadable version has them all.
"""

from collections.abc import Iterator, Sequence

from dra_driver.neuron import version
from dra_driver.neuron.catalogue import Size

Files = dict[str, tuple[str, int]]  # path relative to the chip's folder: content, mode

_USAGE = ("total", "present", "peak")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_HOST_MEMORY = _words(
    "dma_buffers tensors constants application_memory driver_memory notifications dma_rings uncategorized"
)
_DEVICE_MEMORY = _words(
    "model_code tensors constants model_shared_scratchpad runtime_memory driver_memory collectives "
    "nonshared_scratchpad notifications dma_rings uncategorized"
)
_STATUS = _words(
    "success failure timeout exec_bad_input hw_error execute_completed_with_error "
    "execute_completed_with_num_error generic_error resource_error resource_nc_error execute_failed_to_queue "
    "invalid_error unsupported_neff_version oob_error hw_collectives_error hw_hbm_ue_error hw_nc_ue_error "
    "hw_dma_abort_error execute_sw_nq_overflow execute_sw_semaphore_error execute_sw_event_error "
    "execute_sw_psum_collision execute_sw_sequencer_fatal hw_repairable_hbm_ue_error"
)
_HARDWARE = {  # counter: the first driver that has it
    "sram_ecc_uncorrected": (2, 15),
    "mem_ecc_uncorrected": (2, 15),
    "mem_ecc_repairable_uncorrected": (2, 23),
    "sram_ecc_corrected": (2, 30),
    "mem_ecc_corrected": (2, 30),
}
_SERIAL, _POWER, _HEALTH = (2, 15), (2, 21, 37), (2, 30, 2)
_HEALTH_FAMILIES = {"Trn2", "Trn3"}
ULTRASERVER = (2, 23)  # the class's own attributes


def has(driver_version: str, since: tuple[int, ...]) -> bool:
    """Whether a driver of that version has what came with another."""
    numbers = version.parts(driver_version)
    return not numbers or numbers >= since


def chip_files(size: Size, index: int, *, major: int, serial: str, driver_version: str) -> Files:
    """Everything in the folder of a chip."""
    own = dict(_identity(size, index, major))
    if has(driver_version, _SERIAL):
        own["info/serial_number"] = (f"{serial}\n", 0o644)
    if has(driver_version, _POWER):
        own["stats/power/utilization"] = ("POWER_STATUS_VALID,1789180860,0.00,0.00,0.00\n", 0o644)
    own |= {f"stats/hardware/{name}": _ZERO for name, since in _HARDWARE.items() if has(driver_version, since)}
    if size.instance_family in _HEALTH_FAMILIES and has(driver_version, _HEALTH):
        own |= _health()
    own |= _counters("stats/memory_usage/host_mem", _HOST_MEMORY, _USAGE)
    for core in range(size.physical_cores):
        own |= {f"neuron_core{core}/{name}": file for name, file in _core_files(size).items()}
    return own


_ZERO = ("0\n", 0o644)


def _identity(size: Size, index: int, major: int) -> Iterator[tuple[str, tuple[str, int]]]:
    yield "dev", (f"{major}:{index}\n", 0o444)
    yield "uevent", (f"MAJOR={major}\nMINOR={index}\nDEVNAME=neuron{index}\n", 0o644)
    yield "core_count", (str(size.physical_cores), 0o400)  # no newline, as on a node
    yield "connected_devices", (", ".join(map(str, size.links[index])) + "\n", 0o400)
    yield "reset", ("1\n", 0o600)
    yield "info/notify_delay", ("-1\n", 0o644)
    yield "info/architecture/arch_type", (f"{size.device_architecture}\n", 0o644)
    yield "info/architecture/instance_type", (f"{size.instance_family}\n", 0o644)
    yield "info/architecture/device_name", (f"{size.family}\n", 0o644)


def _health() -> Files:
    folder = "stats/hardware/health_status"
    return {
        f"{folder}/unhealthy_components": ("\n", 0o444),
        f"{folder}/healthcheck_heartbeat": ("1\n", 0o444),
        f"{folder}/hw_error_event": ("0\n", 0o444),
    }


def _core_files(size: Size) -> Files:
    files: Files = {"info/architecture/arch_type": (f"{size.core_architecture}\n", 0o644)}
    files |= _counters("stats/status", _STATUS, ("total", "present"))
    files |= _counters("stats/memory_usage/host_mem", (), _USAGE)
    return files | _counters("stats/memory_usage/device_mem", _DEVICE_MEMORY, _USAGE)


def _counters(base: str, names: Sequence[str], kinds: Sequence[str]) -> Files:
    """`<base>/<name>/<kind>` for each, all zero; memory has sums of its own directly under `<base>`."""
    folders = [f"{base}/{name}" for name in names] + ([base] if "peak" in kinds else [])
    return {f"{folder}/{kind}": _ZERO for folder in folders for kind in kinds}
