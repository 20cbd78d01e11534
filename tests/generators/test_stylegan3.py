"""StyleGAN3 against a NumPy version of it, and against recorded results of the official one."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.formats import objects
from gloam.generators import StyleGAN3, StyleGAN3Settings
from tests.generators import reference

# Compiled once for each kind of network: thousands of small operations one by one take minutes.
images_of = eqx.filter_jit(lambda network, w: network.images(w))
activations_of = eqx.filter_jit(lambda network, w: network.activations(w))

SMALL = {"z_dim": 6, "w_dim": 10, "channel_base": 64, "channel_max": 8}
SETTINGS = {
    "T": StyleGAN3Settings(img_resolution=16, num_layers=4, **SMALL),
    "R": StyleGAN3Settings(
        img_resolution=16, num_layers=4, conv_kernel=1, use_radial_filters=True, **SMALL
    ),
    "other": StyleGAN3Settings(
        img_resolution=32,
        img_channels=1,
        c_dim=3,
        mapping_layers=3,
        mapping_lr_multiplier=0.1,
        num_layers=5,
        num_critical=1,
        first_cutoff=3.0,
        first_stopband=7.0,
        last_stopband_rel=1.5,
        margin_size=4,
        output_scale=0.4,
        filter_size=4,
        lrelu_upsampling=4,
        conv_clamp=1.5,
        **SMALL,
    ),
    "plain": StyleGAN3Settings(
        img_resolution=16,
        img_channels=4,
        num_layers=3,
        num_critical=0,
        lrelu_upsampling=1,
        conv_kernel=5,
        filter_size=5,
        conv_clamp=None,
        **SMALL,
    ),
}


def trained(settings, seed=0):
    """Tensors in which nothing has the value that it begins with, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    network = StyleGAN3.random(settings, key=jax.random.key(seed))
    tensors = {name: np.asarray(value) for name, value in network.tensors().items()}
    for name, value in tensors.items():
        if name.endswith("magnitude_ema"):
            tensors[name] = rng.uniform(0.5, 2.0, ()).astype(np.float32)
        elif "filter" not in name and "transform" not in name:
            change = 0.2 * rng.standard_normal(value.shape)
            tensors[name] = (value + change).astype(np.float32)
    return tensors


def latents(settings, rows=2, seed=1):
    rng = np.random.default_rng(seed)
    labels = rng.standard_normal((rows, settings.c_dim)).astype(np.float32)
    z = rng.standard_normal((rows, settings.z_dim)).astype(np.float32)
    return z, labels if settings.c_dim else None


@pytest.mark.parametrize("name", SETTINGS)
def test_images_are_those_of_the_plain_version(name):
    settings = SETTINGS[name]
    tensors = trained(settings)
    network = StyleGAN3(settings, tensors)
    z, labels = latents(settings)
    w = network.map(z, labels=labels)
    np.testing.assert_allclose(w, reference.mapped(settings, tensors, z, labels), rtol=0, atol=1e-5)
    styles = np.random.default_rng(3).standard_normal((2, settings.num_ws, settings.w_dim))
    expected = reference.images_of(settings, tensors, styles)
    found = images_of(network, jnp.asarray(styles, jnp.float32))
    assert found.shape == (2, *network.image_shape)
    assert expected.std() > 0.01
    np.testing.assert_allclose(found, expected.clip(-1, 1), rtol=0, atol=2e-5)
    # One style for all layers is the same as that style in every layer.
    repeated = jnp.repeat(w[:, None], settings.num_ws, axis=1)
    alike = images_of(network, w), images_of(network, repeated)
    np.testing.assert_allclose(*alike, rtol=0, atol=1e-5)


def test_an_image_does_not_depend_on_the_others_of_its_batch():
    network = StyleGAN3(SETTINGS["T"], trained(SETTINGS["T"]))
    w = network.map(latents(SETTINGS["T"], rows=3)[0])
    scaled = w.at[1:].multiply(30.0)
    np.testing.assert_allclose(
        images_of(network, scaled)[0], images_of(network, w)[0], rtol=0, atol=1e-6
    )
    traced = jax.jit(jax.vmap(lambda row: network.images(row[None])[0]))(w)
    np.testing.assert_allclose(traced, images_of(network, w), rtol=0, atol=1e-5)


