"""An ONNX model in OpenVINO, behind those calls of an ONNX Runtime session that tasks make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.contract import Case, WorkloadError, kind_of
from workbench.worker.session_options import openvino_settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPES = {"f16": "float16", "f32": "float", "f64": "double", "boolean": "bool"}  # as ONNX names them
TYPES |= {f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint"))
          for bits in (8, 16, 32, 64)}  # fmt: skip


class Port(NamedTuple):
    """An input or output, as ONNX Runtime describes its own."""

    name: str
    type: str  # "tensor(float)"


class OpenVinoSession:
    """A compiled model; WorkloadError if OpenVINO cannot run it."""

    def __init__(self, model: bytes | str, case: Case) -> None:
        import openvino

        core, device = openvino.Core(), "CPU"
        if case.mode == "auto":
            device = "AUTO"
        elif not kind_of(case.device).on_host:
            device = f"GPU.{case.device.partition(':')[2]}"
        try:
            graph = core.read_model(model)
            self._compiled = core.compile_model(graph, device, openvino_settings(case))
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            text = f"OpenVINO {openvino.__version__.partition('-')[0]} refuses the model: {reason}"
            raise WorkloadError(text, code="unsupported") from error
        self._request = self._compiled.create_infer_request()

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        """The outputs `names`, or all in their order; inputs are shared, outputs are copies."""
        found = self._request.infer(feeds, share_inputs=True)
        return [*found.values()] if names is None else [found[name] for name in names]

    def get_inputs(self) -> list[Port]:
        return [*map(_port, self._compiled.inputs)]

    def get_outputs(self) -> list[Port]:
        return [*map(_port, self._compiled.outputs)]


def _port(found: Any) -> Port:
    kind = found.element_type.get_type_name()
    return Port(found.any_name, f"tensor({TYPES.get(kind, kind)})")
