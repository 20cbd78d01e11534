"""Conditional variables: classifiers of three kinds, each with settings of its own.

    pip install 'gloam[examples]'
    python examples/pipeline.py --iterations 15 --out pipeline.png

A pipeline of scikit-learn tells malignant from benign tumors. The archive has the most accurate one
for each size of the fitted model and each sensitivity, the share of malignant tumors that it finds.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure

import gloam

try:
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_selection import SelectKBest
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
except ImportError:
    raise SystemExit("This example needs scikit-learn: pip install 'gloam[examples]'") from None

SPACE = gloam.Space(
    model=gloam.Categorical(["logistic", "svm", "forest"]),
    features=gloam.Integer(1, 30),
    weight=gloam.Real(0.05, 20, log=True),  # of malignant tumors
    C=gloam.Real(1e-3, 1e2, log=True, when={"model": ("logistic", "svm")}),
    kernel=gloam.Categorical(["rbf", "poly"], when={"model": "svm"}),
    gamma=gloam.Real(1e-3, 1, log=True, when={"model": "svm"}),
    degree=gloam.Integer(2, 4, when={"kernel": "poly"}),
    n_estimators=gloam.Integer(1, 10, when={"model": "forest"}),
    max_depth=gloam.Integer(1, 8, when={"model": "forest"}),
)
NAMES = ["log10 of the size", "sensitivity"]
ARCHIVE = gloam.GridArchive((16, 20), [0, 0.8], [4, 1], f_min=0.5, measure_names=NAMES)
MODELS = {"logistic": LogisticRegression, "svm": SVC, "forest": RandomForestClassifier}
X, LABELS = load_breast_cancer(return_X_y=True)  # 0: malignant
FOLDS = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, LABELS))


def size_of(model: Any) -> int:
    """Return how many numbers a fitted model keeps: coefficients, support vectors or nodes."""
    if isinstance(model, RandomForestClassifier):
        return sum(2 * tree.tree_.node_count for tree in model.estimators_)
    return model.support_vectors_.size if isinstance(model, SVC) else model.coef_.size


def evaluate(values: dict[str, Any]) -> tuple[float, list[float]]:
    """Return accuracy, size and sensitivity of a pipeline by threefold cross-validation."""
    kind, features, weight = (values[name] for name in ("model", "features", "weight"))
    # The others are those of this kind: inactive variables are not in the dict.
    settings = {name: values[name] for name in list(values)[3:]}
    predicted, sizes = np.zeros(len(X), int), []
    for train, test in FOLDS:
        model = MODELS[kind](class_weight={0: weight, 1: 1}, random_state=0, **settings)
        pipeline = make_pipeline(StandardScaler(), SelectKBest(k=features), model)
        predicted[test] = pipeline.fit(X[train], LABELS[train]).predict(X[test])
        sizes.append(size_of(model))
    is_right = predicted == LABELS
    return is_right.mean(), [np.log10(np.mean(sizes)), is_right[LABELS == 0].mean()]


def main(iterations: int = 15, out: Path = Path("pipeline.png"), seed: int = 0) -> gloam.Elites:
    algorithm = gloam.DMS(ARCHIVE, SPACE, num_emitters=3, batch_size=12)
    elites = gloam.optimize(evaluate, algorithm, iterations, seeds=[seed], per_solution=True).elites
    table = elites.to_pandas().sort_values("objective", ascending=False)
    print(table.drop(columns="cell").groupby("model").head(1).to_string(index=False))
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    gloam.plots.heatmap(elites, title="Accuracy", ax=left)
    for model, rows in table.groupby("model"):
        right.scatter(rows[NAMES[0]], rows[NAMES[1]], label=model)
    right.set(title="Kind of the classifier", xlabel=NAMES[0])
    right.legend(loc="center left")
    figure.savefig(out, dpi=120)
    return elites


if __name__ == "__main__":
    tyro.cli(main)
