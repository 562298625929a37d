"""Makes the other ranks follow rank 0 under torchrun or srun."""

import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import NoReturn

from ..process.children import command, ending
from ..process.line_process import LineProcess

DESERTED = 75  # exit code of a rank whose worker ended without telling it to end
TORCH_PORTS = range(10_000, 30_000)  # below Linux's range of ephemeral ports


def complete(environment: MutableMapping[str, str]) -> list[str]:
    """Add torch's variables if srun set only its own; returns the names still missing."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        environment["RANK"] = environment["SLURM_PROCID"]
        environment["WORLD_SIZE"] = environment["SLURM_STEP_NUM_TASKS"]
        environment.setdefault("LOCAL_RANK", environment.get("SLURM_LOCALID", "0"))
        environment.setdefault("MASTER_ADDR", _first_host(environment))
        job = int(environment.get("SLURM_JOB_ID", "0"))
        step = int(environment.get("SLURM_STEP_ID", "0"))
        port = TORCH_PORTS[(31 * job + step) % len(TORCH_PORTS)]
        environment.setdefault("MASTER_PORT", str(port))
    return [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in environment]


def _first_host(environment: Mapping[str, str]) -> str:
    """The host on which Slurm starts rank 0: node003 for `node[003-005,9],gpu1`."""
    if environment.get("SLURM_STEP_NUM_NODES", "1") == "1":
        return "127.0.0.1"
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    first = re.match(r"(?:\[[^\]]*\]|[^,\[])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group() if first else "")


def follow(python: str | None, without: Iterable[str]) -> NoReturn:
    """Start the process that rank 0's worker directs, without the variables named in `without`;
    wait for its end, report it, and exit."""
    path = shutil.which(python or sys.executable) or sys.executable
    kept = {name: value for name, value in os.environ.items() if name not in without}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is rank 0's to answer
    rank = LineProcess(command("workloads._ranks.rank", python=path), environ=kept)
    # Our own descriptor of its connection to the worker, which stays open when the rank dies.
    _, lines, _, _ = socket.recv_fds(rank.socket, 1, 1)
    code = rank.process.wait()
    if code in (0, DESERTED):  # rank 0 knows why, and a failure here would end it too
        sys.exit(0)
    _report(lines, code, rank.log_tail())
    sys.exit(1)


def _report(lines: list[int], code: int, log: str) -> None:
    """Report to rank 0's worker how this rank ended, and stay until the worker has ended too, since
    a launcher may end all ranks as soon as one ends."""
    if not lines:
        sys.stderr.write(ending(f"workbench: rank {os.environ['RANK']} died", code, log) + "\n")
        return
    with socket.socket(fileno=lines[0]) as channel, suppress(OSError):
        channel.sendall(b"\n" + json.dumps({"died": {"code": code, "log": log}}).encode() + b"\n")
        while channel.recv(1 << 16):
            pass
