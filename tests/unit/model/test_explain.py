"""Why a variant won or lost: each sentence from hand-made profiles that call for it."""

from dataclasses import replace

import builders
import msgspec
import pytest
from builders import block
from hypothesis import given, strategies as st
from lab_builders import NO_VNNI, accuracy, built, candidate, case, cpu, facts

from workbench.advisor.limits import exceeds_error_limit
from workbench.advisor.model.explain import CONVERSIONS, KernelTimes, explain, stands_for
from workbench.contract import OutputAccuracy
from workbench.planning.questions import ModelQuestion
from workbench.records.model import ModelReport
from workbench.report.candidate import ENERGY
from workbench.report.report import Report

FP32 = candidate(case(), 1e-3, {"Conv": 8e-4, "Relu": 5e-5})
STATIC = "int8-static-u8s8"


def reported(facts_=None, cpu_=None, built_=(), limit=0.02, memory_bytes_per_s=None) -> Report:
    """A report that holds the facts of the model and the machine."""
    given_ = msgspec.structs.replace(facts_ or facts(), max_error=limit)
    machine = msgspec.structs.replace(builders.machine(), cpu=cpu_ or cpu())
    rate = memory_bytes_per_s and builders.ceilings("cpu", bandwidth=memory_bytes_per_s)
    return Report(machine=machine, ceilings=rate, model=ModelReport(given_, list(built_)))


def sentences(mine, given_run=FP32, *, won: bool = False, **changes) -> str:
    return " ".join(explain(mine, given_run, reported(**changes), won=won).sentences)


def test_conv_integer_has_no_fast_kernel() -> None:
    dynamic = candidate(case("int8-dynamic"), 3e-3, {"ConvInteger": 2e-3, "Mul": 1e-4})
    text = sentences(dynamic)
    assert "3.00x" in text and "slower than cpu onnxruntime fp32 t8" in text
    assert "ConvInteger takes 95%" in text
    assert "2.00 ms" in text and "800 us" in text
    assert "Conv takes" not in text  # the sentence about ConvInteger says it


def test_a_little_conv_integer_explains_nothing() -> None:
    dynamic = candidate(case("int8-dynamic"), 2e-3, {"ConvInteger": 1e-4, "Softmax": 1.5e-3})
    assert "ConvInteger" not in sentences(dynamic)


def test_conversions_cost_more_than_they_save() -> None:
    kernels = {"QuantizeLinear": 4e-4, "DequantizeLinear": 4e-4, "QLinearConv": 7e-4}
    text = sentences(candidate(case(STATIC), 2e-3, kernels))
    assert "dequantising takes 53%" in text
    assert "(800 us a run), more than its products save." in text


def test_conversions_that_cost_less_than_the_products_save_are_not_the_whole_loss() -> None:
    fp32 = candidate(case(), 13e-3, {"MatMul": 10e-3, "FusedGelu": 3e-3})
    kernels = {"MatMulInteger": 6e-3, "QuantizeLinear": 3e-3, "Erf": 7e-3}
    text = sentences(candidate(case(STATIC), 16e-3, kernels), fp32)
    assert "Quantising and dequantising takes 19% of its kernel time (3.00 ms a run)." in text


def test_a_processor_without_vnni_gains_little() -> None:
    slow = candidate(case(f"{STATIC}-7bit"), 2e-3, {"QLinearConv": 1.5e-3})
    assert "This CPU has no AVX512-VNNI or AVX-VNNI or AMX" in sentences(slow, cpu_=cpu(NO_VNNI))
    assert "This CPU has no" not in sentences(slow)


def test_a_product_that_is_slower_in_int8() -> None:
    fp32 = candidate(case(), 1e-3, {"MatMul": 2e-4})
    slow = candidate(case(STATIC), 2e-3, {"MatMulIntegerToFloat": 1e-3})
    text = sentences(slow, fp32)
    assert "MatMul takes 1.00 ms in INT8 and 200 us in FP32" in text


def test_a_session_that_costs_more_than_its_kernels() -> None:
    fp32 = candidate(case(), 1e-4, {"MatMul": 1e-5})
    slow = candidate(case(STATIC), 2e-4, {"QGemm": 1e-5})
    assert "Its kernels fill 5% of a run of 200 us" in sentences(slow, fp32)
    assert "Its kernels fill 10% of a run of 99.9 us" in sentences(fp32, fp32, won=True)


def test_products_that_gain_are_named_with_the_remaining_cost() -> None:
    kernels = {"QLinearConv": 2e-4, "QuantizeLinear": 4e-5, "DequantizeLinear": 4e-5}
    fast = candidate(case(STATIC), 3e-4, kernels)
    text = sentences(fast, won=True)
    assert "faster than cpu onnxruntime fp32 t8" in text
    assert "Conv takes 200 us a run instead of 800 us (4.00x faster)" in text
    assert "dequantising takes 29%" in text


