// The page of a study: a comparison of its algorithms for each domain.

import { Comparison } from "gloam/compare_page";
import { fill, h } from "gloam/dom";
import { counted } from "gloam/format";
import { setPageKeys } from "gloam/keys";
import { note } from "gloam/parts";
import { isReport, json } from "gloam/source";

/** The page of the study with an id. */
export function studyPage(id) {
  const title = h("h1", {}, "Study");
  const about = h("p", { class: "quiet" });
  const sections = h("div", {});
  const crumbs = isReport ? null : h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs"));
  const comparisons = [];
  const element = h("div", { class: "page" }, crumbs, title, about, sections);
  setPageKeys({ Escape: () => !isReport && (location.hash = "#/") });

  const load = async () => {
    const { content } = await json("folder");
    const study = content.studies.find((one) => one.id === id);
    if (!study || study.reason) return fill(sections, note(study?.reason ?? "There is no such study.", "bad"));
    title.textContent = study.name;
    about.textContent =
      `${counted(study.domains.length, "domain")}, ${counted(study.algorithms.length, "algorithm")}, ` +
      `${counted(study.num_seeds, "seed")} of ${counted(study.iterations, "iteration")}`;
    const named = (name) => study.titles[name] ?? name;
    const domains = study.domains.filter((domain) => study.cells.some((cell) => cell.domain === domain));
    fill(sections, domains.length ? null : note("No run of this study has started."));
    for (const domain of domains) {
      const cells = study.cells.filter((cell) => cell.domain === domain);
      const groups = cells.map((cell) => ({ label: named(cell.algorithm), runs: cell.runs }));
      const comparison = new Comparison(groups, { settings: false });
      comparisons.push(comparison);
      sections.append(h("section", {}, h("h2", {}, named(domain)), comparison.element));
    }
  };
  load().catch((error) => fill(sections, note(error.message, "bad")));
  return { element, title: "Study", close: () => comparisons.forEach((one) => one.close()) };
}