def test_images_stay_between_minus_one_and_one():
    settings = dataclasses.replace(SETTINGS["T"], output_scale=50.0)
    images = images_of(StyleGAN3(settings, trained(settings)), jnp.ones((1, 10)))
    assert float(images.min()) == -1.0
    assert float(jnp.abs(images).max()) == 1.0


def test_truncation_moves_styles_to_their_mean():
    settings = SETTINGS["T"]
    network = StyleGAN3(settings, trained(settings))
    z, _ = latents(settings)
    w, mean = np.asarray(network.map(z)), np.asarray(network.w_avg)
    np.testing.assert_allclose(network.map(z, 0.0), np.stack([mean] * 2), rtol=0, atol=1e-6)
    np.testing.assert_allclose(network.map(z, 0.7), mean + 0.7 * (w - mean), rtol=0, atol=1e-6)
    cut = network.map(z, 0.7, cutoff=3)
    assert cut.shape == (2, settings.num_ws, settings.w_dim)
    np.testing.assert_array_equal(cut[:, 2], network.map(z, 0.7))
    np.testing.assert_array_equal(cut[:, 3], w)


# Both kinds of network and both types, each once; the other pairs are slow.
@pytest.mark.parametrize(
    ("name", "half", "tolerance"),
    [
        ("T", "bfloat16", 4e-2),
        pytest.param("R", "float16", 1e-2, marks=pytest.mark.slow),
        pytest.param("T", "float16", 1e-2, marks=pytest.mark.slow),
        pytest.param("R", "bfloat16", 4e-2, marks=pytest.mark.slow),
    ],
)
def test_half_precision_is_near_float32(name, half, tolerance):
    settings = dataclasses.replace(SETTINGS[name], img_resolution=64, num_fp16_res=1)
    tensors = trained(settings)
    w = StyleGAN3(settings, tensors).map(latents(settings)[0])
    exact = activations_of(StyleGAN3(settings, tensors), w)
    network = StyleGAN3(settings, tensors, half)
    found = activations_of(network, w)
    uses = {layer.layer.name: layer.layer.use_fp16 for layer in network.layers}
    assert set(uses.values()) == {False, True}
    for layer, use in uses.items():
        assert found[layer].dtype == (half if use else "float32")
        scale = float(jnp.abs(exact[layer]).max())
        error = float(jnp.abs(found[layer].astype(jnp.float32) - exact[layer]).max())
        assert error <= tolerance * scale
        assert error > 0 or not use
    assert images_of(network, w).dtype == jnp.float32


def test_half_precision_holds_where_weights_are_large():
    settings = dataclasses.replace(SETTINGS["T"], conv_clamp=256.0)
    tensors = trained(settings)
    scaled = {
        n: v * 3000 if n.endswith(".weight") and v.ndim == 4 and "L4" not in n else v
        for n, v in tensors.items()
    }
    w = jnp.ones((1, 10))
    expected = images_of(StyleGAN3(settings, tensors, "float16"), w)
    found = images_of(StyleGAN3(settings, scaled, "float16"), w)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3)


