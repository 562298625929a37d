"""The user's module as an ONNX model, and the places where torch.compile would split it.

Exporting may crash or hang in other libraries, so it has a process of its own.
"""

import importlib
import io
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.worker.code import MODEL, Code, guard_for, port_name
from workbench.worker.failures import first_line, is_out_of_memory
from workbench.worker.libraries import nn, onnx, torch

from .._shared.session import cpu_session
from ..lab import agreement, samples
from .reference import Reference, guard
from .subject import Subject, folder_of
from .target import origin
from .tree import Example, tensors_of_output

LARGEST_BYTES = 1_900_000_000  # for weights inside one file: protobuf ends at 2 GiB
BROKEN = 0.1  # relative error of a graph that computes something else; the race checks closely
MOST_REASONS = 5
NO_OPERATIONS = ("placeholder", "get_attr", "output")  # nodes of torch.fx that compute nothing
# ONNX operators that compute shapes: a traced graph is full of them, a compiled one is not.
OF_SHAPES = (
    "Cast", "Concat", "Constant", "ConstantOfShape", "Equal", "Expand", "Gather", "Identity",
    "Range", "Shape", "Slice", "Squeeze", "Unsqueeze", "Where",
)  # fmt: skip
CALIBRATED = 8  # inputs, as many as the model lab makes itself
ON_VALUES = "its control flow or shapes depend on the values of its inputs"


def preload(folder: str) -> None:
    """Import the installed packages for exporting that files in the user's folder would hide."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if PathFinder.find_spec(name, [folder]) is not None:
            with suppress(ImportError):
                importlib.import_module(name)


def export(
    code: Code, subject: Subject, batch: int | None, reference: Reference, *, resizes: bool
) -> dict[str, Any]:
    """Write the module as an FP32 ONNX file, for any batch if it `resizes` and that works.

    `reference` is that at `batch`.  Returns the fields of ExportedCode, and the names of the
    graph's `inputs`.  Tracing comes first, since it is several times faster; torch.export follows
    if the traced graph computes something else, or may depend on the values of these inputs.
    WorkloadError `not_exported` if neither works.
    """
    if why := reference.why_useless:
        raise not_exported(subject.name, WorkloadError(f"its graph cannot be checked, since {why}"))
    torch.backends.mha.set_fastpath_enabled(False)  # ONNX lacks its fused operators
    file, own, reason = Path(code.folder, MODEL), subject.example(batch), Exception()
    for dynamic in (True, False) if resizes else (False,):
        # The check at `batch` covers the open axes too, if the graph comes from another batch.
        example = subject.example(3 if batch == 2 else 2) if dynamic else own
        for traced in (True, False):
            try:
                _write(file, subject.copy(), example, own, reference, traced=traced)
                inputs = _checked(file, own, reference)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                reason = error
                continue
            graph = onnx.load(file, load_external_data=False).graph
            kinds = Counter(node.op_type for node in graph.node)
            operations = kinds.total() - sum(kinds[each] for each in OF_SHAPES)
            size = {"operations": operations, "convolutions": kinds["Conv"]}
            return {"model": str(file), "dynamic": dynamic, "inputs": inputs, **size}
    raise not_exported(subject.name, reason)


def _write(
    file: Path, module: Any, example: Example, own: Example, reference: Reference, *, traced: bool
) -> None:
    """Export the module for `example`; axes in which `own` has another size stay dynamic."""
    names = [port_name(path) for path in example.tensors()]
    inputs = tuple(tensor.clone() for tensor in example.tensors().values())
    pairs = zip(inputs, own.tensors().values(), strict=True)
    axes = [[n for n, size in enumerate(a.shape) if size != b.shape[n]] for a, b in pairs]
    if traced:
        named = zip(names, axes, strict=True)
        how: dict[str, Any] = {
            "dynamo": False,
            "dynamic_axes": {name: dict.fromkeys(open_, "batch") for name, open_ in named if open_},
        }
    else:
        auto = torch.export.Dim.AUTO
        weights = itertools.chain(module.parameters(), module.buffers())
        size = sum(each.numel() * each.element_size() for each in weights)
        how = {
            "dynamo": True,
            "verbose": False,
            "dynamic_shapes": (tuple(dict.fromkeys(open_, auto) for open_ in axes),),
            "external_data": size > LARGEST_BYTES,
            "optimize": True,
        }
    is_jit = isinstance(module, torch.jit.ScriptModule) and not example.kwargs
    # A trace cannot call a module of torch.jit, but has no need to: its graph is there.
    is_direct = traced and is_jit and all(isinstance(x, torch.Tensor) for x in example.args)
    flat = module if is_direct else _flat(module, example)
    how |= {"input_names": names, "output_names": _outputs(reference)}
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.onnx.export(flat, inputs, str(file), **how)
    if traced and any(issubclass(each.category, torch.jit.TracerWarning) for each in caught):
        # Branches on shapes are harmless; those on values fail on tensors without any.
        flat.to("meta")(*(tensor.to("meta") for tensor in inputs))


def _checked(file: Path, own: Example, reference: Reference) -> list[str]:
    """The inputs that the graph uses; WorkloadError unless ONNX Runtime agrees with torch."""
    session = cpu_session(file)
    used = [port.name for port in session.get_inputs()]
    feeds = dict(zip(used, _given(own, used), strict=True))
    names = _outputs(reference)
    found = agreement.compare(names, [agreement.answer(session, names, feeds)], [reference.outputs])
    if (error := max(found[place].relative_error for place in reference.steady)) > BROKEN:
        raise WorkloadError(f"the exported graph is off by {error:.0%}", code="wrong_result")
    return used


def hand_over(code: Code, subject: Subject, batch: int | None, inputs: Sequence[str]) -> None:
    """Keep the inputs at `batch` for ONNX Runtime and the lab; `inputs` are those of `export`."""
    folder = folder_of(code, batch)
    folder.mkdir(parents=True, exist_ok=True)
    samples.write(folder / samples.INPUTS, [_given(subject.example(batch), inputs)])
    drawn = subject.drawn(batch, CALIBRATED)
    samples.write(folder / samples.CALIBRATION, [_given(each, inputs) for each in drawn])


def _given(example: Example, inputs: Sequence[str]) -> list[Any]:
    """The example's tensors for these inputs of a graph, as NumPy arrays."""
    named = {port_name(path): tensor for path, tensor in example.tensors().items()}
    return [named[name].numpy(force=True) for name in inputs]


