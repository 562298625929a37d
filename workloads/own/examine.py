"""Examines a user's module by calling it a few times before anything is timed."""

import hashlib
import itertools
import json
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.text.units import listed
from workbench.worker.code import MODULES, Code
from workbench.worker.failures import first_line
from workbench.worker.libraries import nn, torch

from . import training
from .plain import digest
from .reference import GUARDS, SAME, Reference, arrays, as_eager, call, errors, guard, reference
from .subject import Subject, precision_of, subject_of, weights_of
from .target import NO_CUDA_MARKS, examining, is_users, kept_result, seed_loaded, user_errors
from .tree import Example, compiled_parts, tensors_of_output

KNOWN, VARIABLE = "facts.json", "OMP_NUM_THREADS"
ROWS_ALIKE = 1e-3  # relative difference between rows of a batch and the same rows in a larger one
KEEPS = 10  # times a later call, from which a first call suggests a cached result
FIRST_CALLS = 3  # fresh copies that are called, since other processes may slow down one call
FROM_INPUTS = "take the device from the inputs, instead of .cuda() in the code"


def module(code: Code) -> dict[str, Any]:
    """The fields of CodeFacts of a torch module, also written for other workers (`known`)."""
    before, notes = torch.get_num_threads(), list[str]()
    with examining(code, notes, [VARIABLE], FROM_INPUTS):
        subject = subject_of(code)
        facts = _facts(code, subject)
    count = torch.get_num_threads()
    facts.setdefault("threads", count if count != before else None)
    facts["notes"] += notes
    (Path(code.folder) / KNOWN).write_text(json.dumps(facts))
    return facts


@cache
def known(code: Code) -> dict[str, Any]:
    """The facts that `module` found, in any process of this run."""
    found: dict[str, Any] = json.loads((Path(code.folder) / KNOWN).read_text())
    return found


def _facts(code: Code, subject: Subject) -> dict[str, Any]:
    notes: list[str] = []
    if subject.was_compiled:
        notes.append("its torch.compile is removed; compiled forms race as candidates")
    if parts := compiled_parts(subject.module):
        names = shown(", ".join(parts), 60)
        notes.append(f"parts of it are compiled ({names}), and stay so in every candidate")
    own, kinds = precision_of(subject.module), set(map(type, subject.module.parameters()))
    if kinds := kinds - {nn.Parameter, torch.Tensor}:  # torchao quantises so
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        notes.append(f"its weights of the type {shown(names, 60)} count as {own.upper()}")
    facts = {
        "code_sha256": _hash_of_code(code, subject),
        "precision": own,
        "parameters": sum(each.numel() for each in weights_of(subject.module)),
        "convolves": _convolves(subject.module),
        "graph": subject.is_graph,
        "compiled": subject.was_compiled,
        **(_trained if code.train else _called)(code, subject, notes),
    }
    if (listed := Path(code.folder, MODULES)).exists():  # the modules that a script called
        ran = json.loads(listed.read_text())
        notes += map(shown, ran["notes"])
        facts |= {key: ran[key] for key in ("modules", "cut", "threads", "lingers")}
        facts["trains"] = ran["trains"] and not code.train
    return {**facts, "notes": notes}


def _trained(code: Code, subject: Subject, notes: list[str]) -> dict[str, Any]:
    """The facts of a training, whose inputs may come from its data."""
    found = training.examine(code, subject)
    notes += found.pop("notes")
    given = _inputs(found["inputs"])
    if found["batch"] is not None:  # drawn from data, perhaps at random
        return {**found, **given, "inputs_sha256": "", "resizable": not found["of_one_size"]}
    batch = subject.own_batch
    return {**found, **given, "batch": batch, "resizable": batch is not None}


