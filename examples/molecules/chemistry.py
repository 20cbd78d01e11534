"""Known molecules, their tokens and fingerprints, and the evaluation of new ones.

A solution is a sequence of SELFIES tokens: every sequence is a valid molecule. `PADDING` fills the
end of short ones. Measures are Morgan fingerprints of length one, so that the product of two is
their similarity.
"""

import os
from functools import cache, lru_cache

import numpy as np

import gloam

try:
    import selfies
    from rdkit import Chem, RDConfig, RDLogger
    from rdkit.Chem import QED, rdFingerprintGenerator
except ImportError:
    raise SystemExit("This example needs RDKit: pip install 'gloam[molecules]'") from None

PADDING, LENGTH, BITS = "[nop]", 40, 1024
# Smallest similarity between a molecule and the known molecule of its cell.
SIMILAR = 0.5
ELEMENTS = {"C", "N", "O", "F", "S", "Cl", "Br"}
MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
RDLogger.DisableLog("rdApp.*")


class Molecules:
    """Known molecules, and the search space that their tokens span.

    Args:
        number: Number of molecules: the first ones of NCI's list, which RDKit contains, with 10 to
            25 heavy atoms of common elements, without charges, and with at most 40 tokens.
    """

    def __init__(self, number: int = 1000):
        with open(os.path.join(RDConfig.RDDataDir, "NCI", "first_5K.smi")) as file:
            texts = [line.split()[0] for line in file if line.strip()]
        known: dict[bytes, tuple[str, list[str]]] = {}
        for text in texts:
            smiles = suitable(text)
            tokens = [] if smiles is None else list(selfies.split_selfies(selfies.encoder(smiles)))
            if smiles is not None and len(tokens) <= LENGTH:
                known.setdefault(fingerprint(smiles).tobytes(), (smiles, tokens))
            if len(known) == number:
                break
        self.smiles = [smiles for smiles, _ in known.values()]
        self.tokens = [tokens for _, tokens in known.values()]
        self.prints = unit_vectors(self.smiles)
        self.alphabet = sorted({token for tokens in self.tokens for token in tokens})
        choices = [PADDING, *self.alphabet]
        self.space = gloam.Space(
            tokens=gloam.Categorical(choices, shape=(LENGTH,), padding=PADDING)
        )
        self.dataset = gloam.datasets.from_array(self.prints, names=self.smiles)

    def evaluate(self, values: dict[str, np.ndarray]) -> tuple:
        """Return drug-likeness and fingerprints, and how much similarity is lacking."""
        smiles = [smiles_of("".join(row)) for row in values["tokens"].tolist()]
        prints = unit_vectors(smiles)
        lacking = SIMILAR - (prints @ self.prints.T).max(axis=1)
        pairs = zip(smiles, lacking, strict=True)
        objectives = [np.nan if lacks > 0 else drug_likeness(text) for text, lacks in pairs]
        return np.array(objectives), prints, {"violation": np.maximum(lacking, 0)}


def padded(rows: list[list[str]]) -> np.ndarray:
    """Return sequences of tokens as an array, with padding at their ends."""
    return np.array([row + [PADDING] * (LENGTH - len(row)) for row in rows])


def suitable(text: str) -> str | None:
    """Return the SMILES of a molecule without stereochemistry; ``None`` if it is not suitable."""
    molecule = Chem.MolFromSmiles(text)
    if molecule is None or "." in text or not 10 <= molecule.GetNumHeavyAtoms() <= 25:
        return None
    atoms = list(molecule.GetAtoms())
    if any(atom.GetSymbol() not in ELEMENTS or atom.GetFormalCharge() for atom in atoms):
        return None
    Chem.RemoveStereochemistry(molecule)
    return Chem.MolToSmiles(molecule)


@cache
def smiles_of(tokens: str) -> str:
    """Return the canonical SMILES of a sequence of tokens."""
    return Chem.CanonSmiles(selfies.decoder(tokens))


@lru_cache(2**16)
def fingerprint(smiles: str) -> np.ndarray:
    """Return which of the numbered surroundings of atoms a molecule has, as zeros and ones."""
    return MORGAN.GetFingerprintAsNumPy(Chem.MolFromSmiles(smiles))


@cache
def drug_likeness(smiles: str) -> float:
    """Return the quantitative estimate of drug-likeness (Bickerton et al., 2012), from 0 to 1."""
    return QED.qed(Chem.MolFromSmiles(smiles))


def unit_vectors(smiles: list[str]) -> np.ndarray:
    """Return the fingerprints of molecules as vectors of length one; zero without atoms."""
    rows = np.array([fingerprint(text) for text in smiles], np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
