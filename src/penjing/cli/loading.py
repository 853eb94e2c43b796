"""Models for the verbs: loaded with a bar, unpacked where that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penjing.cli.session import Session
from penjing.cli.wording import megabytes
from penjing.formats.locate import Located, find

if TYPE_CHECKING:
    from penjing.api import Model
    from penjing.model.opening import OpenedModel


def find_model(session: Session, ref: str) -> Located:
    """Where the model lies; from the hub it is fetched first, with a bar, unless its headers speak against
    it."""
    located = find(ref)
    if not located.elsewhere:
        return located
    from penjing.model.opening import bring_model

    with session.work(f"fetching {ref}") as bar:
        return bring_model(located, bar)


def open_models(*located: Located) -> list[OpenedModel]:
    """Open all of them, so that what can be refused by their headers is refused before torch is there, which
    takes a second; all together must fit in memory."""
    from penjing.memory import require_memory
    from penjing.model.ledger import least_load_bytes
    from penjing.model.opening import open_model

    opened = [open_model(each) for each in located]
    need = sum(least_load_bytes(each.plan) for each in opened)
    names = " and ".join(each.name for each in opened)
    require_memory(need, f"loading {names}", "close other programs or use a smaller model")
    return opened


def load_model(session: Session, model: str | Located | OpenedModel) -> Model:
    """Load one model, wherever it was left in opening it, and pass its notices on."""
    located = find_model(session, model) if isinstance(model, str) else model
    opened = open_models(located)[0] if isinstance(located, Located) else located
    with session.work(f"loading {opened.name}") as bar:
        from penjing.api import load

        loaded = load(opened, bar)
    for notice in loaded.notices:
        session.notice(notice)
    return loaded


def unpack_if_it_fits(session: Session, model: Model) -> None:
    """Hold packed weights unpacked as well, which is several times faster, or say why they are not."""
    from penjing.memory import available_memory, leaves_room
    from penjing.model.linear import packed_matrices

    packed = packed_matrices(model.module).values()
    need = sum(4 * matrix.shape[0] * matrix.shape[1] for matrix in packed)
    if leaves_room(need):
        for matrix in packed:
            matrix.keep_float()
    else:
        free = megabytes(available_memory())
        session.notice(
            f"unpacking {model.name} would take {megabytes(need)} of the {free} that are free, so its weights"
            " stay packed, which is slower"
        )
