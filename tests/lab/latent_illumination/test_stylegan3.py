"""StyleGAN3 against a NumPy version of it, and against recorded results of the official one."""

import dataclasses
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from gloam.formats import objects
from gloam_lab.latent_illumination import StyleGAN3, StyleGAN3Settings, stylegan3_layers
from gloam_lab.latent_illumination.stylegan3_settings import random_tensors, tensor_shapes
from tests.lab.latent_illumination import reference
from tests.lab.latent_illumination.reference import trained

# Compiled once for each kind of network: thousands of small operations one by one take minutes.
images_of = eqx.filter_jit(lambda network, w: network.images(w))
mapped = eqx.filter_jit(lambda network, z, labels=None: network.map(z, labels=labels))
activations_of = eqx.filter_jit(lambda network, w: network.activations(w))

SMALL = {"z_dim": 6, "w_dim": 10, "channel_base": 64, "channel_max": 8, "num_layers": 3}
SETTINGS = {
    "T": StyleGAN3Settings(img_resolution=16, filter_size=3, **SMALL),
    "R": StyleGAN3Settings(
        img_resolution=16, filter_size=3, conv_kernel=1, use_radial_filters=True, **SMALL
    ),
    "other": StyleGAN3Settings(
        img_resolution=32,
        img_channels=1,
        c_dim=3,
        mapping_layers=3,
        mapping_lr_multiplier=0.1,
        num_critical=1,
        first_cutoff=3.0,
        first_stopband=7.0,
        last_stopband_rel=1.5,
        margin_size=4,
        output_scale=0.4,
        filter_size=2,
        lrelu_upsampling=4,
        conv_clamp=1.5,
        **SMALL,
    ),
    "plain": StyleGAN3Settings(
        img_resolution=16,
        img_channels=4,
        num_critical=0,
        lrelu_upsampling=1,
        conv_kernel=5,
        filter_size=5,
        conv_clamp=None,
        **SMALL,
    ),
}


@functools.cache
def network_of(name):
    return StyleGAN3(SETTINGS[name], trained(SETTINGS[name]))


def styles_of(name, rows=2):
    settings = SETTINGS[name]
    styles = np.random.default_rng(3).standard_normal((rows, settings.num_ws, settings.w_dim))
    return styles.astype(np.float32)


def latents(settings, rows=2, seed=1):
    rng = np.random.default_rng(seed)
    labels = rng.standard_normal((rows, settings.c_dim)).astype(np.float32)
    z = rng.standard_normal((rows, settings.z_dim)).astype(np.float32)
    return z, labels if settings.c_dim else None


@pytest.mark.parametrize("name", SETTINGS)
def test_images_are_those_of_the_plain_version(name):
    settings, tensors, network = SETTINGS[name], trained(SETTINGS[name]), network_of(name)
    z, labels = latents(settings)
    w = mapped(network, z, labels)
    np.testing.assert_allclose(w, reference.mapped(settings, tensors, z, labels), rtol=0, atol=1e-5)
    expected = reference.images_of(settings, tensors, styles_of(name))
    found = images_of(network, styles_of(name))
    assert found.shape == (2, *network.image_shape)
    assert expected.std() > 0.01
    np.testing.assert_allclose(found, expected.clip(-1, 1), rtol=0, atol=2e-5)


def test_one_style_for_all_layers_is_that_style_in_every_layer():
    network, settings = network_of("plain"), SETTINGS["plain"]
    w = styles_of("plain")[:, 0]
    repeated = np.repeat(w[:, None], settings.num_ws, axis=1)
    alike = images_of(network, w), images_of(network, repeated)
    np.testing.assert_allclose(*alike, rtol=0, atol=1e-5)
    by_rows = jax.jit(jax.vmap(lambda row: network.images(row[None])[0]))(w)
    np.testing.assert_allclose(by_rows, alike[0], rtol=0, atol=1e-5)


def test_an_image_does_not_depend_on_the_others_of_its_batch():
    styles = styles_of("T")
    scaled = np.stack([styles[0], 30 * styles[1]])
    found = images_of(network_of("T"), scaled)[0], images_of(network_of("T"), styles)[0]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


