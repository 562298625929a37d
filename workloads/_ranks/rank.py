"""One rank of a data-parallel training, in a process of its own, which `groups` directs."""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

from workbench.contract import Case, Setup
from workbench.process.cores import allowed_cores, bind_near
from workbench.worker.libraries import torch
from workbench.worker.ranks import DESERTED
from workbench.worker.serve import answer

JOIN_S = 300.0  # time for all ranks to meet, as in torch's own store
PATIENCE = timedelta(days=1)  # time limit of a collective: a frozen group must not exceed it
ORPHANED_S = 2.0  # from the worker's end until a rank that hangs in a collective is ended
ADDRESS = "workbench/address"  # key of the worker's address in torch's store


class Follower:
    """Carries out orders; each public method is one order."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.parts: dict[str, Any] = {}  # case id -> this rank's part in it
        # Error of an order that sends no answer; the next `do` raises it.
        self.failed: Exception | None = None

    def join(self, backend: str) -> None:
        if backend == "nccl":
            torch.cuda.set_device(self._device())
        torch.distributed.init_process_group(
            backend, store=self.store, rank=self.rank, world_size=self.size, timeout=PATIENCE
        )

    def _device(self) -> int:
        # srun may show each rank only its own GPU, as number 0.
        count: int = torch.cuda.device_count()
        return int(os.environ.get("LOCAL_RANK", "0")) % max(1, count)

    def open(
        self, case: dict[str, Any], world: int, threads: list[int], seed: int
    ) -> dict[str, float] | None:
        """Prepare this rank's part in a case; returns the seconds of its phases, if it has one."""
        from .replica import Replica  # torch is loaded now: see `libraries`

        # Collective: ranks without a part must call it too.
        group = torch.distributed.new_group(range(world), timeout=PATIENCE)
        wanted = Case(**case)
        if self.rank >= world:
            return None
        if wanted.computes_on == "cpu":
            mine = replace(wanted, threads=threads[self.rank])
        else:
            mine = replace(wanted, device=f"cuda:{self._device()}")
        setup = Setup(seed=seed)
        self.parts[wanted.id] = Replica(mine, setup, self.rank, group)
        return setup.seconds

    def close(self, case: str) -> None:
        if case in self.parts:
            torch.distributed.destroy_process_group(self.parts.pop(case).group)
            torch.cuda.empty_cache()  # does nothing where CUDA was never started

    def do(self, case: str, name: str, **arguments: Any) -> Any:
        """Call a method of a part, or of its timer, and return the result."""
        if self.failed is not None:
            raise self.failed
        return attrgetter(name)(self.parts[case])(**arguments)

    def queue(self, case: str, name: str) -> None:
        """Call a method as `do` does, without sending an answer."""
        if self.failed is None:
            try:
                attrgetter(name)(self.parts[case])()
            except Exception as error:
                self.failed = error


def main(arguments: list[str]) -> None:
    """Serve a worker until it ends.  A child of the worker gets `FD ADDRESS`.  A launcher's rank
    gets `FD`: it finds the worker through torch's store, and passes its connection on to the
    process that waits on FD."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine handles Ctrl-C
    bind_near(f"cuda:{os.environ.get('LOCAL_RANK')}")  # rank 0's worker may be near another GPU
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"  # torch would end a frozen rank as a hung one
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=JOIN_S))))
    parent = channel = socket.socket(fileno=int(arguments[0]))
    hello = {"rank": rank, "host": socket.gethostname(), "cpus": allowed_cores()}
    if len(arguments) > 1:
        if arguments[1]:
            store.set(ADDRESS, arguments[1])
        _send(channel, {"ok": hello})
    else:
        host, port, token = json.loads(store.get(ADDRESS))
        channel = socket.create_connection((host, port), timeout=JOIN_S)
        channel.settimeout(None)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socket.send_fds(parent, [b"1"], [channel.fileno()])
        _send(channel, {**hello, "token": token})
    threading.Thread(target=_end_with, args=(channel, parent), daemon=True).start()
    dismissed = _serve(channel, Follower(store, rank, size))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if dismissed else DESERTED)  # skips destructors of a group without peers


def _serve(channel: socket.socket, follower: Follower) -> bool:
    """Carry out orders until the worker is gone; True if it dismissed this rank."""
    with suppress(ConnectionResetError):  # the worker was killed before it read our lines
        for line in channel.makefile("rb"):
            order = json.loads(line)
            name = order["op"]
            if name == "bye":
                return True
            reply = answer(follower, order)
            reply.get("error", {}).pop("fatal", None)
            if name != "queue":
                _send(channel, reply)
    return False


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the worker is gone: the next read says so
        channel.sendall(json.dumps(message).encode() + b"\n")


def _end_with(*channels: socket.socket) -> None:
    """End this process after its worker or parent ends, even while it hangs in a collective."""
    poller = select.poll()
    for channel in channels:
        poller.register(channel, getattr(select, "POLLRDHUP", 0) | select.POLLHUP)
    poller.poll()
    time.sleep(ORPHANED_S)  # usually the process ends by itself
    os._exit(DESERTED)
