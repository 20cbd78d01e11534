// Two measures of a grid that may have more: a slice at values of the others, or the best over them.

import { choice, fill, h } from "gloam/dom";
import { number } from "gloam/format";

export class GridView {
  /** @param {{shape: number[], lower: number[], upper: number[], measures: string[]}} archive */
  constructor(archive) {
    this.archive = archive;
    this.pair = [0, 1];
    /** The cell along each measure that is shown, or `null` for the best over all. */
    this.at = archive.shape.map(() => null);
    this.strides = archive.shape.map((_, k) => archive.shape.slice(k + 1).reduce((a, b) => a * b, 1));
  }

  get others() {
    return this.at.map((_, k) => k).filter((k) => !this.pair.includes(k));
  }

  get columns() {
    return this.archive.shape[this.pair[0]];
  }

  get rows() {
    return this.archive.shape[this.pair[1]];
  }

  /** The extents and the names of the two axes. */
  get axes() {
    const { lower, upper, measures } = this.archive;
    return [...this.pair.map((k) => [lower[k], upper[k]]), this.pair.map((k) => measures[k])];
  }

  /** What is shown of the other measures. */
  get note() {
    const { measures } = this.archive;
    const sliced = this.others.filter((k) => this.at[k] !== null).map((k) => `${measures[k]} ${this.sideText(k, this.at[k])}`);
    const over = this.others.filter((k) => this.at[k] === null).map((k) => measures[k]);
    return [...sliced, ...(over.length ? [`best over ${over.join(" and ")}`] : [])].join(", ");
  }

  sideText(k, place) {
    const { lower, upper, shape } = this.archive;
    const edge = (n) => number(Number((lower[k] + ((upper[k] - lower[k]) * n) / shape[k]).toPrecision(3)));
    return `${edge(place)} to ${edge(place + 1)}`;
  }

  /** The place of a cell, row by row from below; -1 for a cell outside of the slice. */
  placeOf(cell) {
    const { strides, pair, at } = this;
    const { shape } = this.archive;
    for (let k = 0; k < at.length; k++) {
      if (at[k] !== null && Math.floor(cell / strides[k]) % shape[k] !== at[k]) return -1;
    }
    const [across, up] = pair;
    return (Math.floor(cell / strides[up]) % shape[up]) * shape[across] + (Math.floor(cell / strides[across]) % shape[across]);
  }

  /** The cell with the highest value at each place; NaN is lower than all numbers. */
  best(values) {
    const found = new Int32Array(this.columns * this.rows).fill(-1);
    for (let cell = 0; cell < values.length; cell++) {
      const place = this.placeOf(cell);
      if (place < 0) continue;
      const held = found[place];
      if (held < 0 || values[cell] > values[held] || (Number.isNaN(values[held]) && !Number.isNaN(values[cell]))) found[place] = cell;
    }
    return found;
  }

  /** Fill a toolbar with the choices of axes and slices of more than two measures. */
  drawControls(toolbar, onchange) {
    const { measures, shape } = this.archive;
    if (shape.length < 3) return;
    const changed = () => {
      const focused = [...toolbar.querySelectorAll("select")].indexOf(document.activeElement);
      this.drawControls(toolbar, onchange);
      toolbar.querySelectorAll("select")[focused]?.focus();
      onchange();
    };
    const options = measures.map((title, k) => ({ value: String(k), title }));
    const axis = (label, side) =>
      choice(label, options, String(this.pair[side]), (value) => {
        // The measure of the other axis changes places with this one.
        if (this.pair[1 - side] === Number(value)) this.pair[1 - side] = this.pair[side];
        this.pair[side] = Number(value);
        this.pair.forEach((k) => (this.at[k] = null));
        changed();
      });
    const slice = (k) => {
      const places = Array.from({ length: shape[k] }, (_, n) => ({ value: String(n), title: this.sideText(k, n) }));
      return choice(measures[k], [{ value: "", title: "best over all" }, ...places], this.at[k] === null ? "" : String(this.at[k]), (value) => {
        this.at[k] = value === "" ? null : Number(value);
        changed();
      });
    };
    fill(toolbar, axis("Across", 0), axis("Up", 1), this.others.map(slice));
  }
}
