// Colors of values and lines, as in the figures of gloam.plots.

import { h } from "gloam/dom";
import { number } from "gloam/format";

// Matplotlib's inferno from 0.1 to 0.9 (CC0): perceptually uniform, and safe for any color vision.
const DUSK =
  "160b39190c3e1b0c411e0c45210c4a230c4c260c51280b532b0b572f0a5b310a5c340a5f3609613909633d09653e0966" +
  "420a68450a69470b6a4a0c6b4c0c6b4f0d6c520e6d540f6d57106e59106e5c126e5f136e61136e64156e65156e69166e" +
  "6c186e6d186e71196e741a6e751b6e781c6d7a1d6d7d1e6d801f6c82206c85216b87216b8a226a8d23698f2469922568" +
  "9526679727669a28659b29649f2a63a22b62a32c61a62d60a82e5fab2f5eae305cb0315bb3325ab43359b73557ba3655" +
  "bc3754bf3952c13a50c33b4fc63d4dc73e4cca404acc4248ce4347d04545d24644d44842d74b3fd84c3eda4e3cdb503b" +
  "de5238e05536e15635e35933e55c30e65d2fe8602de9612beb6429ec6726ed6925ef6c23ef6e21f1711ff2741cf3761b" +
  "f47918f57d15f67e14f78212f78410f8870ef98b0bf98c0afa9008fa9207fb9606fb9906fb9b06fc9f07fca108fca50a" +
  "fca80dfcaa0ffcae12fcb216fcb418fbb81dfbba1ffbbe23fac228fac42af9c72ff9c932f8cd37f7d13df7d340f6d746";
// Share of the values at one end, and the share of the range at which they hide the others.
const [TAIL, HIDING] = [0.02, 2 / 3];
const MOST_SORTED = 100_000;
const STOPS = DUSK.length / 6;
// Okabe and Ito's colors without yellow, which is too light for a line.
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
PALETTE.push("#22242b", "#332288", "#882255", "#999933", "#117733", "#7f7f7f");
const DARK_PALETTE = ["#4aa8e0", "#f0803c", "#2fc296", "#dd9cc0", "#8fcff2", "#f0b63a"];
DARK_PALETTE.push("#c9ccd6", "#9a8fec", "#d0699f", "#c9c95c", "#4fbf78", "#a8a8a8");
// Algorithms with a color of their own, in the order of the palette, as in the figures.
const RESERVED = ["dms", "cmamae", "dds", "mapelites", "mapelitesline", "dmspaper"];

const dusk = Uint8Array.from({ length: STOPS * 3 }, (_, i) =>
  parseInt(DUSK.slice(2 * i, 2 * i + 2), 16),
);

/** Whether the page is dark now. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Different numbers of colors for the lines of algorithms: gloam's have their own, as in figures.
 * @param {string[]} algorithms the algorithm of each line
 * @returns {number[]}
 */
export function lineNumbers(algorithms) {
  const numbers = algorithms.map((name) => RESERVED.indexOf(name.toLowerCase().replace(/[^a-z0-9]/g, "")));
  const taken = new Set(numbers);
  return numbers.map((number, i) => {
    if (number >= 0 && numbers.indexOf(number) === i) return number;
    let free = RESERVED.length;
    while (taken.has(free)) free++;
    taken.add(free);
    return free;
  });
}

/** The color of a line by its number. */
export function lineColor(number) {
  const palette = isDark() ? DARK_PALETTE : PALETTE;
  return palette[number % palette.length];
}

/** A color with an opacity from 0 to 1. */
export function translucent(color, opacity) {
  return color + Math.round(255 * opacity).toString(16).padStart(2, "0");
}

/** The value of a custom property of the style sheet. */
export function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A scale of colors. `write(value, target, at)` writes red, green and blue of a value.
 * @param {[number, number]} limits lowest and highest value
 */
export function duskScale([low, high]) {
  const span = high > low ? high - low : 1;
  return {
    limits: [low, high],
    write(value, target, at) {
      const share = Math.min(1, Math.max(0, (value - low) / span));
      const stop = 3 * Math.round(share * (STOPS - 1));
      target[at] = dusk[stop];
      target[at + 1] = dusk[stop + 1];
      target[at + 2] = dusk[stop + 2];
    },
  };
}

/** A scale of colors for codes 0, 1, 2, ... of labels. */
export function labelScale(count) {
  const colors = Array.from({ length: count }, (_, code) => labelColor(code, count));
  return {
    limits: [0, count - 1],
    write(value, target, at) {
      const color = colors[value] ?? [128, 128, 128];
      target.set(color, at);
    },
  };
}

/** Red, green and blue of a label: a hue for each, in two rows of lightness. */
export function labelColor(code, count) {
  const hue = (360 * code) / Math.max(1, count);
  return hslToRgb(hue, 0.6, code % 2 ? 0.62 : 0.48);
}

function hslToRgb(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

/** The lowest and the highest number, ignoring NaN. */
export function limitsOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  return low <= high ? [low, high > low ? high : low + 1] : [0, 1];
}

/**
 * The limits of a scale of colors, as in gloam.plots: "all" values, without the tails ("inner"), or
 * ("auto") without a tail that takes up more than two thirds of the range.
 */
export function colorLimits(values, range) {
  const [low, high] = limitsOf(values);
  if (range === "all") return [low, high];
  // Some of many values, because sorting a million would take half a second.
  const step = Math.ceil(values.length / MOST_SORTED);
  const some = Float32Array.from({ length: Math.ceil(values.length / step) || 0 }, (_, i) => values[i * step]);
  const sorted = some.filter(Number.isFinite).sort();
  if (!sorted.length) return [low, high];
  const last = sorted.length - 1;
  const [from, to] = [sorted[Math.floor(TAIL * last)], sorted[Math.ceil((1 - TAIL) * last)]];
  const most = range === "auto" ? HIDING * (high - low) : 0;
  const found = [from - low > most ? from : low, high - to > most ? to : high];
  return found[0] < found[1] ? found : [low, high];
}

/** A bar of the colors with its limits, and a sign where values lie beyond them. */
export function scaleLegend([low, high], [lowest, highest]) {
  const bar = h("span", { class: "bar", "aria-hidden": "true" });
  bar.style.background = duskGradient();
  return [h("span", {}, (lowest < low ? "≤ " : "") + number(low)), bar, h("span", {}, (highest > high ? "≥ " : "") + number(high))];
}

/** The stops of the scale as a CSS gradient. */
function duskGradient() {
  const stops = [];
  for (let stop = 0; stop < STOPS; stop += 9) {
    stops.push(`rgb(${dusk[3 * stop]} ${dusk[3 * stop + 1]} ${dusk[3 * stop + 2]})`);
  }
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
