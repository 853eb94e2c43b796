"""Every error that penjing raises on purpose: one clear sentence that names the thing and the remedy."""


class PenjingError(Exception):
    """Base of all. `exit_code` is what the command line returns for it."""

    exit_code = 2


class InputError(PenjingError):
    """The call or the input is wrong: a bad path, file, config, budget or text."""


class UnsupportedError(InputError):
    """The input is well-formed but of a kind that penjing doesn't know; the message names the kind."""


class ResourceError(PenjingError):
    """Not enough memory or disk for what was asked; the message says how much is needed."""

    exit_code = 3
