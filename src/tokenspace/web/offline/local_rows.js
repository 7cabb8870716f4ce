/** A table's rows in the page itself, and the searches that the server would do over them. */

const EPSILON = 0.001; // of 3cosmul
const KEPT = 3; // tables under switches; each is as large as the rows

/**
 * V rows of D numbers as float32, whichever type they travel in.
 *
 * @param {Uint8Array} bytes little-endian
 * @param {"float32"|"float16"|"bfloat16"} dtype
 * @returns {Float32Array}
 */
export function widened(bytes, dtype) {
  if (dtype === "float32") return new Float32Array(bytes.buffer);
  const halves = new Uint16Array(bytes.buffer);
  const bits = new Uint32Array(halves.length);
  if (dtype === "bfloat16") {
    for (let i = 0; i < halves.length; i++) bits[i] = halves[i] << 16;
    return new Float32Array(bits.buffer);
  }
  const wide = float16Table();
  for (let i = 0; i < halves.length; i++) bits[i] = wide[halves[i]];
  return new Float32Array(bits.buffer);
}

/** The float32 bits of each of the 65,536 float16 numbers. */
function float16Table() {
  const values = new Float32Array(65536);
  for (let half = 0; half < 65536; half++) {
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
    values[half] = half >> 15 ? -size : size;
  }
  return new Uint32Array(values.buffer);
}

/** Rows under the switches, and what is near in them. */
export class Rows {
  /**
   * @param {Float32Array} values V × D
   * @param {number} dim D
   * @param {{mean: Float32Array, directions: Float32Array}} top what `center` and `remove` take out
   * @param {Uint8Array} placeholder 1 where a row has no token
   */
  constructor(values, dim, top, placeholder) {
    this.values = values;
    this.dim = dim;
    this.top = top;
    this.placeholder = placeholder;
    this.count = values.length / dim;
    this.kept = new Map();
  }

  /** The mean of the rows of `ids`, as they are. */
  raw(ids) {
    const sum = new Float64Array(this.dim);
    for (const id of ids) for (let d = 0; d < this.dim; d++) sum[d] += this.values[id * this.dim + d];
    return Float32Array.from(sum, (x) => x / ids.length);
  }

  /** One vector under the switches. */
  vector(ids, center, remove) {
    const vector = this.raw(ids);
    this.#switch(vector, 0, center, remove);
    return vector;
  }

  /**
   * The best rows for a target: `score(dot, length)` of each row's product with it and the row's length.
   *
   * @param {Float32Array} target
   * @param {(start: number, table: Float32Array, length: number) => number} score
   */
  best(score, k, excluded, center, remove) {
    const { table, lengths } = this.#under(center, remove);
    const left = new Set(excluded);
    const hits = []; // best first; equal scores in id order
    for (let id = 0; id < this.count; id++) {
      if (this.placeholder[id] || left.has(id)) continue;
      const value = score(id * this.dim, table, lengths[id]);
      if (hits.length === k && value <= hits[k - 1].score) continue;
      let at = hits.length;
      while (at > 0 && hits[at - 1].score < value) at--;
      hits.splice(at, 0, { id, score: value });
      if (hits.length > k) hits.pop();
    }
    return hits;
  }

  neighbors(ids, k, metric, center, remove) {
    const target = this.vector(ids, center, remove);
    const size = length(target, 0, this.dim) || 1;
    const scores = {
      cosine: (start, table, row) => clipped(dot(table, start, target) / ((row || 1) * size)),
      dot: (start, table) => dot(table, start, target),
      l2: (start, table) => -distance(table, start, target),
    };
    return this.best(scores[metric], k, ids, center, remove);
  }

  /** The best d in "a is to b as c is to d", and the unit vectors of the three. */
  analogy(ids, k, method, center, remove) {
    const [a, b, c] = ids.map((id) => unit(this.vector([id], center, remove)));
    const target = unit(b.map((x, d) => x - a[d] + c[d]));
    const add = (start, table, row) => clipped(dot(table, start, target) / (row || 1));
    const share = (start, table, row, vector) => (1 + clipped(dot(table, start, vector) / (row || 1))) / 2;
    const multiply = (start, table, row) =>
      (share(start, table, row, b) * share(start, table, row, c)) / (share(start, table, row, a) + EPSILON);
    const hits = this.best(method === "3cosmul" ? multiply : add, k, ids, center, remove);
    return { hits, a, b, c, target };
  }

  similarity(left, right, center, remove) {
    const [x, y] = [this.vector(left, center, remove), this.vector(right, center, remove)];
    const product = dot(x, 0, y);
    const sizes = length(x, 0, this.dim) * length(y, 0, this.dim);
    return { cosine: sizes ? clipped(product / sizes) : 0, dot: product, l2: distance(x, 0, y) };
  }

  /** The whole table under the switches, with each row's length. */
  #under(center, remove) {
    const key = `${Number(Boolean(center || remove))} ${remove}`;
    let found = this.kept.get(key);
    if (!found) {
      const table = center || remove ? this.values.slice() : this.values;
      const lengths = new Float32Array(this.count);
      for (let id = 0; id < this.count; id++) {
        this.#switch(table, id * this.dim, center, remove);
        lengths[id] = length(table, id * this.dim, this.dim);
      }
      found = { table, lengths };
      if (this.kept.size === KEPT) this.kept.delete(this.kept.keys().next().value);
    }
    this.kept.delete(key);
    this.kept.set(key, found); // the one used last comes last
    return found;
  }

  /** Switch one row in place. */
  #switch(table, start, center, remove) {
    if (!center && !remove) return;
    const { mean, directions } = this.top;
    for (let d = 0; d < this.dim; d++) table[start + d] -= mean[d];
    for (let n = 0; n < remove; n++) {
      const direction = directions.subarray(n * this.dim, (n + 1) * this.dim);
      const part = dot(table, start, direction);
      for (let d = 0; d < this.dim; d++) table[start + d] -= part * direction[d];
    }
  }
}

/** `vector` scaled to length 1; zeros stay zeros. */
export function unit(vector) {
  const size = length(vector, 0, vector.length);
  return size ? vector.map((x) => x / size) : vector;
}

/** The inner product of `vector` with the row of `table` at `start`. */
export function dot(table, start, vector) {
  let sum = 0;
  for (let d = 0; d < vector.length; d++) sum += table[start + d] * vector[d];
  return sum;
}

function length(table, start, dim) {
  let sum = 0;
  for (let d = 0; d < dim; d++) sum += table[start + d] ** 2;
  return Math.sqrt(sum);
}

function distance(table, start, vector) {
  let sum = 0;
  for (let d = 0; d < vector.length; d++) sum += (table[start + d] - vector[d]) ** 2;
  return Math.sqrt(sum);
}

function clipped(x) {
  return Math.min(1, Math.max(-1, x));
}