def _called(code: Code, subject: Subject, notes: list[str]) -> dict[str, Any]:
    if subject.was_training and not code.is_script:  # the calls of a script have notes of their own
        notes.append("it was in training mode; its inference is measured in evaluation mode")
    batch = subject.own_batch
    example = subject.example(batch)
    facts = {**_inputs(example), **_behaviour(subject, example, notes)}
    resizes = batch is not None and _resizes(subject, example, batch, facts)
    if resizes is None and not subject.is_graph and code.batch != batch:  # unless --batch says so
        batch = None  # such as images in a list, whose first axis is the colours
    facts |= {"batch": batch, "checks": subject.part("check") is not None}
    found = reference(code, batch, facts["guard"])
    facts["reference"] = found.source if found.seeded or not found.why_useless else ""
    facts["floor"] = max(found.floors)
    if found.holed:
        notes.append(f"NaN in its outputs ({listed(found.holed, 2)}) is not compared")
    facts["nondeterministic"] = found.varies
    if found.varies:
        notes.append(f"two fresh copies differ, {_consequence(found)}")
        remedy = "pass training=self.training to F.dropout"
        remedy = "call eval() before torch.export" if subject.is_graph else remedy
        notes.append(f"if dropout makes the copies differ, {remedy}")
    facts["resizable"] = bool(resizes)
    facts["of_one_size"] = resizes is None and batch is not None
    return facts


def _consequence(found: Reference) -> str:
    """The consequence of a difference between equal calls for the check of candidates."""
    loose = [name for place, name in enumerate(found.names) if place not in found.steady]
    if not loose:
        return "so its error limit includes that difference"
    if len(found.seeded) == len(loose):
        return f"so {listed(loose, 2)} counts only in calls that draw the same numbers"
    return f"so that {listed(loose, 2)} cannot be compared"


def _inputs(example: Example) -> dict[str, Any]:
    places, given = example.places(), example.tensors()
    listed = [
        {
            "name": shown(name, 60),
            "place": places[name],
            "type": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
        }
        for name, tensor in given.items()
    ]
    return {"inputs": listed, "named": bool(example.kwargs), "inputs_sha256": digest(given)}


def _changes(
    inputs: Example, given: dict[str, Any], before: dict[str, str], output: Any
) -> tuple[list[str], bool]:
    """The inputs that a call changed, and whether `output` holds all that it put there; `given` are
    their tensors and `before` the hashes of those, as they were before the call."""
    now = inputs.tensors()
    hashes = _hashes(now)
    known = {**before, **hashes}  # a call may add to a list or a cache
    changed = [name for name in known if hashes.get(name) != before.get(name)]
    made = {*map(id, tensors_of_output(output).values())} - {*map(id, given.values())}
    return changed, bool(changed) and all(id(now.get(name)) in made for name in changed)


def _behaviour(subject: Subject, example: Example, notes: list[str]) -> dict[str, Any]:
    """The effects of calls on one another, by state and changed inputs; and the time of a call."""
    inputs = example.mapped(lambda tensor: tensor.clone().to(subject.code.home))
    given = inputs.tensors()
    hashes = _hashes(given)
    with user_errors(subject.name):
        within, first = _guard(subject, example), subject.copy()
        seed_loaded(subject.code.seed)
        began = time.perf_counter()
        with guard(within), as_eager():
            output = first(*inputs.args, **inputs.kwargs)
            answer = list(arrays(output).values())
        first_s = time.perf_counter() - began
        changed, returned = _changes(inputs, given, hashes, output)
        with suppress(Exception):  # some state shows only after a call with other inputs
            call(first, example.mapped(_other_values), within=within)
        seed_loaded(subject.code.seed)  # other random numbers are no state
        began = time.perf_counter()
        again = list(arrays(call(first, example, within=within)).values())
        step_s = time.perf_counter() - began
        del first, output  # before another copy takes as much memory
        for _ in range(FIRST_CALLS):
            another, began = subject.copy(), time.perf_counter()
            fresh = list(arrays(call(another, example, within=within)).values())
            first_s = min(first_s, time.perf_counter() - began)
            del another
            if not (kept := kept_result(first_s, step_s, KEEPS)):
                break
    mutated = [shown(name, 60) for name in changed]
    stateful = not _differ(answer, fresh) and _differ(answer, again)
    if stateful:
        notes.append("calls depend on earlier ones, so each candidate has its own copy")
    notes += kept
    if mutated:
        names = listed(mutated, 2)
        notes.append(f"a call changes its inputs ({names}), which are restored before each call")
    return {
        "stateful": stateful,
        "mutated": mutated,
        "returns_changes": returned,
        "step_s": step_s,
        "guard": within,
    }


