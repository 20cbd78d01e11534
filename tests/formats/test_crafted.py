"""A run folder from a stranger: whatever it says, nothing runs, and the error names the file."""

import copy
import dataclasses
import io
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest

import gloam
from gloam.cli import main
from gloam.errors import DamagedFileError, ForeignError
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.documents import write_document
from gloam.formats.objects import encode
from gloam.plots import style
from tests.formats.conftest import PIXELS
from tests.problems import small
from tests.run_folders import write_pictures_run

MARK = "GLOAM_TEST_MARK"
CODE = f"open(__import__('os').environ['{MARK}'], 'w').close()"


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (exec, (CODE,))


def old_partial(function):
    """The route by which an earlier version of gloam could be made to run code."""
    fields = {
        "func": {"function": function},
        "args": {"tuple": [CODE, 1]},
        "keywords": {"dict": {}},
    }
    return {"class": "equinox:Partial", "fields": fields}


def built(name, arguments=None):
    return {"class": name, "arguments": arguments or {}}


def altered(value, **arguments):
    """What a file says of an object, with other arguments."""
    content = encode(value, {})
    assert set(arguments) <= set(content["arguments"])
    content["arguments"] |= arguments
    return content


ARM = gloam.domains.Arm(3)
TRIANGLES = gloam.domains.Triangles(PIXELS, num_triangles=2, canvas=(4, 4))
# What a crafted config.json may say of its domain.
DOMAINS = {
    "a function of NumPy behind a module of JAX": old_partial(
        "jax._src.numpy.lax_numpy:np.testing.measure"
    ),
    "the same in today's form": built(
        "equinox:Partial", {"func": {"function": "numpy.testing:measure"}, "args": [CODE]}
    ),
    "a class by its short name": built("Partial", {"func": "print", "args": {"tuple": [CODE]}}),
    "a class by module and name": built("os:system", {"command": CODE}),
    "a name with dots": built("gloam._tools.files.write_json", {"path": "x", "content": CODE}),
    "an attribute of a registered class": built("Arm.__init__.__globals__", {}),
    "a private module": built("jax._src.numpy.lax_numpy:np.testing.measure", {"code_str": CODE}),
    "a function": {"function": "os:system"},
    "an object with parts": {"object": "gloam.archives:FaissIndex", "parts": {"content": CODE}},
    "a builtin": built("eval", {"source": CODE}),
    "a foreign function": {"foreign": "os:system"},
    "a foreign class with a digest": {"foreign": "equinox:Partial", "sha256": "0" * 64},
    "unknown arguments": built("Arm", encode(ARM, {})["arguments"] | {"func": "print"}),
    "missing arguments": built("Arm", {}),
    "code in place of a number": altered(ARM, num_joints=CODE),
    "a class in place of a number": altered(ARM, num_joints=encode(ARM, {})),
    "a negative size": altered(ARM, num_joints=-3),
    "a number that is no size": altered(ARM, num_joints=1.5),
    "a rule in place of a domain": encode(gloam.emitters.MuSelection(), {}),
    "a path to read": built(
        "LinearProjection",
        encode(gloam.domains.LinearProjection(2), {})["arguments"] | {"centroids": "/etc/passwd"},
    ),
    "images from a path": altered(TRIANGLES, centroids="/etc/passwd"),
    "an array that is not there": {"array": "../../../etc/passwd", "dtype": "u1", "shape": [1]},
    "an oversized array": {"values": [0.0], "dtype": "float32", "shape": [2**40]},
    "a negative shape": {"values": [], "dtype": "float32", "shape": [-1]},
    "objects as values": {"values": [[1], [2, 3]], "dtype": "object", "shape": [2]},
    "text as values": {"values": [CODE], "dtype": "float32", "shape": [1]},
    "two kinds at once": encode(ARM, {}) | {"foreign": "os:system"},
    "nothing": None,
    "a text": "os.system",
}


def deep(levels):
    content = []
    for _ in range(levels):
        content = {"tuple": [content]}
    return content


DOMAINS["deep nesting"] = deep(150)


def craft(source, target, change):
    """A copy of a run whose config was changed by someone who knows the digests."""
    shutil.copytree(source, target)
    folder = gloam.RunFolder(target)
    config = folder.read_config()
    arrays, _ = read_arrays(target / "config.npz", kind="config", fix="")
    content = copy.deepcopy(dataclasses.asdict(config))
    change(content)
    changed = dataclasses.replace(config, **content)
    folder.write_config(changed, arrays)
    for name, kind in (("checkpoint/0000006.npz", "checkpoint"), ("archive.npz", "archive")):
        stored, about = read_arrays(target / name, kind=kind, fix="")
        write_arrays(target / name, stored, kind=kind, about=about | {"run": changed.identity})
    return target


