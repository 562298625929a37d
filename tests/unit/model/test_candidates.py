"""The proposals by model, processor and options."""

from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given, strategies as st
from lab_builders import ARM, NO_VNNI, cpu, facts, space

from workbench.advisor.model.candidates import Proposal, first, neighbours, static_recipe
from workbench.planning.cases import useful_thread_counts
from workbench.records.machine import Isa
from workbench.worker.recipe import ORIGINAL, Recipe

ARM_BF16 = cpu(Isa(neon=True, asimddp=True, bf16=True), architecture="aarch64")
DEFAULT_STATIC = {
    "int8-static-u8s8",
    "int8-static-u8s8-channel",
    "int8-static-u8s8-products-channel",
}


def labels(found: list[Proposal]) -> list[str]:
    return list(dict.fromkeys(proposal.recipe.label for proposal in found))


def started(kind: str, **changes) -> tuple[set[str], dict[str, str]]:
    found, left_out = first(space(kind, **changes))
    return set(labels(found)), left_out


def test_a_cnn_races_static_and_dynamic_variants() -> None:
    found, left_out = started("cnn")
    assert found == {"fp32", "int8-dynamic", "int8-dynamic-products", *DEFAULT_STATIC}
    assert set(left_out) == {"int8-static-s8s8", "other calibrations"}
    assert all("--thorough" in why for why in left_out.values())


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_without_convolutions_dynamic_takes_products_only(kind: str) -> None:
    found, left_out = started(kind)
    assert found == {"fp32", "int8-dynamic-products", *DEFAULT_STATIC}
    assert "int8-dynamic" not in left_out


def test_an_lstm_is_quantised_dynamically_alone() -> None:
    found, left_out = started("lstm")
    assert found == {"fp32", "int8-dynamic-products"}
    assert left_out == {}  # it has no static variants to give a reason for


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("quantised", "quantised already"),
        ("fp16", "this one is fp16; export it in float32"),
        ("plain", "no product or convolution has constant weights"),
    ],
)
@pytest.mark.parametrize("thorough", [False, True])
def test_what_cannot_be_quantised_races_as_it_is(kind: str, words: str, thorough: bool) -> None:
    found, left_out = started(kind, thorough=thorough, facts=facts(kind, step_s=1.0))
    assert found == {"fp32"}  # the recipe's word for the file as given
    assert set(left_out) == {"int8"}
    assert words in left_out["int8"] and "outside" not in left_out["int8"]


@pytest.mark.parametrize("thorough", [False, True])
def test_only_the_dynamic_quantiser_enters_branches(thorough: bool) -> None:
    found, left_out = started("branching", thorough=thorough, facts=facts("branching", step_s=1.0))
    assert found == {"fp32", "int8-dynamic-products"}
    assert "outside of If, which the static quantiser skips" in left_out["int8-static"]


def test_a_slow_model_leaves_conv_integer_out_with_its_reason() -> None:
    found, left_out = started("cnn", facts=facts("cnn", step_s=0.2))
    assert "int8-dynamic" not in found
    assert "int8-dynamic-products" in found
    assert "ConvInteger" in left_out["int8-dynamic"]
    thorough, left_out = started("cnn", facts=facts("cnn", step_s=0.2), thorough=True)
    assert "int8-dynamic" in thorough
    assert left_out == {}


def test_without_vnni_weights_have_seven_bits() -> None:
    recipe = static_recipe(cpu(NO_VNNI))
    assert (recipe.activations, recipe.reduce_range) == ("u8", True)
    found, _ = started("mlp", cpu=cpu(NO_VNNI))
    assert {label for label in found if "static" in label} == {
        f"{label}-7bit" for label in DEFAULT_STATIC
    }
    for has_vnni in (cpu(), cpu(Isa(avx2=True))):  # the kernel lists no VNNI for the second
        assert not static_recipe(has_vnni).reduce_range


