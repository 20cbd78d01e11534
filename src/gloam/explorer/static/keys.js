// Keyboard shortcuts, and the dialog that lists them.

import { h } from "gloam/dom";
import { switchTheme } from "gloam/theme";

const KEYS = [
  ["/", "filter runs or search the gallery"],
  ["↑ ↓", "move in the list of runs"],
  ["Enter", "open a run, a cell or a pair"],
  ["Space", "select a run to compare"],
  ["c", "compare the selected runs"],
  ["← ↑ → ↓", "move on the map or in the gallery"],
  ["+ − 0", "zoom in, zoom out, reset zoom"],
  ["[ ]", "previous or next snapshot"],
  ["t", "light or dark theme"],
  ["Esc", "clear the filter, or go back to the list of runs"],
  ["?", "show this list"],
];

/** Handlers of the current page, by key. */
let ofPage = {};

/** Set the handlers of a page. */
export function setPageKeys(handlers) {
  ofPage = handlers;
}

/** Listen to keys. */
export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select");
    if (typing && event.key !== "Escape") return;
    if (document.querySelector("dialog[open]")) return;
    const common = { "?": showHelp, t: switchTheme };
    const handler = ofPage[event.key] ?? common[event.key];
    if (handler && handler(event) !== false) event.preventDefault();
  });
}

/** Show the list of keys. */
function showHelp() {
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const rows = KEYS.map(([key, what]) =>
    h("div", { class: "key-row" }, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)),
  );
  const dialog = h(
    "dialog",
    { "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", {}, rows),
    close,
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** The button that shows the list. */
export function helpButton() {
  const label = "Keyboard shortcuts (?)";
  return h("button", { class: "icon", title: label, "aria-label": label, onclick: showHelp }, "?");
}
