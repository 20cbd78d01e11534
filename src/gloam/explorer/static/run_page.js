// The page of one run, updated while it runs: progress, scores, archive, discount model, cell, gallery, settings.

import { ArchiveMap } from "gloam/archive_map";
import { CellPanel } from "gloam/cell_panel";
import { Chart, meanCurve } from "gloam/curves";
import { DiscountMap } from "gloam/discount_map";
import { choice, fill, h } from "gloam/dom";
import { counted, date, duration, metricTitle, number, percent, scoreTitle, setting } from "gloam/format";
import { Gallery } from "gloam/gallery";
import { setPageKeys } from "gloam/keys";
import { poll } from "gloam/live";
import { note, progress, stateMark, tile, withError } from "gloam/parts";
import { arrays, has, isReport, json, SourceError } from "gloam/source";

// Charts in this order, followed by those of other metrics.
const FIRST = ["qd_score", "coverage", "best_objective", "loss", "rank_correlation", "empty_discount", "unique_cells", "restarts"];
const NOT_DRAWN = new Set(["seed", "iteration", "evaluations", "gradients", "seconds", "f_min", "num_elites", "num_counted", "about"]);
const MANY = 8;

/** The page of a run by its id, at a cell if one is given. */
export function runPage(id, cell) {
  const page = new RunPage(id, cell === undefined ? null : Number(cell));
  return {
    element: page.element,
    title: "Run",
    close: () => page.close(),
    goTo: (address) => page.goTo(address),
  };
}

class RunPage {
  constructor(id, cell) {
    this.id = id;
    this.cell = cell;
    this.seed = null;
    this.at = null;
    this.charts = new Map();
    this.head = h("div", { class: "run-head" });
    this.tiles = h("dl", { class: "tiles-row" });
    this.problem = h("div", {});
    this.partsProblem = h("div", {});
    this.moments = h("div", { class: "toolbar" });
    this.maps = h("div", { class: "maps" });
    this.chartsPlace = h("div", { class: "charts small" });
    this.more = h("details", { class: "more" }, h("summary", {}, "More diagnostics"), h("div", { class: "charts small" }));
    this.galleryPlace = h("div", {});
    this.settings = h("section", {});
    const crumbs = isReport ? null : h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs"));
    this.element = h(
      "div",
      { class: "page" },
      crumbs,
      this.head,
      this.problem,
      this.tiles,
      this.moments,
      this.partsProblem,
      this.maps,
      h("h2", {}, "Progress and diagnostics"),
      this.chartsPlace,
      this.more,
      this.galleryPlace,
      this.settings,
    );
    this.more.addEventListener("toggle", () => this.charts.forEach((chart) => chart.resize()));
    setPageKeys({
      Escape: () => (document.activeElement?.tagName === "INPUT" ? document.activeElement.blur() : !isReport && (location.hash = "#/")),
      "/": () => this.gallery?.search.focus() ?? false,
      "[": () => this.step(-1),
      "]": () => this.step(1),
    });
    this.stop = poll(() => this.load(), () => (this.run?.state === "running" ? 2 : 5));
  }

  async load() {
    try {
      const { content, tag } = await json(`runs/${this.id}`);
      if (tag === this.tag) return;
      const before = this.run;
      this.run = { ...this.parts, ...content };
      this.tag = tag;
      this.seed ??= content.seeds?.[0] ?? null;
      this.drawHead();
      if (!content.seeds) return;
      if (before?.rows !== content.rows) await this.loadMetrics();
      if (!before) this.drawSettings();
      if (!this.parts || before.version !== content.version) await this.loadParts();
    } catch (error) {
      fill(this.problem, note(error.message, "bad"));
    }
  }

