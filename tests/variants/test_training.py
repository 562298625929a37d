"""The trainings: mixed precision, compiled and fused, wrong gradients, honest costs, accuracy."""

from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from checking import fails_with
from tasks import losses, prepared
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from workbench import catalog
from workbench.contract import Case, ParameterValue, Setup, WorkloadError
from workloads import digits_to_accuracy
from workloads.train_gpt import SUCCESSORS, VOCABULARY, gpt, markov_chain
from workloads.train_resnet import resnet

SMALL: dict[str, tuple[int, dict[str, ParameterValue]]] = {
    "train_cnn": (8, {"image": 16}),
    "train_resnet": (4, {"blocks": 1}),
    "train_gpt": (3, {"tokens": 16, "width": 128, "blocks": 2}),
    "train_mlp_deep": (0, {"samples": 300, "epochs": 2}),
    "digits_to_accuracy": (64, {"target": 0.9}),
}
TRAININGS = ["train_cnn", "train_resnet", "train_gpt"]
LARGE = {"train_mlp_deep": {"samples": 100_000}}


def case_of(
    name: str,
    precision: str = "fp32",
    mode: str | None = None,
    batch: int | None = None,
    **params: ParameterValue,
) -> Case:
    usual, small = SMALL[name]
    values = catalog.load(name).values({**small, **params})
    batch = batch or usual or None
    return Case(name, "cpu", "torch", precision, None, 1, batch, values, mode)


def passes(name: str, factor: float, precision: str = "fp32", share: float = 0.5) -> bool:
    """Whether the check passes where the gradient in the layer at this share is multiplied."""
    with closing(prepared(case_of(name, precision))) as task:
        matrices = [p for p in task.network.parameters() if p.dim() > 1]
        matrices[int(share * len(matrices))].register_hook(lambda gradient: gradient * factor)
        return task.check().passed


@pytest.mark.parametrize("name", TRAININGS)
def test_a_gradient_that_is_wrong_in_one_layer_is_found(name: str) -> None:
    assert passes(name, 1.0)
    assert not passes(name, 1.05)
    assert not passes(name, 0.0, "bf16"), "it misses a layer"
    assert not passes(name, float("nan"), share=0.99)


def test_a_gradient_that_is_off_by_as_much_as_the_kink_of_a_relu_makes_passes() -> None:
    assert passes("train_cnn", 1.002)


def test_a_loss_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared(case_of("train_mlp_deep"))
    right = task.loss_on
    factors = iter([1.0, float("nan"), 1.0])
    monkeypatch.setattr(task, "loss_on", lambda batch: right(batch) * next(factors))
    assert not task.check().passed


@pytest.mark.parametrize(("samples", "seed"), [(1, 0), (1, 2), (3, 0)])
def test_few_samples_that_are_learned_at_once_are_right_in_fp32(samples: int, seed: int) -> None:
    task = prepared(case_of("train_mlp_deep", samples=samples), seed)
    assert task.check().passed


def test_a_training_from_other_weights_is_found() -> None:
    task = prepared(case_of("train_mlp_deep"))
    first = task.layers[0].bias
    first += 0.1  # only the reference starts from these weights
    assert not task.check().passed


@pytest.mark.parametrize("name", [*TRAININGS, "train_mlp_deep"])
def test_a_check_changes_nothing_in_the_training(name: str) -> None:
    checked, fresh = prepared(case_of(name)), prepared(case_of(name))
    try:
        checked.check()
        assert losses(checked, 3) == losses(fresh, 3)
    finally:
        checked.close()
        fresh.close()


@pytest.mark.parametrize(("batch", "blocks"), [(1, 1), (1, 3), (2, 1), (11, 1), (11, 3), (24, 1)])
def test_a_resnet_of_any_batch_is_right(batch: int, blocks: int) -> None:
    assert prepared(case_of("train_resnet", batch=batch, blocks=blocks)).check().passed


