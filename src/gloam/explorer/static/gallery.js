// The gallery of a run on a dataset: every item beside the elite that is nearest to it.

import { announce, choice, fill, h } from "gloam/dom";
import { counted, number, percent } from "gloam/format";
import { note } from "gloam/parts";
import { isReport, json, Turns } from "gloam/source";
import { Thumbs } from "gloam/thumbs";

const WIDE = 156;
const HIGH = 134;
const HIGH_WITHOUT_PICTURES = 74;
const ORDERS = [
  { value: "explained", title: "explained variance" },
  { value: "objective", title: "objective" },
  { value: "distance", title: "distance" },
  { value: "label", title: "label" },
  { value: "item", title: "item" },
];
const SHOWN = [
  { value: "all", title: "all items" },
  { value: "missed", title: "items not reached" },
  { value: "empty", title: "items with empty cells" },
  { value: "filled", title: "items with filled cells" },
];
const RULES =
  "Not reached: no solution found is nearer to the item than the mean of all items is. " +
  "Empty: no solution found was nearest to the item; an elite of another cell is shown.";

export class Gallery {
  /**
   * @param {object} run the summary of the run
   * @param {(cell: number) => void} onselect
   */
  constructor(run, onselect) {
    this.run = run;
    this.onselect = onselect;
    this.turns = new Turns();
    this.by = "explained";
    this.worst = false;
    this.which = "all";
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
      h("p", { class: "quiet" }, RULES),
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
      this.filled = new Set(content.cells);
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
      if (which === "missed" && !this.isMissed(cell)) continue;
      if ((which === "empty" || which === "filled") && this.filled.has(cell) !== (which === "filled")) continue;
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
    this.count.textContent = `${number(cells.length)} of ${counted(names.length, "item")}, ${percent(this.pairs.coverage)} of the cells are filled`;
    announce(this.count.textContent);
    this.drawn = null;
    this.draw();
  }

  /** Whether the elite of an item is too far from it: see gloam.datasets.Matches.reached. */
  isMissed(cell) {
    return this.pairs.missed[cell];
  }

  /** The sort key of pairs, lowest for the best; by objective, items with empty cells come last. */
  sortKey(by) {
    const { objective, row, distance, explained, labels } = this.pairs;
    if (by === "item") return (cell) => cell;
    if (by === "label") return (cell) => (labels ? labels[cell] : cell);
    if (by === "objective") return (cell) => (this.filled.has(cell) ? -objective[row[cell]] : Infinity);
    if (by === "explained") return (cell) => -(explained[cell] ?? -Infinity);
    return (cell) => distance[cell] ?? Infinity;
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
    const { names, labels, objective, row, distance, explained } = this.pairs;
    const first = this.filled.has(cell) ? number(objective[row[cell]]) : "empty";
    const apart = number(distance[cell]);
    const known = explained[cell] === null ? "" : `explains ${Math.round(100 * explained[cell])}%`;
    const quality = this.isMissed(cell) ? "not reached" : known;
    const label = labels ? `${labels[cell]} ` : "";
    const tile = h(
      "button",
      {
        class: this.isMissed(cell) ? "pair missed" : "pair",
        role: "option",
        "data-place": place,
        tabindex: place === this.active ? 0 : -1,
        "aria-selected": "false",
        "aria-label": `${label}${names[cell]}: ${this.filled.has(cell) ? `objective ${first}` : "empty cell"}, distance ${apart}, ${quality}`,
        onclick: () => {
          this.active = place;
          this.onselect(cell);
        },
      },
      this.withPictures && this.picture(place),
      h("span", { class: "pair-name" }, labels && h("b", {}, labels[cell]), ` ${names[cell]}`),
      h("span", { class: "pair-figures" }, `${first} · ${apart}`),
      h("span", { class: "pair-figures" }, quality),
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
