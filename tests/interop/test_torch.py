"""PyTorch functions as evaluations with gradients: autograd against formulas, and its absence."""

import sys

import numpy as np
import pytest

import gloam
from gloam.formats import objects
from gloam.interop import torch_evaluation
from tests.helpers import refused
from tests.problems import small, vjp

torch = pytest.importorskip("torch", reason="no PyTorch, whose functions are converted")

SOLUTIONS = np.random.default_rng(0).normal(0, 1, (4, 5)).astype(np.float32)
WEIGHTS = np.array([1, -2, 0, 0.5], np.float32)
OF_MEASURES = np.random.default_rng(1).normal(0, 1, (4, 2)).astype(np.float32)


def function(solutions):
    """That of `tests.problems.evaluate`, in PyTorch."""
    return 1 - solutions.square().sum(dim=1) / 100, solutions[:, :2] * 1.5


def test_gradients_are_those_of_the_formula():
    evaluate, by_autograd = torch_evaluation(function)
    objectives, measures, fields = evaluate(SOLUTIONS)
    np.testing.assert_allclose(objectives, 1 - np.square(SOLUTIONS).sum(axis=1) / 100, rtol=1e-6)
    assert measures.shape == (4, 2)
    assert fields == {}
    for _ in range(2):
        found = by_autograd(SOLUTIONS, WEIGHTS, OF_MEASURES)
        np.testing.assert_allclose(found, vjp(SOLUTIONS, WEIGHTS, OF_MEASURES), atol=1e-6)
        assert found.dtype == np.float32


def test_run_folders_have_the_name_of_the_function():
    content = objects.encode(torch_evaluation(function)[0], {})
    assert content["foreign"].endswith(":function")
    assert content["source"] == objects.encode(function, {})["source"]
    module = torch_evaluation(torch.nn.Linear(5, 4))[0]
    assert objects.encode(module, {})["foreign"].endswith(":Linear")


@pytest.mark.slow
def test_a_search_is_the_one_with_a_function_in_numpy():
    evaluate, by_autograd = torch_evaluation(function)
    algorithm, options = small("climbing"), {"iterations": 3, "progress": False}
    with_torch = gloam.optimize(evaluate, algorithm, vjp=by_autograd, **options)
    plain = gloam.optimize(evaluate, algorithm, vjp=vjp, **options)
    ours, theirs = (result.elites.store.solutions for result in (with_torch, plain))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert with_torch.metrics["ascent_gradients_failed"].iloc[-1] == 0


def test_a_module_gives_its_device_and_precision_and_keeps_its_parameters_without_gradients():
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Unflatten(1, (2, 2)))
    module = module.double()
    evaluate, by_autograd = torch_evaluation(module)
    images, fields = evaluate(SOLUTIONS)
    assert images.shape == (4, 2, 2)
    assert images.dtype == np.float64
    assert fields == {}
    # Without objectives their weights count for nothing.
    of_images = np.ones((4, 2, 2), np.float32)
    found = by_autograd(SOLUTIONS, np.zeros(4, np.float32), of_images)
    rows = module[0].weight.detach().sum(dim=0).expand(4, -1)
    np.testing.assert_allclose(found, rows, rtol=1e-6)
    flat = by_autograd(SOLUTIONS, np.zeros(4, np.float32), of_images.reshape(4, 4))
    np.testing.assert_array_equal(flat, found)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_fields_and_bfloat16_become_arrays():
    def with_fields(solutions):
        objectives, measures = function(solutions)
        return objectives.bfloat16(), measures, {"sign": solutions[:, 0] > 0}

    evaluate, by_autograd = torch_evaluation(with_fields)
    objectives, _, fields = evaluate(SOLUTIONS)
    assert objectives.dtype == np.float32
    np.testing.assert_array_equal(fields["sign"], SOLUTIONS[:, 0] > 0)
    assert by_autograd(SOLUTIONS, WEIGHTS, OF_MEASURES).shape == SOLUTIONS.shape


SCALE = torch.ones(1, requires_grad=True)
WITHOUT = {
    "detached measures": lambda x: (x.sum(dim=1), x[:, :2].detach()),
    "objectives of a parameter alone": lambda x: (SCALE.expand(len(x)), x[:, :2]),
    "constant objectives": lambda x: (torch.ones(len(x)), x[:, :2]),
    "whole numbers": lambda x: (x.sum(dim=1), x[:, :2].int()),
    "an array": lambda x: (x.sum(dim=1), x[:, :2].detach().numpy()),
    "inference mode": torch.inference_mode()(lambda x: x[:, :2] * 2),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_missing_gradients_are_refused(name):
    _, by_autograd = torch_evaluation(WITHOUT[name])
    is_objective = "objectives" in name
    with refused("objectives: expected" if is_objective else "measures: expected") as raised:
        by_autograd(SOLUTIONS, WEIGHTS, OF_MEASURES)
    assert "differentiable operations of PyTorch" in str(raised.value)


def test_other_shapes_and_other_things_are_refused():
    _, by_autograd = torch_evaluation(lambda x: x[:, :3])
    with pytest.raises(ValueError, match=r"^measures:.*\(4, 2\).*\(4, 3\)"):
        by_autograd(SOLUTIONS, WEIGHTS, OF_MEASURES)
    with pytest.raises(ValueError, match=r"^function:.*int"):
        torch_evaluation(3)


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"^torch_evaluation:.*PyTorch.*pip install"):
        torch_evaluation(function)