def test_operators_in_fp32_are_named() -> None:
    kernels = {"QLinearConv": 2e-4, "Softmax": 2e-4, "Resize": 1e-4, "Mul": 5e-5, "Add": 1e-6}
    text = sentences(candidate(case(f"{STATIC}-products"), 6e-4, kernels))
    assert "64%" in text and "Softmax, Resize, Mul." in text


@pytest.mark.parametrize(
    ("form", "is_floating"),
    [("static-u8s8", False), ("static-u8s8-products", True), ("dynamic", True)],
)
def test_kernels_of_any_type_run_in_int8_where_all_is_quantised(form, is_floating) -> None:
    kernels = {"QLinearConv": 5e-4, "MaxPool": 4e-4, "Transpose": 1e-4}
    text = sentences(candidate(case(f"int8-{form}"), 1.2e-3, kernels))
    assert ("Operators in FP32 take 50% of its time" in text) is is_floating


def test_full_coverage_has_no_sentence_about_fp32() -> None:
    assert "in FP32" not in sentences(candidate(case(STATIC), 3e-4, {"QLinearConv": 2e-4}))


@pytest.mark.parametrize(
    ("excluded", "words"),
    [(["a"], "1 sensitive node stays"), (["a", "b"], "2 sensitive nodes stay")],
)
def test_a_mixed_variant_counts_its_nodes_in_fp32(excluded: list[str], words: str) -> None:
    label = f"{STATIC}-mixed"
    made = [built(label, excluded=excluded, coverage=0.9)]
    text = sentences(candidate(case(label), 5e-4, {"QLinearConv": 3e-4}), built_=made)
    assert f"{words} in FP32" in text and "90%" in text


def test_over_the_limit_it_cannot_be_recommended() -> None:
    fast = candidate(case(STATIC), 3e-4, {"QLinearConv": 2e-4}, error=0.05)
    text = sentences(fast)
    assert "error of 5.0% exceeds the limit of 2.0%" in text
    fast.accuracy = accuracy(0.05, ("boxes", 0.01), ("scores", 0.05))
    assert "5.0% (worst in output scores)" in sentences(fast)
    joined = OutputAccuracy("output0", 0.05, None, 0.999, 0, 0.05, "[:, 4:84]")
    labels = OutputAccuracy("labels", 0.01, None, 0.95, 0, 0.01)
    fast.accuracy = replace(fast.accuracy, outputs=[joined])
    assert "5.0% (worst in output output0[:, 4:84])" in sentences(fast)
    fast.accuracy = replace(fast.accuracy, metric="disagreement", outputs=[joined, labels])
    assert "disagreement of 5.0% (worst in output labels)" in sentences(fast)
    fast.accuracy = accuracy(0.25, metric="disagreement")
    assert "disagreement of 25.0% exceeds the limit of 10.0%" in sentences(fast, limit=0.1)


def test_a_bound_over_the_limit_is_what_unseen_inputs_may_reach() -> None:
    found = candidate(case(STATIC), 5e-4, {"QLinearConv": 4e-4}, error=0.018)
    found.accuracy = replace(found.accuracy, error_bound=0.0231)
    found_text = sentences(found)
    assert "error of 1.8%, up to 2.3% on unseen inputs, exceeds the limit of 2.0%" in found_text
    scenario = msgspec.structs.replace(ModelQuestion("net.onnx").scenario(), max_error=0.02)
    assert exceeds_error_limit(found, scenario)
    found.accuracy = replace(found.accuracy, error_bound=0.02)
    assert not exceeds_error_limit(found, scenario)
    assert "unseen" not in sentences(found)


def test_at_the_limit_nothing_is_wrong() -> None:
    assert "limit" not in sentences(candidate(case(STATIC), 3e-4, error=0.02))


def test_fewer_threads_that_win() -> None:
    single = candidate(case(threads=1), 5e-4, {"Conv": 4e-4})
    assert "One thread is enough" in sentences(single)
    assert "enough" not in sentences(candidate(case(threads=1), 5e-3))
    assert "enough" not in sentences(candidate(case(threads=None, device="cuda:0"), 1e-4))


def test_operators_of_other_thread_counts_are_not_compared() -> None:
    single = candidate(case(STATIC, threads=1), 5e-4, {"QLinearConv": 4e-4})
    text = sentences(single)
    assert "operators are not compared, because their threads differ" in text
    assert "instead of" not in text


def test_a_profile_that_was_slowed_down_explains_nothing() -> None:
    slow = candidate(case(STATIC), 2e-3, {"MatMulIntegerToFloat": 7e-3})
    found = explain(slow, FP32, reported(), won=False)
    assert "because a profiled run took far longer than a raced one" in found.sentences[-1]
    assert found.operators == []