def test_arm_takes_signed_activations_in_eight_bits() -> None:
    recipe = static_recipe(ARM)
    assert (recipe.activations, recipe.reduce_range) == ("s8", False)
    no_dot = cpu(Isa(neon=True, asimddp=False, i8mm=False), architecture="aarch64")
    assert not static_recipe(no_dot).reduce_range  # saturation of VPMADDUBSW is x86's own
    found, left_out = started("cnn", cpu=ARM)
    assert "int8-static-s8s8-channel" in found
    assert "int8-static-s8s8" not in left_out


def test_thorough_races_every_variant_with_every_count_and_without_spinning() -> None:
    counts = (8, 4, 1)
    found, left_out = first(space("cnn", thorough=True, threads=counts))
    assert left_out == {}
    seen = set(labels(found))
    assert seen > {"fp32", "int8-dynamic", "int8-dynamic-products", *DEFAULT_STATIC}
    for word in ("percentile", "entropy", "7bit", "s8s8"):
        assert any(word in label for label in seen)
    plain = {(e.recipe, e.threads) for e in found if e.mode is None}
    recipes = {e.recipe for e in found}
    assert plain == {(recipe, count) for recipe in recipes for count in counts}
    assert {e.recipe for e in found if e.mode == "nospin"} == recipes
    assert {e.mode for e in found if e.recipe == ORIGINAL} == {None, "nospin", "extended", "basic"}


def test_on_one_core_nothing_spins() -> None:
    found, _ = first(space("mlp", thorough=True, threads=(1,)))
    assert {e.mode for e in found} == {None}


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("kind", ["cnn", "mlp", "lstm", "quantised", "fp16", "branching"])
def test_no_proposal_starts_twice_and_the_original_is_first(kind: str, thorough: bool) -> None:
    found, _ = first(space(kind, thorough=thorough))
    assert len(found) == len(set(found))
    assert found[0] == Proposal(ORIGINAL, threads=8)


@pytest.mark.parametrize(
    ("cores", "physical", "asked", "counts"),
    [
        (1, 1, (), (1,)),
        (2, 2, (), (2, 1)),
        (16, 16, (), (16, 8, 4, 2, 1)),
        (96, 48, (), (96, 64, 48, 32, 16, 8, 4, 2, 1)),
        (6, None, (), (6, 4, 2, 1)),
        (2, 48, (), (2, 1)),  # a quota below the physical cores
        (8, 8, (3, 5, 3), (5, 3)),
        (2, 2, (16,), (16,)),
    ],
)
def test_useful_thread_counts(cores: int, physical: int | None, asked, counts) -> None:
    assert useful_thread_counts(cpu(cores=cores, usable_physical_cores=physical), asked) == counts


def test_a_default_race_starts_with_all_threads_and_the_original_with_one() -> None:
    found, _ = first(space("mlp", threads=(8, 4, 2, 1)))
    assert {e.threads for e in found if e.recipe != ORIGINAL} == {8}
    assert [e.threads for e in found if e.recipe == ORIGINAL] == [8, 1]


def test_a_gpu_takes_fp32_and_fp16() -> None:
    found, _ = first(space("cnn", gpus=("fake:0",)))
    on_gpu = [e for e in found if e.device == "fake:0"]
    assert on_gpu == [Proposal(ORIGINAL, "fake:0"), Proposal(Recipe("fp16"), "fake:0")]
    assert all(e.threads is None for e in on_gpu)


def test_fp16_is_made_before_int8_and_tensorrt() -> None:
    found, _ = first(space("mlp", gpus=("cuda:0",), providers=("tensorrt",)))
    made = [each for each in found if each.recipe != ORIGINAL]
    assert (made[0].recipe, made[0].mode) == (Recipe("fp16"), None)
    assert {each.recipe.precision for each in made[1:-1]} == {"int8"}
    assert (made[-1].recipe, made[-1].mode) == (Recipe("fp16"), "tensorrt")


def test_a_model_in_fp16_is_not_converted_to_it() -> None:
    found, _ = first(space("fp16", gpus=("cuda:0",)))
    assert [e.recipe for e in found if e.device == "cuda:0"] == [ORIGINAL]


