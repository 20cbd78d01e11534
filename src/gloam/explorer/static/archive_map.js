// The archive of a run: a heatmap of a grid, or a map of points, colored by a property.

import { colorLimits, duskScale, labelColor, labelScale, limitsOf, scaleLegend } from "gloam/colors";
import { choice, fill, h } from "gloam/dom";
import { counted, number } from "gloam/format";
import { GridView } from "gloam/grid_view";
import { note } from "gloam/parts";
import { Plane } from "gloam/plane";
import { PointsLayer } from "gloam/points_layer";
import { RasterLayer } from "gloam/raster_layer";
import { arrays, has, Turns } from "gloam/source";

const NEVER = 2 ** 31 - 1;
const RANGES = [
  { value: "auto", title: "automatic" },
  { value: "all", title: "all values" },
  { value: "inner", title: "inner 96%" },
];
const TITLES = {
  objective: "objective",
  distance: "distance to the item",
  found: "first snapshot with the elite",
  label: "label",
  discount: "discount",
};
const COLUMN = "column-";
// Empty cells of larger archives are not drawn.
const MOST_EMPTY = 300_000;

export class ArchiveMap {
  /**
   * @param {object} run the summary of the run
   * @param {(cell: number) => void} onselect
   */
  constructor(run, onselect) {
    this.run = run;
    this.archive = run.archive;
    this.onselect = onselect;
    this.turns = new Turns();
    this.color = "objective";
    this.range = "auto";
    this.projection = this.archive.projections[0].name;
    /** The two measures that are shown of a grid of up to four. */
    this.view = this.archive.projections.some(({ name }) => name === "grid") ? new GridView(this.archive) : null;
    /** The two measures that are the axes of the map of an archive with more names. */
    this.axes = [0, 1];
    /** The values of the field or variable that colors show. */
    this.column = null;
    /** Called when other measures are shown. */
    this.onview = () => {};
    this.elites = null;
    this.discounts = null;
    this.controls = h("div", { class: "toolbar small" });
    this.viewControls = h("div", { class: "joined" });
    const range = choice("Range of colors", RANGES, this.range, (value) => {
      this.range = value;
      this.draw();
    });
    this.below = h("div", { class: "toolbar small", hidden: true }, this.viewControls, range);
    this.legend = h("div", { class: "legend" });
    this.caption = h("figcaption", {}, "Archive");
    this.problem = h("div", {});
    this.layers = {};
    this.plane = new Plane({
      label: "Archive. Arrow keys move between cells, plus and minus zoom.",
      layer: this.layer,
      onselect: (place) => onselect(this.cellOf(place)),
      describe: (place) => this.describe(place),
    });
    const parts = [this.caption, this.controls, this.plane.element, this.legend, this.below, this.problem];
    this.element = h("figure", { class: "map card" }, parts);
  }

  get isGrid() {
    return this.projection === "grid";
  }

  /** The layer of the projection. */
  get layer() {
    const kind = this.isGrid ? "raster" : "points";
    this.layers[kind] ??= this.isGrid ? new RasterLayer() : new PointsLayer();
    return this.layers[kind];
  }

  /** The limits of the colors of objectives, which stay the same at all snapshots. */
  get limits() {
    return colorLimits(this.latest ?? [], this.range);
  }

  /** Show the latest elites of a seed, or those of a snapshot. */
  async load(seed, at) {
    const run = `runs/${this.run.id}`;
    const isLast = this.turns.begin();
    this.seed = seed;
    try {
      const query = at === null ? `seed=${seed}` : `seed=${seed}&at=${at}`;
      const elites = await arrays(`${run}/elites?${query}`);
      if (!this.isGrid) await this.loadPlaces();
      if (at === null) await this.loadColumn();
      if (!isLast()) return;
      this.elites = elites;
      this.at = at;
      if (at === null || !this.latest) this.latest = elites.objective;
      fill(this.problem);
      this.drawControls();
      if (this.isGrid && !this.layer.raster) this.showView();
      this.draw();
    } catch (error) {
      if (isLast()) fill(this.problem, note(error.message));
    }
  }

  placesAddress() {
    if (this.projection === "axes") return `runs/${this.run.id}/map?by=axes&seed=${this.seed}&x=${this.axes[0]}&y=${this.axes[1]}`;
    const sampled = this.archive.projections.find(({ name }) => name === this.projection)?.cells;
    const query = sampled ? `?by=${this.projection}&seed=${this.seed}` : `?by=${this.projection}`;
    return `runs/${this.run.id}/map${query}`;
  }

