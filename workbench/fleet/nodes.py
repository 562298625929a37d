"""The nodes of a fleet and their types."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ..planning.usage import UsageError, unknown
from ..records.fleet import NodeType
from ..text.sanitize import shown

# Name, partition, is it up, is it the default (*), sharing, state, CPUs, MB, GRES, features.
SINFO = ("sinfo", "--noheader", "--Node", "--format", "%N|%R|%a|%P|%h|%T|%c|%m|%G|%f")
USABLE = re.compile(r"(idle|mixed|allocated|completing|planned)[~#!%$@^+-]*")  # *: no answer
GIB = 1 << 30


class Node(msgspec.Struct, frozen=True):
    """One node as one partition offers it."""

    name: str
    cores: int
    memory_bytes: int
    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    partition: str | None = None
    state: str = "idle"
    is_default: bool = False  # the partition of a job that names none
    forces_sharing: bool = False  # the partition grants no node to one job alone


def slurm_nodes(partitions: Sequence[str]) -> list[Node]:
    """The usable nodes of Slurm, each in one partition and idle ones first."""
    if shutil.which("sinfo") is None:
        raise UsageError("sinfo was not found: run this where Slurm's commands are, or use --hosts")
    done = subprocess.run(SINFO, capture_output=True, text=True, errors="replace")
    if done.returncode:
        why = shown(" ".join(done.stderr.split()))
        raise UsageError(f"sinfo fails: {why}; is SLURM_CONF set and does the controller answer?")
    nodes = parse_sinfo(done.stdout)
    known = dict.fromkeys(node.partition or "" for node in nodes)
    for partition in partitions:
        if partition not in known:
            raise unknown("partition", partition, known)
    chosen: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda node: (not node.is_default, node.state != "idle")):
        if USABLE.fullmatch(node.state) and (not partitions or node.partition in partitions):
            chosen.setdefault(node.name, node)
    if not chosen:
        raise UsageError("no node is up in these partitions: look at `sinfo --Node --long`")
    return list(chosen.values())


def parse_sinfo(text: str) -> list[Node]:
    """The lines of SINFO; UsageError for a line of another format."""
    found = []
    for line in text.splitlines():
        try:
            name, partition, up, starred, sharing, state, cores, mb, gres, features = [
                part.strip() for part in line.split("|", 9)
            ]
            size = int(cores.rstrip("+")), int(mb.rstrip("+")) << 20
        except ValueError:
            raise UsageError(f"sinfo wrote a line that cannot be read: {shown(line)}") from None
        state = state.lower() if up == "up" else "down"
        listed = _words(features), _words(re.sub(r"\([^)]*\)", "", gres))  # (S:0-1): sockets
        shares = sharing.upper().startswith("FORCE")
        found.append(Node(name, *size, *listed, partition, state, starred.endswith("*"), shares))
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word not in ("", "(null)", "N/A"))


def node_types(nodes: Iterable[Node]) -> list[NodeType]:
    """The nodes by what distinguishes them; memory counts in GiB, as equal nodes differ."""
    groups: dict[object, list[Node]] = {}
    for node in nodes:
        memory = round(node.memory_bytes / GIB)
        key = (node.partition, node.cores, memory, frozenset(node.features), node.gres)
        groups.setdefault(key, []).append(node)
    types, names = [], Counter[str]()
    for group in groups.values():
        first, least = group[0], min(node.memory_bytes for node in group)
        gpus = [entry.partition(":")[2] for entry in first.gres if entry.startswith("gpu:")]
        words = "-".join([first.partition or first.name, f"{first.cores}c", *gpus])
        base = re.sub(r"[^A-Za-z0-9_]+", "-", words[:80]).strip("-")
        names[base.lower()] += 1  # some file systems do not tell J from j
        number = names[base.lower()]
        name = base if number == 1 else f"{base}.{number}"
        listed = [*first.features], [*first.gres], first.partition, [node.name for node in group]
        types.append(NodeType(name, first.cores, least, *listed))
    return types
