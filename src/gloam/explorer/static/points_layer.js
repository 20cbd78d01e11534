// A layer of a plane: up to millions of colored points, drawn by WebGL.

import { webglAttribute, webglCirclePoint, webglFillColor, webglScaleLinear, webglSeriesPoint } from "d3fc-webgl";
import KDBush from "kdbush";

import { cssColor } from "gloam/colors";

// Maximum number of points without WebGL.
const FALLBACK = 20000;

export class PointsLayer {
  constructor() {
    this.canvas = document.createElement("canvas");
    // The library uses an extension of WebGL 1.
    this.gl = this.canvas.getContext("webgl", { antialias: true });
    this.points = null;
    this.index = null;
    if (this.gl) this.build();
  }

  build() {
    const attribute = () => webglAttribute().size(1);
    this.across = attribute();
    this.up = attribute();
    this.size = attribute();
    this.defined = attribute().data([]).value(() => 1);
    this.color = webglFillColor();
    this.xScale = webglScaleLinear();
    this.yScale = webglScaleLinear();
    this.series = webglSeriesPoint()
      .xScale(this.xScale)
      .yScale(this.yScale)
      .crossValueAttribute(this.across)
      .mainValueAttribute(this.up)
      .sizeAttribute(this.size)
      .definedAttribute(this.defined)
      .decorate((program) => this.color(program))
      .context(this.gl);
  }

  /**
   * @param {{x: Float32Array, y: Float32Array, values: Float32Array, scale: object}} points values
   *   of empty cells are NaN
   */
  set(points) {
    if (this.points?.x !== points.x || this.points?.y !== points.y) this.index = null;
    this.points = points;
    const { x, values } = points;
    // Empty cells first, so that elites lie above them.
    const order = new Int32Array(x.length);
    let low = 0;
    let high = x.length;
    for (let i = x.length - 1; i >= 0; i--) {
      if (Number.isNaN(values[i])) order[low++] = i;
      else order[--high] = i;
    }
    this.order = order;
    this.empties = low;
    this.paint();
    // Before the first click needs it.
    setTimeout(() => this.points === points && this.makeIndex(), 200);
  }

  /** Upload places and colors to the GPU. */
  paint() {
    if (!this.gl || !this.points) return;
    const { x, y, values, scale } = this.points;
    const { order } = this;
    const empty = hexColor(cssColor("--empty-dot"));
    const bytes = new Uint8ClampedArray(3);
    const color = new Float32Array([0, 0, 0, 1]);
    this.across.data(order).value((i) => x[i]);
    this.up.data(order).value((i) => y[i]);
    this.defined.data(order).value(() => 1);
    this.color.data(order).value((i) => {
      if (Number.isNaN(values[i])) bytes.set(empty);
      else scale.write(values[i], bytes, 0);
      for (let part = 0; part < 3; part++) color[part] = bytes[part] / 255;
      return color;
    });
    this.sized = null;
  }

  draw(view) {
    const { canvas } = this;
    const [width, height] = [Math.round(view.width * view.ratio), Math.round(view.height * view.ratio)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    if (!this.points) return;
    const area = this.area(view);
    if (!this.gl) return this.drawPlain(view, Math.sqrt(area));
    if (this.sized !== area) {
      const { empties, order } = this;
      this.size.data(order).value((_, i) => (i < empties ? area / 3 : area));
      this.sized = area;
    }
    this.gl.viewport(0, 0, width, height);
    this.gl.clearColor(0, 0, 0, 0);
    this.gl.clear(this.gl.COLOR_BUFFER_BIT);
    this.xScale.domain(view.x);
    this.yScale.domain(view.y);
    // A new shader each time: the library writes the scales into it.
    this.series.type(webglCirclePoint())(this.order.length);
  }

  /** The area of a point in pixels, smaller the more points are in view. */
  area(view) {
    const share = ((view.all.x[1] - view.all.x[0]) * (view.all.y[1] - view.all.y[0])) /
      ((view.x[1] - view.x[0]) * (view.y[1] - view.y[0]));
    const room = (0.35 * view.width * view.height * share) / Math.max(1, this.points.x.length);
    return view.ratio ** 2 * Math.min(90, Math.max(2.2, room));
  }

  drawPlain(view, side) {
    const context = this.canvas.getContext("2d");
    const { x, y, values, scale } = this.points;
    const step = Math.max(1, Math.ceil(x.length / FALLBACK));
    const bytes = new Uint8ClampedArray(3);
    for (let place = 0; place < this.order.length; place += step) {
      const i = this.order[place];
      if (Number.isNaN(values[i])) bytes.set(hexColor(cssColor("--empty-dot")));
      else scale.write(values[i], bytes, 0);
      context.fillStyle = `rgb(${bytes[0]} ${bytes[1]} ${bytes[2]})`;
      const left = (this.canvas.width * (x[i] - view.x[0])) / (view.x[1] - view.x[0]);
      const top = (this.canvas.height * (view.y[1] - y[i])) / (view.y[1] - view.y[0]);
      context.fillRect(left - side / 2, top - side / 2, side, side);
    }
  }

  /** Build a spatial index, in units of the extent of all points. */
  makeIndex() {
    if (this.index) return;
    const { x, y } = this.points;
    this.all = [spanOf(x), spanOf(y)];
    this.index = new KDBush(x.length, 64, Float32Array);
    for (let i = 0; i < x.length; i++) this.index.add(x[i] / this.all[0], y[i] / this.all[1]);
    this.index.finish();
  }

  /** The nearest point within a few pixels of a place, or -1. */
  pick(px, py, view) {
    if (!this.points?.x.length) return -1;
    const { x, y, values } = this.points;
    const [wide, high] = [view.x[1] - view.x[0], view.y[1] - view.y[0]];
    this.makeIndex();
    const { all } = this;
    const reach = (12 * Math.max(wide / all[0], high / all[1])) / Math.min(view.width, view.height);
    let best = -1;
    let least = Infinity;
    for (const i of this.index.within(px / all[0], py / all[1], reach)) {
      const across = ((x[i] - px) * view.width) / wide;
      const up = ((y[i] - py) * view.height) / high;
      // An elite is preferred to an empty cell beside it.
      const distance = across * across + up * up + (Number.isNaN(values[i]) ? 40 : 0);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  spot(place) {
    return [this.points.x[place], this.points.y[place]];
  }

  /** The nearest elite in a direction, or the same place without one. */
  next(place, dx, dy) {
    const { x, y, values } = this.points;
    let best = place;
    let least = Infinity;
    for (let i = 0; i < x.length; i++) {
      if (i === place || Number.isNaN(values[i])) continue;
      const along = (x[i] - x[place]) * dx + (y[i] - y[place]) * dy;
      const aside = Math.abs((x[i] - x[place]) * dy + (y[i] - y[place]) * dx);
      if (along <= 0 || aside > along) continue;
      const distance = along + 2 * aside;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  /** Release the WebGL context. */
  close() {
    this.gl?.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

function spanOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  return high > low ? high - low : 1;
}

function hexColor(text) {
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}
