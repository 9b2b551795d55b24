"""Names and numbers in a pickle, read from its opcodes. Nothing is unpickled: no object is made and no code runs.

Enough for two questions about files that PyTorch writes: which shards a distributed
checkpoint's `.metadata` names, and which parts of the training state a file holds.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence
from itertools import pairwise

MAX_PICKLE_BYTES = 64 << 20
_MAX_ATOMS = 4_000_000
_STRINGS = frozenset(
    {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING"}
)
_INTEGERS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"})
_STORE = frozenset({"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"})
_FETCH = frozenset({"BINGET", "LONG_BINGET", "GET"})
_STEP_KEYS = frozenset({"global_step", "global_steps", "iteration"})

Atom = str | int


class TornPickleError(ValueError):
    """The bytes are not a whole pickle."""


def atoms(data: bytes) -> list[Atom]:
    """Every string and number in the order in which they are pushed; raises `TornPickleError`."""
    found: list[Atom] = []
    try:
        for atom in _pushed(data):
            found.append(atom)
            if len(found) > _MAX_ATOMS:
                raise TornPickleError(f"it holds more than {_MAX_ATOMS} values")
    except (ValueError, OverflowError, AssertionError, IndexError) as error:
        raise TornPickleError(f"not a whole pickle: {str(error)[:100]}") from None
    return found


def _pushed(data: bytes) -> Iterator[Atom]:
    memo: dict[int, Atom | None] = {}
    last: Atom | None = None
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _STORE:
            memo[len(memo) if argument is None else int(argument)] = last
            continue
        if name in _FETCH:
            last = memo.get(int(argument or 0))
        elif name in _STRINGS or (name in _INTEGERS and not isinstance(argument, bool)):
            last = argument
        else:
            last = None
        if last is not None:
            yield last


def shard_sizes(found: Sequence[Atom]) -> dict[str, int]:
    """File name to the bytes it must have at least, from the storage entries of a `.metadata` file."""
    sizes: dict[str, int] = {}
    for place, atom in enumerate(found):
        if atom != "relative_path" or place + 5 >= len(found):
            continue
        name, offset_key, offset, length_key, length = found[place + 1 : place + 6]
        said = (offset_key, length_key) == ("offset", "length")
        if said and isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            sizes[name] = max(sizes.get(name, 0), offset + length)
    return sizes


def step_in(found: Sequence[Atom]) -> int | None:
    """The training step that a file states under one of the usual keys."""
    for key, value in pairwise(found):
        if key in _STEP_KEYS and isinstance(value, int) and 0 <= value < 1 << 53:
            return value
    return None


def keys_in(found: Sequence[Atom]) -> frozenset[str]:
    """The strings that may be keys of a state dictionary: short ones."""
    return frozenset(atom for atom in found if isinstance(atom, str) and len(atom) <= 200)
