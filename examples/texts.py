"""Text embeddings as a dataset: find five words that describe each class of scikit-learn.

    pip install 'gloam[examples]'
    python examples/texts.py --iterations 300 --out texts.png

The items are embeddings of the documentation of the classes: TF-IDF, reduced to 24 dimensions by a
singular value decomposition. A solution selects five words, whose embedding is the measures. Use
`gloam.datasets.from_array` for the embeddings of any other model (texts, sounds, molecules).
"""

from pathlib import Path

import numpy as np
import tyro
from matplotlib.figure import Figure

import gloam

try:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.utils.discovery import all_estimators
except ImportError:
    raise SystemExit("This example needs scikit-learn: pip install 'gloam[examples]'") from None

WORDS, DIMENSIONS = 5, 24


class Texts:
    """Documentation of scikit-learn's classes, and an embedding of texts and words."""

    def __init__(self):
        found = [(name, kind.__doc__ or "") for name, kind in all_estimators()]
        self.names, documents = zip(*found, strict=True)
        counting = TfidfVectorizer(
            token_pattern="[a-z]{4,}", stop_words="english", min_df=3, max_df=0.3, sublinear_tf=True
        )
        weights = counting.fit_transform(documents)
        reduction = TruncatedSVD(DIMENSIONS, random_state=0)
        vectors = reduction.fit_transform(weights)
        self.words = counting.get_feature_names_out()
        self.word_vectors = counting.idf_[:, None] * reduction.components_.T
        lengths = np.linalg.norm(self.word_vectors, axis=1, keepdims=True)
        self.directions = self.word_vectors / lengths
        self.dataset = gloam.datasets.from_array(vectors, names=self.names).normalized()

    def chosen(self, solutions: np.ndarray) -> np.ndarray:
        """Return the five words whose vectors are closest in direction to each solution."""
        scores = solutions @ self.directions.T
        return np.argpartition(-scores, WORDS, axis=1)[:, :WORDS]

    def evaluate(self, solutions: np.ndarray) -> np.ndarray:
        """Return the embeddings of the words, of length one; the objective is the similarity."""
        vectors = self.word_vectors[self.chosen(solutions)].sum(axis=1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main(iterations: int = 300, out: Path = Path("texts.png")) -> None:
    texts = Texts()
    archive = texts.dataset.archive(metric="cosine")
    algorithm = gloam.DMS(archive, np.zeros(DIMENSIONS), sigma0=0.3)
    result = gloam.optimize(texts.evaluate, algorithm, iterations, dataset=texts.dataset)

    table = gloam.datasets.Matches(result.elites, texts.dataset).table("distance")
    chosen = texts.words[texts.chosen(result.elites.solutions[table["row"]])]
    table["words"] = [" ".join(words) for words in chosen]
    print(table[["name", "words", "distance"]].to_string(max_rows=20))

    figure = Figure(figsize=(8, 6.5), layout="constrained")
    axes = figure.subplots()
    axes.set(title="Five words for each class, from the best match to the worst", yticks=[])
    shown = table.iloc[np.linspace(0, len(table) - 1, min(24, len(table))).astype(int)][::-1]
    axes.barh(np.arange(len(shown)), 1 - shown["distance"], color="#cfe3f1")
    axes.set(xlim=(0, 1), xlabel="cosine similarity of the words to the documentation")
    for place, row in enumerate(shown.itertuples()):
        axes.text(0.01, place, f"{row.name}: {row.words}", va="center", fontsize=8)
    gloam.plots.save(figure, out)


if __name__ == "__main__":
    tyro.cli(main)