def breaks(subject: Subject, example: Example, within: str) -> dict[str, Any]:
    """The fields of GraphBreaks: why torch.compile would leave its graphs, such as `3x
    Tensor.item()`, and the operations in them.

    WorkloadError `unsupported` if it fails or finds nothing: no call would become faster.
    """
    missed = torch._dynamo.utils.counters["unimplemented"]
    missed.clear()
    try:
        with guard(guard_for(within, compiles=True)):
            found = torch._dynamo.explain(subject.copy())(*example.args, **example.kwargs)
    except Exception as error:
        message = f"torch.compile cannot follow {subject.name}: {first_line(error)}"
        raise WorkloadError(message) from error
    finally:
        torch._dynamo.reset()
    nodes = [node for graph in found.graphs for node in graph.graph.nodes]
    operations = sum(node.op not in NO_OPERATIONS for node in nodes)
    if not operations:
        # A break inside a loop has no graph to be listed with.
        why = next((f" (graph break: {_why(each)})" for each in missed), "")
        raise WorkloadError(f"torch.compile finds nothing in {subject.name} to compile{why}")
    reasons = Counter(_why(each.reason) for each in found.break_reasons)
    listed = [f"{count}x {reason}" for reason, count in reasons.most_common(MOST_REASONS)]
    convolutions = sum("conv" in str(node.target) for node in nodes if node.op == "call_function")
    return {"reasons": listed, "operations": operations, "convolutions": convolutions}


def _why(reason: str) -> str:
    """The reason of a graph break: the first code that it quotes, or its first line."""
    if reason.startswith("generic_jump"):
        return "branch on the values of a tensor"
    named = re.search(r"`([^`\n]+)`", reason)
    return shown(named[1] if named else reason.partition("\n")[0], 100)


def archive(subject: Subject, batch: int | None, path: Path) -> list[str]:
    """Write a torch.export archive of the module with its inputs at `batch` to `path`; returns the
    modules to import before it is loaded.

    WorkloadError `not_exported` if torch.export cannot follow the module.
    """
    example = subject.example(batch).mapped(lambda tensor: tensor.to(subject.code.home))
    try:
        with torch.no_grad():
            program = torch.export.export(subject.copy(), example.args, example.kwargs)
        with torch_file(path) as file:
            torch.export.save(program, file)
        torch.export.load(path)  # torch saves some outputs that it cannot load
    except OSError:
        raise
    except Exception as error:
        raise not_exported(subject.name, error) from error
    found = {*_defining(program.call_spec.in_spec), *_defining(program.call_spec.out_spec)}
    return sorted(found - sys.stdlib_module_names)


class _Writer(io.BufferedWriter):
    error: Exception | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except (OSError, ValueError) as error:  # a full disk, or torch outlives the file
            self.error = self.error or error
            return memoryview(data).nbytes


@contextmanager
def torch_file(path: Path) -> Iterator[_Writer]:
    """A file for torch's writers, which would end the process if a write fails: the error of a
    write is raised at the end of the block instead."""
    with _Writer(io.FileIO(path, "w")) as file:
        yield file
        if file.error is not None:
            raise file.error


def _defining(tree: Any) -> Iterator[str]:
    """The modules that define the containers of inputs or outputs, such as those of transformers,
    which torch.export knows once they are imported."""
    if tree.type is not None:
        yield tree.type.__module__
    for each in getattr(tree, "children", lambda: tree.children_specs)():
        yield from _defining(each)


def not_exported(name: str, error: BaseException) -> WorkloadError:
    """The cause of an exporter's error in one line."""
    error = origin(error)
    if isinstance(error, ModuleNotFoundError):
        text = f"exporting {name} needs {error.name}, which is not installed"
        return WorkloadError(text, code="missing_package", hint=f"pip install {error.name}")
    text = str(error) if isinstance(error, WorkloadError) else first_line(error)
    text = ON_VALUES if "data-dependent" in str(error) else text
    return WorkloadError(f"{name} cannot be exported: {text}", code="not_exported")


def _outputs(reference: Reference) -> list[str]:
    """The names of a graph's outputs, apart from those of its inputs."""
    return [name if name == "output" else f"output_{name}" for name in reference.names]


def _flat(module: Any, example: Example) -> Any:
    """`module` as a function of the example's tensors that returns a tuple of tensors."""

    class Flat(nn.Module):  # type: ignore[misc]  # torch is not followed
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *given: Any) -> tuple[Any, ...]:
            pairs = zip(example.tensors().values(), given, strict=True)
            known = {id(own): new for own, new in reversed(list(pairs))}  # the first of equal ones
            full = example.mapped(lambda own: known[id(own)])
            output = self.inner(*full.args, **full.kwargs)
            return tuple(tensors_of_output(output).values())

    return Flat()
