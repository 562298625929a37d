"""Runs a user's script once, unchanged, and hands one of the modules that it called to others."""

import gc
import itertools
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from workbench.contract import WorkloadError
from workbench.process import children
from workbench.process.children import log_tail
from workbench.text.sanitize import shown
from workbench.text.units import counted, listed
from workbench.worker.code import MODULES, Code
from workbench.worker.failures import STYLES
from workbench.worker.libraries import torch
from workbench.worker.serve import LOG, log_error

from .._shared.torch_task import end_compilers
from .calls import Called, Run, TimeUp
from .handing_over import given, hand_over, received
from .target import NO_CUDA_MARKS, flush_at_exit, flush_files, in_one_line, unusable
from .tree import Example

# Messages of a script that torchrun starts, and what torchrun sets for a single process.
TORCHRUN_MARKS = ("'LOCAL_RANK'", "'RANK'", "'WORLD_SIZE'", "variable RANK expected")
TORCHRUN = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500"
NO_CUDA = (*NO_CUDA_MARKS, "cuda.is_available", "CUDA is not available", "CUDA unavailable")
REMEDIES = (
    (NO_CUDA, "let it use the CPU, by an option after -- (--device cpu) or in its code"),
    (["have NCCL built in"], "let it use the backend gloo, which needs no GPU"),
    (["raised EOFError: EOF when reading"], "its standard input is empty: let it take arguments"),
    (["Inappropriate ioctl"], "it has no terminal here: let it run without one"),
    (["no known parent package"], "name a script outside the package that imports this one"),
    (TORCHRUN_MARKS, f"torchrun sets it: put {TORCHRUN} before workbench"),
    (["'get_ipython' is", "'display' is"], "it was a notebook: remove what only IPython can run"),
)
LONGER = "raise --budget: a script gets a third of it"
WITH_LOSS = "name a builder, package.module:build, with loss(output, batch) next to it"
WITH_FORWARD = "name a builder, package.module:build, of a module whose forward returns that loss"
COMPILED = "that torch.compile compiles"
# The line with which argparse, click, Fire, absl and Python begin an error.
ERROR = re.compile(r"error(:|$)", re.IGNORECASE)
FRAME = " \t─│╭╮╰╯"  # Rich draws it around messages
MOST_WORDS = 12  # last lines that may hold an error
UNTRAINED = 0.1  # ratio to the time of what is trained from which other calls get a note
LARGER = 2.0  # times the time of the chosen module, from which a slower one has a note


def opened(code: Code) -> tuple[Any, Example, SimpleNamespace]:
    """The module that the script calls, its inputs, and the `loss` and `optimizer` of its training;
    only the first worker runs the script."""
    folder, name = Path(code.folder), code.target.partition("::")[2]
    if (folder / MODULES).exists():
        found = json.loads((folder / MODULES).read_text())
        if why := found["not_handed_over"]:
            raise WorkloadError(why, hint="name a function that builds it")
        return received(code, found["dtype"])
    ran = run(code)
    chosen, hides_calls = choose(ran, name), ran.hides_calls
    if code.train and chosen.loss is None:
        raise _without_loss(chosen, ran, code)
    folder.mkdir(parents=True, exist_ok=True)
    modules = [
        {
            "name": shown(each.name, 60),
            "calls": each.calls,
            "seconds": each.seconds,
            "share": min(1.0, each.seconds / ran.seconds),  # calls in threads may overlap
            "shapes": [shown(shape, 60) for shape in each.shapes],
            "sizes": len(each.counts),
            "chosen": each is chosen,
            "altered": bool(each.notes) or ran.trains(each) or hides_calls,
        }
        for each in ran.modules
    ]
    why_not = hand_over(chosen, ran, code)
    found = {
        "modules": modules,
        "cut": ran.cut,
        "threads": ran.threads,
        "dtype": ran.dtype,
        "trains": ran.trains(chosen),
        "notes": [*ran.notes, *chosen.notes, *chosen.part, *_others(chosen, ran, code)],
        "not_handed_over": why_not,
        "lingers": ran.lingers and why_not is None,
    }
    (folder / MODULES).write_text(json.dumps(found))
    if why_not:
        return given(chosen, ran, code)
    # A received module lacks what calls left in the original, such as the graph of its gradients.
    return received(code, ran.dtype)


