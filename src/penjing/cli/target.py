"""Where a verb may write, checked before any work."""

from pathlib import Path

from penjing.errors import InputError


def check_out(out: Path, model: str) -> None:
    """InputError unless `out` may be written, and writing it leaves `model` as it is."""
    from penjing.formats.atomic import check_target, require_writable

    if Path(model).exists() and Path(model).resolve().is_relative_to(out.resolve()):
        raise InputError(f"writing {out} would replace {model} itself; give a new folder")
    check_target(out)
    require_writable(out)


def check_out_file(out: Path, model: str) -> None:
    """InputError unless the file `out` may be written, and writing it leaves `model` as it is."""
    from penjing.formats.atomic import check_target_file, require_writable

    if Path(model).exists() and Path(model).resolve() in (out.resolve(), *out.resolve().parents):
        raise InputError(f"writing {out} would change {model} itself; give another file")
    check_target_file(out)
    require_writable(out)
