"""NeuralFoil in JAX: the forward pass of its networks, with the weights of the package.

The network sees an airfoil twice, the second time upside down, and the two answers are averaged.
Only lift, drag, moment and the confidence are computed here; NeuralFoil also has the boundary
layer. Network and weights: Peter Sharpe, https://github.com/peterdsharpe/NeuralFoil (MIT license).
"""

import importlib.util
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_OUTPUTS = 4  # confidence, lift, drag and moment; the others are left out


class FoilNetwork(eqx.Module):
    """A network of NeuralFoil, as a function of a batch that JAX can differentiate."""

    layers: tuple[tuple[Float[Array, "out in"], Float[Array, " out"]], ...]
    mean: Float[Array, "25"]
    """Mean of the inputs in training."""
    precision: Float[Array, "25 25"]
    """Inverse of their covariance."""

    def __call__(
        self,
        kulfan: Float[Array, "batch 18"],
        angles: Float[Array, " batch"],
        reynolds: float,
    ) -> dict[str, Float[Array, " batch"]]:
        """Return the coefficients ``CL``, ``CD`` and ``CM``, and the ``analysis_confidence``.

        Args:
            kulfan: 8 weights of the upper side, 8 of the lower side, the weight of the leading edge
                and the thickness of the trailing edge.
            angles: Angles of attack in degrees.
            reynolds: Reynolds number.
        """
        inputs = _inputs(kulfan, angles, reynolds)
        upside_down = jnp.concatenate(
            [-inputs[:, 8:16], -inputs[:, :8], -inputs[:, 16:17], inputs[:, 17:]], axis=1
        )
        upside_down = upside_down.at[:, 18].set(-inputs[:, 18])
        signs = jnp.array([1.0, -1.0, 1.0, -1.0])
        outputs = (self._outputs(inputs) + signs * self._outputs(upside_down)) / 2
        return {
            "analysis_confidence": jax.nn.sigmoid(outputs[:, 0]),
            "CL": outputs[:, 1] / 2,
            "CD": jnp.exp(2 * (outputs[:, 2] - 2)),
            "CM": outputs[:, 3] / 20,
        }

    def _outputs(self, inputs: Float[Array, "batch 25"]) -> Float[Array, "batch 4"]:
        values = inputs
        for weights, biases in self.layers[:-1]:
            values = jax.nn.silu(values @ weights.T + biases)
        weights, biases = self.layers[-1]
        outputs = values @ weights.T + biases
        # Far from the training data the confidence goes to zero.
        offsets = inputs - self.mean
        squared = jnp.sum(offsets @ self.precision * offsets, axis=1)
        return outputs.at[:, 0].add(-squared / (2 * inputs.shape[1]))


def _inputs(
    kulfan: Float[Array, "batch 18"], angles: Float[Array, " batch"], reynolds: float
) -> Float[Array, "batch 25"]:
    """Return the scaled inputs: shape, angle, Reynolds number, turbulence and free transition."""
    radians = jnp.deg2rad(angles)
    cosine = jnp.cos(radians)
    ones = jnp.ones_like(cosine)
    columns = [
        jnp.sin(2 * radians),
        cosine,
        1 - cosine**2,
        (jnp.log(reynolds) - 12.5) / 3.5 * ones,
        0.0 * ones,  # a critical amplification factor of 9
        ones,
        ones,
    ]
    shape = kulfan * jnp.ones(18).at[17].set(50.0)
    return jnp.concatenate([shape, jnp.stack(columns, axis=1)], axis=1)


def read_network(size: str = "large") -> FoilNetwork:
    """Read the weights of a network, such as ``"large"``, from the installed package."""
    spec = importlib.util.find_spec("neuralfoil")
    if spec is None or spec.origin is None:
        raise ImportError("This needs NeuralFoil. Run: pip install 'gloam[airfoils]'")
    folder = Path(spec.origin).parent / "nn_weights_and_biases"
    return network_of(
        dict(np.load(folder / f"nn-{size}.npz")),
        dict(np.load(folder / "scaled_input_distribution.npz")),
    )


def network_of(weights: dict[str, np.ndarray], distribution: dict[str, np.ndarray]) -> FoilNetwork:
    """Return a network with the arrays of NeuralFoil's files."""
    numbers = sorted(int(name.split(".")[1]) for name in weights if name.endswith("weight"))
    layers = [(weights[f"net.{n}.weight"], weights[f"net.{n}.bias"]) for n in numbers]
    layers[-1] = layers[-1][0][:_OUTPUTS], layers[-1][1][:_OUTPUTS]
    arrays = (
        tuple(layers),
        distribution["mean_inputs_scaled"],
        distribution["inv_cov_inputs_scaled"],
    )
    return FoilNetwork(*jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), arrays))
