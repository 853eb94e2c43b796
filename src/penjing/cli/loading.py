"""Models for the verbs: loaded with a bar, unpacked where that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penjing.cli.session import Session
from penjing.cli.wording import megabytes

if TYPE_CHECKING:
    from penjing.api import Model


def load_model(session: Session, ref: str) -> Model:
    """Load `ref` and pass its notices on."""
    with session.work(f"loading {ref}") as bar:
        from penjing.api import load

        model = load(ref, bar)
    for notice in model.notices:
        session.notice(notice)
    return model


def unpack_if_it_fits(session: Session, model: Model) -> None:
    """Hold packed weights unpacked as well, which is several times faster, or say why they are not."""
    from penjing.memory import available_memory
    from penjing.model.linear import PackedMatrix

    packed = [module for module in model.module.modules() if isinstance(module, PackedMatrix)]
    need = sum(4 * matrix.shape[0] * matrix.shape[1] for matrix in packed)
    free = available_memory()
    # Half of what is free is left to caches and to everything else on the machine.
    if need <= free / 2:
        model.keep_float()
    else:
        session.notice(
            f"unpacking {model.name} would take {megabytes(need)} of the {megabytes(free)} that are free, so "
            "its weights stay packed, which is slower"
        )
