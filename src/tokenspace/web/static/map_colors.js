/** What a point's color says: its kind, cluster, length, or how far the map can be believed there. */

import { amountGradient, category, CATEGORIES } from "./colors.js";
import { fixed, percent, plural, unpacked } from "./numbers.js";
import { brief } from "./shown.js";

/**
 * @typedef {Object} Coloring
 * @property {Group[]} groups each is drawn with one color, or with `values` on a scale
 * @property {?Amount} amount the scale, where colors are amounts
 * @property {string} about what the colors mean, in a sentence
 * @property {(id: number) => string} [told] what the color says of one token
 * @property {number} [k] how many clusters there are
 * @property {string} [refused] why there are no colors
 *
 * @typedef {{name: string, color: string, ids: Int32Array, values?: Float32Array, size?: number}} Group
 * @typedef {{low: number, high: number, lowText: string, highText: string, gradient: string}} Amount
 */

export const COLORINGS = [
  ["kind", "kind of token"],
  ["cluster", "cluster"],
  ["norm", "length of the row"],
  ["honesty", "honesty of the map"],
];

const GREY = "#8a929b";

/** @returns {Coloring} by the kind of each token: special, byte, word-initial, continuation, unused */
export function byKind(kind, names) {
  const groups = partition(kind, names.length).map((ids, n) => ({ name: names[n], color: category(n), ids }));
  const drawn = groups.filter((group) => group.ids.length).sort((a, b) => b.ids.length - a.ids.length); // few over many
  return { groups: drawn, amount: null, about: "What a token is for." };
}

/** @returns {Coloring} by cluster, the largest first; -1 is in none */
export function byCluster({ label, clusters, k, seed }) {
  const labels = unpacked(label);
  const parts = partition(
    Int32Array.from(labels, (one) => (one < 0 ? clusters.length : one)),
    clusters.length + 1,
  );
  const order = clusters.map((_, n) => n).sort((m, n) => parts[n].length - parts[m].length);
  const groups = order.map((n, rank) => ({
    name: clusters[n].name,
    color: category(rank),
    ids: parts[n],
    cluster: n,
  }));
  if (parts[clusters.length].length)
    groups.push({ name: "in no cluster", color: GREY, ids: parts[clusters.length] });
  const round =
    groups.length > CATEGORIES
      ? ` There are ${CATEGORIES} colors, which come round again: choose a cluster to see it alone.`
      : "";
  return {
    k,
    groups,
    amount: null,
    about: `${plural(k, "cluster")} in the original space (seed ${seed}), named by the tokens nearest each center.${round}`,
    told: (id) => (labels[id] < 0 ? "in no cluster" : `cluster “${brief(clusters[labels[id]].name, 60)}”`),
  };
}

/** @returns {Coloring} none, and why */
export function byNothing(rows, refused) {
  const groups = [{ name: "all", color: GREY, ids: everyId(rows) }];
  return { groups, amount: null, about: "Not colored.", refused };
}

/** @returns {Coloring} by the Euclidean length of each row */
export function byNorm(norm) {
  const sorted = Float32Array.from(norm).sort();
  const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
  const amount = { low: at(0.01), high: at(0.99), gradient: amountGradient() };
  amount.lowText = `≤ ${fixed(amount.low)}`;
  amount.highText = `≥ ${fixed(amount.high)}`;
  const groups = [{ name: "all", ids: everyId(norm.length), values: norm }];
  return {
    groups,
    amount,
    about: "The Euclidean length of the row; the scale ends at the 1st and 99th percentile.",
  };
}

/** @returns {Coloring} by the share of a row's nearest neighbors that the map keeps near */
export function byHonesty({ share, mean, k, measured }, rows) {
  const shares = unpacked(share);
  const [known, unknown] = partition(
    Int32Array.from(shares, (one) => (one >= 0 ? 0 : 1)),
    2,
  );
  const groups = [];
  if (unknown.length) groups.push({ name: "not measured", color: GREY, ids: unknown });
  groups.push({ name: "measured", ids: known, values: Float32Array.from(known, (i) => shares[i]) });
  const sorted = Float32Array.from(known, (i) => shares[i]).sort();
  const high = Math.max(0.1, sorted[Math.floor(0.99 * (sorted.length - 1))] || 0);
  const highText = high >= 1 ? "100 %: all kept" : `≥ ${percent(high, 0)} kept`;
  const amount = { low: 0, high, lowText: "0 %: none kept", highText, gradient: amountGradient() };
  const whole = measured < rows ? `, measured at ${plural(measured, "row")}` : "";
  return {
    groups,
    amount,
    about: `The share of a row's ${k} nearest neighbors that are among its ${k} nearest on the map; ${percent(mean)} on average${whole}.`,
    told: (id) => (shares[id] < 0 ? "not measured" : `${percent(shares[id], 0)} of its nearest kept`),
  };
}

/** A group's name as it may be shown. */
export function groupName(group) {
  return brief(group.name, 60);
}

function everyId(n) {
  return Int32Array.from({ length: n }, (_, i) => i);
}

/** The ids of each of `parts` labels. */
function partition(labels, parts) {
  const sizes = new Uint32Array(parts);
  for (const label of labels) sizes[label] += 1;
  const ids = Array.from(sizes, (size) => new Int32Array(size));
  const filled = new Uint32Array(parts);
  labels.forEach((label, i) => {
    ids[label][filled[label]] = i;
    filled[label] += 1;
  });
  return ids;
}