def _others(chosen: Called, ran: Run, code: Code) -> list[str]:
    """Notes about what the script does besides calls and steps of the chosen module."""
    file, _, name = code.target.partition("::")
    found = ran.passes if code.train else []
    inner = frozenset([chosen.module] if chosen.joined is None else chosen.joined.inner)
    own = [each for each in ran.modules if each.module in inner]
    names = listed([each.name for each in own])
    if chosen.joined is not None:
        calls = counted(chosen.joined.calls, "call")
        found.append(f"a loss comes from {calls} of {names}, which a raced step makes")
    steps = {step for each in ran.modules for step in each.steps} - {inner}
    apart = {module for step in steps for module in step - inner or step}
    weights = {id(weight) for weight in chosen.raced.parameters()}
    for each in filter(lambda called: code.train and called.has_gradients, ran.modules):
        if any(x.requires_grad and id(x) not in weights for x in each.module.parameters()):
            apart.add(each.module)
    if trained := [each.name for each in ran.modules if each.module in apart]:
        found.append(f"the script trains {listed(trained, 2)} in other steps, which do not race")
    groups = itertools.chain(*(each.param_groups for each in ran.optimizers))
    updated = itertools.chain(*(group["params"] for group in groups))
    if code.train and not all(isinstance(each, torch.nn.Parameter) for each in updated):
        found.append("the script trains tensors outside of modules, which stay as they are here")
    held = [weights for _, weights in ran.optimizers_of(chosen)]
    if code.train and any(weights - held[0] for weights in held):
        latest = "in a raced step the latest updates all of it"
        found.append(f"several optimizers each update a part of {names}; {latest}")
    weighty = [each for each in ran.modules if each.module.state_dict()]
    least = ran.updates / max(1, len(ran.optimizers))  # calls of a module that each step calls
    frozen = [x for x in weighty if code.train and not ran.trains(x) and x.calls >= least]
    more = sum(each.seconds for each in frozen) / max(sum(each.seconds for each in own), 1e-9)
    if more >= UNTRAINED:
        calls = f"calls of {listed([each.name for each in frozen], 2)} without gradients"
        longer = f"{more:.2g}x as long as those of {names}"
        found.append(f"{calls} take {longer}; a raced step leaves them out")
    others = [each for each in weighty if not any(each is x for x in frozen)]
    most = max(others, key=lambda each: each.seconds, default=chosen)
    if not name and most.seconds > LARGER * chosen.seconds > 0:
        ratio = most.seconds / chosen.seconds
        longer = f"{most.name} takes {ratio:.2g}x as long in the script as {chosen.name}"
        how = " without --train" if code.train and most.loss is None else ""
        found.append(f"{longer}; {file}::{most.name} races it{how}")
    return found


def _without_loss(chosen: Called, ran: Run, code: Code) -> WorkloadError:
    """The reason why there is no training step to race, and the remedy."""
    if not chosen.has_gradients:
        early = f"before it trained {chosen.name}"
        if ran.failure is not None:
            text = f"the script {ran.failure} {early}"
            return WorkloadError(text, code=ran.failure.code, hint=ran.failure.hint)
        if ran.cut:
            hint = "raise --budget, or let it train sooner, by options after --"
            return unusable(f"the script was cut after {ran.limit_s:.3g} s, {early}", hint)
    others = [each.name for each in ran.modules if each.loss is not None]
    hint = WITH_FORWARD if ran.trains(chosen) else WITH_LOSS
    if others:
        hint = f"race {code.target.partition('::')[0]}::{others[0]}, or {hint}"
    if ran.trains(chosen):
        return unusable(f"--train cannot follow the script from {chosen.name} to its loss", hint)
    text = f"the script has no optimizer and no backward pass for {chosen.name}"
    return unusable(text, hint)


