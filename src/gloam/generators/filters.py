"""Low-pass filters of StyleGAN3: Kaiser-windowed, separable or radially symmetric.

The formulas are those of Kaiser's window method (`scipy.signal.firwin` has them, too) and of
appendix C of "Alias-Free Generative Adversarial Networks" (Karras et al., 2021).
"""

import numpy as np
from jaxtyping import Float


def kaiser_beta(num_taps: int, width: float) -> float:
    """Shape of the Kaiser window for a transition band.

    Args:
        num_taps: Length of the filter.
        width: Width of the transition band as a share of the Nyquist frequency.

    Returns:
        ``beta`` of the window (Kaiser's two formulas: attenuation of the stopband in dB, then
        ``beta`` of the attenuation).

    Example:
        >>> round(kaiser_beta(12, 0.4), 3)
        3.34
    """
    attenuation = 2.285 * (num_taps - 1) * np.pi * width + 7.95
    if attenuation > 50:
        return float(0.1102 * (attenuation - 8.7))
    if attenuation > 21:
        return float(0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21))
    return 0.0


def lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, " taps"]:
    """Separable low-pass filter: a sinc in a Kaiser window, normalised to a sum of 1.

    Args:
        num_taps: Length of the filter.
        cutoff: Cutoff frequency.
        width: Width of the transition band.
        sampling_rate: In the unit of ``cutoff`` and ``width``.
    """
    positions = np.arange(num_taps) - (num_taps - 1) / 2
    taps = np.sinc(2 * cutoff / sampling_rate * positions)
    taps *= np.kaiser(num_taps, kaiser_beta(num_taps, width / (sampling_rate / 2)))
    return (taps / taps.sum()).astype(np.float32)


def radial_lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, "taps taps"]:
    """Radially symmetric low-pass filter: a jinc in a Kaiser window. Arguments as in `lowpass`."""
    from scipy.special import j1  # lazily: the import takes time

    positions = (np.arange(num_taps) - (num_taps - 1) / 2) / sampling_rate
    radius = np.hypot(*np.meshgrid(positions, positions))
    # jinc(0) is the limit of J1(2 pi c r) / (pi r), which is c.
    safe = np.where(radius > 0, radius, 1.0)
    taps = np.where(radius > 0, j1(2 * np.pi * cutoff * safe) / (np.pi * safe), cutoff)
    window = np.kaiser(num_taps, kaiser_beta(num_taps, width / (sampling_rate / 2)))
    taps = taps * np.outer(window, window)
    return (taps / taps.sum()).astype(np.float32)