def test_gains_and_threads_go_by_the_rounds_that_both_took_part_in() -> None:
    brief = candidate(case(STATIC), 0, {"QLinearConv": 2e-4}, samples=[[2e-3]] * 3)
    drifted = candidate(case(), 0, {"Conv": 8e-4}, samples=[[3e-3]] * 3 + [[1e-3]] * 9)
    assert "Conv takes 200 us a run instead of 800 us" in sentences(brief, drifted)
    single = candidate(case(threads=1), 0, samples=[[2e-3]] * 3)
    assert "One thread is enough" in sentences(single, drifted)


def test_options_alone_are_not_explained_by_precision() -> None:
    text = sentences(candidate(case(mode="extended"), 2e-3, {"Conv": 1.9e-3}))
    assert "INT8" not in text


def test_two_that_cannot_be_distinguished() -> None:
    assert "cannot be distinguished" in sentences(candidate(case(STATIC), 1e-3))


def test_a_few_rounds_are_called_that() -> None:
    once = candidate(case(), 1e-3, samples=[[1e-3]])
    slow = candidate(case(STATIC), 0, samples=[[2e-3]])
    assert "2.00x slower than cpu onnxruntime fp32 t8, after one or two rounds only." in sentences(
        slow, once
    )
    fast = candidate(case(STATIC), 0, samples=[[5e-4], [5e-4]])
    assert "2.00x faster than cpu onnxruntime fp32 t8, after one or two rounds only." in sentences(
        fast, once
    )


def test_a_ratio_that_rounds_to_1_is_neither_faster_nor_slower_by_it() -> None:
    once = candidate(case(), 0, samples=[[1e-3]])
    near = candidate(case(STATIC), 0, samples=[[1.002e-3]])
    assert "is less than 1% slower than cpu onnxruntime fp32 t8, after one" in sentences(near, once)


def test_a_few_rounds_are_compared_with_the_same_rounds() -> None:
    wild = candidate(case(), 0, samples=[[9e-3], [1e-3], [1e-3]])
    slow = candidate(case(STATIC), 0, samples=[[6e-3]])
    # Both ran in the same busy moment, so neither 1.50x faster nor 6.00x slower is safe to say.
    assert "is not comparable with cpu onnxruntime fp32 t8: one or two" in sentences(slow, wild)
    slow.blocks = [block(slow.case, 1, [6e-3])]
    assert "6.00x slower" in sentences(slow, wild)


def test_what_was_not_read_is_not_compared() -> None:
    for each in (light := candidate(case(STATIC), 1e-3), heavy := candidate(case(), 1e-3)):
        each.objective = "energy"
    assert "no energy was measured" in sentences(light, heavy)


def test_without_profiles_the_ratio_is_all_there_is() -> None:
    plain = candidate(case(), 1e-3)
    found = explain(candidate(case(STATIC), 5e-4), plain, reported(), won=True)
    assert len(found.sentences) == 1
    assert found.operators == []


def test_what_a_provider_leaves_to_the_cpu() -> None:
    away = candidate(case(mode="openvino"), 2e-3, {"Conv": 1e-3})
    away.fallback_fraction = 0.4
    said = "leaves 40% of the time to the CPU"
    assert said in sentences(away)
    given = candidate(case("int8", threads=None, device="cuda:0"), 2e-3)
    assert said not in sentences(given, given)
    given.fallback_fraction = 0.4
    assert said in sentences(given, given)


def test_fp16_is_not_judged_as_if_it_were_int8() -> None:
    on_gpu = candidate(case(threads=None, device="fake:0"), 1e-3, {"Conv": 8e-4})
    for step_s, conv_s in ((5e-4, 3e-4), (3e-3, 2e-3)):
        half = candidate(case("fp16", threads=None, device="fake:0"), step_s, {"Conv": conv_s})
        text = sentences(half, on_gpu, cpu_=cpu(NO_VNNI))
        assert "INT8" not in text and "in FP32" not in text
    fast = candidate(case("fp16", threads=None, device="fake:0"), 5e-4, {"Conv": 3e-4})
    assert "Conv takes 300 us a run instead of 800 us" in sentences(fast, on_gpu)


def test_memory_and_energy_are_not_called_fast() -> None:
    light, heavy = candidate(case(STATIC), 2e-3), candidate(case(), 1e-3)
    for each, megabytes in ((light, 50), (heavy, 100)):
        each.objective, each.memory_peak_bytes = "memory", megabytes << 20
    assert "2.00x (95% CI 1.94-2.06) lower in peak memory than cpu" in sentences(light, heavy)
    assert "higher in peak memory than cpu" in sentences(heavy, light)
    assert "is the best run of the model as given" in sentences(heavy, heavy)
    for each, joules in ((light, 0.1), (heavy, 0.2)):
        each.objective = "energy"
        for measured in each.blocks:
            measured.metrics[ENERGY] = joules
    assert "lower in energy than cpu" in sentences(light, heavy)