def test_a_transform_moves_the_image():
    settings = SETTINGS["T"]
    tensors = trained(settings)
    network = StyleGAN3(settings, tensors)
    matrix = np.array([[0.9, -0.3, 0.1], [0.3, 0.9, -0.2], [0, 0, 1]], np.float32)
    styles = np.random.default_rng(3).standard_normal((1, settings.num_ws, settings.w_dim))
    moved = tensors | {"synthesis.input.transform": matrix}
    expected = reference.images_of(settings, moved, styles).clip(-1, 1)
    found = images_of(network.transformed(matrix), jnp.asarray(styles, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    with pytest.raises(ValueError, match="3 x 3"):
        network.transformed(np.eye(2))


# Files


@pytest.mark.parametrize("name", SETTINGS)
def test_a_saved_network_is_loaded_as_it_was(tmp_path, name):
    settings = SETTINGS[name]
    network = StyleGAN3(settings, trained(settings))
    network.save(tmp_path / "network.safetensors")
    loaded = StyleGAN3.load(tmp_path / "network.safetensors")
    assert loaded.settings == settings
    for key, value in network.tensors().items():
        np.testing.assert_array_equal(loaded.tensors()[key], value)


def test_a_run_folder_holds_a_digest_of_a_network_only():
    one, same, other = (StyleGAN3.random(SETTINGS["R"], key=jax.random.key(n)) for n in (0, 0, 1))
    arrays = {}
    first, again, another = (objects.encode(network, arrays) for network in (one, same, other))
    assert arrays == {}
    assert objects.differences(first, again, "generator") == []
    assert len(objects.differences(first, another, "generator")) == 1


def test_wrong_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "network.safetensors"
    with pytest.raises(ValueError, match="expected an existing file"):
        StyleGAN3.load(path)
    network = StyleGAN3.random(SETTINGS["T"], key=jax.random.key(0))
    network.save(path)
    whole = path.read_bytes()
    for content in (whole[:-1000], whole[:5], b"", b"\x80\x04" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"expected a safetensors file, got .*network.safe"):
            StyleGAN3.load(path)
    tensors = {name: np.asarray(value) for name, value in network.tensors().items()}
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"'stylegan3_constructor' in its metadata.* Convert"):
        StyleGAN3.load(path)
    metadata = {"stylegan3_constructor": json.dumps({"img_resolution": 16, "layers_of_glass": 3})}
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match="layers_of_glass"):
        StyleGAN3.load(path)
    for text in ("{", "3"):
        save_file(tensors, path, {"stylegan3_constructor": text})
        with pytest.raises(ValueError, match="expected constructor arguments as JSON"):
            StyleGAN3.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("mapping.fc1.bias"), r"without 1 of them \(mapping.fc1.bias"),
        (
            lambda t: t.update({"mapping.w_avg": np.zeros(9)}),
            r"mapping.w_avg: expected shape \(10,\), got shape \(9,\)",
        ),
        (lambda t: t.update({"mapping.w_avg": np.full(10, np.nan)}), "finite numbers"),
    ],
)
def test_wrong_tensors_are_refused(change, message):
    tensors = trained(SETTINGS["T"])
    change(tensors)
    with pytest.raises(ValueError, match=message):
        StyleGAN3(SETTINGS["T"], tensors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"img_resolution": 48}, "img_resolution: expected a power of 2 above 4, got 48"),
        ({"img_resolution": 0}, "img_resolution: expected a whole number >= 1"),
        ({"num_critical": 14}, "num_layers: expected more than num_critical=14, got 14"),
        ({"output_scale": float("nan")}, "output_scale: expected a finite number > 0"),
        ({"use_radial_filters": 1}, "use_radial_filters: expected bool"),
        ({"channel_base": "many"}, "channel_base: expected a whole number"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        StyleGAN3Settings(**{"img_resolution": 16} | options)


def test_latents_of_another_shape_are_refused():
    network = StyleGAN3.random(SETTINGS["other"], key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"z: expected rows of 6 numbers, got shape \(2, 7\)"):
        network.map(jnp.ones((2, 7)), labels=jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="labels: expected rows of 3 numbers, got nothing"):
        network.map(jnp.ones((2, 6)))
    with pytest.raises(ValueError, match=r"w: expected rows of 10 numbers, got shape \(10,\)"):
        images_of(network, jnp.ones(10))
    with pytest.raises(ValueError, match=r"w: expected \(n, 7, 10\), got shape \(2, 6, 10\)"):
        images_of(network, jnp.ones((2, 6, 10)))
    with pytest.raises(ValueError, match="half: expected 'float16', 'bfloat16' or None"):
        StyleGAN3.random(SETTINGS["T"], half="float8", key=jax.random.key(0))


# The official network


@pytest.fixture(scope="module")
def official(shared_data):
    folder = shared_data / "stylegan3"
    if not (folder / "tiny32_t_io.npz").is_file():
        pytest.skip(f"no '{folder}/tiny32_t_io.npz': the recorded network is not here")
    arguments = json.loads((folder / "tiny32_t_spec.json").read_text())["ctor"]
    tensors = dict(np.load(folder / "tiny32_t_state.npz"))
    network = StyleGAN3(StyleGAN3Settings.from_constructor(arguments), tensors)
    return network, dict(np.load(folder / "tiny32_t_io.npz"))


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_styles_are_the_official_ones(official):
    network, recorded = official
    close(network.map(recorded["z"]), recorded["w"])
    close(network.w_avg, recorded["w_avg"])
    close(network.map(recorded["z"], 0.7)[:, None] + 0 * recorded["ws"], recorded["ws_psi0.7"])
    close(network.map(recorded["z"], 0.7, cutoff=8), recorded["ws_psi0.7_cut8"])


def test_images_are_the_official_ones(official):
    network, recorded = official
    close(images_of(network, recorded["ws"]), recorded["img"])
    close(images_of(network, recorded["ws_psi0.7"]), recorded["img_psi0.7"])
    twice = np.concatenate([recorded["wplus"]] * 2)  # four rows, as compiled before
    close(images_of(network, twice)[:2], recorded["img_wplus"])
    moved = network.transformed(recorded["transform"])
    close(images_of(moved, recorded["ws"]), recorded["img_transform"])


def test_every_activation_is_the_official_one(official):
    network, recorded = official
    found = activations_of(network, recorded["w"])
    names = [name.removeprefix("act_") for name in recorded if name.startswith("act_")]
    assert set(found) == set(names)
    for name in names:  # recorded of the first image, two channels
        close(found[name][0, :2], recorded[f"act_{name}"])


@pytest.mark.slow
def test_the_gradient_is_the_official_one(official):
    network, recorded = official
    loss = jax.jit(jax.value_and_grad(lambda w: jnp.mean(jnp.square(network.images(w)))))
    value, gradient = loss(recorded["w"][:1])
    close(value, recorded["grad_loss"])
    close(gradient, recorded["grad_w"])


def official_spec(shared_data, name):
    file = shared_data / "stylegan3" / f"{name}_spec.json"
    if not file.is_file():
        pytest.skip(f"no '{file}': the table is not here")
    spec = json.loads(file.read_text())
    return spec, StyleGAN3Settings.from_constructor(spec["ctor"])


@pytest.mark.parametrize("name", ["ffhqu256_t", "tiny32_t"])
def test_the_layers_are_those_of_the_official_table(shared_data, name):
    spec, settings = official_spec(shared_data, name)
    assert settings.num_ws == spec["num_ws"]
    table = settings.layers()
    assert len(table) == len(spec["layers"])
    for layer, expected in zip(table, spec["layers"], strict=True):
        for key, value in expected.items():
            found = getattr(layer, key)
            if key in ("in_size", "out_size"):
                found = [found] * 2
            if key == "padding":
                found = [*found, *found]
            value = value if isinstance(value, str) else pytest.approx(value, rel=1e-12)
            assert found == value, (layer.name, key)


@pytest.mark.parametrize("name", ["tiny32_t", pytest.param("ffhqu256_t", marks=pytest.mark.slow)])
def test_a_fresh_network_has_the_official_shapes(shared_data, name):
    spec, settings = official_spec(shared_data, name)
    tensors = StyleGAN3.random(settings, key=jax.random.key(0)).tensors()
    # One file has shapes, the other shapes with dtypes.
    expected = {n: v[0] if v and isinstance(v[0], list) else v for n, v in spec["state"].items()}
    assert {n: list(v.shape) for n, v in tensors.items()} == expected