def test_images_stay_between_minus_one_and_one():
    tensors = trained(SETTINGS["T"])
    name = f"synthesis.{SETTINGS['T'].layers()[-1].name}.weight"
    bright = StyleGAN3(SETTINGS["T"], tensors | {name: 1000 * tensors[name]})
    images = images_of(bright, styles_of("T"))
    assert float(images.min()) == -1.0
    assert float(jnp.abs(images).max()) == 1.0


def test_truncation_moves_styles_to_their_mean():
    network = network_of("T")
    z, _ = latents(SETTINGS["T"])
    w, mean = np.asarray(network.map(z)), np.asarray(network.w_avg)
    np.testing.assert_allclose(network.map(z, 0.0), np.stack([mean] * 2), rtol=0, atol=1e-6)
    np.testing.assert_allclose(network.map(z, 0.7), mean + 0.7 * (w - mean), rtol=0, atol=1e-6)
    cut = network.map(z, 0.7, cutoff=3)
    assert cut.shape == (2, network.num_ws, network.w_dim)
    np.testing.assert_array_equal(cut[:, 2], network.map(z, 0.7))
    np.testing.assert_array_equal(cut[:, 3], w)


@pytest.mark.parametrize(
    ("name", "half", "tolerance"),
    [("T", "float16", 1e-2), ("R", "bfloat16", 4e-2)],
)
def test_half_precision_is_near_float32(name, half, tolerance):
    settings = dataclasses.replace(SETTINGS[name], img_resolution=32, num_fp16_res=1)
    tensors = trained(settings)
    w = styles_of(name)[:, 0]
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
    assert jax.eval_shape(network.images, w).dtype == jnp.float32
    # Demodulation cancels the size of kernels, which must not overflow half precision before it.
    last = list(uses)[-1]
    large = {
        key: 3000 * value if value.ndim == 4 and last not in key else value
        for key, value in tensors.items()
    }
    large = activations_of(StyleGAN3(settings, large, half), w)
    for layer in uses:
        scale = float(jnp.abs(exact[layer]).max())
        error = jnp.abs(large[layer].astype(jnp.float32) - found[layer].astype(jnp.float32))
        assert float(error.max()) <= tolerance * scale


