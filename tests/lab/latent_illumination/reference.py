"""StyleGAN3 in plain NumPy: a kernel for each image, zeros inserted, filters applied one by one."""

import numpy as np

from gloam_lab.latent_illumination.stylegan3_settings import _filters, tensor_shapes


def trained(settings, seed=0):
    """Random tensors in which nothing has the value that it is initialized with."""
    rng = np.random.default_rng(seed)
    tensors = {name: rng.standard_normal(shape) for name, shape in tensor_shapes(settings).items()}
    for layer in settings.layers():
        name = f"synthesis.{layer.name}"
        tensors[f"{name}.magnitude_ema"] = rng.uniform(0.5, 2.0)
        tensors[f"{name}.affine.bias"] += 1
        tensors |= {f"{name}.{kind}": taps for kind, taps in _filters(layer).items()}
    for index in range(settings.mapping_layers):
        tensors[f"mapping.fc{index}.weight"] /= settings.mapping_lr_multiplier
    place = "synthesis.input"
    tensors[f"{place}.affine.weight"] *= 0.2
    tensors[f"{place}.affine.bias"] = np.array([1.2, 0.1, -0.3, 0.2])
    tensors[f"{place}.transform"] = np.eye(3)
    return {name: np.asarray(value, np.float32) for name, value in tensors.items()}


def upfirdn(images, taps, up=1, down=1, padding=(0, 0)):
    """Insert zeros, pad or cut, convolve with a filter of two axes, keep every ``down``-th."""
    n, channels, height, width = images.shape
    large = np.zeros((n, channels, height * up, width * up))
    large[:, :, ::up, ::up] = images
    before, after = padding
    grow = (max(before, 0), max(after, 0))
    large = np.pad(large, ((0, 0), (0, 0), grow, grow))
    low, high = max(-before, 0), large.shape[2] - max(-after, 0)
    large = large[:, :, low:high, low : large.shape[3] - max(-after, 0)]
    windows = np.lib.stride_tricks.sliding_window_view(large, taps.shape, axis=(2, 3))
    return np.einsum("nchwij,ij->nchw", windows, taps[::-1, ::-1])[:, :, ::down, ::down]


def two_axes(taps):
    if taps is None:
        return np.ones((1, 1))
    return np.outer(taps, taps) if taps.ndim == 1 else taps


def dense(tensors, name, rows, multiplier=1.0):
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return rows @ weight.T * multiplier / np.sqrt(weight.shape[1]) + bias * multiplier


def mapped(settings, tensors, z, labels=None):
    rows = z / np.sqrt(np.mean(z**2, axis=1, keepdims=True) + 1e-8)
    if labels is not None:
        more = dense(tensors, "mapping.embed", labels)
        more = more / np.sqrt(np.mean(more**2, axis=1, keepdims=True) + 1e-8)
        rows = np.concatenate([rows, more], axis=1)
    for index in range(settings.mapping_layers):
        rows = dense(tensors, f"mapping.fc{index}", rows, settings.mapping_lr_multiplier)
        rows = np.sqrt(2) * np.where(rows > 0, rows, 0.2 * rows)
    return rows


def fourier(layer, tensors, w):
    place = "synthesis.input"
    size, rate, bandwidth = layer.in_size, layer.in_sampling_rate, layer.in_cutoff
    images = []
    for move in dense(tensors, f"{place}.affine", w):
        c, s, x, y = move / np.hypot(move[0], move[1])
        rotate = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        shift = np.array([[1, 0, -x], [0, 1, -y], [0, 0, 1]])
        matrix = rotate @ shift @ tensors[f"{place}.transform"]
        phases = tensors[f"{place}.phases"] + tensors[f"{place}.freqs"] @ matrix[:2, 2]
        freqs = tensors[f"{place}.freqs"] @ matrix[:2, :2]
        fade = 1 - (np.linalg.norm(freqs, axis=1) - bandwidth) / (rate / 2 - bandwidth)
        places = (np.arange(size) + 0.5) / rate - size / 2 / rate
        grid = np.stack(np.meshgrid(places, places), axis=-1)
        waves = np.sin(2 * np.pi * (grid @ freqs.T + phases)) * fade.clip(0, 1)
        weight = tensors[f"{place}.weight"]
        images.append((waves @ weight.T / np.sqrt(len(weight))).transpose(2, 0, 1))
    return np.stack(images)


def layer_result(layer, tensors, images, w):
    name = f"synthesis.{layer.name}"
    styles = dense(tensors, f"{name}.affine", w)
    weight = tensors[f"{name}.weight"].astype(np.float64)
    size = layer.conv_kernel
    results = []
    for image, style in zip(images, styles, strict=True):
        if layer.is_torgb:
            kernel = weight * style[:, None, None] / np.sqrt(weight[0].size)
        else:
            kernel = weight * style[:, None, None]
            kernel /= np.sqrt(np.sum(kernel**2, axis=(1, 2, 3), keepdims=True))
        kernel = kernel / np.sqrt(tensors[f"{name}.magnitude_ema"])
        padded = np.pad(image, ((0, 0), (size - 1, size - 1), (size - 1, size - 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
        results.append(np.einsum("chwij,ocij->ohw", windows, kernel))
    images = np.stack(results) + tensors[f"{name}.bias"][:, None, None]
    taps = two_axes(tensors.get(f"{name}.up_filter")) * layer.up_factor**2
    images = upfirdn(images, taps, up=layer.up_factor, padding=layer.padding)
    if not layer.is_torgb:
        images = np.sqrt(2) * np.where(images > 0, images, 0.2 * images)
    if layer.conv_clamp is not None:
        images = images.clip(-layer.conv_clamp, layer.conv_clamp)
    return upfirdn(images, two_axes(tensors.get(f"{name}.down_filter")), down=layer.down_factor)


def images_of(settings, tensors, styles):
    """Images of styles ``(n, num_ws, w_dim)``, without the limits of [-1, 1]."""
    table = settings.layers()
    images = fourier(table[0], tensors, styles[:, 0])
    for index, layer in enumerate(table):
        images = layer_result(layer, tensors, images, styles[:, index + 1])
    return images * settings.output_scale
