// A comparison of several runs: curves with standard errors, results, tests, and settings that differ.

import { choice, fill, h } from "gloam/dom";
import { Chart, meanCurve } from "gloam/curves";
import { counted, metricTitle, number, percent, setting } from "gloam/format";
import { lineColor, lineNumbers } from "gloam/colors";
import { setPageKeys } from "gloam/keys";
import { poll } from "gloam/live";
import { note, stateMark, withError } from "gloam/parts";
import { arrays, has, json, Turns } from "gloam/source";
import { onThemeChange } from "gloam/theme";

const FIRST = ["qd_score", "coverage", "best_objective"];
const HIDDEN = new Set(["f_min", "num_elites", "num_counted", "seed", "iteration"]);
const RESULTS = { ">": "higher", "<": "lower", "-": "no significant difference" };

/** The page that compares the runs with these ids. */
export function comparePage(ids) {
  const groups = ids.split(",").filter(Boolean).slice(0, 40);
  const comparison = new Comparison(groups.map((id) => ({ runs: [id] })));
  const element = h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs")),
    h("h1", {}, counted(groups.length, "run")),
    comparison.element,
  );
  setPageKeys({ Escape: () => (location.hash = "#/") });
  return { element, title: "Compare", close: () => comparison.close() };
}

/** Curves and tables of groups of runs; the runs of a group differ in their seeds only. */
export class Comparison {
  /** @param {{label?: string, runs: string[]}[]} groups */
  constructor(groups, { settings = true } = {}) {
    this.groups = groups;
    this.metric = FIRST[0];
    this.withSettings = settings;
    this.tag = null;
    this.tables = [];
    this.statistics = null;
    this.turns = new Turns();
    this.control = h("div", { class: "toolbar" });
    this.charts = h("div", { class: "charts" });
    this.results = h("div", {});
    this.tests = h("div", {});
    this.settings = h("div", {});
    this.problem = h("div", {});
    this.element = h("div", { class: "comparison" }, this.problem, this.charts, this.results, this.tests, this.settings);
    this.close = poll(() => this.load(), () => 2);
    onThemeChange(this.element, () => this.drawTables());
  }

  async load() {
    try {
      const { content, tag } = await json("folder");
      if (tag === this.tag) return;
      const known = new Map(content.runs.map((run) => [run.id, run]));
      const runs = this.groups.map((group) => group.runs.map((id) => known.get(id)).filter((run) => run?.results));
      this.summaries = runs.map((group, i) => ({ label: this.label(i, group), runs: group })).filter(({ runs }) => runs.length);
      this.colors = lineNumbers(this.summaries.map(({ runs }) => runs[0].algorithm ?? ""));
      const tables = this.summaries.map(({ runs }) => Promise.all(runs.map((run) => arrays(`runs/${run.id}/metrics`))));
      this.tables = withOneReference(await Promise.all(tables));
      this.tag = tag;
      fill(this.problem, this.summaries.length ? null : note("None of these runs can be read."));
      this.drawCharts();
      this.drawTables();
      await this.loadStatistics();
    } catch (error) {
      fill(this.problem, note(error.message, "bad"));
    }
  }

  /** Load the scores with one reference for all runs, and the tests. */
  async loadStatistics() {
    const groups = this.summaries.map(({ runs }) => runs.map(({ id }) => id).join(",")).join(";");
    const path = `compare?groups=${groups}`;
    if (this.summaries.length < 2 || !has(path)) return;
    const isLast = this.turns.begin();
    let found;
    try {
      found = (await json(path)).content;
    } catch (error) {
      found = { problem: error.message };
    }
    if (!isLast()) return;
    this.statistics = found;
    this.drawTables();
  }

  label(place, runs) {
    return this.groups[place].label ?? runs[0]?.name ?? "";
  }

  drawCharts() {
    const labels = this.summaries.map(({ label }) => label);
    if (!this.drawn || this.drawn.labels.join() !== labels.join()) {
      const options = { height: 260, colors: this.colors };
      const charts = FIRST.slice(0, 2).map((metric) => ({ metric, chart: new Chart(metricTitle(metric), labels, options) }));
      const more = { metric: FIRST[2], chart: new Chart("", labels, options) };
      this.drawn = { labels, charts: [...charts, more] };
      const names = new Set(this.tables.flat().flatMap((table) => Object.keys(table)));
      const others = [...names].filter((name) => !HIDDEN.has(name) && name !== "about" && !FIRST.slice(0, 2).includes(name));
      const pick = choice("Metric", others.map((value) => ({ value, title: metricTitle(value) })), more.metric, (value) => {
        more.metric = value;
        this.setCurves();
      });
      fill(more.chart.element.querySelector("figcaption"), pick);
      fill(this.charts, this.drawn.charts.map(({ chart }) => chart.element));
    }
    this.setCurves();
  }

  setCurves() {
    for (const { metric, chart } of this.drawn.charts) {
      if (!chart.title) chart.title = metricTitle(metric);
      chart.set(this.tables.map((tables) => meanCurve(tables, metric)));
    }
  }

  drawTables() {
    if (!this.summaries) return;
    const { f_min } = this.statistics ?? {};
    const reference = f_min !== undefined && note(`QD scores of all runs are counted from ${number(f_min)}. Elites below it count as 0 if their archive has no f_min.`);
    fill(this.results, h("h2", {}, "Results"), this.resultsTable(), reference);
    if (this.statistics) fill(this.tests, h("h2", {}, "Tests"), this.testsPart());
    if (this.withSettings) fill(this.settings, h("h2", {}, "Settings that differ"), this.settingsTable());
  }

