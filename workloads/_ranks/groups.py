"""The ranks of a data-parallel training: processes that rank 0's worker directs, in lockstep.

The worker computes nothing itself.  It sends each rank one line per step, and the ranks meet in
the all-reduce.  So the worker sees a rank die even while the others hang in a collective, and a
frozen group goes on when it is thawed.  Ranks are children of the worker, or those that torchrun
or srun started (`workbench.worker.ranks`).  See docs/decisions/011.
"""

import atexit
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from workbench.contract import WorkloadError
from workbench.process.children import command, ending
from workbench.process.line_process import LineChannel, LineProcess
from workbench.worker.launcher import LaunchedRank, launch_of
from workbench.worker.libraries import torch

from .rank import JOIN_S

CAUSE_S = 2.0  # from an error that a dead rank causes to the report of its death
GOODBYE_S = 0.5  # for ranks to end, since a worker that ends has one second in all


class Rank:
    """One rank as the worker sees it; the channel to a child of the worker is a `LineProcess`."""

    def __init__(self, channel: LineChannel, number: int) -> None:
        self.channel, self.number = channel, number
        self.host, self.cpus = "", frozenset[int]()

    def meet(self, hello: dict[str, Any]) -> None:
        self.host, self.cpus = hello["host"], frozenset(hello["cpus"])


