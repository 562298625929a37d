"""Which forms of a model race, with which threads and options: pure functions of what is known of
the model and the machine.

Sources: ONNX Runtime 1.31, docstring of `quantize_static` (U8S8, 7-bit weights without VNNI, S8S8
on ARM); onnxruntime#12854 (ConvInteger has no optimised kernel).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...contract import kind_of
from ...machine.host.isa import X86, lacking, native
from ...records.machine import Cpu
from ...records.model import ModelFacts
from ...worker.recipe import ORIGINAL, Recipe

CONVOLUTIONS = ("Conv", "ConvTranspose")
PRODUCTS = ("MatMul", "Gemm", "LSTM", "Attention", "EmbedLayerNormalization")
STATIC = (*CONVOLUTIONS, "MatMul", "Gemm")  # what has static forms
ON_GPU = ("tensorrt", "directml", "rocm", "migraphx")  # providers, by their word in a case's mode
SLOW_S = 0.05  # a run this long makes the trial of a form known to be slow too dear
NO_SPIN, BASIC, EXTENDED, BFLOAT = "nospin", "basic", "extended", "bf16"
INSIDE = Recipe("int8", "dynamic", scope="products")  # which goes into If, Loop and Scan


@dataclass(frozen=True)
class Entrant:
    """One way to run one form of the model."""

    recipe: Recipe
    device: str = "cpu"
    threads: int | None = None  # None on a GPU
    mode: str | None = None  # session options or provider, as in a case


@dataclass(frozen=True)
class Field:
    """What decides who may take part."""

    facts: ModelFacts
    products: Mapping[str, int]  # nodes that a quantiser can take, by type
    cpu: Cpu
    threads: tuple[int, ...]  # useful counts, the largest first
    gpus: tuple[str, ...] = ()
    on_cpu: bool = True
    providers: tuple[str, ...] = ()  # words of a case's mode
    precisions: tuple[str, ...] = ()  # asked for; empty: all
    thorough: bool = False
    step_s: float = 0.0  # of the model as given, roughly


def thread_counts(cpu: Cpu, asked: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Those asked for, otherwise powers of two, one per physical core, and all usable cores; the
    largest first."""
    if asked:
        return tuple(sorted(set(asked), reverse=True))
    cores = cpu.effective_cores
    counts = {cores, min(cpu.physical_cores or cores, cores)}
    counts |= {1 << power for power in range(cores.bit_length()) if 1 << power <= cores}
    return tuple(sorted(counts, reverse=True))


def first(field: Field) -> tuple[list[Entrant], dict[str, str]]:
    """Who starts, and for each form that does not, why."""
    left_out: dict[str, str] = {}
    recipes = [ORIGINAL, *_quantised(field, left_out)]
    if not field.thorough:
        recipes = recipes[:1] + [r for r in recipes[1:] if r in _promising(field, left_out)]
    most, least = field.threads[0], field.threads[-1]
    found = [Entrant(recipe, threads=most) for recipe in recipes]
    if not field.on_cpu:
        recipes, found = [], []
    if field.on_cpu:
        beside = [word for word in field.providers if word not in ON_GPU]
        found += [Entrant(ORIGINAL, threads=most, mode=word) for word in beside]
    if field.thorough:
        for recipe in recipes:
            found += [Entrant(recipe, threads=count) for count in field.threads[1:]]
            if most > 1:
                found.append(Entrant(recipe, threads=most, mode=NO_SPIN))
        if convolves(field) and recipes:
            found += [Entrant(ORIGINAL, threads=most, mode=level) for level in (EXTENDED, BASIC)]
    elif field.on_cpu and least != most:
        found.insert(1, Entrant(ORIGINAL, threads=least))
    for gpu in field.gpus:
        found += _on_gpu(gpu, field)
    if field.precisions:
        found = [e for e in found if _precision(e.recipe, field) in field.precisions]
    return list(dict.fromkeys(found)), left_out


def _on_gpu(gpu: str, field: Field) -> Iterator[Entrant]:
    yield Entrant(ORIGINAL, gpu)
    if field.facts.precision == "fp32":
        yield Entrant(Recipe("fp16"), gpu)
    if not kind_of(gpu).on_host:
        for word in field.providers:
            if word in ON_GPU:
                yield Entrant(ORIGINAL, gpu, mode=word)