  async loadPlaces() {
    const address = this.placesAddress();
    const isShown = this.places?.address === address;
    // Elites of a running run get other measures; other maps take long to compute.
    if (isShown && this.projection !== "axes") return;
    const places = await arrays(address);
    // Another projection or seed was chosen in the meantime.
    if (address !== this.placesAddress()) return this.loadPlaces();
    this.places = { ...places, address };
    this.shownCells = null;
    if (!this.places.cell) this.allPlaces = this.places;
    if (!isShown) this.showPlaces();
  }

  columnAddress(color) {
    return `runs/${this.run.id}/column?seed=${this.seed}&number=${color.slice(COLUMN.length)}`;
  }

  /** The field or variable that colors show, or `null`. */
  get columnOf() {
    return this.color.startsWith(COLUMN) ? this.run.columns[Number(this.color.slice(COLUMN.length))] : null;
  }

  /** Load the values of the field or variable that colors show. */
  async loadColumn() {
    const { color } = this;
    if (!this.columnOf) return;
    const column = await arrays(this.columnAddress(color));
    if (color === this.color) this.column = { ...column, color };
  }

  async setColor(color) {
    this.color = color;
    try {
      await this.loadColumn();
      if (color !== this.color) return;
      fill(this.problem);
      this.draw();
    } catch (error) {
      if (color === this.color) fill(this.problem, note(error.message, "bad"));
    }
  }

  showPlaces() {
    const { about, x, y } = this.places;
    this.plane.setLayer(this.layer);
    this.plane.setExtent(withMargin(limitsOf(x)), withMargin(limitsOf(y)), [about.x, about.y]);
    this.plane.selected = -1;
  }

  /** Show the axes and the choices of the measures of a grid. */
  showView() {
    this.plane.setLayer(this.layer);
    this.plane.setExtent(...this.view.axes);
    this.plane.selected = -1;
    this.view.drawControls(this.viewControls, () => {
      this.showView();
      this.draw();
      this.mark(this.marked);
      this.onview();
    });
  }

  /** Set the discounts of all cells when they arrive. */
  setDiscounts(values) {
    this.discounts = values;
    if (!this.elites) return;
    this.drawControls();
    if (this.color === "discount") this.draw();
  }

  drawControls() {
    const colors = ["objective", "distance", "found", "label"].filter((name) => name in this.elites);
    if (this.discounts) colors.push("discount");
    const columns = this.at === null ? (this.run.columns ?? []) : []; // those of a snapshot are not recorded
    const names = { found: "age", distance: "distance", objective: "objective", label: "label", discount: "discount" };
    columns.forEach(({ kind, title }, number) => {
      const color = `${COLUMN}${number}`;
      if (!has(this.columnAddress(color))) return;
      colors.push(color);
      names[color] = `${kind}: ${title}`;
    });
    if (!colors.includes(this.color)) this.color = colors[0];
    const key = colors.join();
    if (this.controlled === key) return;
    this.below.hidden = false;
    this.controlled = key;
    const options = colors.map((value) => ({ value, title: names[value] }));
    const projections = this.archive.projections.filter(({ name, cells }) =>
      name === "grid" || has(`runs/${this.run.id}/map?by=${name}${cells || name === "axes" ? `&seed=${this.seed}` : ""}`));
    fill(
      this.controls,
      choice("Color", options, this.color, (value) => this.setColor(value)),
      projections.length > 1 &&
        choice(
          "Map",
          projections.map(({ name, title }) => ({ value: name, title })),
          this.projection,
          (value) => this.setProjection(value),
        ),
      h("span", { class: "grow" }),
      [["+", "Zoom in", 0.6], ["−", "Zoom out", 1 / 0.6]].map(([sign, label, factor]) =>
        h("button", { class: "icon", "aria-label": label, title: label, onclick: () => this.plane.zoom(factor) }, sign)),
      h("button", { class: "icon", "aria-label": "Reset zoom", title: "Reset zoom (0)", onclick: () => this.plane.showAll() }, "⤢"),
    );
  }

  async setProjection(name) {
    this.projection = name;
    fill(this.viewControls);
    fill(this.problem, this.isGrid || note("Computing the map …"));
    try {
      if (!this.isGrid) await this.loadPlaces();
      if (name !== this.projection) return;
      if (this.isGrid) this.showView();
      else this.showPlaces();
      if (name === "axes") this.drawAxes();
      fill(this.problem);
      this.draw();
      this.mark(this.marked);
    } catch (error) {
      if (name === this.projection) fill(this.problem, note(error.message, "bad"));
    }
  }

  /** Fill the toolbar with the choices of two measures. */
  drawAxes() {
    const options = this.archive.measures.map((title, k) => ({ value: String(k), title }));
    const axis = (label, side) =>
      choice(label, options, String(this.axes[side]), (value) => {
        // The measure of the other axis changes places with this one.
        if (this.axes[1 - side] === Number(value)) this.axes[1 - side] = this.axes[side];
        this.axes[side] = Number(value);
        this.setProjection("axes");
        this.viewControls.querySelectorAll("select")[side]?.focus();
      });
    fill(this.viewControls, axis("Across", 0), axis("Up", 1));
  }

