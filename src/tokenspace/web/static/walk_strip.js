/**
 * The table as a tall strip, and the rows plucked out of it: a line from each token to its id's place, and from
 * there to the row. A token that occurs twice draws two lines to one place, and one row comes out.
 */

import { signedColor, typicalLargest } from "./colors.js";
import { svg } from "./dom.js";
import { count, plural } from "./numbers.js";
import { brief } from "./shown.js";

const ROW = 26; // between two tokens
const TOP = 34;
const CELL = 11;
const NARROW = 560; // pixels: in fewer tokens and rows stand closer
const WIDE = 800; // pixels: in fewer a heading is short
const MOST_BARS = 460; // slices of the strip, each the mean length of its rows

/**
 * @param {any} walk the document
 * @param {{rows: number, dim: number}} table
 * @param {{width: number, norms: ?Float32Array, first: number, tokens: number, dim: number}} view tokens `first`
 *   to `first + tokens` are drawn, and of their rows the numbers from dimension `dim` on
 * @returns {SVGElement}
 */
export function strip(walk, table, { width, norms, first, tokens, dim }) {
  const shownTokens = walk.tokens.slice(first, first + tokens);
  const picked = [...new Set(shownTokens.map((token) => token.id))].sort((a, b) => a - b);
  const height = Math.max(300, TOP + ROW * Math.max(shownTokens.length, picked.length) + 20);
  const narrow = width < NARROW;
  const x = narrow
    ? { token: 82, left: 118, right: 154, row: 188 }
    : { token: 170, left: 280, right: 350, row: 460 };
  const place = (id) => TOP + ((id + 0.5) / table.rows) * (height - TOP - 18);
  const tokenY = spread(shownTokens.length, height);
  const rowY = dodge(picked.map(place), height);
  const yOf = new Map(picked.map((id, n) => [id, rowY[n]]));
  const times = countBy(walk.tokens.map((token) => token.id));

  const cells = cellsIn(width, x, table.dim);
  const start = Math.min(dim, table.dim - cells);
  const described = `${plural(shownTokens.length, "token")} pick ${plural(picked.length, "row")} of ${count(table.rows)}`;
  const parts = [
    heading(x.token, "tokens", "end"),
    heading((x.left + x.right) / 2, "table E", "middle"),
    heading(x.row, rowsHeading(width, start, cells, table.dim), "start"),
    stripBody(x, height, norms, table.rows),
    shownTokens.map((token, t) => tokenLine(token, tokenY[t], place(token.id), x, times, t)),
    picked.map((id) => rowOut(id, place(id), yOf.get(id), x, walk, { start, cells }, times)),
    edge(x, TOP - 4, "0"),
    edge(x, height - 4, count(table.rows - 1)),
  ];
  return svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": described,
    },
    parts,
  );
}

function heading(x, text, anchor) {
  return svg("text", { x, y: 14, "text-anchor": anchor, class: "strip-heading" }, text);
}

/** Which of their numbers the rows show. */
function rowsHeading(width, start, cells, dim) {
  if (width < NARROW) return start ? `rows from ${start} on` : "rows";
  const which = start ? `numbers ${start}–${start + cells - 1} of ${dim}` : `first ${cells} of ${dim} numbers`;
  return `${width < WIDE ? "rows:" : "rows plucked out, their"} ${which}`;
}

function edge(x, y, text) {
  return svg("text", { x: x.left - 6, y, "text-anchor": "end", class: "strip-edge" }, text);
}