def test_with_a_gpu_alone_nothing_runs_on_the_cpu() -> None:
    found, _ = first(space("cnn", gpus=("fake:0",), on_cpu=False))
    assert {e.device for e in found} == {"fake:0"}
    found, _ = first(space("cnn", gpus=("fake:0",), on_cpu=False, thorough=True))
    assert {e.device for e in found} == {"fake:0"}


@pytest.mark.parametrize(
    ("kind", "asked", "wanted"),
    [
        ("cnn", ("int8",), {"int8-dynamic", "int8-dynamic-products", *DEFAULT_STATIC}),
        ("cnn", ("fp32",), {"fp32"}),
        ("cnn", ("fp16",), {"fp16"}),
        ("fp16", ("fp16",), {"fp32"}),  # its file as given is FP16
        ("fp16", ("fp32",), set()),
        ("quantised", ("int8",), {"fp32"}),
        ("cnn", ("fp64",), set()),
    ],
)
def test_requested_precisions(kind: str, asked, wanted: set[str]) -> None:
    found, _ = started(kind, precisions=asked, gpus=("fake:0",))
    assert found == wanted


@pytest.mark.parametrize(
    ("asked", "modes"),
    [((), {None, "tf32"}), (("fp32",), {None}), (("tf32",), {"tf32"}), (("fp16",), {None})],
)
def test_tf32_races_where_it_was_asked_for(asked: tuple[str, ...], modes: set[str | None]) -> None:
    for on_cpu in (True, False):
        found, _ = first(space("mlp", gpus=("cuda:0",), on_cpu=on_cpu, precisions=asked))
        assert {e.mode for e in found} == modes


def test_other_providers_run_the_model_as_given() -> None:
    found, _ = first(space("mlp", providers=("openvino", "dnnl")))
    assert [e.mode for e in found if e.mode] == ["openvino", "dnnl"]
    assert {e.recipe for e in found if e.mode} == {ORIGINAL}


def test_a_provider_for_gpus_runs_there_and_nowhere_else() -> None:
    words = ("tensorrt", "openvino")
    found, _ = first(space("mlp", providers=words, gpus=("cuda:0", "fake:0")))
    assert {(e.device, e.mode) for e in found if e.mode} == {
        ("cuda:0", "tensorrt"),
        ("cuda:0", "tf32"),
        ("cpu", "openvino"),
    }
    found, _ = first(space("mlp", providers=words, gpus=("cuda:0",), on_cpu=False))
    assert {e.mode for e in found if e.mode} == {"tensorrt", "tf32"}
    found, _ = first(space("mlp", providers=words))
    assert {e.mode for e in found if e.mode} == {"openvino"}


def test_tensorrt_runs_in_fp16_since_its_fp32_would_be_tf32() -> None:
    found, _ = first(space("mlp", providers=("tensorrt",), gpus=("cuda:0",)))
    assert [e.recipe for e in found if e.mode == "tensorrt"] == [Recipe("fp16")]
    found, _ = first(space("fp16", providers=("tensorrt",), gpus=("cuda:0",)))
    on_gpu = {(e.recipe, e.mode) for e in found if e.device == "cuda:0"}
    assert on_gpu == {(ORIGINAL, None), (ORIGINAL, "tensorrt")}


def around(leader: Proposal, **changes) -> list[Proposal]:
    return list(neighbours(leader, space("cnn", threads=(8, 4, 2, 1), **changes)))


def test_neighbours_of_the_original_vary_threads_spinning_and_optimisation() -> None:
    leader = Proposal(ORIGINAL, threads=4)
    assert set(around(leader)) == {
        replace(leader, threads=8),
        replace(leader, threads=2),
        replace(leader, mode="nospin"),
        replace(leader, mode="extended"),
    }


def test_neighbours_of_a_static_variant_vary_scope_and_channels() -> None:
    recipe = Recipe("int8", "static")
    found = {e.recipe for e in around(Proposal(recipe, threads=8))}
    assert found == {recipe, replace(recipe, per_channel=True), replace(recipe, scope="products")}


