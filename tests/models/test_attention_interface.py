"""Any transformers model with ``attn_implementation="dualwave"`` against the same with "eager"."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import masking_utils

import dualwave
from dualwave.kernels.attention import blockwise_attention
from dualwave.models import attention_interface
from dualwave.models.attention_masks import DeferredMask, make_attention_mask, recognise

from .tiny_transformers import BATCH, CASES, LEFT, LENGTH, NONE, RIGHT, bert, llama, mistral, tokens


@pytest.fixture(autouse=True)
def _registered() -> None:
    assert dualwave.register_attention() == "dualwave"


@pytest.fixture
def calls() -> Iterator[list[dict[str, Any]]]:
    """The options of every call of the operation."""
    with _recorded() as options:
        yield options


@contextmanager
def _recorded() -> Iterator[list[dict[str, Any]]]:
    options: list[dict[str, Any]] = []

    def attend(*tensors: Tensor, **more: Any) -> Any:
        options.append(more)
        return blockwise_attention(*tensors, **more)

    with mock.patch.object(attention_interface, "blockwise_attention", attend):
        yield options


def _pair(make: Callable[[], Any]) -> tuple[Any, Any]:
    """The same weights, large enough for attention to matter, with "eager" and with ours."""
    torch.manual_seed(5)
    eager = make()
    for parameter in eager.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    ours = copy.deepcopy(eager)
    eager.set_attn_implementation("eager")
    ours.set_attn_implementation("dualwave")
    return eager.train(), ours.train()


def _results(model: Any, inputs: dict[str, Any], names: tuple[str, ...]) -> dict[str, Tensor]:
    """Outputs where a token is, and the gradients of all parameters of a loss of those."""
    output = model(**inputs)
    results, losses = {}, []
    for name in names:
        value = output[name]
        if value.ndim == 3 and "attention_mask" in inputs:
            value = value * inputs["attention_mask"].unsqueeze(-1)
        weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(6))
        losses.append((value * weights).sum())
        results[name] = value.detach()
    torch.stack(losses).sum().backward()
    grads = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return results | {f"gradient of {name}": grad.clone() for name, grad in grads.items()}


def _assert_alike(make: Callable[[], Any], inputs: dict[str, Any], names: tuple[str, ...]) -> None:
    """Outputs and gradients differ from eager's by at most 1e-5 of their largest value.

    A float64 model is no oracle here: transformers' softmax and norms go through float32 in it.
    Gradients of keys' biases are 0 but for rounding, so a gradient counts as at least a twentieth
    of the largest one.
    """
    eager, ours = _pair(make)
    found, usual = _results(ours, inputs, names), _results(eager, inputs, names)
    assert found.keys() == usual.keys()
    least = 5e-2 * max(float(value.abs().max()) for name, value in usual.items() if "grad" in name)
    for name, value in found.items():
        largest = max(float(usual[name].abs().max()), least if "grad" in name else 1.0)
        difference = float((value - usual[name]).abs().max())
        assert difference <= 1e-5 * largest, f"{name}: {difference / largest:.3g}"


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_of_a_model(case: str, calls: list[dict[str, Any]]) -> None:
    make, inputs, names = CASES[case]
    torch.manual_seed(7)
    _assert_alike(make, inputs(), names)
    assert calls


def test_packed_sequences_are_those_alone(calls: list[dict[str, Any]]) -> None:
    lengths = (4, 1, 6)
    # With a cache transformers does not look for packed sequences.
    packed = {
        **tokens(NONE),
        "use_cache": False,
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
    }
    positions = torch.stack([packed["position_ids"][0], torch.arange(LENGTH)])
    packed["position_ids"] = positions  # a batch may hold both
    for make in (llama, mistral):
        _assert_alike(make, packed, ("logits",))
    assert all(call["bias"] is None for call in calls)
    assert calls[0]["cu_seqlens_q"].tolist() == [0, 4, 5, 11, 22]
    assert calls[0]["max_seqlen_q"] == LENGTH
    _, ours = _pair(llama)
    together = ours(packed["input_ids"][:1], position_ids=positions[:1], use_cache=False).logits
    alone = [ours(part).logits for part in packed["input_ids"][:1].split(lengths, dim=1)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=1e-5, atol=1e-5)


def test_packed_sequences_by_the_arguments_of_flash_attention(calls: list[dict[str, Any]]) -> None:
    layer = nn.Module()
    query, key, value = torch.randn(3, 1, 2, LENGTH, 8).unbind(0)
    cu_seqlens = torch.tensor([0, 4, 4, 11], dtype=torch.int32)
    packing = {"cu_seq_lens_q": cu_seqlens, "cu_seq_lens_k": cu_seqlens}
    for is_causal in (True, False):
        out, weights = attention_interface.attention_forward(
            layer, query, key, value, None, is_causal=is_causal, max_length_q=7, **packing
        )
        assert weights is None
        parts = [
            attention_interface.attention_forward(layer, *qkv, None, is_causal=is_causal)[0]
            for qkv in zip(*(t.split((4, 7), dim=2) for t in (query, key, value)), strict=True)
        ]
        torch.testing.assert_close(out, torch.cat(parts, dim=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [llama, mistral])
def test_a_model_with_the_arguments_of_flash_attention(make: Callable[[], Any]) -> None:
    """Positions are relative in these models; Mistral's layers have a mask, a window, as well."""
    _, ours = _pair(make)
    input_ids = tokens(NONE)["input_ids"][:1]
    cu_seqlens = torch.tensor([0, 6, 11], dtype=torch.int32)
    packing = {"cu_seq_lens_q": cu_seqlens, "cu_seq_lens_k": cu_seqlens}
    together = ours(input_ids, use_cache=False, **packing, max_length_q=6, max_length_k=6).logits
    alone = [ours(part, use_cache=False).logits for part in input_ids.split((6, 5), dim=1)]
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["Bloom", "Mpt"])
def test_models_that_attend_by_themselves_are_refused(kind: str) -> None:
    config = getattr(transformers, f"{kind}Config")(
        **{"hidden_size": 32, "d_model": 32, "n_layers": 1, "n_layer": 1, "n_head": 4},
        **{"n_heads": 4, "vocab_size": 60},
    )
    model = getattr(transformers, f"{kind}ForCausalLM")._from_config(
        config, attn_implementation="dualwave"
    )
    with pytest.raises(ValueError, match=f'{kind.lower()} models do not attend.*"eager"'):
        model(**tokens(LEFT))


