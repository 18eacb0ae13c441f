"""Every flag and environment variable of the daemon, once; a flag wins over its variable.

The names of the variables are those that AWS's chart sets for its own driver, where it has one.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dra_driver.errors import SettingsError
from dra_driver.inventory.devices import DeviceType
from dra_driver.inventory.offer import Offer, Runs

DRIVER_NAME = "neuron.coreslice.dev"
_SUBDOMAIN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"


class Granularity(StrEnum):
    """What is offered where the API server drops counters."""

    CHIP = "chip"
    CORE = "core"


class Coexistence(StrEnum):
    """What to do while another advertises the same chips."""

    REFUSE = "refuse"
    WARN = "warn"
    IGNORE = "ignore"


class Lnc(StrEnum):
    """How many physical cores a logical core has."""

    AUTO = "auto"  # what the node's file says, else what the runtime takes by default
    ONE = "1"
    TWO = "2"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


def _listed(value: Any) -> Any:
    """Text with commas as a list; the word `none` is the empty one, since empty text means the default."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(",")]
    return () if names == ["none"] else tuple(filter(None, names))


def _counted(value: Any) -> Any:
    """As `_listed`; here the word for empty is `all`."""
    return () if value == "all" else _listed(value)


def _unless_all(value: Any) -> Any:
    return None if value == "all" else value


Names = Annotated[tuple[Annotated[str, Field(max_length=253)], ...], BeforeValidator(_listed)]
Types = Annotated[tuple[DeviceType, ...], BeforeValidator(_listed)]
Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_counted)]
Limit = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_unless_all)]


def _setting(default: Any, *, env: str, text: str, empty: str = "none", **limits: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"env": env, "empty": empty}, **limits)