def test_a_mixed_variant_keeps_its_scope() -> None:
    recipe = Recipe("int8", "static", excluded=("conv",))
    assert {e.recipe for e in around(Proposal(recipe, threads=8))} == {recipe}


def test_the_first_and_the_last_count_have_one_neighbour() -> None:
    assert {e.threads for e in around(Proposal(ORIGINAL, threads=8))} == {8, 4}
    assert {e.threads for e in around(Proposal(ORIGINAL, threads=1))} == {2, 1}


def test_a_gpu_has_no_neighbours() -> None:
    assert around(Proposal(ORIGINAL, "cuda:0")) == []


def test_without_convolutions_optimisation_stays() -> None:
    plain = space("mlp", threads=(2, 1))
    assert "extended" not in {e.mode for e in neighbours(Proposal(ORIGINAL, threads=2), plain)}


def test_products_by_bfloat_are_tried_on_an_arm_that_has_them() -> None:
    assert "bf16" in {e.mode for e in around(Proposal(ORIGINAL, threads=8), cpu=ARM_BF16)}
    assert "bf16" not in {e.mode for e in around(Proposal(ORIGINAL, threads=8), cpu=ARM)}


@pytest.mark.parametrize(
    ("asked", "is_tried"),
    [((), True), (("fp32",), False), (("fp32", "int8"), False), (("fp32", "bf16"), True)],
)
def test_bfloat_is_left_out_where_other_precisions_were_asked_for(asked, is_tried: bool) -> None:
    backends = ("onnxruntime", "openvino")
    for backend in backends:
        leader = Proposal(ORIGINAL, threads=8, backend=backend)
        found = around(leader, cpu=ARM_BF16, precisions=asked, backends=backends)
        assert ("bf16" in {e.mode for e in found}) is is_tried


recipes = st.sampled_from([ORIGINAL, Recipe("fp16"), Recipe("int8", "dynamic")]) | st.builds(
    Recipe,
    precision=st.just("int8"),
    method=st.just("static"),
    scope=st.sampled_from(["all", "products"]),
    activations=st.sampled_from(["u8", "s8"]),
    per_channel=st.booleans(),
    reduce_range=st.booleans(),
    calibration=st.sampled_from(["minmax", "entropy"]),
    excluded=st.sampled_from([(), ("conv",)]),
)
counts = st.lists(st.integers(1, 96), min_size=1, max_size=8, unique=True).map(
    lambda found: tuple(sorted(found, reverse=True))
)


@given(st.data(), recipes, counts, st.sampled_from([None, "nospin", "extended", "openvino"]))
def test_neighbours_differ_in_one_respect(data, recipe: Recipe, threads, mode) -> None:
    leader = Proposal(recipe, threads=data.draw(st.sampled_from(threads)), mode=mode)
    if mode == "nospin" and leader.threads == 1:
        return  # never proposed
    here = space("cnn", threads=threads)
    found = list(neighbours(leader, here))
    assert len(found) == len(set(found))
    for other in found:
        names = (field.name for field in fields(Proposal))
        changed = [name for name in names if getattr(other, name) != getattr(leader, name)]
        if other.threads == 1 and mode == "nospin":
            changed.remove("mode")  # a single thread never waits for another
        assert len(changed) == 1
        assert other.threads in threads
        if changed == ["recipe"]:
            mine, its = asdict(recipe), asdict(other.recipe)
            assert sum(mine[name] != its[name] for name in mine) == 1
    assert list(neighbours(leader, here)) == found


def test_every_recipe_keeps_its_words_through_json() -> None:
    found, _ = first(space("cnn", thorough=True, facts=facts("cnn")))
    recipes = {proposal.recipe for proposal in found}
    assert {Recipe.of(asdict(recipe)) for recipe in recipes} == recipes
    assert len({recipe.label for recipe in recipes}) == len(recipes)
