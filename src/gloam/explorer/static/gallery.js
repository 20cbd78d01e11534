// The gallery of a run on a dataset: all pairs of solution and item.

import { announce, choice, fill, h } from "gloam/dom";
import { counted, number, percent } from "gloam/format";
import { note } from "gloam/parts";
import { isReport, json, Turns } from "gloam/source";
import { Thumbs } from "gloam/thumbs";

const WIDE = 156;
const HIGH = 116;
const HIGH_WITHOUT_PICTURES = 56;
const ORDERS = [
  { value: "objective", title: "objective" },
  { value: "distance", title: "distance" },
  { value: "label", title: "label" },
  { value: "item", title: "item" },
];
const SHOWN = [
  { value: "filled", title: "items with an elite" },
  { value: "empty", title: "items without an elite" },
  { value: "all", title: "all items" },
];

export class Gallery {
  /**
   * @param {object} run the summary of the run
   * @param {(cell: number) => void} onselect
   */
  constructor(run, onselect) {
    this.run = run;
    this.onselect = onselect;
    this.turns = new Turns();
    this.by = "objective";
    this.worst = false;
    this.which = "filled";
    this.order = [];
    this.active = 0;
    this.withPictures = run.pictures.solution || run.pictures.item;
    this.high = this.withPictures ? HIGH : HIGH_WITHOUT_PICTURES;
    this.search = h("input", {
      type: "search",
      placeholder: "Search by label or name",
      "aria-label": "Search the gallery",
      oninput: () => this.sort(),
    });
    this.count = h("span", { class: "quiet" });
    const worst = h("input", { type: "checkbox", onchange: () => this.sort({ worst: worst.checked }) });
    this.inner = h("div", { class: "tiles" });
    this.scroller = h(
      "div",
      { class: "gallery", role: "listbox", "aria-label": "Pairs of solution and item", tabindex: 0 },
      this.inner,
    );
    this.problem = h("div", {});
    this.element = h(
      "section",
      { class: "card" },
      h("h2", {}, "Gallery"),
      h(
        "div",
        { class: "toolbar" },
        this.search,
        choice("Order", ORDERS, this.by, (value) => this.sort({ by: value })),
        h("label", { class: "control" }, worst, h("span", {}, "worst first")),
        choice("Show", SHOWN, this.which, (value) => this.sort({ which: value })),
        this.count,
      ),
      this.problem,
      this.scroller,
    );
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** Show the pairs of a seed. */
  async load(seed) {
    const isLast = this.turns.begin();
    try {
      const { content } = await json(`runs/${this.run.id}/pairs?seed=${seed}`);
      const thumbs = new Thumbs(this.run, seed);
      await thumbs.load();
      if (!isLast()) return;
      this.pairs = content;
      this.rows = new Map();
      content.cells.forEach((cell, row) => this.rows.set(cell, row));
      this.thumbs = thumbs;
      fill(this.problem);
      this.sort();
    } catch (error) {
      if (isLast()) fill(this.problem, note(error.message));
    }
  }

  sort({ by = this.by, worst = this.worst, which = this.which } = {}) {
    Object.assign(this, { by, worst, which });
    if (!this.pairs) return;
    const { names, labels } = this.pairs;
    const wanted = this.search.value.trim().toLowerCase();
    const cells = [];
    for (let cell = 0; cell < names.length; cell++) {
      if (which !== "all" && this.rows.has(cell) !== (which === "filled")) continue;
      const label = labels ? labels[cell].toLowerCase() : "";
      if (wanted && label !== wanted && !`${names[cell]} ${label}`.toLowerCase().includes(wanted)) continue;
      cells.push(cell);
    }
    const key = this.sortKey(by);
    const sign = worst ? -1 : 1;
    const keys = new Map(cells.map((cell) => [cell, key(cell)]));
    cells.sort((a, b) => sign * compared(keys.get(a), keys.get(b)) || a - b);
    this.order = cells;
    this.active = 0;
    this.scroller.scrollTop = 0;
    this.count.textContent = `${number(cells.length)} of ${counted(names.length, "item")}, ${percent(this.pairs.coverage)} have an elite`;
    announce(this.count.textContent);
    this.drawn = null;
    this.draw();
  }

  /** The sort key of pairs, lowest for the best; items without an elite come last. */
  sortKey(by) {
    const { objective, distance, labels } = this.pairs;
    const last = this.worst ? -Infinity : Infinity;
    if (by === "item") return (cell) => cell;
    if (by === "label") return (cell) => (labels ? labels[cell] : cell);
    const values = by === "objective" ? objective.map((value) => -value) : distance;
    return (cell) => (this.rows.has(cell) ? values[this.rows.get(cell)] : last);
  }

  get columns() {
    return Math.max(1, Math.floor(this.scroller.clientWidth / WIDE));
  }

  /** Put only the tiles in view on the page. */
  draw() {
    if (!this.pairs || !this.scroller.clientWidth) return;
    const { columns } = this;
    const rows = Math.ceil(this.order.length / columns);
    this.inner.style.height = `${rows * this.high}px`;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.high) - 1) * columns;
    const inView = Math.ceil(this.scroller.clientHeight / this.high) + 3;
    const end = Math.min(this.order.length, first + inView * columns);
    const key = `${first} ${end} ${columns}`;
    if (this.drawn === key) return;
    this.drawn = key;
    const focused = document.activeElement?.parentElement === this.inner;
    const tiles = [];
    for (let place = first; place < end; place++) tiles.push(this.tile(place, columns));
    if (!tiles.length) tiles.push(note("No item matches."));
    fill(this.inner, tiles);
    if (focused) this.inner.querySelector(`[data-place="${this.active}"]`)?.focus({ preventScroll: true });
  }

  tile(place, columns) {
    const cell = this.order[place];
    const { names, labels, objective, distance } = this.pairs;
    const row = this.rows.get(cell);
    const figures = row === undefined ? "no elite" : `${number(objective[row])} · ${number(distance[row])}`;
    const label = labels ? `${labels[cell]} ` : "";
    const tile = h(
      "button",
      {
        class: "pair",
        role: "option",
        "data-place": place,
        tabindex: place === this.active ? 0 : -1,
        "aria-selected": "false",
        "aria-label": `${label}${names[cell]}: ${row === undefined ? "no elite" : `objective ${number(objective[row])}, distance ${number(distance[row])}`}`,
        onclick: () => {
          this.active = place;
          this.onselect(cell);
        },
      },
      this.withPictures && this.picture(place),
      h("span", { class: "pair-name" }, labels && h("b", {}, labels[cell]), ` ${names[cell]}`),
      h("span", { class: "pair-figures" }, figures),
    );
    tile.style.transform = `translate(${(place % columns) * WIDE}px, ${Math.floor(place / columns) * this.high}px)`;
    return tile;
  }

  picture(place) {
    const found = this.thumbs.find(this.order, place);
    const shown = h("span", { class: "pair-picture", "aria-hidden": "true" });
    if (found?.address) {
      shown.style.backgroundImage = `url("${found.address}")`;
      shown.style.backgroundPosition = `0 ${-64 * found.row}px`;
    } else if (isReport) {
      shown.classList.add("missing");
    }
    return shown;
  }

  key(event) {
    const { columns } = this;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !this.order.length) return;
    event.preventDefault();
    this.active = Math.min(this.order.length - 1, Math.max(0, this.active + step));
    const top = Math.floor(this.active / columns) * this.high;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    const bottom = top + this.high - this.scroller.clientHeight;
    if (bottom > this.scroller.scrollTop) this.scroller.scrollTop = bottom;
    this.drawn = null;
    this.draw();
    this.inner.querySelector(`[data-place="${this.active}"]`)?.focus({ preventScroll: true });
  }
}

function compared(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return a < b ? -1 : a > b ? 1 : 0;
}
