// Curves of metrics over iterations: means with bands of the standard error over seeds.

import uPlot from "uplot";

import { cssColor, lineColor, translucent } from "gloam/colors";
import { h } from "gloam/dom";
import { number, tick } from "gloam/format";
import { onThemeChange } from "gloam/theme";

/**
 * Mean and standard error of a metric over seeds, at each iteration.
 * @param {Object<string, Float64Array>[]} tables metrics of one run, or of several with other seeds
 * @returns {[number[], number[], number[], number[]]} iterations, means, and the band around them
 */
export function meanCurve(tables, metric) {
  const sums = new Map();
  for (const table of tables) {
    const values = table[metric];
    if (!values) continue;
    for (let row = 0; row < values.length; row++) {
      if (!Number.isFinite(values[row])) continue;
      const at = table.iteration[row];
      let sum = sums.get(at);
      if (!sum) sums.set(at, (sum = [0, 0, 0]));
      sum[0] += 1;
      const before = sum[1];
      sum[1] += (values[row] - before) / sum[0]; // Welford's mean and sum of squares
      sum[2] += (values[row] - before) * (values[row] - sum[1]);
    }
  }
  const x = [...sums.keys()].sort((a, b) => a - b);
  const found = [x, [], [], []];
  for (const at of x) {
    const [count, mean, squares] = sums.get(at);
    const error = count > 1 ? Math.sqrt(squares / (count - 1) / count) : 0;
    found[1].push(mean);
    found[2].push(mean + error);
    found[3].push(mean - error);
  }
  return found;
}

/** A chart of several curves that keeps its size, follows the theme and can be given new data. */
export class Chart {
  /**
   * @param {string} title
   * @param {string[]} labels a label for each curve
   * @param {{height?: number, sync?: string, colors?: number[]}} options numbers of colors: 0, 1, ...
   */
  constructor(title, labels, { height = 190, sync = null, colors = null } = {}) {
    this.title = title;
    this.labels = labels;
    this.colors = colors ?? labels.map((_, i) => i);
    this.height = height;
    this.sync = sync;
    this.curves = [];
    this.plot = null;
    this.place = h("div", { class: "chart-box", style: null });
    this.element = h(
      "figure",
      { class: "chart card" },
      h("figcaption", {}, title),
      this.place,
    );
    this.place.style.height = `${height + 26}px`;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.place);
    onThemeChange(this.element, () => this.build());
  }

  /** Show curves as `meanCurve` gives them, one for each label. */
  set(curves) {
    this.curves = curves;
    const data = joined(curves);
    if (this.plot) this.plot.setData(data);
    else this.build();
    const last = curves.map((curve, i) => `${this.labels[i]} ${number(curve[1].at(-1))}`);
    this.element.setAttribute("aria-label", `${this.title}: ${last.join(", ")}`);
  }

  build() {
    const width = this.place.clientWidth;
    if (!width || !this.curves.length) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(width), joined(this.curves), this.place);
  }

  resize() {
    const width = this.place.clientWidth;
    if (!width) return;
    if (!this.plot) this.build();
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  options(width) {
    const axis = {
      stroke: cssColor("--quiet"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: cssColor("--line"), width: 1 },
      ticks: { show: false },
    };
    const series = [{ label: "iteration", value: (_, value) => number(value) }];
    const bands = [];
    this.labels.forEach((label, i) => {
      const stroke = lineColor(this.colors[i]);
      const hidden = { stroke: "transparent", points: { show: false }, spanGaps: true, class: "edge" };
      const show = (_, value) => number(value);
      series.push({ label, stroke, width: 1.6, points: { show: false }, spanGaps: true, value: show });
      series.push({ ...hidden, label: "" }, { ...hidden, label: "" });
      bands.push({ series: [3 * i + 2, 3 * i + 3], fill: translucent(stroke, 0.18) });
    });
    return {
      width,
      height: this.height,
      padding: [8, 18, 0, 0],
      scales: { x: { time: false } },
      axes: [
        { ...axis, size: 24, gap: 3 },
        { ...axis, size: 52, gap: 4, values: (_, ticks) => ticks.map(tick) },
      ],
      series,
      bands,
      legend: { live: true },
      cursor: {
        points: { size: 6, show: (plot, i) => (i % 3 === 1 ? undefined : document.createElement("i")) },
        sync: this.sync ? { key: this.sync } : undefined,
      },
    };
  }
}

/** Curves on one common list of iterations, as uPlot takes them. */
function joined(curves) {
  if (curves.length === 1) return curves[0];
  return uPlot.join(curves);
}