class Settings(BaseModel):
    """The effective configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_name: str = _setting(
        ..., env="NODE_NAME", text="this node's name in the API", pattern=_SUBDOMAIN, max_length=253
    )
    pod_uid: str = _setting(
        "", env="POD_UID", text="UID of the driver's pod; part of the socket names", pattern=r"^[A-Za-z0-9_-]{0,63}$"
    )
    driver_name: str = _setting(
        DRIVER_NAME, env="DRIVER_NAME", text="the driver's name in the API", pattern=_SUBDOMAIN, max_length=63
    )
    kubelet_plugins_dir: Path = _setting(
        Path("/var/lib/kubelet/plugins"), env="KUBELET_PLUGINS_DIRECTORY_PATH", text="the kubelet's folder of plugins"
    )
    kubelet_registrar_dir: Path = _setting(
        Path("/var/lib/kubelet/plugins_registry"),
        env="KUBELET_REGISTRAR_DIRECTORY_PATH",
        text="the folder that the kubelet watches for registrations",
    )
    cdi_root: Path = _setting(Path("/var/run/cdi"), env="CDI_ROOT", text="where the runtime reads CDI specs")
    state_dir: Path | None = _setting(
        None, env="STATE_DIR", text="where claim records lie; the default is claims/ in the driver's plugin folder"
    )
    sysfs_root: Path = _setting(Path("/sys"), env="SYSFS_ROOT", text="the root of sysfs")
    proc_root: Path = _setting(Path("/proc"), env="PROC_ROOT", text="the root of procfs")
    kubeconfig: Path | None = _setting(None, env="KUBECONFIG", text="credentials; without it those of the pod")
    healthcheck_port: int = _setting(
        51515, env="HEALTHCHECK_PORT", text="TCP port of gRPC health; 0 takes any, -1 none", ge=-1, le=65535
    )
    healthcheck_address: str = _setting("0.0.0.0", env="HEALTHCHECK_ADDRESS", text="address of gRPC health")  # noqa: S104
    metrics_port: int = _setting(
        8080, env="METRICS_PORT", text="TCP port of /metrics; 0 takes any, -1 none", ge=-1, le=65535
    )
    metrics_address: str = _setting("0.0.0.0", env="METRICS_ADDRESS", text="address of /metrics")  # noqa: S104
    coexistence: Coexistence = _setting(
        Coexistence.REFUSE,
        env="COEXISTENCE",
        text="while a device plugin or another driver has the same chips: refuse to publish, warn only, or ignore it",
    )
    legacy_resource_names: Names = _setting(
        ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore"),
        env="LEGACY_RESOURCE_NAMES",
        text="names under which a device plugin counts the same chips, with commas; none looks for none",
    )
    other_drivers: Names = _setting(
        ("neuron.aws.com",),
        env="OTHER_DRIVERS",
        text="DRA drivers that publish the same chips, with commas; none looks for none",
    )
    kubelet_device_plugins_dir: Path = _setting(
        Path("/var/lib/kubelet/device-plugins"),
        env="KUBELET_DEVICE_PLUGINS_DIRECTORY_PATH",
        text="the folder in which device plugins register",
    )
    pod_resources_socket: Path = _setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        env="POD_RESOURCES_SOCKET",
        text="where the kubelet tells which container holds what of a device plugin",
    )
    assume_cdi: bool = _setting(
        False, env="ASSUME_CDI", text="publish also where the node's container runtime has CDI off by default"
    )
    lnc: Lnc = _setting(
        Lnc.AUTO,
        env="NEURON_LOGICAL_NC_CONFIG",
        text="physical cores per logical core on trn2 and trn3: 1, 2, or auto, which is what --lnc-file says, else the "
        "runtime's default of 2; a change waits until no claim is prepared",
    )
    lnc_file: Path = _setting(
        Path("/opt/aws/neuron/logical_nc_config"),
        env="LNC_FILE",
        text="where the node says it, as NEURON_LOGICAL_NC_CONFIG=1 or 2; it may be missing",
    )
    offer_types: Types = _setting(
        tuple(DeviceType),
        env="OFFER_TYPES",
        text="the types of devices that this node offers, with commas; none offers nothing",
    )
    offer_core_counts: Counts = _setting(
        (), env="OFFER_CORE_COUNTS", empty="all", text="sizes of cores and core runs, in cores, with commas; or all"
    )
    offer_chip_counts: Counts = _setting(
        (), env="OFFER_CHIP_COUNTS", empty="all", text="sizes of chips and chip groups, in chips, with commas; or all"
    )
    offer_chips_with_cores: Limit = _setting(
        None,
        env="OFFER_CHIPS_WITH_CORES",
        empty="all",
        text="on how many chips, counted from the first, cores and core runs are offered besides the chip; or all",
    )
    offer_runs: Runs = _setting(
        Runs.AUTO,
        env="OFFER_RUNS",
        text="core runs: on, off, or auto, which is off on trn2 and trn3, where the runtime may not take them",
    )
    granularity_without_counters: Granularity = _setting(
        Granularity.CHIP,
        env="GRANULARITY_WITHOUT_COUNTERS",
        text="the one granularity to offer where the API server drops counters",
    )
    visible_cores_on_chips: bool = _setting(
        False,
        env="VISIBLE_CORES_ON_CHIPS",
        text="set NEURON_RT_VISIBLE_CORES for whole chips too; it overrides a pod's own NEURON_RT_NUM_CORES",
    )
    read_pods: bool = _setting(True, env="READ_PODS", text="whether the driver may get pods")
    prepare_wait: float = _setting(
        20.0, env="PREPARE_WAIT", text="seconds to wait inside a call for what may pass", ge=0, le=35
    )
    drain_wait: float = _setting(
        25.0,
        env="DRAIN_WAIT",
        text="seconds to serve on at a stop while the node is cordoned and claims are prepared; 0 ends at once",
        ge=0,
        le=300,
    )
    rescan_interval: float = _setting(30.0, env="RESCAN_INTERVAL", text="seconds between looks at sysfs", ge=1, le=3600)
    log_level: str = _setting(
        "INFO", env="LOG_LEVEL", text="DEBUG, INFO, WARNING or ERROR", pattern="^(DEBUG|INFO|WARNING|ERROR)$"
    )
    log_format: LogFormat = _setting(LogFormat.JSON, env="LOG_FORMAT", text="json or text")

    @field_validator(
        "kubelet_plugins_dir",
        "kubelet_registrar_dir",
        "kubelet_device_plugins_dir",
        "pod_resources_socket",
        "cdi_root",
        "state_dir",
        "sysfs_root",
        "proc_root",
        "lnc_file",
    )
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path, since the kubelet and the runtime see it too")
        return value

    @property
    def records_dir(self) -> Path:
        """Where the records lie."""
        return self.state_dir or self.kubelet_plugins_dir / self.driver_name / "claims"

    @property
    def offer(self) -> Offer:
        """What is offered of what the hardware has."""
        return Offer(
            types=frozenset(self.offer_types),
            core_counts=self.offer_core_counts,
            chip_counts=self.offer_chip_counts,
            chips_with_cores=self.offer_chips_with_cores,
            runs=self.offer_runs,
        )


OFFER = tuple(name for name in Settings.model_fields if name.startswith("offer_"))
LNC = ("lnc", "lnc_file")


def add_arguments(parser: argparse.ArgumentParser, names: Collection[str] = ()) -> None:
    """One flag a setting, or for these only; unset ones stay None, so that the environment can speak."""
    for name, field in Settings.model_fields.items():
        if names and name not in names:
            continue
        text = f"{field.description} (env {_env(name)}"
        text += ")" if field.is_required() else f"; default {_shown(field.default, _extra(name)['empty'])})"
        parser.add_argument(_flag(name), metavar=name.split("_")[-1].upper(), help=text.replace("%", "%%"))


def load(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Flags over environment over defaults.

    Raises:
        SettingsError: names each flag, its value and what is allowed.
    """
    given: dict[str, str] = {}
    for name in Settings.model_fields:
        value = getattr(arguments, name, None) or environment.get(_env(name)) or None
        if value is not None:
            given[name] = value
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise SettingsError("; ".join(_told(entry) for entry in error.errors())) from error


def load_offer(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Offer:
    """The offer alone, for commands that show what a node would publish; of its settings and variables only.

    Raises:
        SettingsError: as `load`.
    """
    return load_some(arguments, environment, OFFER).offer


def load_some(arguments: argparse.Namespace, environment: Mapping[str, str], names: Collection[str]) -> Settings:
    """These settings by flags and environment, all others at their defaults; for commands that have few of them.

    Raises:
        SettingsError: as `load`.
    """
    given = {name: getattr(arguments, name, None) for name in names}
    known = {_env(name): environment.get(_env(name), "") for name in names}
    return load(argparse.Namespace(**{"node_name": "any", **given}), known)


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """From a command line; for tests and embedding."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return load(parser.parse_args(argv), environment)


def _told(entry: Any) -> str:
    name = str(entry["loc"][0])
    if entry["type"] == "missing":
        return f"{_flag(name)} (or {_env(name)}) is needed: {Settings.model_fields[name].description}"
    return f"{_flag(name)} (or {_env(name)}) is {str(entry['input'])!r}: {entry['msg']}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _env(name: str) -> str:
    return _extra(name)["env"]


def _extra(name: str) -> dict[str, str]:
    extra = Settings.model_fields[name].json_schema_extra
    return {key: str(value) for key, value in extra.items()} if isinstance(extra, dict) else {}


def _shown(value: Any, empty: str) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or empty
    return empty if value in (None, "") else str(value)
