// The discount model beside the archive: its values over measure space, and its training points.

import { duskScale, limitsOf, scaleLegend } from "gloam/colors";
import { fill, h } from "gloam/dom";
import { counted, number } from "gloam/format";
import { withMargin } from "gloam/archive_map";
import { note } from "gloam/parts";
import { Plane } from "gloam/plane";
import { PointsLayer } from "gloam/points_layer";
import { RasterLayer } from "gloam/raster_layer";
import { arrays, Turns } from "gloam/source";

const WHY =
  "A solution counts as an improvement if its objective is above the discount. The model is a smooth function, raised where " +
  "better solutions were found, so it can lie above the objectives of other elites nearby: training does not lower it to them.";

/** Why a model may lie below all elites. */
const below = (highest, lowest) =>
  `Here the highest discount, ${number(highest)}, is below the lowest objective, ${number(lowest)}: every solution that is as good counts as ` +
  "an improvement. The discount starts low and rises by the share alpha of each improvement, so this is usual early in a run, and for longer with a small alpha.";

export class DiscountMap {
  constructor(run, archiveMap) {
    this.run = run;
    this.archiveMap = archiveMap;
    this.turns = new Turns();
    this.caption = h("figcaption", {}, "Discount model");
    this.legend = h("div", { class: "legend" }, h("span", { class: "quiet" }, "computing …"));
    this.problem = h("div", {});
    this.points = h("span", { class: "quiet" });
    this.why = h("p", { class: "quiet small" }, WHY);
    this.isRaster = run.archive.measure_dim === 2;
    /** The two measures of a grid of more that the archive shows. */
    this.view = this.isRaster ? null : archiveMap.view;
    this.layer = this.isRaster || this.view ? new RasterLayer() : new PointsLayer();
    archiveMap.onview = () => this.found && this.show(this.found, this.limits);
    this.plane = new Plane({
      label: "Discount model. Plus and minus zoom.",
      layer: this.layer,
      describe: (place) => `discount ${number(this.shown?.[place])}`,
    });
    this.element = h(
      "figure",
      { class: "map card" },
      this.caption,
      h("div", { class: "toolbar small" }, this.points),
      this.plane.element,
      this.legend,
      this.problem,
      this.why,
    );
  }

  /** Show the latest model, or that of a snapshot. */
  async load(at, limits) {
    const isLast = this.turns.begin();
    const query = at === null ? "" : `?at=${at}`;
    try {
      const found = await arrays(`runs/${this.run.id}/discount${query}`);
      if (!isLast()) return;
      fill(this.problem);
      this.show(found, limits);
    } catch (error) {
      if (!isLast()) return;
      fill(this.legend);
      fill(this.problem, note(error.message));
    }
  }

  show(found, limits) {
    Object.assign(this, { found, limits, values: found.values, shown: found.values });
    let spots = found;
    const own = limitsOf(found.values);
    const [lowest] = limitsOf(this.archiveMap.latest ?? []);
    const isBelow = this.archiveMap.latest?.length > 0 && own[1] < lowest;
    this.why.textContent = isBelow ? `${WHY} ${below(own[1], lowest)}` : WHY;
    const shared = [Math.max(own[0], limits[0]), Math.min(own[1], limits[1])];
    // The color limits of the archive, unless they would show little of the model.
    const tells = shared[1] - shared[0] > 0.3 * (own[1] - own[0]);
    const scale = duskScale(tells ? shared : own);
    const { archive } = this.run;
    if (this.isRaster) {
      const [rows, columns] = found.about.raster;
      const [x, y] = [0, 1].map((axis) => [archive.lower[axis], archive.upper[axis]]);
      if (!this.layer.raster) this.plane.setExtent(x, y, archive.measures);
      this.layer.set({ values: found.values, columns, rows, x, y, scale });
    } else if (this.view) {
      const { pair, columns, rows, axes } = this.view;
      this.shown = Float32Array.from(this.view.best(found.values), (cell) => found.values[cell]);
      if (String(pair) !== this.pair) this.plane.setExtent(...axes);
      this.pair = String(pair);
      this.layer.set({ values: this.shown, columns, rows, x: axes[0], y: axes[1], scale });
      const [x, y] = pair.map((k) => found.target.map((_, i) => found.points[i * archive.measure_dim + k]));
      spots = { ...found, x, y };
    } else {
      // All cells, also if the archive shows a sample.
      const { x, y, about } = this.archiveMap.allPlaces;
      if (!this.layer.points) this.plane.setExtent(withMargin(limitsOf(x)), withMargin(limitsOf(y)), [about.x, about.y]);
      this.layer.set({ x, y, values: found.values, scale });
    }
    this.plane.marks = (context, toPixels) => drawTraining(context, toPixels, spots, scale);
    this.plane.draw();
    this.archiveMap.setDiscounts(this.perCell());
    const points = found.x.length ? `, ${counted(found.x.length, "training point")}` : "";
    const over = this.view ? this.view.note.replace("best", "highest") : "";
    this.caption.textContent = `Discount model · iteration ${number(found.about.iteration)}${points}${over && ` · ${over}`}`;
    this.points.textContent = found.x.length ? "● solutions, colored by target; × empty cells" : "";
    const [low, high] = scale.limits;
    const beyond = own[0] < low || own[1] > high ? ` (values from ${number(own[0])} to ${number(own[1])})` : "";
    fill(this.legend, scaleLegend(scale.limits, own), h("span", { class: "quiet" }, `discount${beyond}`));
  }

  /** The value of the model at each cell. */
  perCell() {
    if (!this.isRaster) return this.values;
    const { archive } = this.run;
    if (archive.kind !== "grid") return null;
    const [across, up] = archive.shape;
    const { columns, rows } = this.layer.raster;
    const found = new Float32Array(archive.num_cells);
    for (let i = 0; i < across; i++) {
      for (let j = 0; j < up; j++) {
        const column = Math.floor(((i + 0.5) * columns) / across);
        const row = Math.floor(((j + 0.5) * rows) / up);
        found[i * up + j] = this.values[row * columns + column];
      }
    }
    return found;
  }

  close() {
    this.layer.close();
  }
}

function drawTraining(context, toPixels, { x, y, target, solution }, scale) {
  const color = new Uint8ClampedArray(3);
  for (const wanted of [0, 1]) {
    for (let i = 0; i < x.length; i++) {
      if (solution[i] !== wanted) continue;
      const [left, top] = toPixels([x[i], y[i]]);
      context.beginPath();
      if (wanted) {
        scale.write(target[i], color, 0);
        context.fillStyle = `rgb(${color[0]} ${color[1]} ${color[2]})`;
        context.strokeStyle = "rgb(255 255 255 / 80%)";
        context.lineWidth = 0.7;
        context.arc(left, top, 2.6, 0, 7);
        context.fill();
      } else {
        context.strokeStyle = "rgb(255 255 255 / 75%)";
        context.lineWidth = 1.2;
        for (const sign of [1, -1]) {
          context.moveTo(left - 3, top - 3 * sign);
          context.lineTo(left + 3, top + 3 * sign);
        }
      }
      context.stroke();
    }
  }
}
