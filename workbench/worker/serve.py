"""The request loop of a worker: one JSON line per request, with an error object for a failure."""

import atexit
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any

from ..catalog.files import backends
from ..catalog.importing import import_backend
from ..contract import WorkloadError
from ..process.children import empty_if_long
from ..text.sanitize import shown
from .failures import LONGEST, MEMORY_HINT, cause, first_line, is_fatal, is_out_of_memory

LEAST_ROOM = 1 << 16  # free bytes below which the disk counts as full
FULL_DISK = "the disk of TMPDIR is full: free some of it, or let TMPDIR name another"
LOG = 2  # a worker's standard error is its log
DISTRIBUTIONS = {"PIL": "pillow"}  # import name to package name, if they differ


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the protocol's error object; `fatal` ends the worker."""
    message = first_line(error)
    fatal = False
    if isinstance(error, WorkloadError):
        code, message = error.code, shown(str(error), LONGEST)
        hint = error.hint and shown(error.hint, LONGEST)
    elif isinstance(error, ModuleNotFoundError):
        code, message, name = "missing_package", f"{error.name} is not installed", error.name or ""
        hint = f"`pip install {DISTRIBUTIONS.get(name, name)}`"
        if name in backends():
            hint = import_backend(name).install
    elif is_out_of_memory(error):
        code, hint = "no_memory", MEMORY_HINT
    else:
        code, hint = cause(error) or ("failed", None)
        fatal = is_fatal(error)
    hint = hint or (FULL_DISK if _is_disk_full() else None)
    return {"code": code, "message": message, "hint": hint, "fatal": fatal}


def _is_disk_full() -> bool:
    """Whether the folder for temporary files is full, since errors of libraries rarely say so."""
    with suppress(OSError, KeyError):
        found = os.statvfs(os.environ["TMPDIR"])
        return found.f_bavail * found.f_frsize < LEAST_ROOM
    return False


def log_error() -> None:
    """Write the current exception into the log, whose tail the engine quotes."""
    import traceback

    with suppress(Exception):  # the disk is full, or the user's code has closed the stream
        traceback.print_exc()


def answer(worker: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; every failure is part of the answer."""
    operation = getattr(worker, request.pop("op"))
    try:
        return {"ok": operation(**request)}
    except Exception as error:
        log_error()
        described = describe(error)
    if not described["fatal"]:  # the exception and its frames, which held tensors, are gone by now
        with suppress(Exception):
            worker.tidy()
    return {"error": described}


def serialise(reply: dict[str, Any]) -> bytes:
    """One JSON line; NaN and infinity, which JSON lacks, become an error."""
    try:
        text = json.dumps(reply, allow_nan=False)
    except (RecursionError, TypeError) as unfit:
        text = json.dumps({"error": describe(unfit)})
    except ValueError:
        hint = "it diverged or overflowed: try a smaller learning rate or a higher precision"
        nan = WorkloadError("the workload produced NaN or infinity", code="non_finite", hint=hint)
        text = json.dumps({"error": describe(nan)})
    return text.encode() + b"\n"


def serve(worker: Any, descriptor: int) -> None:
    """Answer with the methods of `worker` until the socket closes; then end this process."""
    # Before any import of onnxruntime, which then writes files and starts a thread.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    own, log = os.getpid(), os.fstat(LOG)
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rb") as requests:
        for line in requests:
            reply = answer(worker, json.loads(line))
            if os.getpid() != own:
                os._exit(0)  # a process that a workload forked must not answer too
            with suppress(OSError):
                if os.path.samestat(os.fstat(LOG), log):  # code may have redirected standard error
                    empty_if_long(LOG)
            channel.sendall(serialise(reply))
            if reply.get("error", {}).get("fatal"):
                break
    getattr(worker, "close", int)()
    # Without the interpreter's own teardown, which takes half a second once torch is loaded.
    atexit._run_exitfuncs()
    with suppress(Exception):  # the user's code may have closed or replaced them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)
