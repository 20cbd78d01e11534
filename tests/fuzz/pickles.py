"""Crafted official pickles: nothing is executed, and what is converted is the network."""

import itertools
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from gloam_lab.generator import read_tensors
from gloam_lab.latent_illumination import convert
from tests.lab.latent_illumination.test_official_pickle import (
    Reduced,
    dumped,
    network,
    random_arrays,
    storage_bytes,
    tensor,
)

from .attack import CODE, Attack, check_refusal
from .damage import damaged_bytes

_PAYLOADS = {
    "exec": Reduced(exec, CODE),
    "eval": Reduced(eval, CODE),
    "os.system": Reduced(os.system, "true"),
    "getattr": Reduced(getattr, "", "format"),
    "bytearray": Reduced(bytearray, 2**40),
    "range": Reduced(list, range(3)),
    "import": Reduced(__import__, "os"),
}
_SOURCES = (CODE, f"class Generator:\n    x = {CODE}", "(" * 5000, "x = " + "-" * 9000 + "1", "\0")
_SIZES = ((2**40,), (2**20, 2**20), (-1,), (7,), (1,) * 40, ("x",), 3, None, (True,), (1.5,))
_ARGUMENTS = (10**400, -1, 2**31, 0, 1.5, "x" * 10**6, "\udc80", None, [1], {"a": 1}, float("nan"))
_CODES = [code for code in pickletools.opcodes if code.code != "."]


class Pickles:
    """A valid pickle with a payload, odd values, or other opcodes.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        self._path, self._out = work / "network.pkl", work / "network.safetensors"
        self._arrays = random_arrays()
        self._valid = dumped({"G_ema": network(self._arrays)})

    def draw(self, rng: np.random.Generator) -> Attack:
        """Return a random pickle to convert."""
        ways = (self._bytes, self._opcodes, self._noise, self._payload, self._values, self._nested)
        way = ways[rng.integers(len(ways))]
        description, content = way(rng)

        def run() -> None:
            self._path.write_bytes(content)
            self._out.unlink(missing_ok=True)
            try:
                convert(self._path, self._out)
            except ValueError as error:
                check_refusal(error, naming=self._path)
                assert not self._out.exists(), "a file was written"
                return
            found, _ = read_tensors("network", self._out)
            assert found.keys() == self._arrays.keys(), "other tensors"

        return Attack(description, run)

    def _bytes(self, rng: np.random.Generator) -> tuple[str, bytes]:
        how, content = damaged_bytes(self._valid, rng)
        return f"a pickle, {how}", content

    def _opcodes(self, rng: np.random.Generator) -> tuple[str, bytes]:
        """Opcodes repeated, left out, exchanged or added."""
        ends = [at for _, _, at in pickletools.genops(self._valid)] + [len(self._valid)]
        parts = [self._valid[a:b] for a, b in itertools.pairwise(ends)]
        changes = int(rng.integers(1, 6))
        for _ in range(changes):
            at, other = rng.integers(len(parts), size=2)
            match rng.integers(4):
                case 0:
                    parts[at:at] = parts[other : other + 3]
                case 1:
                    del parts[at]
                case 2:
                    parts[at], parts[other] = parts[other], parts[at]
                case _:
                    parts.insert(at, _random_opcode(rng))
        return f"a pickle with {changes} other opcodes", b"".join(parts)

    def _noise(self, rng: np.random.Generator) -> tuple[str, bytes]:
        count = int(rng.integers(1, 60))
        parts = [_random_opcode(rng) for _ in range(count)]
        return f"{count} random opcodes", b"\x80\x04" + b"".join(parts) + b"."

    def _payload(self, rng: np.random.Generator) -> tuple[str, bytes]:
        name = str(rng.choice(list(_PAYLOADS)))
        payload, protocol = _PAYLOADS[name], int(rng.integers(0, 6))
        array = np.zeros(6, np.float32)
        places: dict[str, Any] = {
            "beside": lambda: {"G_ema": network(self._arrays), "x": payload},
            "instead": lambda: {"G_ema": payload},
            "alone": lambda: payload,
            "key": lambda: [{"G_ema": network(self._arrays)}, payload],
            "tensor": lambda: {"G_ema": network(self._arrays, **{"mapping.w_avg": payload})},
            "storage": lambda: self._with_storage(storage_bytes(array, extra=payload)),
            "before": lambda: self._with_storage(pickle.dumps(payload) + storage_bytes(array)),
            "argument": lambda: {"G_ema": network(self._arrays, arguments={"z_dim": payload})},
        }
        where = str(rng.choice(list(places)))
        told = f"a payload ({name}, {where}, protocol {protocol})"
        return told, dumped(places[where](), protocol)

    def _with_storage(self, content: bytes) -> dict[str, Any]:
        bad = tensor(np.zeros(6, np.float32), content)
        return {"G_ema": network(self._arrays, **{"mapping.w_avg": bad})}

    def _values(self, rng: np.random.Generator) -> tuple[str, bytes]:
        """Odd sources, sizes, strides, arguments and storages."""
        place = int(rng.integers(4))
        if place == 0:
            at = int(rng.integers(len(_SOURCES)))
            return f"source {at}", dumped({"G_ema": network(self._arrays, _SOURCES[at])})
        if place == 1:
            size, stride = (_SIZES[rng.integers(len(_SIZES))] for _ in range(2))
            bad = tensor(np.zeros(6), size=size, stride=stride)
            content = {"G_ema": network(self._arrays, **{"mapping.w_avg": bad})}
            return f"a tensor of {size} with strides {stride}", dumped(content)
        if place == 2:
            names = ["img_resolution", "z_dim", "mapping_kwargs", "num_layers", "x", "channel_base"]
            name, at = str(rng.choice(names)), int(rng.integers(len(_ARGUMENTS)))
            content = {"G_ema": network(self._arrays, arguments={name: _ARGUMENTS[at]})}
            return f"argument {name}, odd value {at}", dumped(content)
        how, content = damaged_bytes(storage_bytes(np.zeros(6, np.float32)), rng)
        return f"a storage, {how}", dumped(self._with_storage(content))

    def _nested(self, rng: np.random.Generator) -> tuple[str, bytes]:
        depth, codes = int(rng.integers(1, 150_000)), (b"]", b")\x85", b"}", b"(", b"0", b"\x94")
        code = codes[rng.integers(len(codes))]
        end = (b"a", b"s", b"t", b"R", b"b", b"\x85", b"")[rng.integers(7)]
        head = b"\x80\x04" if rng.random() < 0.7 else b"\x80\x04}\x8c\x05G_ema"
        return f"{depth} times {code!r}, {end!r}", head + code * depth + end * depth + b"."


def _random_opcode(rng: np.random.Generator) -> bytes:
    code = _CODES[rng.integers(len(_CODES))]
    start = code.code.encode("latin-1")
    if code.arg is None:
        return start
    texts = (b"os\nsystem\n", b"builtins\nexec\n", b"12\n", b"'x'\n")
    count = max(code.arg.n, 0)
    if code.arg.n >= 0:
        return start + bytes(rng.integers(256, size=count, dtype=np.uint8))
    if code.arg.n == pickletools.UP_TO_NEWLINE:
        return start + texts[rng.integers(len(texts))]
    width = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4}
    width |= {pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}
    bits = 8 * width[code.arg.n]
    sizes = (0, 1, 5, 2**31 - 1, 2**62, 2**bits - 1)
    size = sizes[rng.integers(len(sizes))] % 2**bits
    return start + size.to_bytes(width[code.arg.n], "little") + b"x" * min(size, 5)