class RankGroup:
    """Ranks that have joined one group, and the cases that share them."""

    def __init__(self, device: str) -> None:
        self.device = device  # rank 0's
        self.users = 0
        self.failure: WorkloadError | None = None
        self.launch = launch_of(os.environ)
        self.ranks: list[Rank] = []
        self._store: Any = None

    def gather(self, size: int) -> None:
        """Start or await the ranks and join them; WorkloadError if that fails."""
        try:
            if self.launch is None:
                self._start_children(size)
            else:
                self._await_launched(self.launch)
            backend = "gloo" if self.device == "cpu" else "nccl"
            self.ask(self.ranks, op="join", backend=backend)
        except WorkloadError as error:
            raise self._fail(error) from None
        except BaseException:
            self.end()
            raise

    def _start_children(self, size: int) -> None:
        """Start children of this process, which are frozen and killed with its group."""
        # This process serves the store, as torchrun's agent does, so it can choose a free port.
        store = torch.distributed.TCPStore
        self._store = store("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        environment = {
            **os.environ,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store.port),
        }
        if sys.platform == "linux":
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        first = int(self.device.partition(":")[2] or 0)
        # After the last GPU follows GPU 0.
        count = size if self.device == "cpu" else max(1, torch.cuda.device_count())
        for rank in range(size):
            local = {"RANK": str(rank), "LOCAL_RANK": str((first + rank) % count)}
            self._child({**environment, **local})
        self._hear_hellos()

    def _await_launched(self, launch: LaunchedRank) -> None:
        """Start rank 0 as a child; the others, which a launcher started, connect by TCP."""
        everywhere = socket.has_dualstack_ipv6()
        listener = socket.create_server(
            ("", 0),
            family=socket.AF_INET6 if everywhere else socket.AF_INET,
            dualstack_ipv6=everywhere,
        )
        with listener:
            token = secrets.token_hex()
            address = [os.environ["MASTER_ADDR"], listener.getsockname()[1], token]
            given = {"LOCAL_RANK": "0", **os.environ}
            self._child(given, json.dumps(address))
            self._hear_hellos()
            # In the log, which the engine quotes if its deadline comes first.
            sys.stderr.write(f"waiting for {launch.size - 1} more ranks\n")
            sys.stderr.flush()
            until = time.monotonic() + JOIN_S
            while len(self.ranks) < launch.size:
                listener.settimeout(max(0.1, until - time.monotonic()))
                try:
                    self._admit(*listener.accept(), token)
                except TimeoutError:
                    absent = set(range(launch.size)) - {rank.number for rank in self.ranks}
                    listed = ", ".join(map(str, sorted(absent)))
                    text = f"no word from rank {listed} within {JOIN_S:.0f} s"
                    hint = "start every rank with the same command, by torchrun or srun"
                    raise WorkloadError(text, code="rank_missing", hint=hint) from None
            self.ranks.sort(key=lambda rank: rank.number)

    def _admit(self, channel: socket.socket, _: Any, token: str) -> None:
        channel.settimeout(10.0)
        # Any process may connect, and send anything.
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            hello = json.loads(channel.makefile("rb").readline(1 << 20))
            known = {rank.number for rank in self.ranks}  # a wrong RANK may name one twice
            if secrets.compare_digest(hello["token"], token) and hello["rank"] not in known:
                channel.settimeout(None)
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                rank = Rank(LineChannel(channel), hello["rank"])
                rank.meet(hello)
                self.ranks.append(rank)
                return
        channel.close()

    def _child(self, environment: dict[str, str], address: str = "") -> None:
        child = LineProcess(command("workloads._ranks.rank"), address, environ=environment)
        self.ranks.append(Rank(child, len(self.ranks)))

    def _hear_hellos(self) -> None:
        for rank, hello in zip(self.ranks, self._answers(self.ranks), strict=True):
            rank.meet(hello)

    def sharers(self, number: int, world: int) -> int:
        """Count the ranks below `world` that share cores with rank `number`, itself included."""
        own = self.ranks[number]
        return sum(
            rank.host == own.host and bool(rank.cpus & own.cpus) for rank in self.ranks[:world]
        )

    def tell(self, members: Sequence[Rank], **order: Any) -> None:
        """Send an order that has no answer."""
        if self.failure is not None:
            raise self.failure
        line = json.dumps(order).encode()
        for rank in members:
            try:
                rank.channel.send(line)
            except OSError:
                raise self._died(rank) from None

    def ask(self, members: Sequence[Rank], **order: Any) -> list[Any]:
        """Send an order and wait for every answer; WorkloadError if a rank fails or dies."""
        self.tell(members, **order)
        return self._answers(members)

    def _answers(self, members: Sequence[Rank]) -> list[Any]:
        answers: dict[Rank, Any] = {}
        error: dict[str, Any] | None = None
        until: float | None = None
        with selectors.DefaultSelector() as selector:
            for rank in self.ranks:  # all of them: those that wait can die, too
                selector.register(rank.channel.socket, selectors.EVENT_READ, rank)
            while len(answers) < len(members):
                ready = selector.select(None if until is None else until - time.monotonic())
                if not ready and error is not None:
                    raise self._fail(WorkloadError(**error))
                for rank, reply in self._heard(key.data for key, _ in ready):
                    if "died" in reply:
                        raise self._died(rank, **reply["died"])
                    if "error" in reply:
                        # The cause may be another rank's death: wait for news of it.
                        error, until = error or reply["error"], time.monotonic() + CAUSE_S
                    else:
                        answers[rank] = reply["ok"]
        return [answers[rank] for rank in members]

    def _heard(self, ranks: Iterable[Rank]) -> Iterator[tuple[Rank, dict[str, Any]]]:
        """The answers that are complete; WorkloadError when a rank is gone."""
        for rank in ranks:
            try:
                with suppress(BlockingIOError):
                    for line in rank.channel.receive():
                        with suppress(ValueError):  # a rank may die in the middle of a line
                            yield rank, json.loads(line)
            except EOFError:
                raise self._died(rank) from None

    def _died(self, rank: Rank, code: int | None = None, log: str = "") -> WorkloadError:
        """The error for a dead rank.  Code and log of a launcher's rank come from the process that
        waits for it; those of a child are known here."""
        if isinstance(rank.channel, LineProcess):
            with suppress(subprocess.TimeoutExpired):
                code = rank.channel.process.wait(1.0)
            log = rank.channel.log_tail()
        where = f" on {rank.host}" if rank.host not in ("", socket.gethostname()) else ""
        text = f"rank {rank.number} of {len(self.ranks)}{where} died"
        hint = "choose a smaller batch or fewer ranks; if memory ran out, dmesg says so"
        return self._fail(WorkloadError(ending(text, code, log), code="rank_died", hint=hint))

    def _fail(self, failure: WorkloadError) -> WorkloadError:
        """Keep the reason for the other cases of this group, and end it."""
        self.failure = failure
        self.end()
        return failure

    def goodbye(self) -> None:
        """Let the ranks end by themselves."""
        if self.failure is None:
            self.failure = WorkloadError("the ranks have ended", code="rank_died")
            channels = [rank.channel for rank in self.ranks]
            for channel in channels:
                with suppress(OSError):
                    channel.send(b'{"op": "bye"}')
            until = time.monotonic() + GOODBYE_S
            for channel in channels:
                channel.socket.settimeout(max(0.01, until - time.monotonic()))
                with suppress(OSError):
                    channel.socket.recv(1)
        self.end()

    def end(self) -> None:
        """End our own children at once; the ranks of a launcher end after this process, since the
        launcher would end everything with the first of them."""
        channels = [rank.channel for rank in self.ranks]
        children = [each for each in channels if isinstance(each, LineProcess)]
        _held.extend(each for each in channels if each not in children)
        for child in children:
            child.process.kill()
        for child in children:
            child.reap()
        self.ranks, self._store = [], None


_groups: list[RankGroup] = []
_held: list[LineChannel] = []  # channels to ranks of a launcher, open until this process ends


def enter(size: int, device: str) -> RankGroup:
    """A group of at least `size` ranks from `device` on: an open one, if it is large enough."""
    launch = launch_of(os.environ)
    if launch is not None and size > launch.size:
        text = f"{launch.launcher} started {launch.size} ranks, not {size}"
        raise WorkloadError(text, code="bad_input")
    for group in _groups:
        # A launcher's ranks cannot be started again, even if they failed.
        if launch is not None or (group.device == device and len(group.ranks) >= size):
            group.users += 1
            return group
    group = RankGroup(device)
    if launch is not None:
        _groups.append(group)
        atexit.register(group.goodbye)
    group.gather(size)
    if launch is None:
        _groups.append(group)
    group.users += 1
    return group


def leave(group: RankGroup) -> None:
    """Give a group back; ranks that were started here end with its last user."""
    group.users -= 1
    if group.users == 0 and group.launch is None:
        group.goodbye()
        _groups.remove(group)