def run(code: Code) -> Run:
    """Run the script of `code` as `python script.py ARGUMENTS` would, for `code.seconds` at most.

    Call it once, in the main thread.  Modules called inside a compiled function are not seen.
    WorkloadError: `user_code` or `missing_package` if it failed before it called a module,
    `bad_input` if it called none.
    """
    name, _, wanted = code.target.partition("::")
    script, settings = Path(code.directory, name), _settings()
    path, alive, failure = list(sys.path), threading.enumerate(), None
    ran = Run(wanted, code.train)
    others = set(children.offspring(os.getpid()))
    flush_at_exit()
    with ran.watched(code.seconds):
        failure = _failure(script, [name, *code.arguments], code.directory)
        _join(alive)
    ran.paths += _absolute([each for each in sys.path if each not in path], code.directory)
    sys.path[:] = [*path, *ran.paths]  # at the end, where they hide no other module
    os.chdir(code.directory)
    _restore(settings, ran)
    gc.collect()  # ends the workers of a DataLoader that the script left behind
    end_compilers()
    if not ran.modules:
        if failure:
            text = f"{name} {failure} before it called a module"
            raise WorkloadError(text, code=failure.code, hint=failure.hint)
        where = f" outside functions {COMPILED}, where none is seen" if ran.hides_calls else ""
        if ran.cut:
            text = f"{name} called no torch module within {code.seconds:.3g} s{where}"
            raise unusable(text, f"{LONGER}; for a server, name a function that builds its module")
        parts = Path(os.path.relpath(script, code.directory)).with_suffix("").parts
        module = "MODULE" if ".." in parts else ".".join(parts)
        hint = f"name a function of it, --torch {module}:{wanted or 'build'} or --function"
        hint += f" {module}:work, or race the whole script by --command"
        raise unusable(f"{name} called no torch module{where or ' in its own process'}", hint)
    if ran.hides_calls:
        ran.notes.append(f"calls inside functions {COMPILED} are not seen")
    if failure:
        ran.failure = failure
        ran.notes.append(f"the script {failure}")
    if ran.cut:
        ran.notes.append(f"the script was cut after {ran.limit_s:.3g} s")
    if (left := _threads_left() - len(alive)) > 0:
        ran.lingers = True
        ran.notes.append(f"the script left {counted(left, 'thread')} running")
    others.add(getattr(resource_tracker._resource_tracker, "_pid", 0))  # it only waits
    if left := len(set(children.offspring(os.getpid())) - others):
        ran.lingers = True
        ran.notes.append(f"the script left {left} {'processes' if left > 1 else 'process'} running")
    return ran


def _absolute(paths: Sequence[str], folder: str) -> list[str]:
    """The paths from where the script went, or from `folder` if it has removed its own."""
    with suppress(FileNotFoundError):
        folder = os.getcwd()  # noqa: PTH109 - paths stay strings
    return [os.path.normpath(os.path.join(folder, each)) for each in paths]  # noqa: PTH118


def _last_words() -> str:
    """` (train.py: error: ...)`: what the script printed last, from its last error on."""
    with suppress(Exception):  # the script may have closed or replaced it
        sys.stdout.flush()
    lines: list[str] = []
    with suppress(OSError), open(LOG, "rb", closefd=False) as log:
        lines = [STYLES.sub("", each).strip(FRAME) for each in log_tail(log).splitlines()]
    lines = list(filter(None, lines))[-MOST_WORDS:]
    errors = [number for number, line in enumerate(lines) if ERROR.search(line)]
    words = " | ".join(lines[errors[-1] :] if errors else lines[-4:])
    return f" ({shown(words, 200)})" if words else ""


def _threads_left() -> int:
    """The number of threads, once the monitors of tqdm have ended."""
    for each in threading.enumerate():
        if type(each).__module__ == "tqdm._monitor":
            each.exit()  # type: ignore[attr-defined]
    return threading.active_count()


