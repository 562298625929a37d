"""One rank of a data-parallel training, in a process of its own; `_ranks` directs it."""

from __future__ import annotations

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
from typing import Any

from workbench.contract import Setup, decode_case, is_cuda
from workbench.process.cores import allowed_cores
from workbench.worker.ranks import DESERTED
from workbench.worker.worker import describe

JOIN_S = 300.0  # for all ranks to come together, as torch's own store has it
PATIENCE = timedelta(days=1)  # of a collective: a frozen group must not run into a time-out
ORPHANED_S = 2.0  # from the worker's end to that of a rank that hangs in a collective
ADDRESS = "workbench/address"  # the key in torch's store


class Follower:
    """Carries out orders; each public method is one."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.parts: dict[str, Any] = {}  # case id -> this rank's part in it
        self.groups: dict[str, Any] = {}
        self.failed: Exception | None = None  # in what has no answer

    def join(self, backend: str) -> None:
        import torch
        import torch.distributed as dist

        if backend == "nccl":
            torch.cuda.set_device(self._device())
        dist.init_process_group(
            backend, store=self.store, rank=self.rank, world_size=self.size, timeout=PATIENCE
        )

    def _device(self) -> int:
        import torch

        # srun may show each rank its own GPU only, under the number 0.
        count: int = torch.cuda.device_count()
        return int(os.environ["LOCAL_RANK"]) % max(1, count)

    def open(
        self, case: dict[str, Any], world: int, threads: list[int], seed: int
    ) -> dict[str, float] | None:
        """This rank's part in a case, ready to step; seconds of its phases, None if it has none."""
        import torch.distributed as dist

        from .replica import Replica

        # Ranks without a part take part in this: a group is made by all together.
        group = dist.new_group(range(world), timeout=PATIENCE)
        wanted = decode_case(case)
        if self.rank >= world:
            return None
        if is_cuda(wanted.device):
            mine = replace(wanted, device=f"cuda:{self._device()}")
        else:
            mine = replace(wanted, threads=threads[self.rank])
        setup = Setup(seed=seed)
        self.groups[wanted.id] = group
        self.parts[wanted.id] = Replica(mine, setup, self.rank, group)
        return setup.seconds

    def close(self, case: str) -> None:
        import torch
        import torch.distributed as dist

        if self.parts.pop(case, None) is not None:
            dist.destroy_process_group(self.groups.pop(case))
            torch.cuda.empty_cache()  # does nothing where CUDA was never started

    def do(self, case: str, name: str, **arguments: Any) -> Any:
        """Call a method of a part, and tell what it returns."""
        if self.failed is not None:
            raise self.failed
        return getattr(self.parts[case], name)(**arguments)

    def queue(self, case: str, name: str) -> None:
        """Likewise, without an answer."""
        if self.failed is None:
            try:
                getattr(self.parts[case], name)()
            except Exception as error:  # told when asked next
                self.failed = error


def main(arguments: list[str]) -> None:
    """Serve a worker: `FD ADDRESS` for a child of it; `FD` for a launcher's rank, which finds the
    worker by torch's store and hands its line to it to the process that waits on FD."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to answer
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"  # a frozen watchdog is not a hanging one
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=JOIN_S)
    store, rank, size = next(iter(rendezvous("env://", timeout=limit)))
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
    told = _serve(channel, Follower(store, rank, size))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if told else DESERTED)  # past the destructors of a group whose peers are gone


def _serve(channel: socket.socket, follower: Follower) -> bool:
    """Carry out orders until the worker is gone; True if it said goodbye."""
    for line in channel.makefile("rb"):
        order = json.loads(line)
        name = order.pop("op")
        if name == "bye":
            return True
        if name == "queue":
            follower.queue(**order)
            continue
        try:
            reply = {"ok": getattr(follower, name)(**order)}
        except Exception as error:
            import traceback

            traceback.print_exception(error)  # into the log, whose tail the worker quotes
            reply = {"error": {k: v for k, v in describe(error).items() if k != "fatal"}}
        _send(channel, reply)
    return False


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the worker is gone: the next read says so
        channel.sendall(json.dumps(message).encode() + b"\n")


def _end_with(*channels: socket.socket) -> None:
    """End this process after whom it serves, even while it hangs in a collective."""
    poller = select.poll()
    for channel in channels:
        poller.register(channel, getattr(select, "POLLRDHUP", 0) | select.POLLHUP)
    poller.poll()
    time.sleep(ORPHANED_S)  # enough to end by itself
    os._exit(DESERTED)
