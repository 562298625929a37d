"""The user's model as it stands, by ONNX Runtime on the CPU: what all its forms are held against.

No optimisation of graphs, so that the reference is what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError

from . import agreement, graph
from .errors import bad_model, is_out_of_memory, one_line, said

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .load import Loaded

SHAPES_HINT = "give its sizes by --shape NAME=1,3,224,224, or real inputs by --inputs data.npz"
_OPSET = re.compile(r"for domain (\S+) is till opset (\d+)")
_IR = re.compile(r"max supported IR version: (\d+)")
# What onnx calls its own domain, and what ONNX Runtime brings along.
_AT_HOME = ("", "ai.onnx")


class Original:
    """A session of the untouched file."""

    def __init__(self, loaded: Loaded, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # what goes wrong is in the exception
        try:
            self._session = onnxruntime.InferenceSession(
                str(loaded.path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise _refusal(loaded, error) from error
        self.outputs = agreement.compared(self._session)
        given = {port.name: port.type for port in self._session.get_outputs()}
        self.uncompared = [name for name in given if name not in self.outputs]
        if given and not self.outputs:
            raise bad_model(
                f"no output is a tensor that could be compared: {_listed_types(given)}",
                "export the model with a tensor as an output (scikit-learn: zipmap=False)",
            )

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs; whatever ONNX Runtime raises passes through."""
        return agreement.answer(self._session, self.outputs, feeds)


def does_not_run(name: str, error: Exception, shapes: Mapping[str, Sequence[int]]) -> WorkloadError:
    """The model was opened, but a run failed."""
    tried = ", ".join(f"{port} {list(shape)}" for port, shape in shapes.items()) or "no inputs"
    if is_out_of_memory(error):
        return WorkloadError(
            one_line(f"{name} needs more memory than it may have, with {tried}"),
            code="no_memory",
            hint="give smaller sizes by --shape or --batch, or free memory",
        )
    message = f"{name} does not run with {tried}: {said(error)}"
    return bad_model(message, SHAPES_HINT) if shapes else bad_model(message)


def _refusal(loaded: Loaded, error: Exception) -> WorkloadError:
    """Why ONNX Runtime does not open the model."""
    import onnxruntime

    name, version = loaded.path.name, f"onnxruntime {onnxruntime.__version__}"
    if is_out_of_memory(error):
        return WorkloadError(
            f"{name} does not fit into memory", code="no_memory", hint="free memory"
        )
    text = str(error)
    if found := _IR.search(text):
        return bad_model(
            f"{name} has IR version {loaded.proto.ir_version}, {version} reads up to {found[1]}",
            "export it with an older onnx, or lower it: model.ir_version = "
            f"{found[1]}; onnx.save(model, ...); or upgrade onnxruntime",
        )
    if found := _OPSET.search(text):
        domain, newest = found[1], found[2]
        given = graph.opset(loaded.proto, domain)
        return bad_model(
            f"{name} has opset {given} of {domain}, {version} reads up to {newest}",
            f"export it with opset {newest} or older, convert it by "
            f"onnx.version_converter.convert_version(model, {newest}), or upgrade onnxruntime",
        )
    if unknown := unknown_operators(loaded.proto):
        return bad_model(
            f"{name} uses operators that {version} does not have: {_listed(unknown)}",
            "export it with standard ONNX operators; libraries of custom ones are not loaded",
        )
    return bad_model(f"{version} does not open {name}: {said(error)}")


def _listed_types(given: Mapping[str, str]) -> str:
    return _listed([f"{name} is {kind}" for name, kind in given.items()])


def _listed(names: Sequence[str], at_most: int = 8) -> str:
    more = [f"and {len(names) - at_most} more"] if len(names) > at_most else []
    return ", ".join([*names[:at_most], *more])


def unknown_operators(model: Any) -> list[str]:
    """ "domain::type" of operators without a schema here; of ONNX's own domain only the type."""
    known = _schemas()
    known.update((function.domain, function.name) for function in model.functions)
    used = {(node.domain, node.op_type) for node in graph.nodes(model)}
    missing = {
        operator if domain in _AT_HOME else f"{domain}::{operator}"
        for domain, operator in used
        if (("" if domain in _AT_HOME else domain), operator) not in known
    }
    return sorted(missing)


def _schemas() -> set[tuple[str, str]]:
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

        return {(schema.domain, schema.name) for schema in get_all_operator_schema()}
    except (ImportError, AttributeError):  # no public name, so it may go
        import onnx

        return {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