  resultsTable() {
    const rows = this.summaries.map(({ label, runs }, i) => {
      const final = finalRows(this.tables[i]);
      const known = this.statistics?.table?.find(({ group }) => group === i);
      const of = (metric, format = number) => {
        const ofAll = known && `${metric}_error` in known;
        const found = ofAll ? [known[metric], known[`${metric}_error`]] : meanAndError(final.map((row) => row[metric]));
        return withError(...found, format);
      };
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, swatch(this.colors[i]), h("a", { href: `#/run/${runs[0].id}` }, label)),
        h("td", {}, stateMark(runs[0])),
        h("td", { class: "number" }, String(final.length)),
        h("td", { class: "number" }, of("qd_score")),
        h("td", { class: "number" }, of("coverage", percent)),
        h("td", { class: "number" }, of("best_objective")),
        h("td", { class: "number" }, of("evaluations")),
        h("td", { class: "number" }, of("seconds")),
      );
    });
    const head = ["Run", "State", "Seeds", "QD score", "Coverage", "Best objective", "Evaluations", "Seconds"];
    return sortableTable(head, rows, "Results, mean and standard error over seeds");
  }

  /** The tests of one metric, which is chosen above them. */
  testsPart() {
    const { problem, tests } = this.statistics;
    if (problem) return note(problem);
    if (!Object.keys(tests).length) return note("Tests need at least two seeds of each run.");
    const options = Object.keys(tests).map((value) => ({ value, title: metricTitle(value) }));
    const place = h("div", {}, this.testsTable(tests[this.metric]));
    const pick = choice("Metric", options, this.metric, (value) => {
      this.metric = value;
      fill(place, this.testsTable(tests[value]));
    });
    const about = "Games-Howell tests of each pair, which do not assume equal variances. Significant: p < 0.05.";
    return [h("div", { class: "toolbar" }, pick, h("span", { class: "quiet" }, about)), place];
  }

  testsTable(tests) {
    const named = (group) => [swatch(this.colors[group]), this.summaries[group].label];
    const rows = tests.map(({ group, other, difference, p, hedges_g, sign }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, named(group)),
        h("td", {}, RESULTS[sign]),
        h("td", {}, named(other)),
        [difference, p, hedges_g].map((value) => h("td", { class: "number" }, number(value))),
      ),
    );
    const head = ["Run", "Result", "Other run", "Difference", "p", "Hedges' g"];
    return sortableTable(head, rows, "Games-Howell tests");
  }

  settingsTable() {
    const names = [...new Set(this.summaries.flatMap(({ runs }) => Object.keys(runs[0].settings ?? {})))];
    const values = (name) => this.summaries.map(({ runs }) => name in (runs[0].settings ?? {}) ? setting(runs[0].settings[name]) : "–");
    const differing = names.filter((name) => new Set(values(name)).size > 1);
    if (!differing.length) return note("All settings are the same.");
    const rows = differing.map((name) =>
      h("tr", {}, h("th", { scope: "row" }, name), values(name).map((value) => h("td", {}, value))),
    );
    return sortableTable(["Setting", ...this.summaries.map(({ label }) => label)], rows, "Settings that differ");
  }
}

function swatch(number) {
  const mark = h("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.background = lineColor(number);
  return mark;
}

/** The last row of each seed, as an object. */
function finalRows(tables) {
  const found = [];
  for (const table of tables) {
    const last = new Map();
    for (let row = 0; row < (table.iteration?.length ?? 0); row++) last.set(table.seed[row], row);
    for (const row of last.values()) {
      const names = Object.keys(table).filter((name) => name !== "about");
      found.push(Object.fromEntries(names.map((name) => [name, table[name][row]])));
    }
  }
  return found;
}

function meanAndError(values) {
  const known = values.filter(Number.isFinite);
  if (!known.length) return [null, null];
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const error = known.length > 1 ? Math.sqrt(squares / (known.length - 1) / known.length) : null;
  return [mean, error];
}

/** A table that is sorted by a click on the head of a column. */
function sortableTable(head, rows, caption) {
  const body = h("tbody", {}, rows);
  let sorted = { column: -1, sign: 1 };
  const isNumeric = (column) => rows[0]?.children[column]?.classList.contains("number");
  const heads = head.map((title, column) =>
    h("th", { scope: "col", class: isNumeric(column) && "number" }, h("button", { class: "plain", onclick: () => sortBy(column) }, title)),
  );
  const sortBy = (column) => {
    sorted = { column, sign: sorted.column === column ? -sorted.sign : 1 };
    const text = (row) => row.children[column].textContent;
    const value = (row) => Number.parseFloat(text(row).replaceAll(",", ""));
    const ordered = [...body.children].sort((a, b) => {
      const difference = value(a) - value(b);
      const order = Number.isNaN(difference) ? text(a).localeCompare(text(b), "en", { numeric: true }) : difference;
      return sorted.sign * order;
    });
    heads.forEach((cell, i) => cell.setAttribute("aria-sort", i === column ? (sorted.sign > 0 ? "ascending" : "descending") : "none"));
    body.replaceChildren(...ordered);
  };
  return h(
    "div",
    { class: "scroll-x", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: "plain-table" }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body),
  );
}

/** Count the QD scores of all runs from one reference, the lowest of theirs. */
function withOneReference(groups) {
  const references = groups.flat().flatMap(({ f_min: f }) => (f ? [...f] : []));
  const lowest = references.reduce((low, f) => Math.min(low, f), Infinity);
  const counted = (table) => ({
    ...table,
    qd_score: Float64Array.from(table.qd_score, (score, i) => score + table.num_counted[i] * (table.f_min[i] - lowest)),
  });
  return groups.map((tables) => tables.map((table) => (table.f_min && table.num_counted ? counted(table) : table)));
}
