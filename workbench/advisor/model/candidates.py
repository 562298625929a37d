"""The variants of a model that race, with their threads and options.

Pure functions of the facts about the model and the machine.

Sources: ONNX Runtime 1.31, docstring of `quantize_static` (U8S8, 7-bit weights without VNNI, S8S8
on ARM); onnxruntime#12854 (ConvInteger has no optimised kernel).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ...contract import Case, kind_of
from ...machine.host.isa import X86, lacking, native
from ...records.machine import Cpu
from ...records.model import ModelFacts
from ...worker.recipe import ORIGINAL, Recipe
from ...worker.session_options import BASIC, BFLOAT, EXTENDED, NO_SPIN, OPENVINO

CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("Attention", "Gemm", "LSTM", "MatMul")
STATIC = (*CONVOLUTIONS, "MatMul", "Gemm")  # operators with static variants
ON_GPU = ("tensorrt", "directml", "rocm", "migraphx")  # providers, by their word in a case's mode
SLOW_S = 0.05  # seconds of a run from which variants that are usually slow are not tried
DYNAMIC = Recipe("int8", "dynamic", scope="products")  # the only one that enters If, Loop and Scan
NO_PRODUCTS = "no product or convolution has constant weights and an integer kernel"


@dataclass(frozen=True)
class Proposal:
    """A candidate before its variant is built: a recipe, and how to run it."""

    recipe: Recipe
    device: str = "cpu"
    threads: int | None = None  # None on a GPU
    mode: str | None = None  # session options or provider, as in a case
    backend: str = "onnxruntime"


Way = TypeVar("Way", Proposal, Case)


@dataclass(frozen=True)
class ModelSpace:
    """The model, the machine and the options that decide which candidates there can be."""

    facts: ModelFacts
    products: Mapping[str, int]  # number of nodes that can be quantised, by type
    cpu: Cpu
    threads: tuple[int, ...]  # thread counts to try, the largest first
    gpus: tuple[str, ...] = ()
    on_cpu: bool = True
    providers: tuple[str, ...] = ()  # words of a case's mode
    backends: tuple[str, ...] = ("onnxruntime",)
    precisions: tuple[str, ...] = ()  # requested precisions; empty: all
    thorough: bool = False


def first(space: ModelSpace) -> tuple[list[Proposal], dict[str, str]]:
    """The proposals that start, and the reason for each variant that is left out."""
    left_out: dict[str, str] = {}
    recipes = [ORIGINAL, *_quantised(space, left_out)]
    found = _on_cpu(recipes, space) if space.on_cpu else []
    for gpu in space.gpus if "onnxruntime" in space.backends else ():
        found += _on_gpu(gpu, space, left_out)
    if space.precisions:
        found = [e for e in found if _precision(e, space) in space.precisions]
    # INT8 forms and TensorRT take longest to prepare, and a timeout costs all that wait behind it.
    found.sort(key=lambda each: each.recipe.precision == "int8" or each.mode == "tensorrt")
    return list(dict.fromkeys(found)), left_out


def _on_cpu(recipes: Sequence[Recipe], space: ModelSpace) -> list[Proposal]:
    most, least = space.threads[0], space.threads[-1]
    if "onnxruntime" not in space.backends:
        return [Proposal(recipe, threads=most, backend=OPENVINO) for recipe in recipes]
    found = [Proposal(recipe, threads=most) for recipe in recipes]
    words = [word for word in space.providers if word not in ON_GPU]
    found += [Proposal(ORIGINAL, threads=most, mode=word) for word in words]
    if space.thorough:
        for recipe in recipes:
            found += [Proposal(recipe, threads=count) for count in space.threads[1:]]
            if most > 1:
                found.append(Proposal(recipe, threads=most, mode=NO_SPIN))
        if convolves(space):
            found += [Proposal(ORIGINAL, threads=most, mode=level) for level in (EXTENDED, BASIC)]
    elif least != most:
        found.insert(1, Proposal(ORIGINAL, threads=least))
    if OPENVINO in space.backends:
        found.insert(1, Proposal(ORIGINAL, threads=most, backend=OPENVINO))
    return found


def _on_gpu(gpu: str, space: ModelSpace, left_out: dict[str, str]) -> Iterator[Proposal]:
    yield Proposal(ORIGINAL, gpu)
    is_fp32, unmade = space.facts.precision == "fp32", space.facts.unquantisable
    halved = [Recipe("fp16") if is_fp32 else ORIGINAL]
    if is_fp32 and unmade is not None:
        left_out["fp16"], halved = unmade.dashed, []
    yield from (Proposal(recipe, gpu) for recipe in halved)
    if not kind_of(gpu).on_host:
        if is_fp32:
            yield Proposal(ORIGINAL, gpu, mode="tf32")
        for word in space.providers:
            if word in ON_GPU:  # TensorRT would compute FP32 in TF32
                recipes = halved if word == "tensorrt" else [ORIGINAL]
                yield from (Proposal(recipe, gpu, mode=word) for recipe in recipes)


def neighbours(leader: Proposal, space: ModelSpace) -> Iterator[Proposal]:
    """Proposals that differ from the leader in one respect: a local search."""
    if leader.device != "cpu" or leader.threads is None:
        return
    place = space.threads.index(leader.threads) if leader.threads in space.threads else 0
    for count in (*space.threads[max(0, place - 1) : place], *space.threads[place + 1 : place + 2]):
        yield on_threads(count, leader)
    if leader.mode is None:
        yield from _other_ways(leader, space)
    if leader.recipe.method == "static" and not leader.recipe.excluded:
        recipe = leader.recipe
        yield replace(leader, recipe=replace(recipe, per_channel=not recipe.per_channel))
        other = "products" if recipe.scope == "all" else "all"
        yield replace(leader, recipe=replace(recipe, scope=other))


def on_threads(count: int, way: Way) -> Way:
    """The same with this number of threads; spinning is meaningless for a single one."""
    mode = None if count == 1 and way.mode == NO_SPIN else way.mode
    return replace(way, threads=count, mode=mode)


def rivals(ranked: Sequence[Case]) -> list[Case]:
    """The cases after the leader, with the leader's number of threads, with which they may win."""
    count = ranked[0].threads
    return [on_threads(count, c) for c in ranked[1:] if count and c.threads and not c.is_compiled]