def _settings() -> dict[Callable[[Any], Any], Any]:
    """Settings that a script may change for its own process, by the function that restores each."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    autocast = {
        partial(torch.set_autocast_enabled, kind): torch.is_autocast_enabled(kind)
        for kind in ("cpu", "cuda")  # a script may enter it and never leave it
    }
    return autocast | {
        torch.set_num_threads: torch.get_num_threads(),
        torch.set_grad_enabled: torch.is_grad_enabled(),
        torch.autograd.set_detect_anomaly: torch.is_anomaly_enabled(),
        torch.set_default_dtype: torch.get_default_dtype(),
        torch.set_default_device: None,
        torch.set_float32_matmul_precision: torch.get_float32_matmul_precision(),
        torch.use_deterministic_algorithms: torch.are_deterministic_algorithms_enabled(),
        cuda.enable_flash_sdp: cuda.flash_sdp_enabled(),
        cuda.enable_mem_efficient_sdp: cuda.mem_efficient_sdp_enabled(),
        cuda.enable_math_sdp: cuda.math_sdp_enabled(),
        cuda.enable_cudnn_sdp: cuda.cudnn_sdp_enabled(),
        partial(setattr, cudnn, "enabled"): cudnn.enabled,
        partial(setattr, cudnn, "deterministic"): cudnn.deterministic,
    }


def _restore(settings: dict[Callable[[Any], Any], Any], ran: Run) -> None:
    """Restore the settings of this process, and keep those of the script that the race needs."""
    if (count := torch.get_num_threads()) != settings[torch.set_num_threads]:
        ran.threads = count
    if (kind := torch.get_default_dtype()) != settings[torch.set_default_dtype]:
        ran.dtype = str(kind).removeprefix("torch.")
    if (device := torch.get_default_device()).type != "cpu":
        ours = "in the race its module makes them on the CPU"
        ran.notes.append(f"the script makes new tensors on {device}; {ours}")
    slow = {
        "anomaly detection": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    if names := " and ".join(name for name, is_on in slow.items() if is_on):
        ran.notes.append(f"the script turns on {names}, which may slow it; the race goes without")
    for restore, value in settings.items():
        restore(value)


def choose(ran: Run, name: str = "") -> Called:
    """The module called `name`, or else the one with the largest share of the script's time; in a
    training it is one that is trained, if possible with a loss, else one with weights: losses,
    metrics and transforms of images are modules too.  A part of one that is called as often comes
    last: YOLO calls its parts once when it is built, and a first call may take longest.

    WorkloadError: `bad_target` if none has that name, `bad_input` if only torch.func calls it or if
    its inputs belong to its own modules, `unsupported` if they cannot be copied.
    """
    found = [module for module in ran.modules if name in ("", module.name)]
    if not found:
        seen = ", ".join(module.name for module in ran.modules)
        raise WorkloadError(f"the script calls no {name!r}; it calls {seen}", code="bad_target")
    within = {} if ran.follows else _parts(found)

    def rank(called: Called) -> tuple[bool, bool, bool, bool, float]:
        keys = id(called.module), type(called.module)
        is_own = called.calls > max(within.get(key, -1) for key in keys)
        has_weights, has_loss = bool(called.module.state_dict()), called.loss is not None
        return ran.trains(called), has_loss, has_weights, is_own, called.seconds

    chosen = max(found, key=rank)
    if chosen.example is None and chosen.transformed:
        text = f"{chosen.name} is called only by a transform of torch.func, such as vmap"
        hint = "name a function that returns a module which calls torch.func in its forward"
        raise unusable(text, hint)
    if chosen.example is None and ran.cut and chosen.calls == 1:
        text = f"the script was cut after {ran.limit_s:.3g} s, in its first call of {chosen.name}"
        raise unusable(text, LONGER)
    if chosen.example is None:
        raise WorkloadError(f"the inputs of {chosen.name} cannot be copied")
    given = (*chosen.example.args, *chosen.example.kwargs.values())
    keys = itertools.chain(*(each for each in given if isinstance(each, Mapping)))
    if any(isinstance(key, torch.nn.Module) for key in keys):
        text = f"{chosen.name} gets a dictionary by module, and the raced copies are other modules"
        others = (x.name for x in found if x is not chosen and x.module.state_dict())
        hint = f"name a builder, or another module, as script.py::{next(others, 'Name')}"
        raise unusable(text, hint)
    return chosen


def _parts(modules: Sequence[Called]) -> dict[Any, int]:
    """The most calls of a module that has a part, by the part's id and, but for classes of torch,
    by its class."""
    found: dict[Any, int] = {}
    for each in sorted(modules, key=lambda called: called.calls):
        for part in itertools.islice(each.module.modules(), 1, None):
            found[id(part)] = each.calls
            if not type(part).__module__.startswith("torch.nn."):
                found[type(part)] = each.calls
    return found


def _exit_of(own: int) -> Any:
    """An `os._exit` that ends the script, but not the process `own` that runs it."""
    leave = os._exit

    def end(status: int) -> None:
        if os.getpid() != own or threading.current_thread() is not threading.main_thread():
            leave(status)
        raise SystemExit(status)

    return end


def _exec_of(own: int, start: Callable[..., Any]) -> Callable[..., Any]:
    """An `os.execv` or the like that does not replace the process `own`, which runs the script."""

    def replace(*given: Any) -> Any:
        if os.getpid() == own:
            text = "replaced its process with another program"
            raise _failed(text, "do first what it does for that, such as set a variable")
        return start(*given)

    return replace


def _join(others: Sequence[threading.Thread]) -> None:
    """Wait for the script's threads, as Python does, except for pools that wait for work."""
    of_pools = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    for thread in threading.enumerate():
        if not (thread.daemon or thread in others or thread in of_pools):
            thread.join()


