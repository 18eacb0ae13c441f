"""What a run needs built before its first test: a cold build takes minutes, which no test's timeout allows."""

import pytest

from testbed import binaries, driver_image, images, packages


def build(*, image: bool = False) -> None:
    """A node's programs and images; with ``image`` helm and the driver's image too.

    Raises:
        pytest.UsageError: this machine can't, and why.
    """
    if reason := packages.obstacle():
        raise pytest.UsageError(f'no real node here: {reason}; leave these tests out with -m "not cluster"')
    if names := packages.missing():
        raise pytest.UsageError(f"missing packages: {' '.join(names)}; run: python tests/cluster/node.py packages")
    binaries.build_all()
    images.build_images()
    if image:
        binaries.build(binaries.helm())
        driver_image.build()
