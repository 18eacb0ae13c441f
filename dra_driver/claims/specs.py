"""apply: one CDI file a claim, in a directory that a reboot empties.

Names carry the claim's UID, so two claims never collide and a second instance overwrites instead of adding: the same
device in two files would make it unresolvable for everybody.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import cdi.errors
import cdi.read
import cdi.write
from cdi.models import ContainerEdits, Device, Spec
from dra_driver.claims.records import checked_uid
from dra_driver.claims.refusals import Reason, Refusal

CDI_VERSION = "0.5.0"  # the lowest with hostPath, and the highest that podman 4.3 reads


class SpecDirectory:
    """This driver's claim specs in a CDI directory."""

    def __init__(self, directory: Path, *, driver: str) -> None:
        self._directory = directory
        self._prefix = f"{driver}-claim_"
        self.kind = f"{driver}/claim"

    def spec(self, uid: str, edits: Mapping[str, ContainerEdits]) -> Spec:
        """The spec of a claim: each device with the complete edits of its grant."""
        devices = [Device(name=f"{uid}-{name}", container_edits=edit) for name, edit in sorted(edits.items())]
        return Spec(cdi_version=CDI_VERSION, kind=self.kind, devices=tuple(devices))

    def device_id(self, uid: str, device: str) -> str:
        """The qualified CDI name of an allocated device."""
        return f"{self.kind}={uid}-{device}"

    def write(self, uid: str, spec: Spec) -> None:
        """Make the claim's file hold the spec, and see that it does.

        Raises:
            Refusal: the directory refuses, or what is read back is something else.
        """
        path = self.path(uid)
        try:
            cdi.write.write(spec, path)
            found = cdi.read.read(path)
        except (cdi.errors.CdiError, OSError) as error:
            raise Refusal(Reason.STORAGE, str(error)) from error
        if found != spec:
            raise Refusal(Reason.STORAGE, f"CDI spec {path} isn't what was written: somebody else writes it")

    def remove(self, uid: str) -> None:
        """Remove the claim's file, if there is one.

        Raises:
            Refusal: the directory refuses.
        """
        path = self.path(uid)
        try:
            os.lstat(path)  # a read-only file system refuses to remove even what isn't there (BC-036)
            cdi.write.remove(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise Refusal(Reason.STORAGE, f"can't look for {path}: {error.strerror}") from error
        except cdi.errors.CdiError as error:
            raise Refusal(Reason.STORAGE, str(error)) from error

    def sweep(self) -> None:
        """Remove what a killed writer left; only while no other can be at work.

        Raises:
            Refusal: the directory refuses.
        """
        try:
            cdi.write.remove_leftovers(self._directory, prefix=self._prefix)
        except cdi.errors.CdiError as error:
            raise Refusal(Reason.STORAGE, str(error)) from error

    def device_names(self, uid: str) -> list[str] | None:
        """Names of the devices in the claim's file; None when it can't be read or isn't there."""
        try:
            spec = cdi.read.read(self.path(uid))
        except (cdi.errors.CdiError, OSError):
            return None
        return [device.name.removeprefix(f"{uid}-") for device in spec.devices]

    def uids(self) -> set[str]:
        """UIDs of the claims that have a file here."""
        return {path.stem.removeprefix(self._prefix) for path in self._directory.glob(f"{self._prefix}*.json")}

    def path(self, uid: str) -> Path:
        """The claim's file."""
        return self._directory / f"{self._prefix}{checked_uid(uid)}.json"
