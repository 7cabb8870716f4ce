/** Numbers: how they travel ({"f32": base64}) and how they are written. */

const TYPES = { f32: Float32Array, i32: Int32Array, u8: Uint8Array };
const MINUS = "\u2212";

/**
 * The array that a field of an answer holds, whichever way it traveled.
 *
 * @param {number[]|{f32?: string, i32?: string, u8?: string}} field
 * @returns {Float32Array|Int32Array|Uint8Array|number[]}
 */
export function unpacked(field) {
  if (Array.isArray(field)) return field;
  const kind = Object.keys(TYPES).find((name) => name in field);
  const text = atob(field[kind]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new TYPES[kind](bytes.buffer); // the server writes little-endian, as every browser's machine reads
}

/** `x` with `digits` decimals and a real minus sign; a number too large for that as a power of ten. */
export function fixed(x, digits = 3) {
  if (!Number.isFinite(x)) return String(x);
  if (Math.abs(x) >= 10000) return signed(x.toExponential(1));
  const text = x.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : signed(text);
}

/** `x` among numbers of about the size `largest`: where three decimals would show nothing, as a power of ten. */
export function among(x, largest) {
  return x === 0 || (largest >= 0.02 && largest < 1000) ? fixed(x) : signed(x.toExponential(1));
}

/** `x` with every digit that a float32 has. */
export function exact(x) {
  return signed(String(Number(x.toPrecision(8))));
}

/** 0.1234 as 12.3 %. */
export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)}\u00a0%`;
}

/** A count with its thousands apart. */
export function count(n) {
  return n.toLocaleString("en");
}

/** "1 row", "2 rows". */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

function signed(text) {
  return text.replace(/-/g, MINUS);
}
