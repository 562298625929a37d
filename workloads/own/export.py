"""The user's module as an ONNX model, and the places where torch.compile would split it.

Exporting may crash or hang in code of others, so it gets a process of its own.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.worker.code import Code
from workbench.worker.failures import first_line, is_out_of_memory

from .._shared.session import cpu_session
from ..lab import agreement, samples
from .archive import quiet
from .tree import tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .subject import Subject
    from .tree import Example

    Array = NDArray[Any]

FOLDER, MODEL = "onnx", "model.onnx"  # in Code.folder
LARGEST_BYTES = 1_900_000_000  # of weights inside one file: protobuf ends at 2 GiB
BROKEN = 0.1  # relative error of a graph that computes something else; the race judges closely
MOST_REASONS = 5
# Messages of torch's exporters, and what they mean.
PLAINLY = (
    (r"data-dependent", "its control flow or shapes depend on the values of its inputs"),
    (r"No ONNX function found for <OpOverload\(op='([\w.]+)'", "ONNX has no operator for {}"),
)
ONE_BATCH = "the exported graph takes one batch size only"


def export(code: Code, subject: Subject, batch: int | None, other: int | None) -> dict[str, Any]:
    """Write the module to `onnx/model.onnx` in FP32, for any batch if `other` is one that it takes.

    Returns `model` (the file), `dynamic`, `inputs` and `outputs` (names in the session's order),
    `nodes`, `whole` (torch.export took all of it), `seconds` and `notes`.  Tracing comes first,
    since it is several times faster.  torch.export follows where the traced graph answers
    something else, or may depend on the values of these inputs.  WorkloadError `not_exported` says
    in one line why neither way worked.
    """
    began = time.perf_counter()
    folder = Path(code.folder, FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    batches = [batch] if other is None else [batch, other]
    examples = [subject.example(each) for each in batches]
    expected = [_called(subject, each) for each in examples]
    static: _Exported | None = None
    reason: Exception | None = None
    for traced in (True, False):
        file = folder / ("traced.onnx" if traced else "program.onnx")
        # torch.export takes a batch of one for a constant.
        first = examples[0] if traced or batch != 1 else examples[-1]
        made = _Exported(file, first, examples, list(expected[0]))
        try:
            made.write(subject.copy(), traced=traced)
            made.require(examples[0], expected[0])
            static = static or made
            made.require(examples[-1], expected[-1])
            return made.fields(began, dynamic=other is not None)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            reason = error
    if static is None and batch == 1 and other is not None:
        return export(code, subject, batch, None)
    if static is None:
        raise not_exported(subject.name, reason)
    return static.fields(began, dynamic=False)


class _Exported:
    """One attempt to write a module as an ONNX file."""

    def __init__(
        self, file: Path, example: Example, examples: Sequence[Example], outputs: Sequence[str]
    ) -> None:
        self.file, self.example = file, example
        self.names = [_port("input", path) for path in example.tensors()]
        self.ports: list[str] = []  # those of the inputs that the graph uses
        self.outputs = [_port("output", path) for path in outputs]
        self.session: Any = None
        self.whole = False  # torch.export took it
        shapes = [[tensor.shape for tensor in each.tensors().values()] for each in examples]
        self.axes = [
            [axis for axis, size in enumerate(shape) if size != other[axis]]
            for shape, other in zip(shapes[0], shapes[-1], strict=True)
        ]

    def write(self, module: Any, *, traced: bool) -> None:
        import torch

        module = _flat(module, self.example)
        inputs = tuple(tensor.clone() for tensor in self.example.tensors().values())
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # ONNX lacks its fused operators
        try:
            with quiet(), torch.no_grad():
                (self._traced if traced else self._programmed)(module, inputs)
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)

    def _traced(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """Record one call, in which Python's decisions must not depend on values."""
        import torch

        named = zip(self.names, self.axes, strict=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.onnx.export(
                module,
                inputs,
                str(self.file),
                dynamo=False,
                input_names=self.names,
                output_names=self.outputs,
                dynamic_axes={name: dict.fromkeys(axes, "batch") for name, axes in named if axes},
            )
        if any(issubclass(each.category, torch.jit.TracerWarning) for each in caught):
            # Most such decisions are about shapes, which tensors without values have too.
            module.to("meta")(*(tensor.to("meta") for tensor in inputs))

    def _programmed(self, module: Any, inputs: tuple[Any, ...]) -> None:
        import torch

        auto = torch.export.Dim.AUTO
        shapes = tuple(dict.fromkeys(axes, auto) if axes else None for axes in self.axes)
        size = sum(each.numel() * each.element_size() for each in module.state_dict().values())
        torch.onnx.export(
            module,
            inputs,
            str(self.file),
            dynamo=True,
            verbose=False,
            input_names=self.names,
            output_names=self.outputs,
            dynamic_shapes=(shapes,) if any(shapes) else None,
            external_data=size > LARGEST_BYTES,
            optimize=True,
        )
        self.whole = True

    def require(self, example: Example, expected: Mapping[str, Any]) -> None:
        """WorkloadError unless ONNX Runtime computes about what is `expected`."""
        self.session = self.session or cpu_session(self.file)
        self.ports = [port.name for port in self.session.get_inputs()]
        given = dict(zip(self.names, example.tensors().values(), strict=True))
        feeds = {name: _array(given[name]) for name in self.ports}
        answers = agreement.answer(self.session, self.outputs, feeds)
        right = [_array(tensor) for tensor in expected.values()]
        found = agreement.compare(self.outputs, [answers], [right])
        if (error := agreement.summary(found, "relative_error")) > BROKEN:
            raise WorkloadError(f"the exported graph is off by {error:.0%}", code="wrong_result")

    def fields(self, began: float, *, dynamic: bool) -> dict[str, Any]:
        import onnx

        file = self.file.replace(self.file.with_name(MODEL))
        return {
            "model": str(file),
            "dynamic": dynamic,
            "whole": self.whole,
            "nodes": len(onnx.load(file, load_external_data=False).graph.node),
            "inputs": self.ports,
            "outputs": self.outputs,
            "seconds": time.perf_counter() - began,
            "notes": [] if dynamic or not any(self.axes) else [ONE_BATCH],
        }


def hand_over(
    code: Code,
    subject: Subject,
    batch: int | None,
    inputs: Sequence[str],
    reference: Callable[[int | None], Sequence[Array]],
) -> str:
    """The folder with the exported model's `inputs` and reference outputs at `batch`, for the lab.

    `inputs` are the names that `export` returned; `reference(batch)` are the outputs in order.
    """
    folder = Path(code.folder, f"b{batch or 0}")
    folder.mkdir(parents=True, exist_ok=True)
    given = {_port("input", path): each for path, each in subject.example(batch).tensors().items()}
    samples.write(folder / samples.INPUTS, [[_array(given[name]) for name in inputs]])
    if not (folder / samples.REFERENCE).exists():
        samples.write(folder / samples.REFERENCE, [list(reference(batch))])
    return str(folder)


def breaks(subject: Subject, batch: int | None) -> dict[str, Any]:
    """Where torch.compile would leave its graphs: `count`, and `reasons` such as
    `3x Tensor.item()`, most frequent first."""
    import torch

    example = subject.example(batch)
    try:
        with quiet(), torch.no_grad():
            found = torch._dynamo.explain(subject.copy())(*example.args, **example.kwargs)
    except Exception as error:
        message = f"torch.compile cannot follow {subject.name}: {first_line(error)}"
        raise WorkloadError(message, code="unsupported") from error
    finally:
        torch._dynamo.reset()
    if not found.graph_count:
        return {"count": 0, "reasons": ["torch.compile finds nothing in it to compile"]}
    reasons = Counter(_break(each.reason) for each in found.break_reasons)
    listed = [f"{count}x {reason}" for reason, count in reasons.most_common(MOST_REASONS)]
    return {"count": found.graph_break_count, "reasons": listed}


def archive(subject: Subject, batch: int | None, path: Path) -> None:
    """Write a torch.export archive of the module with its inputs at `batch` to `path`.

    WorkloadError `not_exported` where torch.export cannot follow the module.
    """
    import torch

    example = subject.example(batch)
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(subject.copy(), example.args, example.kwargs)
            torch.export.save(program, path)
    except Exception as error:
        raise not_exported(subject.name, error) from error


def _port(kind: str, path: str) -> str:
    """The name of an ONNX input or output: `mask` of a keyword, `input_0` of a position."""
    return path if kind == "input" and path[:1].isalpha() else f"{kind}_{path}".rstrip("_")


def _called(subject: Subject, example: Example) -> dict[str, Any]:
    """The outputs of a fresh copy of the module, by path."""
    import torch

    cloned = example.mapped(lambda tensor: tensor.clone())
    with torch.no_grad():
        return tensors(subject.copy()(*cloned.args, **cloned.kwargs))


def _flat(module: Any, example: Example) -> Any:
    """`module` as one that takes the example's tensors and returns a tuple of tensors; whatever
    else the example holds is constant."""
    from torch import nn

    class Flat(nn.Module):  # type: ignore[misc]  # torch is not followed
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *given: Any) -> tuple[Any, ...]:
            waiting = iter(given)
            full = example.mapped(lambda _: next(waiting))
            return tuple(tensors(self.inner(*full.args, **full.kwargs)).values())

    return Flat()


def _array(tensor: Any) -> Array:
    return tensor.detach().cpu().numpy()  # type: ignore[no-any-return]


def not_exported(name: str, error: BaseException | None) -> WorkloadError:
    """The cause of an exporter's error in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ImportError) and "onnxscript" in str(error):
        return WorkloadError(
            f"exporting {name} to ONNX needs onnxscript, which {sys.executable} lacks",
            code="missing_package",
            hint=f"{sys.executable} -m pip install onnxscript",
        )
    text = str(error) if isinstance(error, WorkloadError) else first_line(error or Exception())
    for pattern, words in PLAINLY:
        if found := re.search(pattern, str(error)):
            text = words.format(*found.groups())
    return WorkloadError(f"{name} cannot be exported: {text}", code="not_exported")


def _break(reason: str) -> str:
    """The reason of a graph break in a few words."""
    if reason.startswith("generic_jump"):
        return "branch on the values of a tensor"
    first = reason.strip().partition("\n")[0]
    if called := re.search(r"[Tt]ensor\.\w+\(\)", first):
        return called[0]
    named = re.search(r"`([^`\n]{1,60})`", reason)
    return shown(f"{first}: {named[1]}" if named else first, 100)
