"""A real Kubernetes node to play with: brought up, left running, taken away again.

    python tests/cluster/node.py check      whether this machine can; if not, why not (exit status 1)
    python tests/cluster/node.py packages   install the Debian packages it needs
    python tests/cluster/node.py build      build its programs into the cache
    python tests/cluster/node.py image      build helm and the driver's image; prints the archive's path
    python tests/cluster/node.py up         node, driver on a simulated trn1.2xlarge, device classes
    python tests/cluster/node.py down       end and remove all of it

One at a time; where it is stands in ``node.json`` in the cache folder. Tests bring up
nodes of their own beside it.
"""

import argparse
import logging
import sys
from pathlib import Path

from testbed import binaries, driver_image, images, packages, sandbox
from testbed.driver import Driver
from testbed.node import Node
from testbed.stack import Options

from dra_driver.inventory.classes import device_classes

USAGE = """\
The node is up: Kubernetes {version}, a simulated {size}, driver {driver}.

  export KUBECONFIG={kubeconfig}
  {kubectl} get nodes,deviceclasses,resourceslices

  image for pods    {image} (imagePullPolicy: Never)
  logs              {logs}
  CDI specs         {cdi}
  a shell inside    {enter}
  stop              make node-stop
"""


def state_file() -> Path:
    """Where the running node is written down."""
    return binaries.cache_root() / "node.json"


def running() -> sandbox.Sandbox | None:
    """The node that ``up`` left running, if it still is."""
    if not state_file().exists():
        return None
    known = sandbox.load(state_file().read_text())
    return known if sandbox.guard_alive(known.guard, known.scratch) else None


def build() -> None:
    """Fill the cache."""
    binaries.build_all()
    images.build_images()


def up(size: str) -> None:
    """Bring the node up and say how to use it."""
    if found := running():
        raise SystemExit(f"a node is up already, in {found.scratch}; stop it with: make node-stop")
    node = Node(Options(detached=True))
    try:
        driver = Driver(node, size=size)
        driver.start()
        node.apply(*device_classes(driver.name))
        state_file().write_text(node.stack.sandbox.dump())
    except BaseException:
        node.close()
        raise
    print(usage(node, driver, size))


def usage(node: Node, driver: Driver, size: str) -> str:
    """What a user needs to know."""
    return USAGE.format(
        version=binaries.kubernetes().version,
        size=size,
        driver=driver.name,
        kubeconfig=node.paths.kubeconfig("admin"),
        kubectl=node.stack.binaries["kubectl"],
        image=images.BUSYBOX,
        logs=node.paths.logs,
        cdi=node.paths.cdi,
        enter=" ".join(node.stack.sandbox.enter("sh")),
    )


def down() -> None:
    """Take the node away."""
    found = running()
    if found:
        found.close()
    state_file().unlink(missing_ok=True)
    print(f"stopped, {found.scratch} removed" if found else "no node is up")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("check", "packages", "build", "image", "up", "down"))
    parser.add_argument("--machine", default="trn1.2xlarge", help="EC2 size to simulate")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if arguments.action in {"check", "up", "down"} and (reason := packages.obstacle()):
        sys.exit(f"no real node here: {reason}")
    match arguments.action:
        case "check":
            pass
        case "packages":
            packages.install()
        case "build":
            build()
        case "image":
            binaries.build(binaries.helm())
            print(driver_image.build())
        case "up":
            packages.install()
            up(arguments.machine)
        case "down":
            down()


if __name__ == "__main__":
    main()
