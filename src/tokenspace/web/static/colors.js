/**
 * Colors that a color-blind reader can tell apart: Okabe & Ito's for kinds, a blue–white–orange scale for signed
 * numbers, viridis for amounts.
 */

const OKABE_ITO = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a400", "#7f6bb3"];
const VIRIDIS = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [109, 205, 89],
  [180, 222, 44],
  [253, 231, 37],
];
const POSITIVE = "230, 126, 34";
const NEGATIVE = "46, 120, 190";

/** The n-th category's color; they come round again after eight, which a legend has to say. */
export function category(n) {
  return OKABE_ITO[n % OKABE_ITO.length];
}

/** How many categories have a color of their own. */
export const CATEGORIES = OKABE_ITO.length;

/** viridis as plotly takes it, [[0, "rgb(…)"], …], without the end that would vanish on the page's ground. */
export function amountScale() {
  const visible = isDark() ? VIRIDIS.slice(2) : VIRIDIS.slice(0, -1);
  return visible.map((rgb, i) => [i / (visible.length - 1), `rgb(${rgb.join(",")})`]);
}

/** viridis as a CSS gradient, left to right. */
export function amountGradient() {
  return `linear-gradient(to right, ${amountScale()
    .map(([, color]) => color)
    .join(", ")})`;
}

/**
 * The color of a signed number: nothing at 0, full at ±`largest`; light enough for text in either color scheme.
 *
 * @param {number} x
 * @param {number} largest
 */
export function signedColor(x, largest, full = 0.62) {
  const share = largest > 0 ? Math.min(1, Math.abs(x) / largest) : 0;
  return `rgba(${x >= 0 ? POSITIVE : NEGATIVE}, ${(full * share).toFixed(3)})`;
}

/** The size that all but the largest 2 % of `values` stay below: one outlier must not fade all others. */
export function typicalLargest(values) {
  const sizes = Float64Array.from(values, Math.abs).sort();
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
}

/** Whether the reader's system asks for dark colors. */
export function isDark() {
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}
