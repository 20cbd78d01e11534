"""Embeddings: the function sees every item once, and the cache is never stale."""

import functools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gloam._tools import files
from gloam.datasets import Dataset, embedding, from_array, from_file, from_folder
from tests.helpers import refused


class Recorder:
    """Mean and spread of each item; remembers the batches it was given."""

    def __init__(self, scale: float = 1.0):
        self.scale = scale
        self.batches = []

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.batches.append(batch)
        flat = batch.reshape(len(batch), -1).astype(np.float64)
        return self.scale * np.stack([flat.mean(axis=1), flat.std(axis=1), flat[:, 0]], axis=1)

    @property
    def seen(self) -> int:
        return sum(map(len, self.batches))


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (10, 6, 5)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path, pictures):
    for number, picture in enumerate(pictures):
        place = tmp_path / "pictures" / f"kind {number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{number:02}.png")
    return tmp_path / "pictures"


def read(folder, embed, **options) -> Dataset:
    return from_folder(folder, (6, 5), embed=embed, **{"progress": False} | options)


@given(st.integers(2, 12), st.integers(1, 15))
def test_every_item_is_embedded_once_in_its_order(count, batch):
    items = np.arange(count * 3.0, dtype=np.float32).reshape(count, 3)
    embed = Recorder()
    data = from_array(items).embedded(embed, batch=batch, progress=False)
    np.testing.assert_array_equal(np.concatenate(embed.batches), items)
    assert max(map(len, embed.batches)) <= batch
    np.testing.assert_allclose(data.items, Recorder()(items), rtol=1e-6)
    assert data.shape == (3,)


def test_pictures_are_embedded_as_uint8_and_still_shown(pictures):
    embed = Recorder()
    data = from_array(pictures, labels=range(10)).embedded(embed, progress=False)
    assert embed.batches[0].dtype == np.uint8
    np.testing.assert_array_equal(embed.batches[0], pictures)
    np.testing.assert_array_equal(data.image(3), pictures[3])
    assert data.labels == [str(number) for number in range(10)]
    assert data.bounds is None


def test_items_with_a_shape_are_embedded_in_it():
    embed = Recorder()
    from_array(np.arange(48.0).reshape(4, 2, 2, 3)).embedded(embed, progress=False)
    assert embed.batches[0].dtype == np.float32
    assert embed.batches[0].shape == (4, 2, 2, 3)


def test_a_function_may_spoil_its_batch():
    def careless(batch):
        batch += 1
        return batch

    data = from_array(np.arange(8.0).reshape(4, 2))
    embedded = data.embedded(careless, progress=False)
    np.testing.assert_array_equal(data.items, np.arange(8.0).reshape(4, 2))
    np.testing.assert_array_equal(embedded.items, data.items + 1)


def test_items_embedded_alike_are_merged_with_their_places_passed_on():
    data = from_array([[1.0, 2.0], [2.0, 2.0], [1.0, 2.0], [1.0, 3.0], [2.0, 2.0]])
    assert data.place.tolist() == [0, 1, 0, 2, 1]
    embedded = data.embedded(lambda batch: batch[:, :1], progress=False)
    assert embedded.items.tolist() == [[1], [2]]
    assert embedded.place.tolist() == [0, 1, 0, 0, 1]


# A folder


def test_a_folder_is_embedded_and_equal_pictures_once(folder, pictures):
    Image.fromarray(pictures[4]).save(folder / "kind 0" / "again.png")
    embed = Recorder()
    data = read(folder, embed, batch=4)
    assert embed.seen == 10
    assert data.shape == (3,)
    assert data.merged == 1
    assert set(data.labels or []) == {"kind 0", "kind 1"}
    for item, name in enumerate(data.names):
        number = int(name[-6:-4])
        np.testing.assert_array_equal(data.image(item), pictures[number])
        np.testing.assert_allclose(data.items[item], Recorder()(pictures[number : number + 1])[0])


# The cache


def test_vectors_are_kept_beside_the_data_and_used_again(folder):
    first = read(folder, Recorder())
    (file,) = (folder / ".gloam").iterdir()
    assert re.fullmatch(r"tests\.datasets\.test_embedding\.Recorder-[0-9a-f]{32}\.npy", file.name)
    np.testing.assert_array_equal(np.load(file), first.items)
    embed = Recorder()
    again = read(folder, embed)
    np.testing.assert_array_equal(again.items, first.items)
    assert 0 < embed.seen < 10  # only to see that the function is still the same


def test_a_function_that_has_changed_under_its_name_is_not_taken_for_the_old(folder):
    old = read(folder, Recorder())
    embed = Recorder(scale=1.1)
    np.testing.assert_allclose(read(folder, embed).items, 1.1 * old.items, rtol=1e-6)
    assert embed.seen > 10
    (file,) = (folder / ".gloam").iterdir()
    np.testing.assert_allclose(np.load(file), 1.1 * old.items, rtol=1e-6)


def test_a_function_of_another_length_is_not_taken_for_the_old(folder):
    def embed(batch):
        return Recorder()(batch)[:, :length]

    for length in (3, 2):
        assert read(folder, embed).shape == (length,)


def test_other_data_are_not_taken_for_the_old(folder, pictures):
    read(folder, Recorder())
    changed = pictures[7].copy()
    changed[0, 0] ^= 1
    Image.fromarray(changed).save(folder / "kind 1" / "07.png")
    embed = Recorder()
    read(folder, embed)
    assert embed.seen == 10


