"""The molecules example: its chemistry against RDKit, the genetic algorithm, and a short search."""

import re
import runpy
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from .conftest import EXAMPLES

FOLDER = EXAMPLES / "molecules"
pytest.importorskip("selfies", reason="the example needs selfies and RDKit")
Chem = pytest.importorskip("rdkit.Chem", reason="the example needs selfies and RDKit")
QED = pytest.importorskip("rdkit.Chem.QED")
chemistry = pytest.importorskip("chemistry")
genetic = pytest.importorskip("genetic")


@pytest.fixture(scope="module")
def molecules():
    return chemistry.Molecules(40)


def test_known_molecules_are_suitable_and_their_tokens_decode_to_them(molecules):
    assert len(molecules.smiles) == len(set(molecules.smiles)) == 40
    for smiles, tokens in zip(molecules.smiles, molecules.tokens, strict=True):
        assert chemistry.smiles_of("".join(tokens)) == smiles
        molecule = Chem.MolFromSmiles(smiles)
        assert 10 <= molecule.GetNumHeavyAtoms() <= 25
        assert Chem.GetFormalCharge(molecule) == 0
        assert len(tokens) <= chemistry.LENGTH
    for text in ("CCO", "[Na+].[Cl-]", "C[N+](C)(C)CCCCCCCCC", "B(O)(O)c1ccccc1CCCC", "x"):
        assert chemistry.suitable(text) is None


def test_known_molecules_are_similar_to_themselves_and_others_lack_similarity(molecules):
    tokens = chemistry.padded(molecules.tokens)
    objectives, prints, fields = molecules.evaluate({"tokens": tokens})
    np.testing.assert_allclose(np.linalg.norm(prints, axis=1), 1, rtol=1e-6)
    assert (fields["violation"] == 0).all()
    expected = [QED.qed(Chem.MolFromSmiles(smiles)) for smiles in molecules.smiles]
    np.testing.assert_allclose(objectives, expected)
    strange = chemistry.padded([["[Br]", "[Br]"], []])
    objectives, prints, fields = molecules.evaluate({"tokens": strange})
    similarity = (prints @ molecules.prints.T).max(axis=1)
    assert (similarity < chemistry.SIMILAR).all()
    assert np.isnan(objectives).all()
    np.testing.assert_allclose(fields["violation"], chemistry.SIMILAR - similarity, rtol=1e-6)


def test_children_of_the_genetic_algorithm_are_edits_and_crossovers(molecules):
    search = genetic.GeneticSearch(molecules, 10, seed=0)
    first, second = ["[C]"] * 3, ["[O]"] * 2
    mutants = [search.mutation(first) for _ in range(300)]
    assert {len(mutant) for mutant in mutants} == {2, 3, 4}
    assert all(sum(token != "[C]" for token in mutant) <= 1 for mutant in mutants)
    crossed = {"".join(search.crossover(first, second)) for _ in range(300)}
    assert crossed == {"[C]" * i + "[O]" * j for i in range(4) for j in range(3)}


def test_elites_of_the_genetic_algorithm_never_become_worse(molecules):
    search = genetic.GeneticSearch(molecules, 20, seed=0)
    search.add(molecules.tokens[:10])
    before = {cell: objective for cell, (objective, _) in search.best.items()}
    assert sorted(before) == list(range(10))
    search.run(2)
    assert all(search.best[cell][0] >= objective for cell, objective in before.items())


@pytest.mark.slow  # compiles a search of its own
def test_a_short_run_prints_figures_and_draws_pairs(tmp_path, capsys):
    small = {"iterations": 2, "known": 40, "start": 20, "emitters": 1}
    pytest.importorskip("find").main(out=tmp_path / "picture.png", **small)
    assert re.search(r"cells \d+, QD score \d+\.", capsys.readouterr().out)
    rows = pd.read_csv(tmp_path / "picture.csv")
    assert (rows["similarity"] > chemistry.SIMILAR - 1e-6).all()
    expected = [QED.qed(Chem.MolFromSmiles(smiles)) for smiles in rows["new"]]
    np.testing.assert_allclose(rows["new QED"], expected, rtol=1e-6)
    pytest.importorskip("compare").main(seeds=1, **small)
    printed = capsys.readouterr().out
    assert "gloam.DMS, seed 0: cells" in printed
    assert "genetic algorithm, seed 0: cells" in printed
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.width > 500
        assert len(set(picture.convert("L").tobytes())) > 20


def test_it_says_which_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "selfies", None)
    with pytest.raises(SystemExit, match=r"^This example needs .*: pip install "):
        runpy.run_path(str(FOLDER / "chemistry.py"))
