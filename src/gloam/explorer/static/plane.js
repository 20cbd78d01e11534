// An interactive plane: a layer of cells, axes, marks, and control by pointer and keys.

import { cssColor } from "gloam/colors";
import { h } from "gloam/dom";
import { number, tick } from "gloam/format";
import { onThemeChange } from "gloam/theme";

const LEFT = 46;
const BOTTOM = 34;
const TOP = 6;
const RIGHT = 8;
const CLOSEST = 400;

export class Plane {
  /**
   * @param {{label: string, layer: object, onselect?: (place: number) => void,
   *   describe?: (place: number) => string}} options
   */
  constructor({ label, layer, onselect = () => {}, describe = () => "" }) {
    this.layer = layer;
    this.onselect = onselect;
    this.describe = describe;
    this.selected = -1;
    this.marks = () => {};
    this.names = ["", ""];
    this.all = { x: [0, 1], y: [0, 1] };
    this.view = { x: [0, 1], y: [0, 1] };
    layer.canvas.className = "layer";
    this.overlay = h("canvas", { class: "overlay" });
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.element = h(
      "div",
      { class: "plane", tabindex: 0, role: "application", "aria-roledescription": "map", "aria-label": label },
      layer.canvas,
      this.overlay,
      this.tip,
    );
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
    onThemeChange(this.element, () => {
      this.layer.paint();
      this.draw();
    });
  }

  /** Show another layer. */
  setLayer(layer) {
    if (layer === this.layer) return;
    layer.canvas.className = "layer";
    this.layer.canvas.replaceWith(layer.canvas);
    this.layer = layer;
    this.selected = -1;
  }

  /** Set the extent of the plane and the names of its axes. */
  setExtent(x, y, names) {
    this.all = { x: widened(x), y: widened(y) };
    this.names = names;
    this.showAll();
  }

  /** Where the layer is, in pixels, and what it shows. */
  get frame() {
    const { clientWidth, clientHeight } = this.element;
    const width = Math.max(1, clientWidth - LEFT - RIGHT);
    const height = Math.max(1, clientHeight - TOP - BOTTOM);
    return { ...this.view, all: this.all, width, height, ratio: Math.min(2, devicePixelRatio || 1) };
  }

