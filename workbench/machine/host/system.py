"""The operating system and the container around this process."""

import os
import platform
from contextlib import suppress
from pathlib import Path

from ...records.machine import Os
from .sysfs import read_text

# Words in the paths of /proc/self/cgroup, and the kind of container that puts them there.
_CGROUP_WORDS = {
    "kubepods": "kubernetes",
    "docker": "docker",
    "libpod": "podman",
    "lxc": "lxc",
    "containerd": "containerd",
}


def container(root: Path = Path("/")) -> str | None:
    """The kind of container this process runs in, or None; the most reliable sign wins."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in os.environ or "SINGULARITY_CONTAINER" in os.environ:
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = read_text(root / "proc/self/cgroup")
    named = (name for word, name in _CGROUP_WORDS.items() if word in groups)
    # systemd-nspawn, LXC and podman set the variable for PID 1's children.
    return next(named, os.environ.get("container"))  # noqa: SIM112


def read_os(root: Path) -> Os:
    return Os(platform.system(), platform.release(), _distribution(), container(root))


def _distribution() -> str | None:
    """PRETTY_NAME of os-release(5); the version on macOS."""
    with suppress(OSError, UnicodeDecodeError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    version = platform.mac_ver()[0]
    return f"macOS {version}" if version else None