def _other_ways(leader: Proposal, space: ModelSpace) -> Iterator[Proposal]:
    """The leader's variant with other options, and in the other library."""
    is_float = leader.recipe.method is None
    may_round = not space.precisions or BFLOAT in space.precisions
    rounds = is_float and may_round and native("bf16", space.cpu)
    if leader.backend == OPENVINO:
        if rounds:
            yield replace(leader, mode=BFLOAT)
        return
    if OPENVINO in space.backends:
        recipe = leader.recipe
        if recipe.method == "dynamic":  # ONNX Runtime alone has it; OpenVINO's INT8 is static
            recipe = replace(static_recipe(space.cpu), scope=recipe.scope, per_channel=True)
        if is_float or _takes(space, recipe):
            yield replace(leader, recipe=recipe, backend=OPENVINO)
    if leader.threads != 1:
        yield replace(leader, mode=NO_SPIN)
    if is_float and convolves(space):
        yield replace(leader, mode=EXTENDED)
    # ONNX Runtime computes FP32 products in BF16 on ARM only.
    if rounds and space.cpu.architecture not in X86:
        yield replace(leader, mode=BFLOAT)


def _precision(proposal: Proposal, space: ModelSpace) -> str:
    if proposal.mode == "tf32":
        return proposal.mode
    return space.facts.precision if proposal.recipe == ORIGINAL else proposal.recipe.precision


def convolves(space: ModelSpace) -> bool:
    return any(kind in space.facts.operators for kind in CONVOLUTIONS)


def static_recipe(cpu: Cpu) -> Recipe:
    """Static INT8 as ONNX Runtime's documentation advises for this processor."""
    on_x86 = cpu.architecture in X86
    return Recipe(
        "int8",
        "static",
        activations="u8" if on_x86 else "s8",
        reduce_range=on_x86 and lacking("int8", cpu) is not None,
    )


def _quantised(space: ModelSpace, left_out: dict[str, str]) -> list[Recipe]:
    """The INT8 variants that this model allows; in a default run those that are promising."""
    facts, inside = space.facts, ", ".join(space.facts.control_flow)
    why = None
    if facts.quantised:
        why = "the model is quantised already; it races as it is"
    elif facts.unquantisable is not None:
        why = facts.unquantisable.dashed
    elif facts.precision != "fp32":
        what = f"only FP32 models can be quantised, this one is {facts.precision}"
        why = f"{what}; export it in float32"
    elif not space.products and not inside:
        why = NO_PRODUCTS
    if why is not None:
        left_out["int8"] = why
        return []
    if not space.products:
        skips = f"outside of {inside}, which the static quantiser skips"
        left_out["int8-static"] = f"{NO_PRODUCTS} {skips}"
        return [DYNAMIC]
    found = _every(space) if space.thorough else _promising(space, left_out)
    return [recipe for recipe in found if _takes(space, recipe)]


def _every(space: ModelSpace) -> list[Recipe]:
    static = static_recipe(space.cpu)
    shapes = [
        replace(static, scope=scope, per_channel=per_channel)
        for scope in ("all", "products")
        for per_channel in (True, False)
    ]
    other = "s8" if static.activations == "u8" else "u8"
    return [
        *shapes,
        *(replace(each, calibration=way) for way in ("percentile", "entropy") for each in shapes),
        *(replace(each, activations=other) for each in shapes[:2]),
        *(replace(each, reduce_range=not static.reduce_range) for each in shapes[:2]),
        DYNAMIC,
        Recipe("int8", "dynamic"),
    ]


def _promising(space: ModelSpace, left_out: dict[str, str]) -> list[Recipe]:
    """The INT8 variants that are worth a place in a default run."""
    static, dynamic = static_recipe(space.cpu), Recipe("int8", "dynamic")
    found = [
        replace(static, per_channel=True),
        static,
        replace(static, scope="products", per_channel=True),
        DYNAMIC,
    ]
    if not convolves(space):  # as ONNX Runtime's documentation advises for transformers and RNNs
        found.insert(0, found.pop())
    if space.facts.step_s < SLOW_S:
        found.append(dynamic)
    elif _takes(space, dynamic):
        why = "ONNX Runtime does not optimise ConvInteger, which its convolutions would use"
        left_out["int8-dynamic"] = f"{why}; --thorough measures it"
    if _takes(space, static):
        if static.activations == "u8":
            why = "on x86 ONNX Runtime computes most signed activations as unsigned or in FP32"
            left_out["int8-static-s8s8"] = f"{why}; --thorough measures it"
        why = "percentile and entropy ranges help with outliers in real inputs"
        left_out["other calibrations"] = f"{why}; --thorough measures them"
    return found


def _takes(space: ModelSpace, recipe: Recipe) -> bool:
    """Whether the model has operators that this recipe quantises but no narrower one does."""
    dynamic = CONVOLUTIONS if recipe.scope == "all" else PRODUCTS
    return any(space.products.get(k) for k in (STATIC if recipe.method == "static" else dynamic))