  /** The values of all cells for a color, NaN for empty cells. */
  values(color) {
    const found = new Float32Array(this.archive.num_cells).fill(NaN);
    if (this.column?.color === color) {
      this.column.cell.forEach((cell, i) => (found[cell] = this.column.value[i]));
      return found;
    }
    const { cell } = this.elites;
    const own = color === "discount" ? null : this.elites[color];
    const now = this.elites.about.iteration ?? 0;
    for (let i = 0; i < cell.length; i++) {
      const value = own ? own[i] : this.discounts[cell[i]];
      found[cell[i]] = value === NEVER ? now : value;
    }
    return found;
  }

  draw() {
    const values = this.values(this.color);
    this.cellValues = values;
    const { labels } = this;
    const limits = this.color === "objective" ? this.limits : colorLimits(values, this.range);
    const scale = labels ? labelScale(labels.length) : duskScale(limits);
    if (this.isGrid) this.drawGrid(values, scale);
    else this.drawPoints(values, scale);
    this.plane.draw();
    this.drawLegend(limits, limitsOf(values));
    const { iteration } = this.elites.about;
    const filled = this.elites.cell.length;
    const when = iteration === null || iteration === undefined ? "" : ` · iteration ${number(iteration)}`;
    const share = ((100 * filled) / this.archive.num_cells).toFixed(1);
    const shown = this.isGrid ? this.view.note : this.places.about.title;
    const by = shown && ` · ${shown}`;
    const coarse = this.archive.coarse ? ` · ${this.archive.coarse}` : "";
    this.caption.textContent = `Archive · ${number(filled)} of ${counted(this.archive.num_cells, "cell")} (${share}%)${when}${by}${coarse}`;
  }

  /** The texts of the codes that colors show; `null` for numbers. */
  get labels() {
    return this.color === "label" ? this.archive.labels : (this.columnOf?.choices ?? null);
  }

  drawGrid(values, scale) {
    const cells = this.view.best(this.color === "objective" ? values : this.values("objective"));
    const { columns, rows, axes } = this.view;
    this.shownCells = cells;
    this.layer.set({ values: Float32Array.from(cells, (cell) => values[cell]), columns, rows, x: axes[0], y: axes[1], scale });
  }

  drawPoints(values, scale) {
    const { x, y, cell } = this.places;
    const cells = cell ?? (this.archive.num_cells > MOST_EMPTY ? this.elites.cell : null);
    if (!cells) {
      this.shownCells = null;
      return this.layer.set({ x, y, values, scale });
    }
    const placed = cell ? { x, y } : { x: cells.map((one) => 0), y: null };
    if (!cell) {
      placed.x = Float32Array.from(cells, (one) => x[one]);
      placed.y = Float32Array.from(cells, (one) => y[one]);
    }
    this.shownCells = cells;
    this.layer.set({ ...placed, values: Float32Array.from(cells, (one) => values[one]), scale });
  }

  drawLegend(limits, all) {
    const { labels } = this;
    if (labels) {
      fill(
        this.legend,
        labels.slice(0, 24).map((label, code) => {
          const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
          swatch.style.background = `rgb(${labelColor(code, labels.length).join(" ")})`;
          return h("span", { class: "label" }, swatch, label);
        }),
      );
      return;
    }
    const title = this.columnOf?.title ?? TITLES[this.color];
    fill(this.legend, scaleLegend(limits, all), h("span", { class: "quiet" }, title));
  }

  /** The cell at a place of the layer. */
  cellOf(place) {
    return this.shownCells ? this.shownCells[place] : place;
  }

  /** The place of a cell in the layer; -1 if it is not shown. */
  placeOf(cell) {
    if (this.isGrid) return this.view.placeOf(cell);
    return this.shownCells ? this.shownCells.indexOf(cell) : cell;
  }

  /** Mark a cell that was selected elsewhere. */
  mark(cell) {
    this.marked = cell;
    if (cell === undefined) return;
    this.plane.select(this.placeOf(cell), { tell: false });
  }

  describe(place) {
    const cell = this.cellOf(place);
    const value = this.cellValues?.[cell];
    if (Number.isNaN(value)) return `cell ${number(cell)}: empty`;
    const text = this.labels ? this.labels[value] : number(value);
    const name = this.columnOf?.title ?? (this.color === "found" ? "iteration" : this.color);
    return `cell ${number(cell)}: ${name} ${text}`;
  }

  close() {
    Object.values(this.layers).forEach((layer) => layer.close());
  }
}

/** Limits with a margin beyond the outermost points. */
export function withMargin([low, high]) {
  return [low - 0.03 * (high - low), high + 0.03 * (high - low)];
}
