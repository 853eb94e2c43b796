"""`penjing save`: the same model in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penjing.cli.loading import load_model
from penjing.cli.options import DebugOption, JsonOption, ModelArgument, OutOption, ThreadsOption
from penjing.cli.session import session
from penjing.cli.target import check_out, check_out_file
from penjing.cli.wording import megabytes
from penjing.errors import InputError, UnsupportedError
from penjing.formats.reference import read_reference

if TYPE_CHECKING:
    from penjing.api import Model

_BY_SHRINKING = ("gptq", "compressed-tensors")
_FORMS = "hf, a Hugging Face folder, or gguf, a file for llama.cpp"
_TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def save(
    model: ModelArgument,
    out: OutOption,
    form: Annotated[str, typer.Option("--as", metavar="FORM", help=f"{_FORMS}.")] = "hf",
    dtype: Annotated[
        Literal["bf16", "f16", "f32"] | None,
        typer.Option(help="Store all weights so (default: as they are). Packed weights are unpacked."),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Write a model in another form. Without --dtype, weights are stored as they are: in a folder packed ones
    stay packed as they came (penjing's own are opened by penjing only), and those from GGUF blocks become
    float32, which loses nothing. In a GGUF file packed weights are unpacked, and vectors are always
    float32."""
    with session(json, debug, threads) as this:
        _check_form(form)
        read_reference(model)
        (check_out_file if form == "gguf" else check_out)(out, model)
        loaded = load_model(this, model)
        this.doing = f"writing {out}"
        if dtype is not None:
            loaded = _stored_as(loaded, dtype)
        written = loaded.save_gguf(out) if form == "gguf" else loaded.save(out)
        bits = 8 * written / loaded.ledger.parameters
        values = {
            "out": str(out),
            "as": form,
            "bytes": written,
            "bits_per_weight": bits,
        }
        this.result(values, f"{out}: {megabytes(written)}, {bits:.2f} bits per weight")


def _check_form(form: str) -> None:
    if form in _BY_SHRINKING:
        raise UnsupportedError(
            f"weights lose least when they are rounded to {form}'s layout directly, from the original:"
            f" penjing shrink --as {form}; save writes {_FORMS}"
        )
    if form not in ("hf", "gguf"):
        raise InputError(f"--as {form!r} is no form that penjing knows; use {_FORMS}")


def _stored_as(model: Model, dtype: str) -> Model:
    """The model with every weight a float of `dtype` when it is saved."""
    import torch

    from penjing.model.linear import unpack_module

    unpack_module(model.module)
    return model.cast(getattr(torch, _TORCH_NAMES[dtype]))