def test_weights_read_at_the_speed_of_memory_limit_it() -> None:
    fp32 = candidate(case(), 1e-3, {"MatMul": 9e-4})
    heavy = facts("mlp", weights_bytes=9_000_000)  # 10 GB/s in 0.9 ms
    text = sentences(fp32, fp32, facts_=heavy, memory_bytes_per_s=11e9)
    assert "is the fastest run of the model as given" in text
    assert "8.58 MiB of weights a run at 10.0 GB/s, 91% of the memory bandwidth" in text
    recurrent = candidate(case(), 1e-3, {"GRU": 7e-4, "MatMul": 2e-4})
    text = sentences(recurrent, recurrent, facts_=heavy, memory_bytes_per_s=45e9)
    assert "Memory limits it" not in text  # all of its products read these weights
    assert "Memory limits it" not in sentences(fp32, fp32, facts_=heavy, memory_bytes_per_s=1e11)
    assert "Memory limits it" not in sentences(fp32, fp32, facts_=heavy)


def test_the_memory_of_the_cpu_does_not_limit_a_gpu() -> None:
    on_gpu = candidate(case(threads=None, device="cuda:0"), 1e-3, {"MatMul": 9e-4})
    heavy = facts("mlp", weights_bytes=9_000_000)
    text = sentences(on_gpu, on_gpu, facts_=heavy, memory_bytes_per_s=11e9)  # the CPU is that slow
    assert "fastest run of the model" in text and "Memory limits it" not in text


def test_the_original_has_no_table_of_its_own() -> None:
    found = explain(FP32, FP32, reported(), won=True)
    assert (found.case, found.won, found.operators) == (FP32.case.id, True, [])


@pytest.mark.parametrize(
    ("operator", "kernels"),
    [
        ("Conv", "QLinearConv ConvInteger FusedConv NhwcFusedConv"),
        ("MatMul", "QGemm Gemm QLinearMatMul DynamicQuantizeMatMul MatMulIntegerToFloat"),
        ("LSTM", "DynamicQuantizeLSTM"),
        ("Attention", "QAttention"),
        ("Add", "QLinearAdd"),
        ("GlobalAveragePool", "QLinearGlobalAveragePool"),
        ("MaxPool", "NhwcMaxPool"),
        (CONVERSIONS, "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
        ("layout", "ReorderInput"),
    ],
)
def test_a_kernel_stands_for_an_operator(operator: str, kernels: str) -> None:
    assert {stands_for(name) for name in (operator, *kernels.split())} == {operator}


def test_the_table_puts_kernels_under_their_operator_by_weight() -> None:
    kernels = {"QLinearConv": 3e-4, "ConvInteger": 1e-4, "QuantizeLinear": 5e-5}
    rows = explain(candidate(case(STATIC), 6e-4, kernels), FP32, reported(), won=False).operators
    assert {row.operator for row in rows} == {"Conv", CONVERSIONS, "Relu"}
    conv = rows[0]
    assert conv.operator == "Conv"
    assert (conv.fp32_s, conv.int8_s) == pytest.approx((8e-4, 4e-4))
    assert next(row for row in rows if row.operator == "Relu").int8_s == 0.0


def test_a_table_has_an_end() -> None:
    many = candidate(case(STATIC), 6e-4, {f"Operator{n}": 1e-6 * n for n in range(40)})
    rows = explain(many, FP32, reported(), won=False).operators
    assert len(rows) == 12
    assert rows == sorted(rows, key=lambda row: -max(row.fp32_s, row.int8_s))


names = st.sampled_from(
    ["Conv", "QLinearConv", "ConvInteger", "MatMul", "QGemm", "Softmax", "QuantizeLinear", "Mul"]
)
profiles = st.dictionaries(names, st.floats(0, 1e-2), max_size=6)


@given(profiles, profiles, st.floats(1e-6, 1.0), st.floats(0, 0.1), st.booleans())
def test_the_same_report_gives_the_same_words(mine, other, step_s, error, won) -> None:
    def once():
        given_run = candidate(case(), 1e-3, other)
        variant = candidate(case(STATIC), step_s, mine, error=error)
        both = (
            explain(variant, given_run, reported(), won=won),
            explain(given_run, given_run, reported(), won=won),
        )
        return msgspec.json.encode(both)

    assert once() == once()


@given(profiles)
def test_shares_of_a_profile_are_shares(kernels) -> None:
    profile = KernelTimes.of(candidate(case(), 1e-3, kernels))
    assert sum(profile.by_operator.values()) == pytest.approx(profile.total_s)
    for name in (*kernels, CONVERSIONS, "absent"):
        assert 0 <= profile.share(name) <= 1 + 1e-9
