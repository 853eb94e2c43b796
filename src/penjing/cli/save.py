"""`penjing save`: the same model in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penjing.cli.loading import load_model
from penjing.cli.options import DebugOption, JsonOption, ModelArgument, OutOption, ThreadsOption
from penjing.cli.session import session
from penjing.cli.target import check_out
from penjing.cli.wording import megabytes
from penjing.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from torch import nn

    from penjing.api import Model
    from penjing.model.linear import PackedMatrix

_PLANNED = ("gguf", "gptq", "compressed-tensors")
_TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def save(
    model: ModelArgument,
    out: OutOption,
    form: Annotated[str, typer.Option("--as", metavar="FORM", help="hf: a Hugging Face folder.")] = "hf",
    dtype: Annotated[
        Literal["bf16", "f16", "f32"] | None,
        typer.Option(help="Store all weights so (default: as they are). Packed weights are unpacked."),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Write a model in another form. Without --dtype, weights are stored as they are: packed ones stay
    packed, which only penjing opens, and those from GGUF blocks become float32, which loses nothing."""
    with session(json, debug, threads) as this:
        _check_form(form)
        check_out(out, model)
        loaded = load_model(this, model)
        this.doing = f"writing {out}"
        if dtype is not None:
            loaded = _stored_as(loaded, dtype)
        written = loaded.save(out)
        values = {
            "out": str(out),
            "as": form,
            "bytes": written,
            "bits_per_weight": loaded.ledger.bits_per_weight,
        }
        this.result(
            values, f"{out}: {megabytes(written)}, {loaded.ledger.bits_per_weight:.2f} bits per weight"
        )


def _check_form(form: str) -> None:
    if form in _PLANNED:
        raise UnsupportedError(f"--as {form} is not supported yet; use --as hf")
    if form != "hf":
        raise InputError(f"--as {form!r} is no form that penjing knows; use --as hf")


def _stored_as(model: Model, dtype: str) -> Model:
    """The model with every weight a float of `dtype` when it is saved."""
    import torch

    _unpack(model.module)
    return model.cast(getattr(torch, _TORCH_NAMES[dtype]))


def _unpack(root: nn.Module) -> None:
    """Replace every packed linear and embedding by a plain one."""
    from penjing.model.linear import PackedMatrix, replace_module

    for name, packed in [(n, m) for n, m in root.named_modules() if isinstance(m, PackedMatrix)]:
        replace_module(root, name, _plain(packed))


def _plain(packed: PackedMatrix) -> nn.Module:
    from torch import nn

    from penjing.model.linear import PackedLinear

    if not isinstance(packed, PackedLinear):
        return nn.Embedding.from_pretrained(packed.weight)
    rows, columns = packed.shape
    linear = nn.Linear(columns, rows, bias=False, device="meta")
    linear.weight = nn.Parameter(packed.weight, requires_grad=False)
    linear.register_parameter("bias", dict(packed.named_parameters()).get("bias"))
    return linear
