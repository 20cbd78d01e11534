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


def pairs_figure(rows: pd.DataFrame, columns: int = 4, lines: int = 2) -> Figure:
    """Draw pairs at equal steps from the largest gain of drug-likeness to the median gain."""
    order = np.argsort((rows["known QED"] - rows["new QED"]).to_numpy())
    shown = rows.iloc[order[np.linspace(0, len(order) // 2, columns * lines).astype(int)]]
    figure = Figure(figsize=(4 * columns, 2.1 * lines))
    for number, row in enumerate(shown.to_dict("records")):
        line, column = divmod(number, columns)
        left, bottom = column / columns, 1 - (line + 1) / lines
        width, height = 1 / columns, 1 / lines
        box = (left + 0.02 * width, bottom + 0.03 * height), 0.96 * width, 0.94 * height
        style = {
            "boxstyle": "round,pad=0,rounding_size=0.01",
            "fc": "white",
            "ec": "#c9d3dc",
            "zorder": -1,
        }
        figure.add_artist(FancyBboxPatch(*box, **style))
        images = drawn_pair(row["known"], row["new"])
        for place, (kind, image) in enumerate(zip(("known", "new"), images, strict=True)):
            start = left + (0.03 + 0.5 * place) * width
            axes = figure.add_axes((start, bottom + 0.2 * height, 0.44 * width, 0.72 * height))
            axes.imshow(image)
            axes.axis("off")
            text, color = f"QED {row[f'{kind} QED']:.2f}", "#0a7d4b" if place else "#5c6670"
            middle = start + 0.22 * width
            style = {"ha": "center", "color": color, "fontsize": 13, "fontweight": "bold"}
            figure.text(middle, bottom + 0.09 * height, text, **style)
        style = {"ha": "center", "va": "center", "color": "#0a7d4b", "fontsize": 20}
        figure.text(left + 0.5 * width, bottom + 0.56 * height, "→", **style)
    return figure


def drawn_pair(known: str, new: str) -> list[np.ndarray]:
    """Draw two molecules in the same orientation, and mark the atoms that only the new one has."""
    first, second = Chem.MolFromSmiles(known), Chem.MolFromSmiles(new)
    rdDepictor.Compute2DCoords(first)
    shared = rdFMCS.FindMCS([first, second], ringMatchesRingOnly=True, timeout=2)
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
    options.fixedBondLength, options.bondLineWidth, options.minFontSize = 34, 2, 16
    options.setHighlightColour(NEW)
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule, highlightAtoms=marked)
    canvas.FinishDrawing()
    return np.asarray(Image.open(BytesIO(canvas.GetDrawingText())).convert("RGB"))
