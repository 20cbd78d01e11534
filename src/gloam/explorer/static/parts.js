// Small parts that several views share: states, progress, sparklines, tiles, notes.

import { h } from "gloam/dom";
import { counted, duration, number } from "gloam/format";

const SYMBOLS = {
  running: "●",
  finished: "✓",
  stopped: "■",
  interrupted: "❙❙",
  failed: "✕",
  damaged: "!",
  newer: "↑",
};

/** The state of a run: a symbol, a word and a color. */
export function stateMark({ state, reason }) {
  const names = { newer: "newer format" };
  return h(
    "span",
    { class: `state ${state}`, title: reason || null },
    h("span", { class: "symbol", "aria-hidden": "true" }, SYMBOLS[state] ?? "?"),
    names[state] ?? state,
  );
}

/** The progress of a run, and the time left. */
export function progress(run) {
  const total = run.iterations ?? 0;
  const share = total ? Math.min(1, (run.iteration ?? 0) / total) : 0;
  const left = run.state === "running" ? leftText(run.seconds_left) : "";
  const words = `${number(run.iteration ?? 0)} of ${counted(total, "iteration")}${left}`;
  return h(
    "div",
    { class: "progress" },
    h("progress", { max: 1, value: share, "aria-label": "Progress" }),
    h("span", { class: "quiet" }, words),
  );
}

function leftText(seconds) {
  return seconds === null || seconds === undefined ? "" : `, ${duration(seconds)} left`;
}

/** A small curve without axes. */
export function sparkline(values, label) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const known = (values ?? []).filter((value) => value !== null);
  if (known.length > 1) {
    const low = Math.min(...known);
    const span = Math.max(...known) - low || 1;
    const places = known.map((value, i) => {
      const x = (100 * i) / (known.length - 1);
      return `${x.toFixed(1)},${(22 - (20 * (value - low)) / span).toFixed(1)}`;
    });
    const line = document.createElementNS(svg.namespaceURI, "polyline");
    line.setAttribute("points", places.join(" "));
    svg.append(line);
  }
  return svg;
}

/** A number with its name. */
export function tile(name, value, more = "") {
  return h(
    "div",
    { class: "tile" },
    h("dt", {}, name),
    h("dd", {}, value, more && h("small", {}, more)),
  );
}

/** A line that explains why something is not shown. */
export function note(text, kind = "") {
  return h("p", { class: `note ${kind}` }, text);
}

/** A value with its standard error. */
export function withError(value, error, format = number) {
  if (!error) return format(value);
  return `${format(value)} ± ${format(Number(error.toPrecision(2)))}`;
}
