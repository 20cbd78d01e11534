// Numbers, shares, times, settings and names of metrics as texts.

/** A number with four significant digits; large ones with separators, very large ones as 1.2e9. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e8) return value.toLocaleString("en");
  if (size >= 1e7 || size < 1e-4) return exponential(value, 2);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

/** A number in at most nine characters, for the labels of an axis. */
export function tick(value) {
  return Math.abs(value) >= 1e5 ? exponential(value, 3) : number(value);
}

function exponential(value, digits) {
  return value.toExponential(digits).replace(/\.?0+e/, "e").replace("+", "");
}

/** A number of things, such as "1 run" and "2 runs". */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** The local date and time of seconds since 1970. */
export function date(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return new Date(1000 * seconds).toLocaleString("sv").slice(0, 16);
}

/** A share as a percentage. */
export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`;
}

/** A time such as "2 h 5 min". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 1440)} days`;
}

/** A value of a table of settings. */
export function setting(value) {
  if (value === null || value === undefined) return "none";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "number" ? String(value) : value;
}

/** The heading of a QD score, with its reference unless that is 0. */
export function scoreTitle(reference) {
  return reference ? `QD score from ${number(reference)}` : "QD score";
}

const METRICS = {
  qd_score: "QD score",
  coverage: "Coverage",
  best_objective: "Best objective",
  mean_objective: "Mean objective",
  f_min: "Reference of the QD score",
  num_elites: "Elites",
  num_counted: "Elites above the reference",
  loss: "Discount model loss",
  rank_correlation: "Rank correlation",
  empty_discount: "Discount of empty cells",
  unique_cells: "Unique cells per batch",
  restarts: "Restarts",
  epochs: "Training epochs",
  failed_total: "Failed evaluations",
  failed: "Failed evaluations per iteration",
  infeasible_total: "Infeasible solutions",
  infeasible: "Infeasible solutions per iteration",
  below_f_min: "Objectives below f_min",
  outside_bounds: "Measures outside of the bounds",
  seconds: "Seconds",
  evaluations: "Evaluations",
  gradients: "Gradients",
};

// Metrics of an emitter in a mixture: its label, then one of these.
const EMITTERS = {
  cma_es: "CMA-ES",
  aimed: "aimed CMA-ES",
  aimed_moves: "aimed moves",
  moves: "moves",
  swaps: "swaps",
  ascent: "gradient ascent",
  aimed_ascent: "aimed gradient ascent",
  refinement: "refinement by gradients",
};
const OF_EMITTER = {
  accepted: "Accepted solutions",
  filled: "New cells",
  restarts: "Restarts",
  share: "Share of the batch",
  reached: "Targets reached",
  gradients_failed: "Failed gradients",
  step: "Step length",
  pull: "Pull to the target",
};
for (const [label, emitter] of Object.entries(EMITTERS)) {
  for (const [metric, title] of Object.entries(OF_EMITTER)) {
    METRICS[`${label}_${metric}`] = `${title} (${emitter})`;
  }
}

/** The title of a column of metrics. */
export function metricTitle(name) {
  return METRICS[name] ?? name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase());
}