/** The strip: shaded by how long its rows are, where that is known, so that it is the table and not a sketch. */
function stripBody(x, height, norms, rows) {
  const tall = height - TOP - 18;
  const body = svg(
    "g",
    {},
    svg("rect", { x: x.left, y: TOP, width: x.right - x.left, height: tall, class: "strip-body" }),
  );
  if (!norms) return body;
  const bars = Math.min(MOST_BARS, rows, Math.floor(tall));
  const means = new Float64Array(bars);
  const counts = new Uint32Array(bars);
  for (let i = 0; i < norms.length; i++) {
    const bar = Math.floor((i / norms.length) * bars);
    means[bar] += norms[i];
    counts[bar] += 1;
  }
  for (let bar = 0; bar < bars; bar++) means[bar] /= counts[bar] || 1;
  const largest = Math.max(...means) || 1;
  for (let bar = 0; bar < bars; bar++) {
    const opacity = (0.06 + 0.4 * (means[bar] / largest)).toFixed(3);
    const y = TOP + (bar / bars) * tall;
    body.append(
      svg("rect", {
        x: x.left,
        y,
        width: x.right - x.left,
        height: tall / bars + 0.5,
        class: "strip-bar",
        "fill-opacity": opacity,
      }),
    );
  }
  return body;
}

function tokenLine(token, y, place, x, times, t) {
  const again = times.get(token.id) > 1;
  const path = curve(x.token + 6, y, x.left, place);
  const label = svg("text", {
    x: x.token,
    y: y + 4,
    "text-anchor": "end",
    class: `strip-token ${again ? "again" : ""}`,
  });
  label.append(brief(token.token, x.token > 100 ? 18 : 9));
  const line = svg("path", { d: path, class: `strip-line ${again ? "again" : ""}`, style: { "--order": t } });
  return svg("g", {}, svg("title", {}, `${brief(token.token)} → id ${token.id}`), line, label);
}

function rowOut(id, place, y, x, walk, { start, cells }, times) {
  const at = walk.tokens.findIndex((token) => token.id === id);
  const row = walk.steps.lookup[at];
  const again = times.get(id) > 1;
  const label = `row ${count(id)}`;
  const cellsFrom = firstCell(x);
  const largest = typicalLargest(row);
  const colors = Array.from(row.slice(start, start + cells), (value, d) =>
    svg("rect", {
      x: cellsFrom + d * CELL,
      y: y - 8,
      width: CELL - 1,
      height: 16,
      class: "strip-cell",
      style: { fill: signedColor(value, largest, 0.95) },
    }),
  );
  const title = `${brief(walk.tokens[at].token)}: ${label}${again ? `, picked ${times.get(id)} times` : ""}`;
  return svg(
    "g",
    { class: `strip-row ${again ? "again" : ""}` },
    svg("title", {}, title),
    svg("rect", {
      x: x.left - 3,
      y: place - 1.5,
      width: x.right - x.left + 6,
      height: 3,
      class: "strip-picked",
    }),
    svg("path", { d: curve(x.right + 3, place, x.row - 4, y), class: `strip-line ${again ? "again" : ""}` }),
    svg("text", { x: x.row, y: y + 4, class: "strip-label" }, label),
    colors,
  );
}

function firstCell(x) {
  return x.row + (x.row > 300 ? 92 : 84);
}

/** How many numbers of a row there is room for. */
function cellsIn(width, x, dim) {
  return Math.min(dim, Math.max(3, Math.floor((width - firstCell(x) - 4) / CELL)));
}

function curve(x1, y1, x2, y2) {
  const middle = (x1 + x2) / 2;
  return `M${x1},${y1.toFixed(1)} C${middle},${y1.toFixed(1)} ${middle},${y2.toFixed(1)} ${x2},${y2.toFixed(1)}`;
}

function spread(n, height) {
  const step = Math.min(ROW * 1.6, (height - TOP - 24) / Math.max(1, n));
  return Array.from({ length: n }, (_, t) => TOP + 12 + t * step);
}

/** Places moved apart so that no two labels overlap, each as near to its own as that allows. */
function dodge(places, height) {
  const y = [...places];
  for (let n = 0; n < y.length; n++) y[n] = Math.max(y[n], n ? y[n - 1] + ROW * 0.85 : TOP + 8);
  let limit = height - 14;
  for (let n = y.length - 1; n >= 0; n--) {
    y[n] = Math.min(y[n], limit);
    limit = y[n] - ROW * 0.85;
  }
  return y;
}

function countBy(ids) {
  const times = new Map();
  for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
  return times;
}
