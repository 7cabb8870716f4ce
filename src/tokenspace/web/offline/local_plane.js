/** An analogy as two arrows in the plane that lies nearest to the four rows: what `plots/arrows.py` computes. */

import { dot, unit } from "./local_rows.js";

/**
 * @param {{a: Float32Array, b: Float32Array, c: Float32Array}} vectors of length 1
 * @param {Float32Array} best the best answer's vector
 */
export function plane({ a, b, c }, best) {
  const four = [a, b, c, unit(best)];
  const target = Array.from(b, (x, d) => x - a[d] + c[d]);
  const middle = Array.from(a, (_, d) => four.reduce((sum, row) => sum + row[d], 0) / 4);
  const apart = four.map((row) => Array.from(row, (x, d) => x - middle[d]));
  const { values, vectors } = eigen(apart.map((x) => apart.map((y) => dot(x, 0, y))));
  const arrows = [difference(four[1], four[0]), difference(four[3], four[2])];
  const both = arrows[0].map((x, d) => x + arrows[1][d]);
  const axes = [0, 1].map((n) => {
    const size = Math.sqrt(Math.max(values[n], 0)) || 1;
    const axis = Array.from(a, (_, d) => apart.reduce((sum, row, m) => sum + vectors[n][m] * row[d], 0) / size);
    return dot(axis, 0, both) < 0 ? axis.map((x) => -x) : axis; // b is right of a, and above
  });
  const point = (row) => axes.map((axis) => dot(axis, 0, difference(row, middle)));
  const spread = values.reduce((sum, x) => sum + Math.max(x, 0), 0) || 1;
  const lengths = arrows.map((arrow) => dot(arrow, 0, arrow));
  const within = axes.flatMap((axis) => arrows.map((arrow) => dot(axis, 0, arrow) ** 2)).reduce((sum, x) => sum + x);
  const names = ["a", "b", "c", "d"];
  return {
    points: { ...Object.fromEntries(names.map((name, n) => [name, point(four[n])])), target: point(target) },
    axes: [0, 1].map((n) => `axis ${n + 1} of the plane (${((100 * Math.max(values[n], 0)) / spread).toFixed(1)} % of the four's spread)`),
    plane_share: lengths[0] + lengths[1] ? Math.min(1, within / (lengths[0] + lengths[1])) : 1,
    cosine: lengths[0] * lengths[1] ? dot(arrows[0], 0, arrows[1]) / Math.sqrt(lengths[0] * lengths[1]) : 0,
  };
}

function difference(x, y) {
  return Array.from(x, (value, d) => value - y[d]);
}

/** The eigenvalues of a small symmetric matrix, largest first, and their vectors: Jacobi's rotations. */
function eigen(matrix) {
  const n = matrix.length;
  const m = matrix.map((row) => [...row]);
  const v = m.map((row, i) => row.map((_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep++) for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) rotate(m, v, p, q);
  const order = m.map((_, i) => i).sort((i, j) => m[j][j] - m[i][i]);
  return { values: order.map((i) => m[i][i]), vectors: order.map((i) => v.map((row) => row[i])) };
}

function rotate(m, v, p, q) {
  if (Math.abs(m[p][q]) < 1e-300) return;
  const angle = Math.atan2(2 * m[p][q], m[q][q] - m[p][p]) / 2;
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  for (let k = 0; k < m.length; k++) [m[k][p], m[k][q]] = [c * m[k][p] - s * m[k][q], s * m[k][p] + c * m[k][q]];
  for (let k = 0; k < m.length; k++) [m[p][k], m[q][k]] = [c * m[p][k] - s * m[q][k], s * m[p][k] + c * m[q][k]];
  for (let k = 0; k < m.length; k++) [v[k][p], v[k][q]] = [c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]];
}
