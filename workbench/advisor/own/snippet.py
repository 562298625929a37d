"""The lines that make the user's code run as its pick was measured."""

import shlex
from dataclasses import dataclass, replace

from ... import catalog
from ...contract import THREAD_VARIABLES, Case, kind_of
from ...planning.questions import OwnQuestion
from ...records.code import CodeFacts
from ...worker import onnx_gpu
from ...worker.allocator import KEEP, SETTLE
from ...worker.code import COMMAND, FUNCTION, MODEL, command_words, guard_for, port_name
from ...worker.session_options import ONNX_BACKENDS
from ..model.snippet import CALLS, session_lines

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
RETURNED = 'output["loss"] if isinstance(output, dict) else getattr(output, "loss", output)'
MOVED = """\
import copy
from collections.abc import Mapping
def moved(x):
    if {fits}:
        return x.to({how})
    if isinstance(x, Mapping):
        y = copy.copy(x)
        for name in x:
            y[name] = moved(x[name])
        return y
    if isinstance(x, (list, tuple)):
        each = map(moved, x)
        return type(x)(*each) if hasattr(x, "_fields") else type(x)(each)
    if hasattr(x, "__dict__") and not isinstance(x, (type, torch.nn.Module)):
        y = copy.copy(x)
        for name, value in vars(x).items():
            object.__setattr__(y, name, moved(value))
        return y
    return x
"""
ON_DEVICE = 'hasattr(x, "to")'  # tensors, and the graphs and batches of libraries


@dataclass(frozen=True)
class Lines:
    """Python (or shell, for a command): the set-up to do once, and the call.

    Lines for a module use the names `model`, `inputs` (positional) and `named` (keywords).  Those
    for a training step also use `optimizer`, and where the facts name its arguments `loss` and
    maybe `batch`.  Those for a function use `work`, `inputs` and `named`.
    """

    setup: list[str]
    call: list[str]


def snippet(facts: CodeFacts, case: Case, question: OwnQuestion) -> str:
    """The lines to paste for `case`, after a comment that explains their names."""
    found = lines(facts, case, question)
    return "\n".join([*_legend(facts, case, question), *found.setup, *found.call])


def _legend(facts: CodeFacts, case: Case, question: OwnQuestion) -> list[str]:
    if question.kind == COMMAND:
        return []
    if question.kind == FUNCTION:
        return ["# work: your function; inputs and named: its arguments"]
    named = "; named: its keyword arguments" if facts.named else ""
    if case.backend in ONNX_BACKENDS:
        return [f"# {MODEL}: written by --save-best; inputs: the module's arguments{named}"]
    trains = "; optimizer: yours" if question.train else ""
    trains += "; loss: yours" if facts.loss else ""
    trains += "; batch: what it takes" if _takes_batch(facts) else ""
    returns = question.train and facts.loss is None
    model = "a module whose forward returns your loss" if returns else "your module"
    return [f"# model: {model}; inputs: its arguments{named}{trains}"]


def lines(facts: CodeFacts, case: Case, question: OwnQuestion) -> Lines:
    if question.kind == COMMAND:
        return Lines([], [shlex.join(command_words(question.target, case.tuning))])
    case = replace(case, device=case.computes_on)
    if question.kind == FUNCTION:
        return _function(facts, case)
    call = "model(*inputs, **named)" if facts.named else "model(*inputs)"
    if case.backend in ONNX_BACKENDS:
        return _session(facts, case)
    imports = ["import ctypes"] if "keep" in case.mode_words else []
    setup = [*imports, "import torch", "", *_process(facts, case)]
    if question.train:  # else parts that the builder has set to eval stay so
        setup += ["if not model.training:", "    model.train()"]
    elif not facts.graph:
        setup.append("model.eval()")
    setup += _placed(facts, case)
    if case.is_compiled:
        how = ', mode="reduce-overhead"' if "reduce-overhead" in case.mode_words else ""
        setup.append(f"model = torch.compile(model, dynamic=False{how})")
    if question.train:
        return _training(facts, case, setup, call)
    guard = guard_for(facts.guard, compiles=case.is_compiled)
    contexts = f"with torch.{guard}(){_autocast(facts, case)}:"
    if "graph" in case.mode_words:
        return _graph(setup, case.device, contexts, call)
    return Lines(setup, [contexts, f"    output = {call}"])


def _function(facts: CodeFacts, case: Case) -> Lines:
    setup = []
    if case.threads is not None:
        setup = ["import os", "", "# before NumPy, torch and the like are imported"]
        variables = (*THREAD_VARIABLES, *catalog.backend(case.backend).thread_variables)
        setup += [f'os.environ["{name}"] = "{case.threads}"' for name in variables]
    device = f", device={case.device!r}" if facts.passes_device else ""
    return Lines(setup, [f"result = work(*inputs, **named{device})"])


def _takes_batch(facts: CodeFacts) -> bool:
    """Whether the loss of a training takes the batch, or its last entry."""
    return facts.loss is not None and "batch" in facts.loss


def _session(facts: CodeFacts, case: Case) -> Lines:
    """A session of the exported model, whose inputs have the module's names or their positions."""
    setup = [*session_lines(case, MODEL, onnx_gpu.CPU), "given = {"]  # it races on the CPU alone
    given = ((port_name(each.name), each.place) for each in facts.inputs)
    setup += [f"    {name!r}: {place}.numpy(force=True)," for name, place in given]
    names = "(port.name for port in session.get_inputs())"
    if case.backend == "openvino":
        names = "(port.any_name for port in session.inputs)"
    setup += ["}", f"feeds = {{name: given[name] for name in {names}}}"]
    return Lines(setup, [f"output = {CALLS[case.backend]}"])