def test_a_spoilt_cache_is_made_anew(folder):
    first = read(folder, Recorder())
    (file,) = (folder / ".gloam").iterdir()
    whole = file.read_bytes()
    for content in (b"", whole[:100], b"something else"):
        file.write_bytes(content)
        np.testing.assert_array_equal(read(folder, Recorder()).items, first.items)
        assert file.read_bytes() == whole
    np.save(file, np.eye(2))
    np.testing.assert_array_equal(read(folder, Recorder()).items, first.items)


def test_the_cache_can_be_elsewhere_or_nowhere(folder, tmp_path):
    read(folder, Recorder(), cache=False)
    read(folder, Recorder(), cache=tmp_path / "deep" / "cache")
    assert not (folder / ".gloam").exists()
    assert len(list((tmp_path / "deep" / "cache").iterdir())) == 1
    (tmp_path / "file").write_text("in the way")
    embed = Recorder()
    with refused("cache:", f"'{tmp_path / 'file'}'"):
        read(folder, embed, cache=tmp_path / "file")
    assert embed.seen == 0


def test_data_that_cannot_be_written_beside_use_the_users_cache(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path / "user"))
    (folder / ".gloam").write_text("a file is in the way")
    read(folder, Recorder())
    assert len(list((tmp_path / "user" / "embeddings").iterdir())) == 1


def test_vectors_from_a_file_are_kept_beside_it_and_those_of_an_array_nowhere(tmp_path):
    np.save(tmp_path / "items.npy", np.eye(5))
    from_file(tmp_path / "items.npy").embedded(Recorder(), progress=False)
    assert len(list((tmp_path / ".gloam").iterdir())) == 1
    embed = Recorder()
    for _ in range(2):
        from_array(np.eye(5)).embedded(embed, progress=False)
    assert embed.seen == 10


def test_a_full_disk_does_not_cost_the_vectors(folder, monkeypatch):
    def full(path, array):
        raise OSError("no space left")

    monkeypatch.setattr(files, "write_array", full)
    with pytest.warns(UserWarning, match="could not be cached in .*: no space left") as caught:
        data = read(folder, Recorder())
    assert len(data) == 10
    assert caught[0].filename == __file__  # where `read` calls from_folder


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    files.write_arrays(path, {"a": np.eye(2)})
    before = path.read_bytes()

    def broken(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(KeyboardInterrupt):
        files.write_arrays(path, {"a": np.eye(3)})
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]
    assert path.read_bytes() == before


def test_functions_are_named_by_module_and_qualified_name():
    here = "tests.datasets.test_embedding"
    assert embedding.function_name(refused) == "tests.helpers.refused"
    assert embedding.function_name(functools.partial(refused, "x")) == "tests.helpers.refused"
    assert embedding.function_name(Recorder()) == f"{here}.Recorder"
    assert embedding.function_name(Recorder().__call__) == f"{here}.Recorder.__call__"
    assert "<lambda>" in embedding.function_name(lambda batch: batch)


# What is wrong


@pytest.mark.parametrize(
    ("embed", "message"),
    [
        (
            lambda batch: batch[0],
            "embed: expected shape (4, d) for a batch of shape (4, 2), got shape (2,).",
        ),
        (
            lambda batch: batch.T,
            "embed: expected shape (4, d) for a batch of shape (4, 2), got shape (2, 4).",
        ),
        (
            lambda batch: batch[:, :0],
            "embed: expected shape (4, d) for a batch of shape (4, 2), got shape (4, 0).",
        ),
        (
            lambda batch: batch[:, None],
            "embed: expected shape (4, d) for a batch of shape (4, 2), got shape (4, 1, 2).",
        ),
        (lambda batch: None, "embed: expected "),
        (lambda batch: "vectors", "embed: expected an array of numbers, got str ("),
        (
            lambda batch: batch[:, : 1 + (batch[0, 0] == 0)],
            "embed: expected 2 numbers for each item, as in the first batch, got 1 from item 4 on.",
        ),
        (
            lambda batch: np.where(batch == 10, np.nan, batch),
            "embed: expected finite numbers, got NaN or infinity for item 5.",
        ),
        (
            lambda batch: batch * 1e38,
            "embed: expected finite numbers, got NaN or infinity for item 2.",
        ),
        ("clip", "embed: expected a function of a batch, got 'clip'."),
    ],
)
def test_what_an_embedding_must_not_return_is_refused(embed, message):
    data = from_array(np.arange(24, dtype=np.float32).reshape(12, 2))
    with np.errstate(over="ignore"), refused(message):
        data.embedded(embed, batch=4, progress=False)


def test_the_first_wrong_batch_ends_the_work():
    seen = []

    def embed(batch):
        seen.append(len(batch))
        return batch[:, 0]

    with refused("embed: expected shape (2, d)"):
        from_array(np.arange(24.0).reshape(12, 2)).embedded(embed, batch=2, progress=False)
    assert seen == [2]


def test_the_bar_says_what_goes_on(capsys):
    from_array(np.eye(3)).embedded(Recorder(), batch=1)
    shown = capsys.readouterr().err
    assert "embedding by tests.datasets.test_embedding.Recorder" in shown.replace("\n", "")
    assert "3 of 3" in shown


def test_a_cache_that_no_folder_can_be_is_refused():
    data = from_array(np.eye(3))
    with pytest.raises(ValueError, match=r"^cache:"):
        data.embedded(lambda items: items, cache="x\0y")
