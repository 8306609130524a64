"""The type checker of the tests: beartype, with an int welcome where a float is asked for (PEP 484)."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