def neighbours(leader: Entrant, field: Field) -> Iterator[Entrant]:
    """What differs from the leader in one respect: the local search for something faster."""
    if leader.device != "cpu" or leader.threads is None:
        return
    place = field.threads.index(leader.threads) if leader.threads in field.threads else 0
    for count in (*field.threads[max(0, place - 1) : place], *field.threads[place + 1 : place + 2]):
        # A single thread waits for no other.
        mode = None if count == 1 and leader.mode == NO_SPIN else leader.mode
        yield replace(leader, threads=count, mode=mode)
    if leader.mode is None and leader.threads > 1:
        yield replace(leader, mode=NO_SPIN)
    if leader.mode is None and leader.recipe.method is None and convolves(field):
        yield replace(leader, mode=EXTENDED)
    if leader.mode is None and leader.recipe.method is None and _has_bfloat(field.cpu):
        yield replace(leader, mode=BFLOAT)
    if leader.recipe.method == "static" and not leader.recipe.excluded:
        recipe = leader.recipe
        yield replace(leader, recipe=replace(recipe, per_channel=not recipe.per_channel))
        other = "products" if recipe.scope == "all" else "all"
        yield replace(leader, recipe=replace(recipe, scope=other))


def _precision(recipe: Recipe, field: Field) -> str:
    return field.facts.precision if recipe == ORIGINAL else recipe.precision


def _has_bfloat(cpu: Cpu) -> bool:
    """Whether ONNX Runtime has products of FP32 by BF16 here, which it has on ARM alone."""
    return cpu.architecture not in X86 and native("bf16", cpu)


def convolves(field: Field) -> bool:
    return any(kind in field.facts.operators for kind in CONVOLUTIONS)


def static_recipe(cpu: Cpu) -> Recipe:
    """Static INT8 as ONNX Runtime's makers advise for this processor."""
    on_x86 = cpu.architecture in X86
    return Recipe(
        "int8",
        "static",
        activations="u8" if on_x86 else "s8",
        reduce_range=on_x86 and lacking("int8", cpu) is not None,
    )


def _quantised(field: Field, left_out: dict[str, str]) -> list[Recipe]:
    """Every INT8 form that this model allows."""
    facts = field.facts
    if facts.quantised:
        left_out["int8"] = "the model already holds integer operators; it races as it is"
        return []
    if facts.unquantisable is not None:
        left_out["int8"] = facts.unquantisable.message
        return []
    if facts.precision != "fp32":
        left_out["int8"] = f"the quantisers take FP32 models, this one is {facts.precision}"
        return []
    if not field.products:
        inside = ", ".join(facts.control_flow)
        why = "no product or convolution with constant weights"
        if not inside:
            left_out["int8"] = why
            return []
        left_out["int8-static"] = f"{why} outside of {inside}, which the static quantiser skips"
        return [INSIDE]
    static = static_recipe(field.cpu)
    found = []
    if _takes(field, STATIC):
        shapes = [
            replace(static, scope=scope, per_channel=per_channel)
            for scope in ("all", "products")
            for per_channel in (True, False)
        ]
        found += shapes
        for method in ("percentile", "entropy"):
            found += [replace(recipe, calibration=method) for recipe in shapes]
        other = "s8" if static.activations == "u8" else "u8"
        found += [replace(recipe, activations=other) for recipe in shapes[:2]]
        found += [replace(recipe, reduce_range=not static.reduce_range) for recipe in shapes[:2]]
    if _takes(field, PRODUCTS):
        found.append(Recipe("int8", "dynamic", scope="products"))
    if _takes(field, CONVOLUTIONS):
        found.append(Recipe("int8", "dynamic"))
    return found


def _promising(field: Field, left_out: dict[str, str]) -> list[Recipe]:
    """Those of them that are worth a default run."""
    static = static_recipe(field.cpu)
    if not field.products:
        return [INSIDE]
    found = [
        replace(static, per_channel=True),
        static,
        replace(static, scope="products", per_channel=True),
        Recipe("int8", "dynamic", scope="products"),
    ]
    if _takes(field, CONVOLUTIONS):
        if field.step_s < SLOW_S:
            found.append(Recipe("int8", "dynamic"))
        else:
            left_out["int8-dynamic"] = (
                "its convolutions would run as ConvInteger, which ONNX Runtime does not optimise; "
                "--thorough measures it"
            )
    if static.activations == "u8" and _takes(field, STATIC):
        left_out["int8-static-s8s8"] = (
            "on x86 ONNX Runtime makes signed activations unsigned where it can, and computes in "
            "FP32 elsewhere; --thorough measures it"
        )
    if _takes(field, STATIC):
        left_out["other calibrations"] = (
            "ranges by percentile or entropy matter with outliers in real inputs; "
            "--thorough measures them"
        )
    return found


def _takes(field: Field, kinds: tuple[str, ...]) -> bool:
    return any(field.products.get(kind) for kind in kinds)
