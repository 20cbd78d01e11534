// The panel of a cell: pictures, scores, numbers, neighbours, and buttons to copy them.

import { cellDetails, cellDiscount } from "gloam/cells";
import { announce, copyText, fill, h } from "gloam/dom";
import { number } from "gloam/format";
import { note } from "gloam/parts";
import { isReport, pictureAddress, Turns } from "gloam/source";
import { Thumbs } from "gloam/thumbs";

const FEW = 12;

export class CellPanel {
  /**
   * @param {object} run the summary of the run
   * @param {(cell: number) => void} onselect when a neighbour is selected
   */
  constructor(run, onselect) {
    this.run = run;
    this.onselect = onselect;
    this.turns = new Turns();
    this.content = h("div", { class: "cell-content" }, note("Select a cell to see its elite."));
    this.element = h("aside", { class: "card cell", "aria-label": "Selected cell" }, this.content);
  }

  /** Show a cell of a seed. */
  async show(seed, cell) {
    const isLast = this.turns.begin();
    try {
      const details = await cellDetails(this.run, seed, cell);
      const pictures = await this.pictures(details);
      if (!isLast()) return;
      this.details = details;
      this.draw(details, pictures);
      announce(`Cell ${number(cell)}, ${details.filled ? `objective ${number(details.objective)}` : "empty"}`);
      this.showDiscount(seed, cell, isLast);
    } catch (error) {
      if (isLast()) fill(this.content, note(error.message, "bad"));
    }
  }

  draw(details, pictures) {
    const named = details.name !== undefined && h("p", { class: "item-name" }, details.label && h("b", {}, details.label), ` ${details.name}`);
    const head = [h("h2", {}, `Cell ${number(details.cell)}`), named, pictures];
    if (!details.filled) return fill(this.content, head, note("This cell is empty."), this.neighbours(details.neighbours, "Nearest elites"));
    this.discount = h("dd", {}, "–");
    fill(
      this.content,
      head,
      h(
        "dl",
        { class: "facts" },
        fact("Objective", number(details.objective)),
        details.distance !== null && fact("Distance", number(details.distance)),
        this.run.model && !isReport && h("div", {}, h("dt", {}, "Discount"), this.discount),
        details.found && fact("Found", foundText(details.found)),
      ),
      this.measures(details),
      factsOf("Fields", details.fields),
      this.solution(details),
      this.copies(details),
      this.neighbours(details.neighbours),
    );
  }

  /** The variables of a space by name, or the numbers of a vector. */
  solution({ values, solution, solution_dim }) {
    return factsOf("Solution", values) ?? numbers("Solution", solution, solution_dim);
  }

  /** The measures by name, or as a list of numbers if they are many. */
  measures({ measures, measure_dim }) {
    const names = this.run.archive.measures;
    if (!names || !measures) return numbers("Measures", measures, measure_dim);
    return factsOf("Measures", Object.fromEntries(measures.map((value, k) => [names[k], number(value)])));
  }

  async showDiscount(seed, cell, isLast) {
    try {
      const value = await cellDiscount(this.run, seed, cell);
      if (isLast() && this.discount) this.discount.textContent = number(value);
    } catch {
      // The model may be of the user's own class; the rest of the panel does not need it.
    }
  }

  /** Solution and item side by side, at full size. */
  async pictures({ cell, seed, filled }) {
    const { solution, item } = this.run.pictures ?? {};
    if (!solution && !item) return null;
    if (isReport) return this.smallPictures(seed, cell);
    const one = (side, words) => {
      const address = pictureAddress(`runs/${this.run.id}/cells/${cell}/picture?side=${side}&seed=${seed}`);
      return h("figure", {}, h("img", { src: address, alt: `${words} of cell ${cell}`, class: "full" }), h("figcaption", {}, words));
    };
    return h("div", { class: "pictures" }, solution && filled && one("solution", "solution"), item && one("item", "item"));
  }

  /** Reports contain small pictures only. */
  async smallPictures(seed, cell) {
    const thumbs = new Thumbs(this.run, seed);
    await thumbs.load();
    const found = thumbs.find([cell], 0);
    if (!found?.address) return null;
    const words = this.run.pictures.item ? "solution and item" : "solution";
    const shown = h("span", { class: "pair-picture large", role: "img", "aria-label": words });
    shown.style.backgroundImage = `url("${found.address}")`;
    shown.style.backgroundPosition = `0 ${-128 * found.row}px`;
    return shown;
  }

  copies(details) {
    const python = h("button", { onclick: () => copyText(details.python, python) }, "Copy Python");
    const { python: _, neighbours: __, ...plain } = details;
    const text = JSON.stringify({ run: this.run.name, ...plain });
    const asJson = h("button", { onclick: () => copyText(text, asJson) }, "Copy JSON");
    return h("div", { class: "toolbar small" }, asJson, details.python && python);
  }

  neighbours(found, title = "Neighbours in measure space") {
    if (!found?.length) return null;
    const rows = found.map(({ cell, objective, distance }) =>
      h(
        "li",
        {},
        h("button", { class: "plain link", onclick: () => this.onselect(cell) }, `cell ${number(cell)}`),
        h("span", { class: "quiet" }, `objective ${number(objective)}, ${number(distance)} away`),
      ),
    );
    return h("div", {}, h("h3", {}, title), h("ul", { class: "neighbours" }, rows));
  }
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

/** Texts by name, under a heading; `null` if there are none. */
function factsOf(title, texts) {
  const facts = Object.entries(texts ?? {}).map(([name, value]) => fact(name, value));
  return facts.length ? h("div", { class: "numbers" }, h("h3", {}, title), h("dl", { class: "facts" }, facts)) : null;
}

function foundText({ after, until }) {
  return `after iteration ${number(after)}, by iteration ${number(until)}`;
}

/** A list of numbers, of which the first few are shown at once. */
function numbers(title, values, count) {
  if (!values?.length) return null;
  const shown = h("code", {}, values.slice(0, FEW).map(number).join("  "));
  const all = h("button", { class: "plain link" }, `show all ${number(values.length)}`);
  all.addEventListener("click", () => {
    shown.textContent = values.map(number).join("  ");
    all.remove();
  });
  const heading = count > values.length ? `${title} (${number(values.length)} of ${number(count)} numbers)` : `${title} (${number(count)})`;
  return h("div", { class: "numbers" }, h("h3", {}, heading), shown, values.length > FEW && all);
}