def try_everything(path, capsys):
    """Read a folder by all routes, each of which may end in a documented error; the errors."""
    errors, codes = [], set()
    for read in (gloam.RunFolder(path).read_archive, gloam.RunFolder(path).read_metrics):
        try:
            read()
        except ValueError as error:
            errors.append(str(error))
    capsys.readouterr()
    for command in ("plot", "gallery", "report", "resume"):
        try:
            main([command, str(path), *(["--quiet"] if command == "resume" else [])])
        except SystemExit as stop:
            errors.append(capsys.readouterr().err)
            codes.add(stop.code)
    assert codes <= {2}
    return errors


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Figures are made from what a folder says, but no picture of them is drawn."""
    monkeypatch.setattr(style, "save", lambda figure, path, pdf=False: path)


@pytest.fixture(scope="module")
def written_run(tmp_path_factory):
    """A run of DMS with every kind of file, written without a search."""
    path = tmp_path_factory.mktemp("crafted") / "run"
    write_pictures_run(path)
    return path


@pytest.fixture
def mark(tmp_path, monkeypatch):
    path = tmp_path / "executed"
    monkeypatch.setenv(MARK, str(path))
    exec(CODE)  # the payload works
    assert path.exists()
    path.unlink()
    return path


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_a_crafted_domain_is_refused(written_run, tmp_path, mark, domain):
    before = sorted(os.listdir(tmp_path))
    path = craft(written_run, tmp_path / "run", lambda config: config.update(domain=domain))
    with pytest.raises((DamagedFileError, ForeignError)) as raised:
        gloam.resume(path, iterations=8, progress=False)
    if isinstance(raised.value, DamagedFileError):
        assert str(path / "config.json") in str(raised.value)
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(path), "--quiet"])
    assert stop.value.code == 2
    assert not mark.exists()
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "run"])


def change_part(part, content):
    return lambda config: config["algorithm"]["arguments"].update({part: content})


def change_argument(part, **arguments):
    def change(config):
        known = config["algorithm"]["arguments"][part]["arguments"]
        assert set(arguments) <= set(known)
        known.update(arguments)

    return change


GRID = gloam.GridArchive((4, 4), -1, 1)
ALGORITHMS = {
    "a part of another kind": change_part("emitter", built("NoDiscount")),
    "a domain as discount": change_part("discount", encode(ARM, {})),
    "a foreign emitter": change_part("emitter", {"foreign": "os:system"}),
    "a function as network": change_argument("discount", network={"function": "os:system"}),
    "a text as network": change_argument("discount", network="os:system"),
    "a grid larger than the memory": change_part(
        "archive", altered(GRID, shape={"tuple": [46_000, 46_000]})
    ),
    "centroids from a path": change_argument("archive", centroids="/etc/passwd"),
    "an index with code": change_argument("archive", index={"function": "os:system"}),
    "a metric that is code": change_argument("archive", metric=CODE),
    "fields with a path": change_argument(
        "archive", fields={"dict": {"../../x": {"shape": [1], "dtype": "float32"}}}
    ),
    "fields of objects": change_argument(
        "archive", fields={"dict": {"x": {"shape": [1], "dtype": "object"}}}
    ),
    "an endless number": change_argument("archive", f_min=1e400),
    "seeds that are paths": lambda config: config.update(seeds=["../../x"]),
    "no seeds": lambda config: config.update(seeds=[]),
    "a seed twice": lambda config: config.update(seeds=[3, 3]),
    "a plan with code": lambda config: config.update(plan={"iterations": CODE}),
    "a long driver": lambda config: config.update(driver=["x"] * 10_000),
    "a driver of its own": lambda config: config.update(driver="os:system"),
}


@pytest.mark.parametrize("change", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_crafted_algorithm_is_refused_by_everything(written_run, tmp_path, mark, change, capsys):
    path = craft(written_run, tmp_path / "run", change)
    with pytest.raises((DamagedFileError, ForeignError)) as raised:
        gloam.resume(path, iterations=8, progress=False)
    assert len(str(raised.value)) < 2000
    assert try_everything(path, capsys)
    assert not mark.exists()


def test_what_is_no_algorithm_is_refused_by_all_readers(written_run, tmp_path):
    def change(config):
        config["algorithm"] = {"tuple": [1, 2]}

    folder = gloam.RunFolder(craft(written_run, tmp_path / "run", change))
    for read in (folder.read_archive, lambda: folder.read_part("algorithm")):
        with pytest.raises(DamagedFileError, match=r"config\.json.*algorithm"):
            read()


def test_nesting_beyond_the_stack_of_python_is_refused(written_run, tmp_path):
    shutil.copytree(written_run, tmp_path / "run")
    folder = gloam.RunFolder(tmp_path / "run")
    content = folder.read_config().to_json() | {"domain": deep(400)}
    write_document(folder.path / "config.json", content, kind="run")
    with pytest.raises(DamagedFileError, match=r"config\.json.*nested too deep"):
        folder.read_config()


def pickled(value):
    content = io.BytesIO()
    np.save(content, np.array([value], dtype=object), allow_pickle=True)
    return content.getvalue()


@pytest.mark.parametrize("name", ["config.npz", "archive.npz", "checkpoint/0000006.npz"])
@pytest.mark.parametrize("members", [["gloam.npy"], ["evil.npy", "../evil.npy"]])
def test_a_pickle_in_a_file_of_arrays_is_never_loaded(
    written_run, tmp_path, mark, name, members, capsys
):
    shutil.copytree(written_run, tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run" / name, "w") as archive:
        for member in members:
            archive.writestr(member, pickled(Payload()))
        archive.writestr("raw.npy", pickle.dumps(Payload()))
    errors = try_everything(tmp_path / "run", capsys)
    assert any(name.split("/")[-1] in error for error in errors)
    assert not any("allow_pickle" in error for error in errors)
    assert not mark.exists()


def hostile_member(shape, dtype):
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (117 - len(header) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64


@pytest.mark.parametrize(
    "member",
    [
        hostile_member((2**50,), "<f4"),
        hostile_member((2**32, 2**32), "<f4"),
        hostile_member((-1,), "<f4"),
        hostile_member((4,), "|O"),
        hostile_member((1,), "<U1000000000"),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    ],
    ids=["petabytes", "overflow", "negative", "objects", "one long text", "nested header"],
)
def test_hostile_headers_are_refused_before_anything_is_allocated(tmp_path, member):
    path = tmp_path / "hostile.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gloam.npy", member)
    with pytest.raises(DamagedFileError, match=r"hostile\.npz"):
        read_arrays(path, kind="config", fix="Restore it.")
    with pytest.raises(DamagedFileError, match=r"hostile\.npz"):
        gloam.Search.load(path)


def test_compressed_arrays_are_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, gloam=np.zeros(10**7, np.uint8))
    with pytest.raises(DamagedFileError, match="compressed, or larger"):
        read_arrays(path, kind="config", fix="Restore it.")


def test_a_crafted_search_file_runs_nothing(tmp_path, mark):
    gloam.Search(small("map-elites-line"), 1).save(tmp_path / "search.npz")
    arrays, about = read_arrays(tmp_path / "search.npz", kind="search", fix="")
    for content in (*DOMAINS.values(), 7):
        crafted = about | {"algorithm": content}
        write_arrays(tmp_path / "crafted.npz", arrays, kind="search", about=crafted)
        with pytest.raises((DamagedFileError, ForeignError)):
            gloam.Search.load(tmp_path / "crafted.npz")
    for seed in (-1, "0", None, 1.5, [1]):
        write_arrays(tmp_path / "seed.npz", arrays, kind="search", about=about | {"seed": seed})
        with pytest.raises(DamagedFileError, match="seed"):
            gloam.Search.load(tmp_path / "seed.npz")
    assert not mark.exists()


def test_a_crafted_study_runs_nothing(tmp_path, mark):
    for content in (
        {"domains": [CODE], "algorithms": ["dms-paper"]},
        {"domains": ["arm"], "algorithms": ["os:system"]},
        {"domains": ["arm"], "algorithms": ["dms-paper"], "centroids": {"a": 1}},
        {"domains": 3},
        {"path": "/"},
    ):
        write_document(tmp_path / "study.json", content, kind="study")
        with pytest.raises(SystemExit) as stop:
            main(["paper-report", str(tmp_path)])
        assert stop.value.code == 2
    (tmp_path / "study.json").write_text(json.dumps({"domains": []}))
    with pytest.raises(SystemExit):
        main(["paper-report", str(tmp_path)])
    assert not mark.exists()
