"""Builds one variant of the prepared model, and refuses INT8 that computes in floating point."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.libraries import onnx
from workbench.worker.recipe import Recipe
from workbench.worker.session_options import EXTENDED, NO_SPIN

from .._shared import quantisation
from .._shared.quantisation import PRODUCTS, Ranges
from .._shared.session import cpu_session
from . import agreement, graph, products, samples
from .prepare import PREPARED

ABSORBED = ("Clip", "Relu")  # become part of the product before them
FOLDS = 3  # parts of few inputs, each judged by ranges from the others
HISTOGRAM_SAMPLES = 32  # inputs that fill histograms: each keeps every tensor in memory
# Operators between products that have an integer kernel, as ConvTranspose has not: a chain of these
# stays in INT8.  Softmax and norms are not among them, since 256 steps are too coarse for those.
BETWEEN = (
    "Add", "AveragePool", "Clip", "Concat", "Flatten", "Gather", "GlobalAveragePool", "LeakyRelu",
    "MaxPool", "Mul", "Pad", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
NO_INTEGERS = (
    "another quantisation may work: here products lack constant weights or an integer kernel, or "
    "lie inside If, Loop or Scan"
)
DYNAMIC = ("MatMul", "Attention", "LSTM", "EmbedLayerNormalization")  # Gemm is rewritten as MatMul


def build(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Write the variant `<label>.onnx`; returns its file, size, operators and share in INT8."""
    model = onnx.load(str(folder / PREPARED))
    coverage = None
    if recipe.precision == "fp16":
        made = quantisation.halved(model.SerializeToString())
        cpu_session(made, EXTENDED)  # whether it loads
    else:
        if recipe.method == "dynamic":
            types = [*DYNAMIC, *(["Conv"] if recipe.scope == "all" else [])]
            if any(n.op_type == "Attention" and not n.domain for n in model.graph.node):
                types.remove("Attention")  # ONNX's own, which the quantiser takes for another
            inside = any(product.inside for product in products.kept(folder))
            made = quantisation.dynamic(folder / PREPARED, recipe, types, EnableSubgraph=inside)
        else:
            made = static(model, ranges(folder, recipe.calibration), recipe)
        coverage = integer_share(made, folder)
        if not coverage:
            text = f"{recipe.quantization} quantisation left every product in floating point"
            raise WorkloadError(text, code="not_quantised", hint=NO_INTEGERS)
    if recipe.method == "static" and (folder / samples.FOLDS).exists():
        answers = _cross_validated(folder, model, recipe)
        samples.write(folder / f"{recipe.label}{samples.FOLDED}", answers)
    file = folder / f"{recipe.label}.onnx"
    file.write_bytes(made)
    operators = (node.op_type for node in graph.nodes(onnx.load_model_from_string(made)))
    return {
        "file": str(file),
        "size_bytes": len(made),
        "operators": dict(Counter(operators)),
        "coverage": coverage,
    }


def _cross_validated(folder: Path, model: Any, recipe: Recipe) -> list[Any]:
    """The answers to each fold of the inputs, with ranges from the other folds."""
    inputs = samples.read(folder / samples.INPUTS)
    answers: list[Any] = [None] * len(inputs)
    for fold in range(FOLDS):
        found = ranges(folder, recipe.calibration, fold)
        session = cpu_session(static(model, found, recipe), NO_SPIN)
        answers[fold::FOLDS] = agreement.answers(session, inputs[fold::FOLDS])
    return answers


def static_types(recipe: Recipe) -> tuple[str, ...]:
    """The operators that a static variant quantises."""
    return PRODUCTS + (BETWEEN if recipe.scope == "all" else ABSORBED)


def static(model: Any, found: Ranges, recipe: Recipe, only: Sequence[str] = ()) -> bytes:
    """`model` in QDQ form by `recipe`; `only` names the nodes to quantise, if not all."""
    return quantisation.static(
        model,
        found,
        recipe,
        static_types(recipe),
        only,
        # To quantise both activations for their product would cost more than it saves.
        MatMulConstBOnly=True,
        # A matrix product gives FP32 as cheaply, and the next operator is not quantised here.
        OpTypesToExcludeOutputQuantization=[] if recipe.scope == "all" else ["Gemm", "MatMul"],
    )


def ranges(folder: Path, method: str, left_out: int | None = None) -> Ranges:
    """The range of each tensor over the calibration inputs, kept in `folder`.  Ranges hold for
    every scope, type and set of excluded nodes, since all of those quantise tensors of the same
    prepared model.  One of the folds may be left out."""
    file = folder / f"ranges-{method}-{left_out}.json"
    if not file.exists():
        inputs = samples.read(folder / samples.CALIBRATION)
        if method == "minmax":
            _keep_ends(folder, inputs)
        else:
            rest = [each for place, each in enumerate(inputs) if place % FOLDS != left_out]
            groups, known = [rest[:HISTOGRAM_SAMPLES]], ranges(folder, "minmax", left_out)
            (found,) = quantisation.activation_ranges(folder / PREPARED, groups, method, known)
            file.write_text(json.dumps(found))
    return {name: tuple(found) for name, found in json.loads(file.read_text()).items()}


def _keep_ends(folder: Path, inputs: samples.Samples) -> None:
    """Write the smallest and largest values over all inputs, and over those without each fold."""
    folds = [inputs[fold::FOLDS] for fold in range(min(FOLDS, len(inputs)))]
    ends = quantisation.activation_ranges(folder / PREPARED, folds)
    for left_out in (None, *range(FOLDS)):
        kept = [each for fold, each in enumerate(ends) if fold != left_out] or ends
        found = {
            name: (min(each[name][0] for each in kept), max(each[name][1] for each in kept), kind)
            for name, (_, _, kind) in ends[0].items()
        }
        (folder / f"ranges-minmax-{left_out}.json").write_text(json.dumps(found))


def integer_share(made: bytes, folder: Path) -> float:
    """The share of multiply-adds in INT8, 0 to 1, in the graph that ONNX Runtime runs.  A quantised
    weight counts only where an integer kernel reads it: pairs without a kernel are computed in
    FP32, at a higher cost than before."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch, "optimised.onnx")
        # All optimisations would change the layout of products and rename their weights.
        cpu_session(made, EXTENDED, optimised=file)
        optimised = onnx.load(str(file))
    integer = (node for node in graph.nodes(optimised) if node.op_type in products.INTEGER)
    taken = {name for node in integer for name in node.input}
    found = products.kept(folder)
    chosen = {p.name for p in found if p.quantisable and _taken(p, taken)}
    return products.share(found, chosen)


def _taken(product: products.Product, taken: set[str]) -> bool:
    """Whether one of its weights is among `taken`, under its name or one that tools derive."""
    endings = ("", "_quantized", "_Transposed_quantized")
    return any(f"{weight}{ending}" in taken for weight in product.weights for ending in endings)
