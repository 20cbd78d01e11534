// The list of runs and studies of a folder: filter, sort, select, open, compare.

import { announce, fill, h } from "gloam/dom";
import { counted, date, duration, number, percent } from "gloam/format";
import { setPageKeys } from "gloam/keys";
import { poll } from "gloam/live";
import { note, sparkline, stateMark } from "gloam/parts";
import { json } from "gloam/source";

const COLUMNS = [
  { key: "name", title: "Run", of: (run) => run.name },
  { key: "state", title: "State", of: (run) => run.state },
  { key: "algorithm", title: "Algorithm", of: (run) => run.algorithm ?? "" },
  { key: "domain", title: "Domain", of: (run) => run.domain ?? "" },
  { key: "iteration", title: "Iterations", of: (run) => run.iteration ?? -1, numeric: true },
  { key: "qd_score", title: "QD score", of: (run) => run.results?.qd_score ?? -Infinity, numeric: true },
  { key: "coverage", title: "Coverage", of: (run) => run.results?.coverage ?? -1, numeric: true },
  { key: "best", title: "Best", of: (run) => run.results?.best_objective ?? -Infinity, numeric: true },
  { key: "seeds", title: "Seeds", of: (run) => run.seeds?.length ?? 0, numeric: true },
  { key: "time", title: "Time", of: (run) => run.results?.seconds ?? -1, numeric: true },
  { key: "started", title: "Started", of: (run) => run.started ?? 0, numeric: true },
];
// Selected runs, filter and order are kept when the user opens a run and comes back.
const memory = { chosen: new Set(), filter: "", sort: "name", ascending: true };

/** The list of runs. */
export function runsPage() {
  const page = new RunsPage();
  return { element: page.element, title: "Runs", close: () => page.close() };
}