  /** Redraw at the next frame; the layer only if it has changed. */
  draw({ layer = true } = {}) {
    this.stale ||= layer;
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (!this.element.isConnected || !this.element.clientWidth) return;
      if (this.stale) this.layer.draw(this.frame);
      this.stale = false;
      this.drawOverlay();
    });
  }

  select(place, { tell = true } = {}) {
    this.selected = place;
    this.draw({ layer: false });
    if (tell && place >= 0) this.onselect(place);
  }

  toPixels([x, y], frame = this.frame) {
    return [
      LEFT + (frame.width * (x - frame.x[0])) / (frame.x[1] - frame.x[0]),
      TOP + (frame.height * (frame.y[1] - y)) / (frame.y[1] - frame.y[0]),
    ];
  }

  toPlane(left, top, frame = this.frame) {
    return [
      frame.x[0] + ((left - LEFT) / frame.width) * (frame.x[1] - frame.x[0]),
      frame.y[1] - ((top - TOP) / frame.height) * (frame.y[1] - frame.y[0]),
    ];
  }

  zoom(factor, [x, y] = [mean(this.view.x), mean(this.view.y)]) {
    const share = (this.view.x[1] - this.view.x[0]) / (this.all.x[1] - this.all.x[0]);
    const scale = Math.min(1, Math.max(1 / CLOSEST, share * factor)) / share;
    this.view.x = this.view.x.map((side) => x + (side - x) * scale);
    this.view.y = this.view.y.map((side) => y + (side - y) * scale);
    this.keepInside();
    this.draw();
  }

  showAll() {
    this.view = { x: [...this.all.x], y: [...this.all.y] };
    this.draw();
  }

  keepInside() {
    for (const axis of ["x", "y"]) {
      const [low, high] = this.all[axis];
      const view = this.view[axis];
      const shift = Math.max(0, low - view[0]) - Math.max(0, view[1] - high);
      this.view[axis] = [view[0] + shift, view[1] + shift];
    }
  }

  move(dx, dy) {
    const place = this.selected < 0 ? this.layer.pick(mean(this.view.x), mean(this.view.y), this.frame) : this.selected;
    if (place < 0) return;
    const next = this.selected < 0 ? place : this.layer.next(place, dx, dy);
    const [x, y] = this.layer.spot(next);
    for (const [axis, at] of [["x", x], ["y", y]]) {
      const [low, high] = this.view[axis];
      if (at < low || at > high) this.view[axis] = [at - (high - low) / 2, at + (high - low) / 2];
    }
    this.keepInside();
    this.draw();
    this.select(next);
  }

  listen() {
    const { element } = this;
    let grip = null;
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      grip = { x: event.offsetX, y: event.offsetY, view: structuredClone(this.view), moved: false };
    });
    element.addEventListener("pointermove", (event) => {
      if (grip && event.buttons) this.drag(grip, event);
      else this.hover(event);
    });
    element.addEventListener("pointerup", (event) => {
      if (grip && !grip.moved) {
        const place = this.layer.pick(...this.toPlane(event.offsetX, event.offsetY), this.frame);
        if (place >= 0) this.select(place);
      }
      grip = null;
    });
    element.addEventListener("pointerleave", () => {
      grip = null;
      this.tip.hidden = true;
    });
    element.addEventListener("dblclick", (event) => this.zoom(0.5, this.toPlane(event.offsetX, event.offsetY)));
    element.addEventListener(
      "wheel",
      (event) => {
        // The page scrolls unless the map has the focus.
        if (document.activeElement !== element && !event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(Math.exp(0.002 * event.deltaY), this.toPlane(event.offsetX, event.offsetY));
      },
      { passive: false },
    );
    element.addEventListener("keydown", (event) => {
      const keys = {
        ArrowLeft: () => this.move(-1, 0),
        ArrowRight: () => this.move(1, 0),
        ArrowUp: () => this.move(0, 1),
        ArrowDown: () => this.move(0, -1),
        "+": () => this.zoom(0.6),
        "=": () => this.zoom(0.6),
        "-": () => this.zoom(1 / 0.6),
        0: () => this.showAll(),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  drag(grip, event) {
    const [dx, dy] = [event.offsetX - grip.x, event.offsetY - grip.y];
    if (Math.abs(dx) + Math.abs(dy) > 4) grip.moved = true;
    if (!grip.moved) return;
    const frame = this.frame;
    const across = (dx / frame.width) * (frame.x[1] - frame.x[0]);
    const up = (dy / frame.height) * (frame.y[1] - frame.y[0]);
    this.view.x = grip.view.x.map((side) => side - across);
    this.view.y = grip.view.y.map((side) => side + up);
    this.keepInside();
    this.tip.hidden = true;
    this.draw();
  }

  hover(event) {
    const frame = this.frame;
    const inside = event.offsetX >= LEFT && event.offsetY <= TOP + frame.height;
    const place = inside ? this.layer.pick(...this.toPlane(event.offsetX, event.offsetY, frame), frame) : -1;
    const text = place < 0 ? "" : this.describe(place);
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.textContent = text;
    const left = Math.min(event.offsetX + 12, this.element.clientWidth - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, event.offsetY - 38)}px)`;
  }

  drawOverlay() {
    const { clientWidth, clientHeight } = this.element;
    const frame = this.frame;
    this.overlay.width = clientWidth * frame.ratio;
    this.overlay.height = clientHeight * frame.ratio;
    const context = this.overlay.getContext("2d");
    context.scale(frame.ratio, frame.ratio);
    this.drawAxes(context, frame);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP, frame.width, frame.height);
    context.clip();
    this.marks(context, (spot) => this.toPixels(spot, frame));
    if (this.selected >= 0) {
      const [left, top] = this.toPixels(this.layer.spot(this.selected), frame);
      for (const [color, width] of [["#000", 4], ["#fff", 2]]) {
        context.beginPath();
        context.arc(left, top, 7, 0, 7);
        context.strokeStyle = color;
        context.lineWidth = width;
        context.stroke();
      }
    }
    context.restore();
  }

  drawAxes(context, frame) {
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = cssColor("--quiet");
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const at of ticks(frame.x, frame.width / 90)) {
      context.fillText(number(at), this.toPixels([at, 0], frame)[0], TOP + frame.height + 5);
    }
    context.fillText(this.names[0], LEFT + frame.width / 2, TOP + frame.height + 20);
    if (!this.names[1]) return;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const at of ticks(frame.y, frame.height / 60)) {
      context.fillText(tick(at), LEFT - 6, this.toPixels([0, at], frame)[1]);
    }
    context.save();
    context.translate(7, TOP + frame.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(this.names[1], 0, 0);
    context.restore();
  }
}

function mean([low, high]) {
  return (low + high) / 2;
}

function widened([low, high]) {
  return high > low ? [low, high] : [low - 0.5, high + 0.5];
}

/** Round numbers between two limits. */
function ticks([low, high], count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) {
    found.push(Math.abs(tick) < step / 1e6 ? 0 : Number(tick.toPrecision(10)));
  }
  return found;
}
