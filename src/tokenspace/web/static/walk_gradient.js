/**
 * The gradient step: every position passes a gradient to the row it picked, and a tied head one to every row.
 * What reaches one row is summed.
 */

import { el, svg } from "./dom.js";
import { count, fixed, plural } from "./numbers.js";
import { brief, tokenNode } from "./shown.js";

const ROW = 30;
const [NARROW, WIDE, WIDEST] = [700, 880, 1040]; // pixels: what stands beside a row needs them
const TOP = 30;

/** Loss beside that of guessing, and how many rows move. @param {any} walk a document with `gradient` */
export function gradientSummary({ gradient, no_head: noHead }) {
  const { costliest } = gradient;
  const head = gradient.rows_moved_by_head
    ? `; through ${noHead ? "the table in place of a head" : "the tied head"} ${count(gradient.rows_moved_by_head)}, since every token is scored`
    : "; the head has rows of its own";
  return el(
    "dl",
    { class: "facts" },
    fact("loss", `${fixed(gradient.loss, 4)} nats a token`),
    fact(
      "loss of guessing",
      `ln ${count(gradient.rows_in_table)} = ${fixed(Math.log(gradient.rows_in_table), 1)} nats`,
    ),
    fact(
      "costliest position",
      `${costliest.position}, ${fixed(costliest.loss, 2)} nats` +
        (costliest.margin > 0
          ? `: ${brief(costliest.best)} is scored ${fixed(costliest.margin, 2)} above ${brief(costliest.next)}`
          : `: ${brief(costliest.next)} is scored highest`),
    ),
    fact("learning rate", String(gradient.learning_rate)),
    fact(
      "rows moved",
      `${count(gradient.rows_moved)} of ${count(gradient.rows_in_table)} through the lookup${head}`,
    ),
  );
}

/**
 * Positions on the left, rows on the right, a line for each gradient. What finds no room beside a row stands in a
 * list below.
 */
export function gradientPicture(walk, width) {
  const { rows } = walk.gradient;
  const tied = walk.gradient.rows_moved_by_head > 0;
  const tokens = walk.tokens;
  const last = tokens.length - 1; // it has no next token: nothing goes through its lookup
  const fits = width >= (tied ? WIDEST : WIDE);
  const height = TOP + ROW * Math.max(tokens.length, rows.length) + 8;
  const narrow = width < NARROW;
  const x = narrow ? { from: 92, to: 160 } : { from: 200, to: 420 };
  const yFrom = (t) => TOP + ROW * (t + 0.5);
  const order = [...rows.keys()].sort((m, n) => center(rows[m]) - center(rows[n]));
  const yTo = new Map(
    order.map((n, place) => [
      n,
      TOP + ROW * (place + 0.5) * (Math.max(tokens.length, rows.length) / rows.length),
    ]),
  );
  const lines = rows.map((row, n) => {
    const sums = row.positions.length > 1;
    const y = yTo.get(n);
    const paths = row.positions.map((t) =>
      svg("path", {
        d: curve(x.from + 6, yFrom(t), x.to - 10, y),
        class: `strip-line ${sums ? "again" : ""} ${t === last ? "no-target" : ""}`,
      }),
    );
    const sign = sums && [
      svg("circle", { cx: x.to, cy: y, r: 9, class: "sum-node" }),
      svg("text", { x: x.to, y: y + 4.5, "text-anchor": "middle", class: "sum-sign" }, "+"),
    ];
    const still = row.gradient === 0;
    const label = narrow ? `${brief(row.token, 8)} ` : `row ${count(row.id)}  ${brief(row.token, 18)} `;
    const length = still ? "no gradient" : `‖g‖ ${fixed(row.gradient, 3)}`;
    const beside = fits && !still ? `   ${[...partsOf(row, tied), cosineOf(row)].join("   ")}` : "";
    return [
      paths,
      sign,
      svg(
        "text",
        { x: x.to + 16, y: y + 4, class: `strip-label ${sums ? "again" : ""}` },
        label,
        svg("tspan", { class: "soft" }, length + beside),
      ),
    ];
  });
  const labels = tokens.map((token, t) =>
    svg(
      "text",
      { x: x.from, y: yFrom(t) + 4, "text-anchor": "end", class: "strip-token" },
      brief(token.token, narrow ? 8 : 18),
      svg("tspan", { class: "soft" }, ` ${t}`),
    ),
  );
  const headings = [
    svg("text", { x: x.from, y: 14, "text-anchor": "end", class: "strip-heading" }, "position"),
    svg(
      "text",
      { x: x.to + 16, y: 14, class: "strip-heading" },
      narrow ? "row, length" : "row of E and the length of its gradient",
    ),
  ];
  const described = `${plural(tokens.length, "position")} pass gradients to ${plural(rows.length, "row")}`;
  const picture = svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": described,
    },
    headings,
    lines,
    labels,
  );
  return fits ? picture : el("div", {}, picture, lengthsList(rows, tied));
}