def _failure(script: Path, argv: list[str], folder: str) -> WorkloadError | None:
    """Run the script as the main program; returns what went wrong, if anything did, in words such
    as "raised KeyError: 'x' (train.py:3)": its own exception would keep the script's objects."""
    own = os.getpid()
    kept = sys.argv, sys.modules["__main__"]
    main = ModuleType("__main__")
    # As Python does: it follows a link for the path, but not for `__file__`.
    main.__file__ = os.path.abspath(script)  # noqa: PTH100
    sys.path.insert(0, str(script.resolve().parent))
    sys.argv, sys.modules["__main__"] = argv, main
    functions = {name: getattr(os, name) for name in ("_exit", "execv", "execve")}
    os._exit = _exit_of(own)
    os.execv, os.execve = (_exec_of(own, functions[name]) for name in ("execv", "execve"))
    try:
        program = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
        exec(program, main.__dict__)  # noqa: S102 - the user asked for it
    except SystemExit as end:
        if not end.code:
            return None
        words = _last_words() if isinstance(end.code, int) else ""
        hint = "pass its arguments after --" if end.code == 2 else None
        return _failed(f"exited with {shown(str(end.code), 200)}{words}", hint)
    except ModuleNotFoundError as error:
        log_error()
        text = f"raised {in_one_line(error)}"
        if error.name is None:  # transformers raises it so for any failed import
            return _failed(text)
        return WorkloadError(text, code="missing_package", hint=_place_of(error.name, folder))
    except TimeUp:
        raise
    except WorkloadError as refused:
        return refused
    except BaseException as error:  # also a CancelledError, or a KeyboardInterrupt of its own
        log_error()
        return _failed(f"raised {in_one_line(error)}")
    finally:
        vars(os).update(functions)
        if os.getpid() != own:  # a copy that the script forked
            flush_files()
            os._exit(0)
        sys.argv, sys.modules["__main__"] = kept
    return None


def _place_of(name: str, folder: str) -> str:
    """The remedy for a module that is missing: it may be where `python -m` would find it."""
    files = f"{name}.py", f"{name}/*.py", f"{name}/*/*.py"
    for place in (".", "src"):
        if any(any(Path(folder, place).glob(file)) for file in files):
            return f"put PYTHONPATH={place} before workbench: it is there"
    return "--python names the environment that has it"


def _failed(text: str, hint: str | None = None) -> WorkloadError:
    """The failure with this text, and the remedy that REMEDIES has for it, or else `hint`."""
    found = (remedy for marks, remedy in REMEDIES if any(mark in text for mark in marks))
    return WorkloadError(text, code="user_code", hint=next(found, hint))
