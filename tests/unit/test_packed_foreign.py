"""The layouts of other tools, each against an unpacker in numpy that follows the format's description."""

import numpy as np
import pytest
import torch
from tests.unit.packed_parts import random_parts

from penjing.errors import InputError
from penjing.packed.awq_spec import AwqSpec
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.mxfp4_spec import VALUES, Mxfp4Spec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.packed.scaled_spec import ScaledSpec
from penjing.packed.schemes import packed_tensor


def stream(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The codes of one sequence of words, by Python's integers: word i holds the stream's bits from 32 i."""
    whole = sum(int(word) << (32 * i) for i, word in enumerate(words.astype(np.uint32)))
    return np.array([(whole >> (bits * i)) & ((1 << bits) - 1) for i in range(count)], dtype=np.float64)


def along_columns(words: torch.Tensor, bits: int, count: int) -> np.ndarray:
    return np.stack([stream(row, bits, count) for row in words.numpy()])


def grouped(codes_RC, zero_RG, scale_RG, group_C) -> np.ndarray:
    return (codes_RC - zero_RG[:, group_C]) * scale_RG[:, group_C]


def agree(spec: PackedSpec, parts: dict[str, torch.Tensor], expected: np.ndarray) -> None:
    """All weights, and some rows of them out of order, are the expected ones exactly."""
    packed = packed_tensor(spec, expected.shape, parts)
    packed.check_values("m")
    wanted = torch.from_numpy(expected).float()
    found = packed.dequantize()
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)
    rows = torch.tensor([expected.shape[0] - 1, 0, 3])
    assert torch.equal(packed.dequantize(rows=rows), wanted[rows])
    assert packed.nbytes == sum(part.nbytes for part in parts.values())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group_size", [32, 0])
@pytest.mark.parametrize("order", ["by activation", "as they come", "no g_idx"])
@pytest.mark.parametrize("minus_one", [True, False])
def test_gptq_weights(bits, group_size, order, minus_one):
    rows, columns = 64, 96
    spec = GptqSpec(bits, group_size, minus_one, has_g_idx=order != "no g_idx")
    parts = random_parts(spec, rows, columns)
    group_C = np.arange(columns) // (group_size or columns)
    if order == "as they come":
        parts["g_idx"] = torch.from_numpy(group_C.astype(np.int32))
    elif order == "by activation":
        group_C = parts["g_idx"].numpy()
    codes_RC = along_columns(parts["qweight"].T, bits, columns)
    zero_GR = np.random.default_rng(1).integers(
        0 if not minus_one else 1, 1 << bits, (spec.groups(columns), rows)
    )
    parts["qzeros"] = pack_stream(zero_GR - minus_one, bits)
    agree(spec, parts, grouped(codes_RC, zero_GR.T, parts["scales"].T.double().numpy(), group_C))


def pack_stream(codes: np.ndarray, bits: int) -> torch.Tensor:
    """The inverse of `along_columns`."""
    words = []
    for row in codes.tolist():
        whole = sum(int(code) << (bits * i) for i, code in enumerate(row))
        count = -(-len(row) * bits // 32)
        words.append([(whole >> (32 * i)) & 0xFFFFFFFF for i in range(count)])
    return torch.from_numpy(np.array(words, dtype=np.uint32).view(np.int32))


def test_gptq_zero_points_of_zero_that_borrowed_from_their_neighbours_come_back():
    """GPTQModel takes the one from whole words: 0x11111111 from eight 4-bit zero points."""
    spec, rows, columns = GptqSpec(4, 32, has_g_idx=False), 16, 32
    parts = random_parts(spec, rows, columns)
    zeros = np.array([[0, 15, 7, 0, 0, 3, 8, 0, 1, 0, 15, 15, 2, 0, 9, 0]])
    parts["qzeros"] = pack_stream(zeros, 4) - 0x11111111
    codes_RC = along_columns(parts["qweight"].T, 4, columns)
    scales = parts["scales"].T.double().numpy()
    agree(spec, parts, grouped(codes_RC, zeros.T, scales, np.zeros(columns, dtype=int)))


@pytest.mark.parametrize("group_size", [32, 0])
def test_awq_weights(group_size):
    rows, columns = 48, 96
    spec = AwqSpec(group_size)
    parts = random_parts(spec, rows, columns)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # the row, of eight, that each four bits of a word belong to

    def unpack(words: torch.Tensor) -> np.ndarray:
        found = np.empty((rows, words.shape[0]))
        for x, line in enumerate(words.numpy().astype(np.uint32)):
            for w, word in enumerate(line):
                for place, row in enumerate(order):
                    found[8 * w + row, x] = (int(word) >> (4 * place)) & 15
        return found

    group_C = np.arange(columns) // (group_size or columns)
    scale_RG = parts["scales"].T.double().numpy()
    agree(spec, parts, grouped(unpack(parts["qweight"]), unpack(parts["qzeros"]), scale_RG, group_C))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("group_size", "has_g_idx"), [(32, False), (32, True), (0, False), (40, False)])
def test_compressed_tensors_packed_weights(bits, symmetric, group_size, has_g_idx):
    rows, columns = 24, 96
    spec = PackQuantizedSpec(bits, group_size, symmetric, has_g_idx)
    parts = random_parts(spec, rows, columns)
    group_C = np.arange(columns) // (group_size or columns)
    if has_g_idx:
        group_C = parts["weight_g_idx"].numpy()
    codes_RC = along_columns(parts["weight_packed"], bits, columns)
    scale_RG = parts["weight_scale"].double().numpy()
    zero_RG = np.full(scale_RG.shape, 2.0 ** (bits - 1))
    if not symmetric:
        zero_RG = along_columns(parts["weight_zero_point"].T, bits, rows).T
    agree(spec, parts, grouped(codes_RC, zero_RG, scale_RG, group_C))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("scale_dtype", ["float32", "bfloat16", "float8_e8m0fnu"])
@pytest.mark.parametrize(
    ("block", "rank"), [((128, 128), 2), ((1, 0), 2), ((1, 0), 1), ((0, 0), 2), ((0, 0), 1), ((0, 0), 0)]
)
def test_scaled_weights(dtype, scale_dtype, block, rank):
    rows, columns = 320, 192
    spec = ScaledSpec(dtype, block, "weight_scale_inv", scale_dtype, rank)
    parts = random_parts(spec, rows, columns)
    height, width = block[0] or rows, block[1] or columns
    grid = parts["weight_scale_inv"].double().reshape(-(-rows // height), -(-columns // width))
    scale_RC = grid.repeat_interleave(height, 0)[:rows].repeat_interleave(width, 1)[:, :columns]
    exact = parts["weight"].double() * scale_RC
    agree(spec, parts, exact.numpy())


def test_mxfp4_weights():
    rows, columns = 24, 80
    parts = random_parts(Mxfp4Spec(), rows, columns)
    codes = np.stack([parts["blocks"].numpy() & 15, parts["blocks"].numpy() >> 4], axis=-1).reshape(rows, -1)
    scale_RC = 2.0 ** (parts["scales"].double().numpy() - 127).repeat(32, axis=1)
    agree(Mxfp4Spec(), parts, (np.array(VALUES)[codes] * scale_RC)[:, :columns])


def test_one_expert_of_a_stack_is_unpacked_by_its_rows():
    experts, rows, columns = 3, 16, 64
    parts = random_parts(Mxfp4Spec(), experts * rows, columns)
    stack = packed_tensor(Mxfp4Spec(), (experts * rows, columns), parts)
    one = packed_tensor(Mxfp4Spec(), (rows, columns), {k: v[16:32] for k, v in parts.items()})
    assert torch.equal(stack.dequantize(rows=torch.arange(16, 32)), one.dequantize())


NAN8 = torch.tensor(0xFF, dtype=torch.uint8).view(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("spec", "part", "value", "message"),
    [
        (ScaledSpec("float8_e4m3fn", (1, 0)), "weight", NAN8, "m.weight holds values that are not finite"),
        (ScaledSpec("int8", (1, 0)), "weight_scale", float("inf"), "m.weight_scale holds values"),
        (Mxfp4Spec(), "scales", 255, "m.scales holds values that are not finite"),
        (GptqSpec(4, 32), "scales", float("nan"), "m.scales holds values"),
        (GptqSpec(4, 32), "g_idx", 2, "m.g_idx names groups from 0 to 2, but there are 2"),
        (GptqSpec(4, 32), "g_idx", -1, "m.g_idx names groups from -1"),
        (AwqSpec(32), "scales", float("inf"), "m.scales holds values"),
        (PackQuantizedSpec(4, 32), "weight_shape", 7, "m.weight_shape says"),
        (PackQuantizedSpec(4, 32, has_g_idx=True), "weight_g_idx", 9, "m.weight_g_idx names groups"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_with_the_tensors_name(spec, part, value, message):
    parts = random_parts(spec, 32, 64)
    parts[part].view(-1)[0] = value
    with pytest.raises(InputError, match=message):
        packed_tensor(spec, (32, 64), parts).check_values("m")


@pytest.mark.parametrize(
    "spec", [ScaledSpec("float8_e4m3fn", (128, 128)), GptqSpec(4, 32), AwqSpec(32), PackQuantizedSpec(4, 32)]
)
def test_an_empty_matrix_stays_empty(spec):
    packed = packed_tensor(spec, (0, 64), random_parts(spec, 0, 64))
    assert packed.dequantize().shape == (0, 64)
