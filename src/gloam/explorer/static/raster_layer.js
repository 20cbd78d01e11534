// A layer of a plane: values on a regular raster, such as the cells of a grid.

import { cssColor } from "gloam/colors";

export class RasterLayer {
  /**
   * @param {{values: Float32Array, columns: number, rows: number, x: [number, number],
   *   y: [number, number], scale: object}} raster values row by row from below, NaN for empty cells
   */
  constructor() {
    this.canvas = document.createElement("canvas");
    this.image = document.createElement("canvas");
    this.raster = null;
  }

  set(raster) {
    this.raster = raster;
    this.paint();
  }

  /** Paint one pixel for each value. */
  paint() {
    const { values, columns, rows, scale } = this.raster;
    this.image.width = columns;
    this.image.height = rows;
    const context = this.image.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    const empty = parseColor(cssColor("--empty"));
    for (let row = 0; row < rows; row++) {
      let at = 4 * columns * (rows - 1 - row);
      for (let place = row * columns; place < (row + 1) * columns; place++, at += 4) {
        if (Number.isNaN(values[place])) pixels.data.set(empty, at);
        else scale.write(values[place], pixels.data, at);
        pixels.data[at + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
  }

  /** Draw the part of the raster that a view shows. */
  draw(view) {
    const { canvas } = this;
    canvas.width = Math.round(view.width * view.ratio);
    canvas.height = Math.round(view.height * view.ratio);
    if (!this.raster) return;
    const { x, y, columns, rows } = this.raster;
    const context = canvas.getContext("2d");
    const wide = (canvas.width * (x[1] - x[0])) / (view.x[1] - view.x[0]);
    const high = (canvas.height * (y[1] - y[0])) / (view.y[1] - view.y[0]);
    const left = (canvas.width * (x[0] - view.x[0])) / (view.x[1] - view.x[0]);
    const top = (canvas.height * (view.y[1] - y[1])) / (view.y[1] - view.y[0]);
    // Cells stay sharp when they are enlarged, and are averaged when several share a pixel.
    context.imageSmoothingEnabled = wide < columns || high < rows;
    context.imageSmoothingQuality = "high";
    context.drawImage(this.image, left, top, wide, high);
  }

  /** The place in the raster (row by row from below) at a point, or -1 outside. */
  pick(px, py) {
    if (!this.raster) return -1;
    const { x, y, columns, rows } = this.raster;
    const column = Math.floor((columns * (px - x[0])) / (x[1] - x[0]));
    const row = Math.floor((rows * (py - y[0])) / (y[1] - y[0]));
    return column < 0 || row < 0 || column >= columns || row >= rows ? -1 : row * columns + column;
  }

  /** The middle of a place. */
  spot(place) {
    const { x, y, columns, rows } = this.raster;
    const column = place % columns;
    const row = Math.floor(place / columns);
    return [
      x[0] + ((column + 0.5) * (x[1] - x[0])) / columns,
      y[0] + ((row + 0.5) * (y[1] - y[0])) / rows,
    ];
  }

  /** The next place in a direction, stopping at the edge. */
  next(place, dx, dy) {
    const { columns, rows } = this.raster;
    const column = Math.min(columns - 1, Math.max(0, (place % columns) + dx));
    const row = Math.min(rows - 1, Math.max(0, Math.floor(place / columns) + dy));
    return row * columns + column;
  }

  /** Nothing to release. */
  close() {}
}

function parseColor(text) {
  const digits = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}
