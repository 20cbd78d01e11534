// The page: its header, and the view for each address.

import { fill, h } from "gloam/dom";
import { helpButton, setPageKeys, startKeys } from "gloam/keys";
import { comparePage } from "gloam/compare_page";
import { runPage } from "gloam/run_page";
import { runsPage } from "gloam/runs_page";
import { studyPage } from "gloam/study_page";
import { isReport, reportAbout } from "gloam/source";
import { startTheme, themeButton } from "gloam/theme";

const ROUTES = [
  [/^#\/run\/([0-9a-f]{12})(?:\/cell\/(\d+))?$/, runPage],
  [/^#\/study\/([0-9a-f]{12})$/, studyPage],
  [/^#\/compare\/([0-9a-f,]+)$/, comparePage],
];

let current = null;

function show() {
  const address = location.hash || reportAbout.start || "#/";
  const stays = current?.goTo?.(address);
  if (stays) return;
  current?.close?.();
  setPageKeys({});
  const main = document.getElementById("main");
  const found = ROUTES.map(([pattern, page]) => ({ page, parts: pattern.exec(address) })).find(
    ({ parts }) => parts,
  );
  const view = found ? found.page(...found.parts.slice(1)) : runsPage();
  fill(main, view.element);
  current = view;
  document.title = `${view.title} · gloam`;
  scrollTo(0, 0);
}

function start() {
  startTheme();
  startKeys();
  const home = reportAbout.start ?? "#/";
  fill(
    document.getElementById("top"),
    h("a", { class: "brand", href: home }, h("span", { class: "mark", "aria-hidden": "true" }), "gloam"),
    h("span", { class: "place", id: "place" }, isReport ? "report" : "explorer"),
    h("span", { class: "grow" }),
    themeButton(),
    helpButton(),
  );
  addEventListener("hashchange", show);
  show();
}

start();