class RunsPage {
  constructor() {
    this.folder = { runs: [], studies: [], links: [], folder: "" };
    this.tag = null;
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter by name, algorithm, domain, state or setting",
      "aria-label": "Filter runs",
      value: memory.filter,
      oninput: () => this.setFilter(this.filter.value),
    });
    this.compare = h("a", { class: "button", role: "button" }, "Compare");
    this.count = h("span", { class: "quiet", id: "count" });
    this.links = h("div", {});
    this.studies = h("section", { class: "studies" });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.problem = h("div", {});
    const table = h(
      "table",
      { class: "runs" },
      h("caption", { class: "unseen" }, "Runs"),
      h("thead", {}, this.head),
      this.body,
    );
    this.element = h(
      "div",
      { class: "page" },
      h("h1", { id: "folder" }, "Runs"),
      this.problem,
      this.studies,
      h("div", { class: "toolbar" }, this.filter, this.compare, this.count),
      h("div", { class: "scroll-x" }, table),
      this.links,
    );
    this.drawHead();
    this.drawChosen();
    setPageKeys({
      "/": () => this.filter.focus(),
      Escape: () => this.setFilter(""),
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      c: () => this.compare.hasAttribute("href") && this.compare.click(),
    });
    this.close = poll(() => this.load(), () => 2);
  }

  async load() {
    try {
      const { content, tag } = await json("folder");
      fill(this.problem);
      if (tag === this.tag && this.folder.runs.length) return;
      this.folder = content;
      this.tag = tag;
      this.draw();
    } catch (error) {
      fill(this.problem, note(error.message, "bad"));
    }
  }

  draw() {
    const title = this.element.querySelector("#folder");
    title.textContent = this.folder.folder || "Runs";
    const { links } = this.folder;
    const linked = `Links to folders are not followed: ${links.join(", ")}. "gloam explore LINK" shows the runs behind one.`;
    fill(this.links, links.length > 0 && note(linked));
    fill(
      this.studies,
      this.folder.studies.map((study) =>
        h(
          "a",
          { class: "card study", href: `#/study/${study.id}` },
          h("strong", {}, study.name),
          h(
            "span",
            { class: "quiet" },
            study.reason ?? `study: ${counted(study.domains.length, "domain")}, ${counted(study.algorithms.length, "algorithm")}`,
          ),
        ),
      ),
    );
    this.drawRows();
  }

  drawHead() {
    const cells = COLUMNS.map(({ key, title, numeric }) => {
      const sorted = memory.sort === key ? (memory.ascending ? "ascending" : "descending") : "none";
      const arrow = { ascending: " ↑", descending: " ↓", none: "" }[sorted];
      return h(
        "th",
        { scope: "col", "aria-sort": sorted, class: numeric ? "number" : key },
        h("button", { class: "plain", onclick: () => this.sortBy(key, numeric) }, title + arrow),
      );
    });
    fill(
      this.head,
      h("th", { scope: "col", class: "check" }, h("span", { class: "unseen" }, "Select")),
      cells,
      h("th", { scope: "col", class: "spark" }, "Curve"),
    );
  }

  drawRows() {
    const shown = this.shown();
    const focused = document.activeElement?.closest?.("tr[data-id]")?.dataset.id;
    const part = document.activeElement?.tagName;
    fill(this.body, shown.map((run) => this.row(run)));
    if (!shown.length) {
      const words = this.folder.runs.length ? "No run matches the filter." : "There are no runs in this folder.";
      fill(this.body, h("tr", {}, h("td", { colspan: COLUMNS.length + 2 }, note(words))));
    }
    if (focused) {
      const row = this.body.querySelector(`tr[data-id="${focused}"]`);
      (part === "INPUT" ? row?.querySelector("input") : row?.querySelector("a"))?.focus();
    }
    const all = this.folder.runs.length;
    this.count.textContent = (shown.length === all ? "" : `${shown.length} of `) + counted(all, "run");
    if (!this.folder.complete) this.count.textContent += ", others were not searched";
  }

  row(run) {
    const results = run.results ?? {};
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Select ${run.name}`,
      checked: memory.chosen.has(run.id),
      disabled: !run.results,
      onchange: () => this.choose(run.id, box.checked),
    });
    const link = h(
      "a",
      {
        href: `#/run/${run.id}`,
        onkeydown: (event) => {
          if (event.key !== " ") return;
          event.preventDefault();
          box.click();
        },
      },
      run.name,
    );
    const steps = run.iterations ? `${number(run.iteration)} / ${number(run.iterations)}` : "–";
    return h(
      "tr",
      { "data-id": run.id },
      h("td", { class: "check" }, box),
      h("th", { scope: "row", class: "name" }, link, run.reason && !run.results && h("small", {}, run.reason)),
      h("td", { class: "state" }, stateMark(run)),
      h("td", { class: "algorithm" }, run.algorithm ?? "–"),
      h("td", { class: "domain" }, run.domain ?? "–"),
      h("td", { class: "number", "data-name": "Iterations" }, steps),
      h("td", { class: "number", "data-name": "QD score" }, number(results.qd_score), results.f_min ? h("small", {}, ` from ${number(results.f_min)}`) : null, results.corrected ? h("small", {}, ` corrected ${number(results.corrected_qd_score)}`) : null),
      h("td", { class: "number", "data-name": "Coverage" }, percent(results.coverage)),
      h("td", { class: "number", "data-name": "Best" }, number(results.best_objective)),
      h("td", { class: "number", "data-name": "Seeds", title: `seeds ${run.settings?.seeds ?? "–"}` }, number(run.seeds?.length)),
      h("td", { class: "number", "data-name": "Time" }, duration(results.seconds)),
      h("td", { class: "number started", "data-name": "Started", title: date(run.started) }, date(run.started).slice(0, 10)),
      h("td", { class: "spark" }, sparkline(run.sparkline, "QD score over iterations")),
    );
  }

  shown() {
    const words = memory.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.folder.runs.filter((run) => {
      const text = searched(run);
      return words.every((word) => text.includes(word));
    });
    const { of } = COLUMNS.find(({ key }) => key === memory.sort);
    const sign = memory.ascending ? 1 : -1;
    return found.sort((a, b) => sign * compared(of(a), of(b)) || compared(a.name, b.name));
  }

  setFilter(text) {
    memory.filter = text;
    if (this.filter.value !== text) this.filter.value = text;
    this.drawRows();
    announce(this.count.textContent);
  }

  sortBy(key, numeric) {
    memory.ascending = memory.sort === key ? !memory.ascending : !numeric;
    memory.sort = key;
    this.drawHead();
    this.drawRows();
    this.head.querySelector("[aria-sort=ascending] button, [aria-sort=descending] button")?.focus();
  }

  choose(id, chosen) {
    if (chosen) memory.chosen.add(id);
    else memory.chosen.delete(id);
    this.drawChosen();
  }

  drawChosen() {
    const chosen = [...memory.chosen];
    this.compare.textContent = chosen.length ? `Compare ${chosen.length}` : "Compare";
    const ready = chosen.length > 1;
    this.compare.toggleAttribute("aria-disabled", !ready);
    if (ready) this.compare.href = `#/compare/${chosen.join(",")}`;
    else this.compare.removeAttribute("href");
    this.compare.title = ready ? "" : "Select at least two runs";
  }

  move(step) {
    const links = [...this.body.querySelectorAll("th.name a")];
    if (!links.length) return false;
    const row = document.activeElement?.closest?.("tr[data-id]");
    const place = links.findIndex((link) => link.closest("tr") === row);
    const next = place < 0 ? 0 : Math.min(links.length - 1, Math.max(0, place + step));
    links[next].focus();
    return true;
  }
}

function searched(run) {
  const settings = Object.entries(run.settings ?? {}).map(([name, value]) => `${name}=${value}`);
  const parts = [run.name, run.state, run.algorithm, run.domain, run.driver, ...settings];
  return parts.join(" ").toLowerCase();
}

function compared(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return a < b ? -1 : a > b ? 1 : 0;
}