def test_a_model_with_its_own_table_of_attention_classes_is_refused() -> None:
    vision = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1}
    config = transformers.GitConfig(
        vision_config={**vision, "num_attention_heads": 4, "image_size": 16, "patch_size": 8},
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=40,
    )  # fmt: skip
    model = transformers.GitModel(config)
    model.set_attn_implementation("dualwave")
    with pytest.raises(ValueError, match=r"git models do not attend.*\"eager\""):
        model(tokens(NONE)["input_ids"])


def test_a_model_of_another_mapping_is_refused() -> None:
    config = transformers.TrOCRConfig(
        vocab_size=60, d_model=32, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=40
    )
    model = transformers.TrOCRForCausalLM._from_config(config, attn_implementation="dualwave")
    with pytest.raises(ValueError, match=r"trocr models do not attend.*\"eager\""):
        model(tokens(NONE)["input_ids"])


def _splinter() -> Any:
    return transformers.SplinterModel(
        transformers.SplinterConfig(
            vocab_size=120, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def _nllb() -> Any:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention_dropout": 0.0}
    return transformers.NllbMoeModel(
        transformers.NllbMoeConfig(
            vocab_size=60, d_model=32, num_experts=2, encoder_sparse_step=0, decoder_sparse_step=0,
            dropout=0.0, **sizes, **heads,
        )
    )  # fmt: skip


@pytest.mark.parametrize("make", [_splinter, _nllb])
def test_layers_that_do_not_know_whether_they_are_causal_get_masks(make: Callable[[], Any]) -> None:
    """Splinter's layers don't say, and NllbMoe's decoder says that it isn't."""
    eager, ours = (model.eval() for model in _pair(make))
    inputs = {"input_ids": tokens(NONE)["input_ids"]}
    if make is _nllb:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    torch.testing.assert_close(ours(**inputs)[0], eager(**inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", [NONE, LEFT])
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("make", [llama, mistral])
def test_generation_with_a_cache(make: Callable[[], Any], cache: str | None, padding: str) -> None:
    eager, ours = (model.eval() for model in _pair(make))
    inputs = tokens(padding)
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    options: dict[str, Any] = {
        "max_new_tokens": 6,
        "min_new_tokens": 6,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        "pad_token_id": 0,
        "cache_implementation": cache,
        "disable_compile": True,
    }
    expected, found = (model.generate(**inputs, **options) for model in (eager, ours))
    assert torch.equal(found.sequences, expected.sequences)
    for step, expected_step in zip(found.logits, expected.logits, strict=True):
        torch.testing.assert_close(step, expected_step, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "padding", "expected"),
    [
        (llama, NONE, {"causal": True, "bias": None}),
        (llama, LEFT, {"causal": True, "bias": (BATCH, 1, 1, LENGTH)}),
        (mistral, NONE, {"window": (3, 0), "bias": None}),
        (mistral, RIGHT, {"window": (3, 0), "bias": (BATCH, 1, 1, LENGTH)}),
        (bert, NONE, {"bias": None}),
        (bert, RIGHT, {"causal": False, "bias": (BATCH, 1, 1, LENGTH)}),
    ],
)
def test_masks_become_arguments_of_the_kernel(
    make: Callable[[], Any], padding: str, expected: dict[str, Any], calls: list[dict[str, Any]]
) -> None:
    _, ours = _pair(make)
    ours(**tokens(padding))
    for call in calls:
        bias = call.pop("bias")
        assert (None if bias is None else tuple(bias.shape)) == expected["bias"]
        assert {"scale": call.pop("scale")}
        assert call == {name: value for name, value in expected.items() if name != "bias"}


def test_a_users_own_mask_is_a_bias(calls: list[dict[str, Any]]) -> None:
    inputs = tokens(NONE)
    visible = torch.rand(BATCH, 1, LENGTH, LENGTH) > 0.5
    visible |= torch.eye(LENGTH, dtype=torch.bool)
    _, ours = _pair(llama)
    reference = copy.deepcopy(ours)
    reference.set_attn_implementation("sdpa")
    found = ours(**inputs, attention_mask=visible).logits
    expected = reference(**inputs, attention_mask=visible).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    numbers = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
    assert torch.equal(ours(**inputs, attention_mask=numbers).logits, found)
    assert calls[0]["bias"].shape == visible.shape


def test_triton_kernels_behind_a_model() -> None:
    eager, ours = _pair(lambda: llama(num_hidden_layers=1))

    def attend(*tensors: Tensor, **more: Any) -> Any:
        return blockwise_attention(*tensors, **more, implementation="triton")

    with mock.patch.object(attention_interface, "blockwise_attention", attend):
        found = ours(**tokens(LEFT)).logits
    visible = tokens(LEFT)["attention_mask"].unsqueeze(-1)
    torch.testing.assert_close(
        found * visible, eager(**tokens(LEFT)).logits * visible, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("padding", [NONE, LEFT])
@pytest.mark.parametrize("make", [llama, mistral, bert])
def test_compiled_models_give_the_same(make: Callable[[], Any], padding: str) -> None:
    torch._dynamo.reset()
    _, ours = _pair(make)
    inputs = tokens(padding)
    visible = inputs.get("attention_mask", torch.ones(BATCH, LENGTH)).unsqueeze(-1)
    expected = ours(**inputs)[0] * visible
    found = torch.compile(ours, backend="aot_eager")(**inputs)[0] * visible
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_the_kernel_has_not_is_refused_by_name() -> None:
    query = torch.randn(1, 2, 3, 8)
    qkv = (nn.Module(), query, query, query, None)
    for more, sentence in (
        ({"dropout": 0.1}, "has no dropout.*attention_dropout.*to 0"),
        ({"softcap": 30.0}, 'has no caps on logits.*"eager"'),
        ({"s_aux": torch.zeros(2)}, "has no attention sinks"),
        ({"sinks": torch.zeros(2)}, "has no attention sinks"),
        ({"head_mask": torch.ones(2)}, "has no masks of heads"),
        ({"output_attentions": True}, "makes no attention weights"),
    ):
        with pytest.raises(ValueError, match=sentence):
            attention_interface.attention_forward(*qkv, **more)
    _, ours = _pair(lambda: bert(attention_probs_dropout_prob=0.1))
    with pytest.raises(ValueError, match="has no dropout"):
        ours(**tokens(NONE))
    ours.eval()(**tokens(NONE))


def test_a_position_bias_and_its_gradient() -> None:
    query, key, value = torch.randn(3, BATCH, 2, 5, 8).unbind(0)
    bias = torch.randn(1, 2, 5, 5, requires_grad=True)
    out, _ = attention_interface.attention_forward(
        nn.Module(), query, key, value, None, position_bias=bias, is_causal=True
    )
    weights = torch.randn_like(out)
    (found,) = torch.autograd.grad((out * weights).sum(), bias)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    logits = query @ key.mT * 8**-0.5 + bias
    expected = (logits.masked_fill(hidden, -torch.inf).softmax(-1) @ value).transpose(1, 2)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad((expected * weights).sum(), bias)
    torch.testing.assert_close(found, gradient, rtol=1e-5, atol=1e-5)


def test_values_smaller_than_queries() -> None:
    query, key = torch.randn(2, BATCH, 2, 5, 8).unbind(0)
    value = torch.randn(BATCH, 2, 5, 3)
    out, _ = attention_interface.attention_forward(
        nn.Module(), query, key, value, None, is_causal=False
    )
    expected = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


def _mask_arguments(mask_function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    lengths = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH}
    return {**lengths, "mask_function": mask_function, **more}


def test_a_mask_that_is_not_recognised_is_made() -> None:
    causal = masking_utils.causal_mask_function
    chunked = masking_utils.chunked_causal_mask_function(4, torch.zeros(BATCH, dtype=torch.long))

    def own(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    for unknown in (
        chunked,
        own,
        masking_utils.or_masks(causal, own),
        masking_utils.and_masks(causal, own),
        masking_utils.remap_positions_for_packed_sequence(causal, torch.zeros(BATCH, LENGTH)),
    ):
        assert recognise(unknown) is None
    mask = make_attention_mask(**_mask_arguments(chunked))
    assert type(mask) is Tensor
    made = masking_utils.sdpa_mask(**_mask_arguments(chunked, allow_is_causal_skip=False))
    assert torch.equal(mask, made)


def test_a_model_that_computes_with_its_mask_gets_the_mask_of_sdpa() -> None:
    sliding = masking_utils.sliding_window_causal_mask_function(3)
    padding = tokens(LEFT)["attention_mask"].bool()
    arguments = _mask_arguments(sliding, attention_mask=padding)
    expected = masking_utils.sdpa_mask(**arguments)
    mask = make_attention_mask(**arguments)
    assert isinstance(mask, DeferredMask)
    assert mask.shape == expected.shape
    assert "left=2" in repr(mask)
    for result in (mask[:, :, :, :5], mask.clone(), torch.cat([mask, mask]), ~mask):
        assert type(result) is Tensor
    assert torch.equal(mask[:, :, 2:], expected[:, :, 2:])
    announced = make_attention_mask(**arguments, allow_is_causal_skip=False)
    assert type(announced) is Tensor
    assert torch.equal(announced, expected)