def _process(facts: CodeFacts, case: Case) -> list[str]:
    """Settings of the whole process: memory and threads, or the arithmetic of FP32 on a GPU.

    `allow_tf32` works in all versions of torch.  Its successor came with 2.9; where a module has
    set that for all of torch or for cuDNN, `allow_tf32 = False` does not undo it.
    """
    if kind_of(case.device).on_host:
        threads = [] if case.threads is None else [f"torch.set_num_threads({case.threads})"]
        return [*(KEEP if "keep" in case.mode_words else [SETTLE]), *threads]
    if case.precision not in ("fp32", "tf32") or facts.precision != "fp32":
        return []
    is_tf32 = case.precision == "tf32"
    wider = 'torch.backends.fp32_precision = torch.backends.cudnn.fp32_precision = "none"'
    found = [f"torch.backends.{part}.allow_tf32 = {is_tf32}" for part in ("cuda.matmul", "cudnn")]
    return found if is_tf32 else [wider, *found]


def _placed(facts: CodeFacts, case: Case) -> list[str]:
    """The module and its inputs in the layout and on the device of the case."""
    steps = []
    if case.precision == "fp32" and facts.precision in AUTOCAST:
        steps.append(("torch.float32", "torch.is_tensor(x) and x.is_floating_point()"))
    nested = any("." in port.name for port in facts.inputs)
    if "nhwc" in case.mode_words:
        steps.append(("memory_format=torch.channels_last", "getattr(x, 'ndim', 0) == 4"))
    if not kind_of(case.device).on_host:
        steps.append((repr(case.device), ON_DEVICE))
    found = []
    for how, fits in steps:
        moved = f"x.to({how}) if {fits} else x"
        if nested:
            found += MOVED.format(how=how, fits=fits).splitlines()
            moved = "moved(x)"
        found += [f"model = model.to({how})", f"inputs = [{moved} for x in inputs]"]
        if facts.named:
            found.append(f"named = {{name: {moved} for name, x in named.items()}}")
    return found


def _autocast(facts: CodeFacts, case: Case) -> str:
    if case.precision not in AUTOCAST or facts.precision != "fp32":
        return ""
    kind = case.device.partition(":")[0]
    # autocast frees its cache of cast weights, which a captured graph would go on reading.
    uncached = ", cache_enabled=False" if "graph" in case.mode_words else ""
    return f', torch.autocast("{kind}", dtype=torch.{AUTOCAST[case.precision]}{uncached})'


def _graph(setup: list[str], device: str, contexts: str, call: str) -> Lines:
    """Capture after three calls on a side stream, as torch's notes on CUDA graphs ask.

    After a capture that begins in inference mode, older versions of torch fail at a replay outside
    of it, or at a later capture (pytorch#143777, #166792).
    """
    captured = [
        f"torch.cuda.set_device({device!r})",
        "stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()",
        "stream.wait_stream(torch.cuda.current_stream())",
        "with torch.cuda.stream(stream):",
        f"    {contexts}",
        "        for _ in range(3):",
        f"            {call}",
        "torch.cuda.current_stream().wait_stream(stream)",
        "with torch.cuda.graph(graph):",
        f"    {contexts}",
        f"        output = {call}",
    ]
    return Lines(setup + captured, ["# new values: inputs[0].copy_(batch)", "graph.replay()"])


def _training(facts: CodeFacts, case: Case, setup: list[str], call: str) -> Lines:
    device = case.device.partition(":")[0]
    if "fused" in case.mode_words:
        setup.append("for group in optimizer.param_groups:")
        setup.append("    group.update(fused=True, foreach=False)")
    if "workers" in case.tuning:
        settings: dict[str, object] = {} if facts.of_one_size else {"batch_size": case.batch}
        settings["num_workers"] = case.tuning["workers"]
        settings["pin_memory"] = bool(case.tuning.get("pin"))
        setup.append(f"loading = {settings}  # DataLoader(dataset, **loading)")
    if facts.loss and device != "cpu":  # it may hold weights of classes
        setup.append(f'loss = loss.to({case.device!r}) if hasattr(loss, "to") else loss')
    if _takes_batch(facts) and device != "cpu":
        moved = MOVED.format(how=repr(case.device), fits=ON_DEVICE)
        setup += [*moved.splitlines(), "batch = moved(batch)"]
    forward = [f"output = {call}", f"error = {f'loss({facts.loss})' if facts.loss else RETURNED}"]
    is_mixed = case.precision in AUTOCAST and facts.precision == "fp32"
    if is_mixed:
        cast = f'with torch.autocast("{device}", dtype=torch.{AUTOCAST[case.precision]}):'
        forward = [cast, *(f"    {line}" for line in forward)]
    steps = ["error.backward()", "optimizer.step()"]
    if is_mixed and case.precision == "fp16":
        setup.append(f'scaler = torch.amp.GradScaler("{device}")')
        if "fused" in case.mode_words:  # as it was measured: the kernel of Adam unscales
            setup.append("kinds = torch.optim.Adam, torch.optim.AdamW")
            setup.append("optimizer._step_supports_amp_scaling = isinstance(optimizer, kinds)")
        steps = ["scaler.scale(error).backward()", "scaler.step(optimizer)", "scaler.update()"]
    return Lines(setup, ["optimizer.zero_grad()", *forward, *steps])
