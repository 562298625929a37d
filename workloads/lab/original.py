"""The user's model run as it is by ONNX Runtime on the CPU: the reference for all variants.

Graph optimisations are off, so the reference is what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.contract import WorkloadError
from workbench.worker.failures import is_out_of_memory
from workbench.worker.session_options import NO_SPIN, UNOPTIMISED

from .._shared.session import cpu_session
from . import agreement, graph
from .errors import bad_model, no_memory, said

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .load import Loaded

SHAPES_HINT = "pass its shape: --shape NAME=1,3,224,224, or real inputs: --inputs data.npz"
_OPSET = re.compile(r"for domain (\S+) is till opset (\d+)")
_IR = re.compile(r"max supported IR version: (\d+)")


class Original:
    """A session of the untouched file."""

    def __init__(self, loaded: Loaded) -> None:
        try:
            self._session = cpu_session(loaded.path, f"{UNOPTIMISED}+{NO_SPIN}")
        except Exception as error:
            raise _refusal(loaded, error) from error
        self.outputs = agreement.compared(self._session)
        given = {port.name: port.type for port in self._session.get_outputs()}
        self.uncompared = [name for name in given if name not in self.outputs]
        if given and not self.outputs:
            raise bad_model(
                f"none of its outputs can be compared: {_listed_types(given)}",
                "export the model with a tensor as an output (scikit-learn: zipmap=False)",
            )

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The comparable outputs; exceptions of ONNX Runtime pass."""
        return agreement.answer(self._session, self.outputs, feeds)


def does_not_run(name: str, error: Exception, shapes: Mapping[str, Sequence[int]]) -> WorkloadError:
    """The error of a model that opens but fails to run."""
    tried = ", ".join(f"{port} {list(shape)}" for port, shape in shapes.items()) or "no inputs"
    if is_out_of_memory(error):
        return no_memory(f"{name} needs more memory than there is, with {tried}")
    message = f"{name} does not run with {tried}: {said(error)}"
    return bad_model(message, SHAPES_HINT) if shapes else bad_model(message)


def _refusal(loaded: Loaded, error: Exception) -> WorkloadError:
    """Why ONNX Runtime cannot open the model."""
    import onnxruntime

    name, version = loaded.path.name, f"onnxruntime {onnxruntime.__version__}"
    if is_out_of_memory(error):
        return no_memory(f"{name} does not fit into memory")
    text = str(error)
    if found := _IR.search(text):
        return bad_model(
            f"{name} has IR version {loaded.proto.ir_version}, {version} reads up to {found[1]}",
            "upgrade onnxruntime, export with an older onnx, or set model.ir_version = "
            f"{found[1]} and save it",
        )
    if found := _OPSET.search(text):
        domain, newest = found[1], found[2]
        given = graph.opset(loaded.proto, domain)
        return bad_model(
            f"{name} has opset {given} of {domain}, {version} reads up to {newest}",
            f"upgrade onnxruntime, export it with opset {newest}, or convert it: "
            f"onnx.version_converter.convert_version(model, {newest})",
        )
    if unknown := unknown_operators(loaded.proto):
        return bad_model(
            f"{name} uses operators that {version} does not have: {_listed(unknown)}",
            "export it with standard ONNX operators; custom operators are not loaded",
        )
    return bad_model(f"{version} cannot open {name}: {said(error)}")


def _listed_types(given: Mapping[str, str]) -> str:
    return _listed([f"{name} is {kind}" for name, kind in given.items()])


def _listed(names: Sequence[str], at_most: int = 8) -> str:
    more = [f"and {len(names) - at_most} more"] if len(names) > at_most else []
    return ", ".join([*names[:at_most], *more])


def unknown_operators(model: Any) -> list[str]:
    """Operators without a schema here as `domain::type`, or `type` in ONNX's own domain."""
    known = _schemas()
    known.update((function.domain, function.name) for function in model.functions)
    used = {(node.domain, node.op_type) for node in graph.nodes(model)}
    missing = {
        operator if domain in graph.STANDARD_DOMAINS else f"{domain}::{operator}"
        for domain, operator in used
        if (("" if domain in graph.STANDARD_DOMAINS else domain), operator) not in known
    }
    return sorted(missing)


def _schemas() -> set[tuple[str, str]]:
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

        return {(schema.domain, schema.name) for schema in get_all_operator_schema()}
    except (ImportError, AttributeError):  # not a public name, so it may disappear
        import onnx

        return {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