/** The numbers of each row that moves, as text. */
function lengthsList(rows, tied) {
  const moved = rows.filter((row) => row.gradient !== 0);
  return el(
    "dl",
    { class: "facts" },
    moved.map((row) =>
      fact(`${brief(row.token)}, row ${count(row.id)}`, [...partsOf(row, tied), cosineOf(row)].join("; ")),
    ),
  );
}

function partsOf(row, tied) {
  return tied ? [`lookup ${fixed(row.gradient_lookup, 2)}, head ${fixed(row.gradient_head, 2)}`] : [];
}

/** A row of zeros has no direction, and so no cosine. */
function cosineOf(row) {
  return row.cosine === null ? "no cosine: a row of zeros" : `cosine ${fixed(row.cosine, 4)}`;
}

/**
 * What each position passes on, the head's part, their sum, and the row before and after the step; repeated
 * tokens come first.
 *
 * @returns {import("./rows.js").Line[]} none where the answer has no `by_position`
 */
export function gradientLines(walk) {
  const { rows, by_position: parts, by_head: heads, learning_rate: rate } = walk.gradient;
  if (!parts) return [];
  const tied = walk.gradient.rows_moved_by_head > 0;
  const last = walk.tokens.length - 1;
  const ordered = rows
    .map((row, place) => ({ ...row, head: heads?.[place] }))
    .sort((a, b) => b.positions.length - a.positions.length || a.positions[0] - b.positions[0]);
  return ordered.flatMap((row, n) => {
    const name = brief(row.token);
    const read = summed(row.positions.map((t) => parts[t]));
    const sum = tied ? summed([read, row.head]) : read;
    const before = walk.steps.lookup[row.positions[0]];
    const after = Array.from(before, (value, d) => Math.fround(value - rate * sum[d]));
    const sums = row.positions.length > 1;
    const handed = row.positions.map((t, k) => ({
      label:
        k === 0
          ? el("span", {}, tokenNode(row.token, 10), el("small", {}, ` from ${t}`))
          : sign(`+ from ${t}`),
      values: parts[t],
      name: `${name}, gradient from position ${t}${t === last ? ": no target" : ""}`,
      mark: t === last ? "no target" : null,
      role: "term",
      first: k === 0 && n > 0,
    }));
    return [
      ...handed,
      ...(sums && tied ? [line("= through lookup", read, `${name}, through the lookup`, "sum")] : []),
      ...(tied ? [line("+ through head", row.head, `${name}, through the head`, "term")] : []),
      ...(sums || tied ? [line(tied ? "= total" : "= gradient", sum, `${name}, the row's gradient`, "sum")] : []),
      { label: sign("row"), values: before, name: `${name}, the row before`, role: "term", scaleOf: 1 },
      {
        label: sign("row after"),
        values: after,
        name: `${name}, the row after the step`,
        role: "sum",
        scaleOf: 1,
      },
    ];
  });
}

function line(label, values, name, role) {
  return { label: sign(label), values, name, role };
}

function summed(rows) {
  return Array.from(rows[0], (_, d) => Math.fround(rows.reduce((total, row) => total + row[d], 0)));
}

function sign(text) {
  return el("span", { class: "sign" }, text);
}

function fact(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function center(row) {
  return row.positions.reduce((sum, t) => sum + t, 0) / row.positions.length;
}

function curve(x1, y1, x2, y2) {
  const middle = (x1 + x2) / 2;
  return `M${x1},${y1} C${middle},${y1} ${middle},${y2.toFixed(1)} ${x2},${y2.toFixed(1)}`;
}