  drawHead() {
    const { run } = this;
    document.title = `${run.name} · gloam`;
    fill(
      this.head,
      h("h1", {}, run.name),
      stateMark(run),
      h("p", { class: "quiet" }, run.algorithm ? `${run.algorithm} on ${run.domain}${run.started ? `, started ${date(run.started)}` : ""}` : ""),
      run.iterations ? progress(run) : null,
    );
    const problems = [...(run.warnings ?? [])];
    if (run.reason && run.state !== "running") problems.push(run.reason);
    const results = run.results ?? {};
    const again = `Corrected scores are means of ${counted(results.corrected, "new evaluation")} of each elite. Noise biases the other scores upwards.`;
    fill(this.problem, problems.map((text) => note(text, run.results ? "" : "bad")), results.corrected && note(again));
    const error = (name) => results[`${name}_error`];
    if (!run.results) return;
    fill(
      this.tiles,
      tile(scoreTitle(results.f_min), withError(results.qd_score, error("qd_score"))),
      results.corrected && tile(`Corrected ${scoreTitle(results.corrected_f_min)}`, withError(results.corrected_qd_score, error("corrected_qd_score"))),
      tile("Coverage", withError(results.coverage, error("coverage"), percent)),
      results.corrected && tile("Corrected coverage", withError(results.corrected_coverage, error("corrected_coverage"), percent)),
      tile("Best objective", withError(results.best_objective, error("best_objective"))),
      tile("Evaluations", number(results.evaluations)),
      results.gradients > 0 && tile("Gradients", number(results.gradients)),
      tile("Time", duration(results.seconds)),
      tile("Seeds", String(run.seeds.length)),
      results.failed_total > 0 && tile("Failed evaluations", number(results.failed_total)),
      results.infeasible_total > 0 && tile("Infeasible solutions", number(results.infeasible_total)),
    );
  }

  async loadMetrics() {
    const table = await arrays(`runs/${this.id}/metrics`);
    const names = Object.keys(table).filter((name) => !NOT_DRAWN.has(name));
    names.sort((a, b) => place(a) - place(b));
    for (const name of names) {
      const curve = meanCurve([table], name);
      if (!curve[0].length) continue;
      let chart = this.charts.get(name);
      if (!chart) {
        const label = this.run.seeds.length > 1 ? "mean ± standard error" : "value";
        chart = new Chart(metricTitle(name), [label], { sync: `run-${this.id}` });
        this.charts.set(name, chart);
        const few = this.chartsPlace.childElementCount < MANY && FIRST.includes(name);
        (few ? this.chartsPlace : this.more.lastElementChild).append(chart.element);
      }
      chart.set([curve]);
    }
    this.more.hidden = !this.more.lastElementChild.childElementCount;
  }

  /** Load the archive, which is written at the first checkpoint. */
  async loadParts() {
    this.maps.hidden = !this.run.elites;
    if (!this.run.elites) {
      fill(this.partsProblem, note(this.run.state === "running" ? firstText(this.run) : "The run has no checkpoint."));
      return;
    }
    try {
      const { content } = await json(`runs/${this.id}/parts`);
      if (content.error) throw new SourceError(content.error);
      this.parts = content;
      Object.assign(this.run, content);
      fill(this.partsProblem);
      await this.loadArchive();
    } catch (error) {
      if (!(error instanceof SourceError)) throw error;
      fill(this.partsProblem, note(error.message, this.run.state === "running" ? "" : "bad"));
    }
  }

  async loadArchive() {
    const { run } = this;
    if (!this.map) {
      this.map = new ArchiveMap(run, (cell) => this.select(cell));
      this.panel = new CellPanel(run, (cell) => this.select(cell));
      const discount = run.model && has(`runs/${run.id}/discount`) ? new DiscountMap(run, this.map) : null;
      this.discount = discount;
      fill(this.maps, this.map.element, discount?.element, this.panel.element);
      this.maps.classList.toggle("two", discount !== null);
      if (run.dataset && run.pictures) {
        this.gallery = new Gallery(run, (cell) => this.select(cell, true));
        fill(this.galleryPlace, this.gallery.element);
      }
    }
    this.drawMoments();
    await this.showMoment();
    await this.gallery?.load(this.seed);
    if (this.cell !== null) this.select(this.cell);
  }