def _hashes(given: dict[str, Any]) -> dict[str, str]:
    return {name: digest(each) for name, each in given.items()}


def _guard(subject: Subject, example: Example) -> str:
    """The first of GUARDS in which a call works; an error in the last one is raised."""
    for name in GUARDS[:-1]:
        try:
            call(subject.copy(), example, within=name)
        except Exception as error:
            if any(mark in first_line(error) for mark in NO_CUDA_MARKS):
                raise  # the other contexts have no GPU either
        else:
            return name
    call(subject.copy(), example, within=GUARDS[-1])
    return GUARDS[-1]


def _differ(answers: list[Any], others: list[Any]) -> bool:
    if [each.shape for each in answers] != [each.shape for each in others]:
        return True
    try:
        return max(errors(answers, others), default=0.0) > SAME
    except WorkloadError:  # NaN or infinity in only one of them
        return True


def _resizes(subject: Subject, example: Example, batch: int, facts: dict[str, Any]) -> bool | None:
    """Whether a batch of twice the size works, and its last rows give the same results alone: its
    first rows would do so along the sequence of a causal module, too.  If that raises, the batch is
    compared with half of it.  None if that raises as well, or if a state passes from row to row, as
    along a sequence, and --batch does not name the first axis."""
    within = facts["guard"]
    if subject.takes_batch:
        with suppress(Exception):  # its forward may name its own batch
            call(subject.copy(), subject.example(1 if batch > 1 else 2), within=within)
            return True
        return False
    for size in filter(None, (batch, batch // 2)):
        with suppress(Exception):
            given = example if size == batch else example.resized(size)
            small = arrays(call(subject.copy(), given, within=within))
            large = arrays(call(subject.copy(), given.mapped(_with_other_rows), within=within))
            rows = [name for name, each in small.items() if each.ndim and each.shape[0] == size]
            if not rows or any(large[name].shape[:1] != (2 * size,) for name in rows):
                return False
            halves = [large[name][size:] for name in rows]
            alike = max(errors(halves, [small[name] for name in rows])) <= ROWS_ALIKE
            return None if facts["stateful"] and not (alike or subject.code.batch) else alike
    return None


def _other_values(tensor: Any) -> Any:
    """Other values that a module is likely to take: half, or integers of other places, or 0."""
    if tensor.is_floating_point():
        return tensor * 0.5
    rolled = tensor.roll(1)
    return torch.zeros_like(tensor) if torch.equal(rolled, tensor) else rolled


def _with_other_rows(tensor: Any) -> Any:
    """Twice the rows: changed ones, then the given ones."""
    if not tensor.dim():
        return tensor
    other = tensor * 0.5 if tensor.is_floating_point() else tensor.roll(1, -1)
    return torch.cat([other, tensor])


def _convolves(module: Any) -> bool:
    """Whether channels_last applies: to 2-D convolutions, if no weight has five axes."""
    flat = any(isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)) for part in module.modules())
    weights = itertools.chain(module.parameters(), module.buffers())
    return flat and all(weight.dim() < 5 for weight in weights)


def _hash_of_code(code: Code, subject: Subject) -> str:
    """SHA-256 of the file that the code is in; where a package re-exports a builder, also of the
    file that defines it, and of those in the user's folder that define its modules' classes."""
    places = (subject.namespace, subject.defined_in if subject.has_builder else None)
    known = [getattr(place, "__file__", None) for place in places]
    file = Path(code.directory, code.target.partition("::")[0])
    named = list(map(Path, filter(None, known))) or [file]
    kinds = {kind.__module__ for part in subject.module.modules() for kind in type(part).__mro__}
    files = (getattr(sys.modules.get(name), "__file__", None) or "" for name in kinds)
    own = sorted(Path(f) for f in files if is_users(f) and Path(f).is_relative_to(code.directory))
    read = [path.read_bytes() for path in dict.fromkeys([*named, *own]) if path.is_file()]
    return hashlib.sha256(b"".join(read)).hexdigest() if read else ""
