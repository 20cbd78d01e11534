"""The picture: known molecules, each beside the most drug-like molecule similar to it."""

from io import BytesIO

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from rdkit import Chem
from rdkit.Chem import rdDepictor, rdFMCS
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

SIZE = 400, 280
# Color of the atoms that only the new molecule has.
NEW = (1.0, 0.82, 0.45)
BEFORE, AFTER = "#5c6670", "#0a7d4b"
rdDepictor.SetPreferCoordGen(True)  # draws bridged rings without overlaps


def pairs_figure(rows: pd.DataFrame, columns: int = 4, lines: int = 2) -> Figure:
    """Draw pairs at equal steps from the largest gain of drug-likeness to the median gain."""
    order = np.argsort((rows["known QED"] - rows["new QED"]).to_numpy())
    shown = rows.iloc[order[np.linspace(0, len(order) // 2, columns * lines).astype(int)]]
    figure = Figure(figsize=(3.6 * columns, 1.9 * lines))
    for number, row in enumerate(shown.to_dict("records")):
        line, column = divmod(number, columns)
        cell = figure.add_axes((column / columns, 1 - (line + 1) / lines, 1 / columns, 1 / lines))
        cell.axis("off")
        frame = {"boxstyle": "round,pad=0,rounding_size=0.03", "fc": "white", "ec": "#c9d3dc"}
        cell.add_patch(FancyBboxPatch((0.02, 0.03), 0.96, 0.94, **frame))
        images = drawn_pair(row["known"], row["new"])
        for left, image in zip((0.03, 0.53), images, strict=True):
            axes = cell.inset_axes((left, 0.2, 0.44, 0.72))
            axes.imshow(image)
            axes.axis("off")
        style = {"ha": "center", "va": "center", "fontsize": 12, "fontweight": "bold"}
        small = {"ha": "center", "va": "center", "fontsize": 8}
        cell.text(0.25, 0.12, f"QED {row['known QED']:.2f}", color=BEFORE, **style)
        cell.text(0.75, 0.12, f"QED {row['new QED']:.2f}", color=AFTER, **style)
        cell.text(0.5, 0.56, "→", color=AFTER, ha="center", va="center", fontsize=20)
        cell.text(0.5, 0.12, f"similarity\n{row['similarity']:.2f}", color=BEFORE, **small)
    return figure


def drawn_pair(known: str, new: str) -> list[np.ndarray]:
    """Draw two molecules in the same orientation, and mark the atoms that only the new one has."""
    first, second = Chem.MolFromSmiles(known), Chem.MolFromSmiles(new)
    rdDepictor.Compute2DCoords(first)
    shared = rdFMCS.FindMCS([first, second], completeRingsOnly=True, timeout=2)
    pattern = Chem.MolFromSmarts(shared.smartsString)
    before, after = first.GetSubstructMatch(pattern), second.GetSubstructMatch(pattern)
    points = [first.GetConformer().GetAtomPosition(atom) for atom in before]
    plane = zip(after, (Point2D(point.x, point.y) for point in points), strict=True)
    rdDepictor.Compute2DCoords(second, coordMap=dict(plane))
    marked = sorted(set(range(second.GetNumAtoms())) - set(after))
    return [drawn(first, []), drawn(second, marked)]


def drawn(molecule: Chem.Mol, marked: list[int]) -> np.ndarray:
    """Return the drawing of a molecule, with some of its atoms marked."""
    canvas = rdMolDraw2D.MolDraw2DCairo(*SIZE)
    options = canvas.drawOptions()
    options.fixedBondLength, options.bondLineWidth, options.minFontSize = 51, 2, 16
    options.setHighlightColour(NEW)
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule, highlightAtoms=marked)
    canvas.FinishDrawing()
    return np.asarray(Image.open(BytesIO(canvas.GetDrawingText())).convert("RGB"))
