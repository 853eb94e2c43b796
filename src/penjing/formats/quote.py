"""Names and values from files, fit for a message: quoted, control characters escaped, cut when long."""

import reprlib

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
quote = _short.repr