def test_a_transform_moves_the_image():
    matrix = np.array([[0.9, -0.3, 0.1], [0.3, 0.9, -0.2], [0, 0, 1]], np.float32)
    moved = trained(SETTINGS["T"]) | {"synthesis.input.transform": matrix}
    expected = reference.images_of(SETTINGS["T"], moved, styles_of("T")).clip(-1, 1)
    found = images_of(network_of("T").transformed(matrix), styles_of("T"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    with pytest.raises(ValueError, match="3 x 3"):
        network_of("T").transformed(np.eye(2))


def test_a_random_network_has_the_expected_tensors_and_filters():
    tensors = random_tensors(SETTINGS["R"], key=jax.random.key(0))
    network = StyleGAN3(SETTINGS["R"], tensors)
    found, filters = network.tensors(), trained(SETTINGS["R"])
    assert {name: value.shape for name, value in found.items()} == tensor_shapes(SETTINGS["R"])
    for name in found:
        if "_filter" in name:
            np.testing.assert_array_equal(found[name], filters[name])
    images = images_of(network, styles_of("R"))
    assert 0.01 < float(images.std()) < 1


# Files


@pytest.mark.parametrize("name", ["R", "other"])
def test_a_saved_network_is_loaded_as_it_was(tmp_path, name):
    network = network_of(name)
    network.save(tmp_path / "network.safetensors")
    loaded = StyleGAN3.load(tmp_path / "network.safetensors")
    assert loaded.settings == SETTINGS[name]
    for key, value in trained(SETTINGS[name]).items():
        np.testing.assert_array_equal(loaded.tensors()[key], value)


def test_a_run_folder_holds_a_digest_of_a_network_only():
    one, same = network_of("R"), StyleGAN3(SETTINGS["R"], trained(SETTINGS["R"]))
    other = StyleGAN3(SETTINGS["R"], trained(SETTINGS["R"], seed=1))
    arrays = {}
    first, again, another = (objects.encode(network, arrays) for network in (one, same, other))
    assert arrays == {}
    assert objects.differences(first, again, "generator") == []
    assert len(objects.differences(first, another, "generator")) == 1


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "network.safetensors"
    with pytest.raises(ValueError, match="expected an existing file"):
        StyleGAN3.load(path)
    path.write_bytes(b"\x80\x04" + bytes(100))
    with pytest.raises(ValueError, match=r"expected a safetensors file, got .*network.safe"):
        StyleGAN3.load(path)
    tensors = trained(SETTINGS["T"])
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
        ({"first_stopband": 0.1}, "stopbands: expected at least 0.5, got 0.1"),
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
    network = network_of("other")
    with pytest.raises(ValueError, match=r"z: .*shape \(2, 7\)"):
        network.map(jnp.ones((2, 7)), labels=jnp.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^labels:.*3"):
        network.map(jnp.ones((2, 6)))
    with pytest.raises(ValueError, match=r"w: .*shape \(10,\)"):
        network.images(jnp.ones(10))
    with pytest.raises(ValueError, match=r"w: .*shape \(2, 6, 10\)"):
        network.images(jnp.ones((2, 6, 10)))
    with pytest.raises(ValueError, match=r"half: .*'float8'"):
        StyleGAN3(SETTINGS["T"], {}, half="float8")


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


def test_images_and_activations_are_the_official_ones(official):
    network, recorded = official

    def image(found):  # as in `images`, by one program for both
        last = found[network.layers[-1].layer.name]
        return np.clip(network.settings.output_scale * last, -1, 1)

    found = activations_of(network, recorded["ws"])
    close(image(found), recorded["img"])
    names = [name.removeprefix("act_") for name in recorded if name.startswith("act_")]
    assert set(found) == set(names)
    for name in names:  # recorded of the first image, two channels
        close(found[name][0, :2], recorded[f"act_{name}"])
    close(image(activations_of(network, recorded["ws_psi0.7"])), recorded["img_psi0.7"])
    twice = np.concatenate([recorded["wplus"]] * 2)  # four rows, as compiled before
    close(image(activations_of(network, twice))[:2], recorded["img_wplus"])
    moved = network.transformed(recorded["transform"])
    close(image(activations_of(moved, recorded["ws"])), recorded["img_transform"])


@pytest.mark.parametrize("factor", [1, 2, 4])
@pytest.mark.parametrize("padding", [(9, 8), (-6, -9), (11, -2)])
def test_gradients_of_filters_are_those_of_their_sums(factor, padding):
    random = np.random.default_rng(0)
    images = jnp.asarray(random.normal(size=(2, 24, 23, 3)), jnp.float32)
    taps = jnp.asarray(random.normal(size=6), jnp.float32)
    filters = {
        "up": (stylegan3_layers._upsampled, (factor, 1, padding)),
        "down": (stylegan3_layers._downsampled, (factor, 2)),
    }
    for name, (function, settings) in filters.items():
        plain = function.fun  # without its own derivative
        result = jax.eval_shape(lambda x, f=plain, s=settings: f(x, taps, *s), images)
        weights = jnp.asarray(random.normal(size=result.shape), jnp.float32)
        expected, found = (
            jax.jit(
                lambda x, f=f, s=settings, w=weights: jax.vjp(lambda x: f(x, taps, *s), x)[1](w)
            )(images)[0]
            for f in (plain, function)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4, err_msg=name)


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
def test_layers_and_tensors_are_those_of_the_official_table(shared_data, name):
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
    # One file has shapes, the other shapes with dtypes.
    expected = {n: v[0] if v and isinstance(v[0], list) else v for n, v in spec["state"].items()}
    assert {n: list(shape) for n, shape in tensor_shapes(settings).items()} == expected
