"""Functions of PyTorch as evaluations with gradients, for `gloam.optimize` and `gloam.Search`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam._tools import checks
from gloam.discounts.from_torch import pytorch
from gloam.evaluation import evaluation_parts

_FIX = (
    "Compute objectives and measures from the solutions by differentiable operations of PyTorch, "
    "without detach, no_grad, inference_mode, item or NumPy. For a constant objective, return "
    "measures alone, or add 0 * solutions.sum(dim=1)."
)


def torch_evaluation(
    function: Callable[[Any], Any], device: Any = None
) -> tuple["TorchEvaluation", Callable[..., Float[np.ndarray, "n sol"]]]:
    """Return ``evaluate`` and ``vjp`` for `gloam.optimize`, of one PyTorch function.

    ``evaluate`` calls the function without gradients, and ``vjp`` computes those of some solutions
    by autograd: one call of the function and one backward pass.

    Args:
        function: Maps a tensor of solutions ``(batch, sol)`` to objectives ``(batch,)`` and
            measures ``(batch, ...)``, and optionally a dict of fields; or to measures alone, as for
            `gloam.optimize`. It may be an ``nn.Module``.
        device: Device of the solutions. By default that of the parameters of a module, and the CPU
            for other functions.

    Example:
        >>> import gloam, torch  # doctest: +SKIP
        >>> def function(solutions):  # doctest: +SKIP
        ...     return 1 - solutions.square().sum(dim=1), solutions[:, :2].tanh()
        >>> evaluate, vjp = gloam.interop.torch_evaluation(function)  # doctest: +SKIP
        >>> result = gloam.optimize(evaluate, algorithm, 200, vjp=vjp)  # doctest: +SKIP
    """
    expected, got = "a function of a batch of solutions", type(function).__name__
    checks.expect(callable(function), "function", expected, got)
    evaluate = TorchEvaluation(function, device)
    return evaluate, evaluate.vjp


class TorchEvaluation:
    """A PyTorch function with NumPy arrays as arguments and results."""

    def __init__(self, function: Callable[[Any], Any], device: Any = None):
        torch = pytorch("torch_evaluation")
        self._function, self._device, self._dtype = function, device, torch.float32
        module: Any = function if isinstance(function, torch.nn.Module) else None
        parameter = None if module is None else next(module.parameters(), None)
        if parameter is not None:
            self._device = parameter.device if device is None else device
            self._dtype = parameter.dtype
        self._is_checked = False  # that both parts of the results have gradients
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__wrapped__ = function  # run folders have its name

    def __call__(self, solutions: np.ndarray) -> tuple[Any, ...]:
        """Evaluate a batch, without gradients."""
        torch = pytorch("torch_evaluation")
        with torch.no_grad():
            objectives, measures, fields = evaluation_parts(self._function(self._tensor(solutions)))
        fields = {name: _array(value) for name, value in fields.items()}
        rows = () if objectives is None else (_array(objectives),)
        return *rows, _array(measures), fields

    def vjp(
        self,
        solutions: Float[np.ndarray, "n sol"],
        objective_weights: Float[np.ndarray, " n"],
        measure_weights: Float[np.ndarray, "n ..."],
    ) -> Float[np.ndarray, "n sol"]:
        """Return the gradients of the weighted sums of objectives and measures.

        Raises:
            ValueError: Objectives or measures have no gradients.
        """
        torch = pytorch("torch_evaluation")
        with torch.enable_grad():
            inputs = self._tensor(solutions).requires_grad_()
            objectives, measures, _ = evaluation_parts(self._function(inputs))
        named = {"objectives": (objectives, objective_weights)}
        named["measures"] = (measures, measure_weights)
        parts, weights = [], []
        for name, (part, weight) in named.items():
            if part is None:
                continue
            is_tensor = isinstance(part, torch.Tensor)
            got = f"a tensor of {part.dtype} without" if is_tensor else type(part).__name__
            is_differentiable = is_tensor and part.requires_grad
            checks.expect(is_differentiable, name, "a tensor with gradients", got, _FIX)
            fits = part.numel() == weight.size
            expected, got = f"shape {weight.shape}", f"{tuple(part.shape)} from the function"
            checks.expect(fits, name, expected, got)
            parts.append(part)
            weights.append(torch.as_tensor(weight.copy()).to(part).reshape(part.shape))
        self._check_dependence(torch, parts, weights, inputs)
        (gradients,) = torch.autograd.grad(parts, inputs, weights)
        return _array(gradients)

    def _check_dependence(self, torch: Any, parts: list, weights: list, inputs: Any) -> None:
        """Check, once, that each part depends on the solutions and not on parameters alone."""
        if self._is_checked:
            return
        names = ("objectives", "measures")[-len(parts) :]
        for name, part, weight in zip(names, parts, weights, strict=True):
            (gradients,) = torch.autograd.grad(
                part, inputs, weight, retain_graph=True, allow_unused=True
            )
            expected, got = "gradients for the solutions", "none: it does not depend on them"
            checks.expect(gradients is not None, name, expected, got, _FIX)
        self._is_checked = True

    def _tensor(self, solutions: np.ndarray) -> Any:
        """Return a copy of solutions as a tensor on the device."""
        torch = pytorch("torch_evaluation")
        return torch.tensor(np.asarray(solutions), dtype=self._dtype, device=self._device)


def _array(value: Any) -> np.ndarray:
    """Return a tensor as an array; those of bfloat16, which NumPy does not have, in float32."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