  drawMoments() {
    const { run } = this;
    const moments = this.seed === run.seeds[0] ? run.moments.filter((at) => has(`runs/${run.id}/elites?seed=${this.seed}&at=${at}`)) : [];
    const seeds = run.seeds.filter((seed) => has(`runs/${run.id}/elites?seed=${seed}`));
    const value = this.at === null ? moments.length : moments.indexOf(this.at);
    const words = h("output", {}, momentText(this.at));
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: moments.length,
      step: 1,
      "aria-label": "Snapshot",
      oninput: () => {
        this.at = moments[Number(this.slider.value)] ?? null;
        words.textContent = momentText(this.at);
        this.slider.setAttribute("aria-valuetext", words.textContent);
        this.showMoment();
      },
    });
    this.slider.value = value;
    fill(
      this.moments,
      seeds.length > 1 &&
        choice("Seed", seeds.map((seed) => ({ value: String(seed), title: String(seed) })), String(this.seed), (chosen) => this.setSeed(Number(chosen))),
      moments.length > 0 && h("label", { class: "control slider" }, h("span", {}, "Iteration"), this.slider, words),
    );
  }

  async setSeed(seed) {
    this.seed = seed;
    this.at = null;
    this.drawMoments();
    await this.showMoment();
    await this.gallery?.load(this.seed);
    if (this.cell !== null) this.panel.show(this.seed, this.cell);
  }

  async showMoment() {
    await this.map.load(this.seed, this.at);
    if (this.cell !== null) this.map.mark(this.cell);
    if (!this.discount) return;
    const { at } = this;
    if (at !== null && !has(`runs/${this.id}/discount?at=${at}`)) return;
    this.discount.load(at, this.map.limits ?? [0, 1]);
  }

  step(by) {
    if (!this.slider || this.slider.max === "0") return false;
    this.slider.value = Number(this.slider.value) + by;
    this.slider.dispatchEvent(new Event("input"));
    return true;
  }

  select(cell, far = false) {
    this.cell = cell;
    this.map.mark(cell);
    this.panel.show(this.seed, cell);
    if (far) this.panel.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    history.replaceState(null, "", `#/run/${this.id}/cell/${cell}`);
  }

  goTo(address) {
    const found = /^#\/run\/([0-9a-f]{12})\/cell\/(\d+)$/.exec(address);
    if (!found || found[1] !== this.id || !this.map) return false;
    this.select(Number(found[2]));
    return true;
  }

  drawSettings() {
    const rows = Object.entries(this.run.settings ?? {}).map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, setting(value))),
    );
    const table = h("table", { class: "plain-table" }, h("caption", { class: "unseen" }, "Settings"), h("tbody", {}, rows));
    fill(this.settings, h("details", { class: "more" }, h("summary", {}, "Settings"), h("div", { class: "scroll-x" }, table)));
  }

  close() {
    this.stop();
    this.map?.close();
    this.discount?.close();
  }
}

/** When the curves and the archive of a run that has just begun will be shown. */
function firstText({ rows, first }) {
  const at = [first.checkpoint_every && `at iteration ${number(first.checkpoint_every)}`, first.checkpoint_seconds && `about ${duration(first.checkpoint_seconds)} after the start`];
  const when = at.filter(Boolean).join(" or ");
  const curves = rows ? "" : ` The curves appear at iteration ${number(first.log_every ?? 1)}.`;
  return `The archive appears after the first checkpoint${when && `, ${when}`}.${curves}`;
}

function momentText(at) {
  return at === null ? "latest" : number(at);
}

function place(name) {
  const found = FIRST.indexOf(name);
  return found < 0 ? FIRST.length : found;
}