def test_later_tokens_change_nothing_before_them() -> None:
    network = gpt(12, 128, 2, seed=0)
    tokens = torch.from_numpy(markov_chain(12, seed=0))[None]
    changed = tokens.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % VOCABULARY
    before, after = network(tokens), network(changed)
    assert torch.allclose(before[:8], after[:8], atol=1e-5)
    assert not torch.allclose(before[8], after[8], atol=1e-3)


@pytest.mark.parametrize("name", [*TRAININGS, "train_mlp_deep"])
def test_forward_and_backward_are_compiled_before_the_first_step(name: str, monkeypatch) -> None:
    """Traced in full, but without compiling C++, which takes ten seconds."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    case, setup = case_of(name, mode="compile"), Setup(seed=0)
    task, eager = catalog.load(name).prepare(case, setup), prepared(case_of(name))
    try:
        assert setup.seconds["compile"] > 0
        with torch.compiler.set_stance("fail_on_recompile"):
            task.activate()
            assert task.check().passed
            assert losses(task, 3) == pytest.approx(losses(eager, 3), rel=1e-4)
    finally:
        task.close()
        eager.close()


@pytest.mark.campaign
def test_really_compiled_code_is_right() -> None:
    task = prepared(case_of("train_mlp_deep", mode="compile"))
    assert task.check().passed
    first, second, again = losses(task, 3)
    assert first == again != second


@pytest.mark.parametrize("name", TRAININGS)
def test_a_fused_update_is_the_same_update(name: str) -> None:
    fused, plain = prepared(case_of(name, mode="fused")), prepared(case_of(name))
    try:
        assert fused.optimiser.param_groups[0]["fused"] is True
        assert losses(fused, 4) == pytest.approx(losses(plain, 4), rel=1e-4)
    finally:
        fused.close()
        plain.close()


@pytest.mark.parametrize("blocks", [1, 2])
def test_operations_of_a_resnet_agree_with_torchs_own_counter(blocks: int) -> None:
    case = case_of("train_resnet", blocks=blocks)
    task = prepared(case)
    with FlopCounterMode(display=False) as counter:
        task.step()
    assert counter.get_total_flops() == catalog.load("train_resnet").work(case).flops


def test_operations_of_a_gpt_are_those_of_causal_attention() -> None:
    """torch counts every token's attention to every other, and on the CPU's fused kernel none at
    all.  Half of it is masked and need not be computed; that half is not counted here."""
    case = case_of("train_gpt")
    batch, tokens, width, blocks = 3, 16, 128, 2
    task = prepared(case)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        task.step()
    pairs, products = tokens**2, 6  # two forward, four backward
    masked = 2 * batch * blocks * products * width * (pairs - tokens * (tokens + 1) // 2)
    assert counter.get_total_flops() - masked == catalog.load("train_gpt").work(case).flops


@pytest.mark.parametrize("name", [*TRAININGS, "train_mlp_deep"])
def test_autocast_halves_the_bytes_of_activations_but_not_of_weights(name: str) -> None:
    work = catalog.load(name).work
    cases = [case_of(name, precision, batch=4096) for precision in ("fp32", "bf16")]
    full, half = (work(replace(c, params={**c.params, **LARGE.get(name, {})})) for c in cases)
    assert 0.5 < half.bytes_moved / full.bytes_moved < 0.6
    assert half.flops == full.flops


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("train_resnet", {"blocks": 1}),
        ("train_resnet", {"blocks": 3}),
        ("train_gpt", {"width": 128, "blocks": 4, "tokens": 64}),
    ],
)
def test_the_memory_that_backward_needs_is_in_the_estimate(name, params) -> None:
    """The estimates for two batch sizes differ by the memory of one sample."""

    def saved(batch: int) -> int:
        task, found = prepared(case_of(name, batch=batch, **params)), {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            found[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            inputs, _ = task.batch()
            output = task.network(inputs)
        assert output.requires_grad
        return sum(found.values())

    def estimated(batch: int) -> float:
        return catalog.load(name).work(case_of(name, batch=batch, **params)).memory_bytes

    measured, expected = saved(8) - saved(4), estimated(8) - estimated(4)
    assert measured < expected < 2 * measured


def test_the_stream_is_a_markov_chain_of_its_seed() -> None:
    stream = markov_chain(20_000, seed=1)
    followers: dict[int, set[int]] = {}
    for token, follower in zip(stream[:-1].tolist(), stream[1:].tolist(), strict=True):
        followers.setdefault(token, set()).add(follower)
    assert max(map(len, followers.values())) == SUCCESSORS
    assert len(followers) > VOCABULARY / 2
    assert np.array_equal(stream, markov_chain(20_000, seed=1))
    assert not np.array_equal(stream, markov_chain(20_000, seed=2))


def test_a_gpt_learns_the_chain() -> None:
    task = prepared(case_of("train_gpt", batch=16, tokens=32, blocks=1))
    first, *_, last = losses(task, 120)
    assert first == pytest.approx(np.log(VOCABULARY), abs=0.3)
    assert last < 3.5, "half the way to the chain's entropy, 1.8"


def test_a_resnet_has_the_papers_layers() -> None:
    """ResNet-20 of He et al. 2016, table 6: 0.27 million parameters."""
    parameters = list(resnet(3, seed=0).parameters())
    matrices = [p for p in parameters if p.dim() > 1 and p.shape[-1] != 1]
    assert len(matrices) == 20
    assert sum(p.numel() for p in parameters) == pytest.approx(0.27e6, rel=0.03)


@pytest.mark.parametrize(
    ("name", "batch", "says"),
    [
        ("train_resnet", 4_097, "4096 pictures"),
        ("train_gpt", 70_000, "65535 sequences of 16 tokens"),
        ("digits_to_accuracy", 1_438, "1437 training digits"),
    ],
)
def test_a_batch_beyond_the_data_is_refused(name: str, batch: int, says: str) -> None:
    with fails_with("bad_input", says, hint=True):
        prepared(case_of(name, batch=batch))


def test_a_width_that_heads_do_not_divide_is_refused_with_the_next_width() -> None:
    with pytest.raises(WorkloadError) as caught:
        prepared(case_of("train_gpt", width=100))
    assert "width=128" in (caught.value.hint or "")


def test_every_training_to_an_accuracy_is_the_same() -> None:
    task = prepared(case_of("digits_to_accuracy"))
    found = task.check()
    assert found.metric == "test_accuracy"
    assert found.value >= 0.9
    reported = [task.metrics(), *(task.step() or task.metrics() for _ in range(2))]
    assert reported[0] == reported[1] == reported[2]
    assert reported[0]["epochs"] >= 1
    assert reported[0]["test_accuracy"] == pytest.approx(found.value)


def test_a_harder_target_takes_more_epochs() -> None:
    epochs = []
    for target in (0.8, 0.97):
        task = prepared(case_of("digits_to_accuracy", target=target))
        task.step()
        epochs.append(task.metrics()["epochs"])
    assert epochs[0] < epochs[1]


def test_an_accuracy_that_the_device_only_claims_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared(case_of("digits_to_accuracy"))
    monkeypatch.setattr(task, "test_accuracy", lambda: 1.0)
    assert not task.check().passed, "float64 tries the weights of one epoch"


def test_a_training_that_never_reaches_its_target_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_to_accuracy, "MOST_EPOCHS", 1)
    with fails_with("not_reached", r"in 1 epochs, not 0\.98"):
        prepared(case_of("digits_to_accuracy", target=0.98)).check()


def test_a_training_from_a_stream_says_how_long_it_waits_for_data() -> None:
    with closing(prepared(case_of("train_cnn"))) as task:
        assert task.metrics() == {}
        task.step()
        assert 0 < task.metrics()["waiting_fraction"] < 1
        task.marks = [[0.0, 1.0, 3.0], [5.0, 7.0, 10.0]]
        assert task.metrics() == {"waiting_fraction": 3 / 8}
        task.activate()
        assert task.metrics() == {}, "steps of the warm-up do not count"
