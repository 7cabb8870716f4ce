/** What each step of the walk shows: its numbers, with what is added standing between before and after. */

import { el } from "./dom.js";
import { count, fixed } from "./numbers.js";
import { brief, tokenNode } from "./shown.js";
import { isAdded, sumsOf, untrainedNote } from "./walk_steps.js";

const MOST_CHANGED = 5; // words named

/** The tokens as the tokenizer cut them. */
export function tokensPanel(walk) {
  const chips = walk.tokens.map((token) =>
    el("li", { class: `chip segment-${token.segment}` }, tokenNode(token.token)),
  );
  const unknown = [...new Set(walk.unknown ?? [])];
  const dropped = [...new Set(walk.dropped ?? [])];
  return el(
    "div",
    {},
    el("ol", { class: "chips" }, chips),
    unknown.length > 0 &&
      el(
        "p",
        { class: "note" },
        "Not in the vocabulary: ",
        listed(unknown),
        ". The unknown token's row stands in.",
      ),
    dropped.length > 0 &&
      el(
        "p",
        { class: "note" },
        "Not in the vocabulary, which has no unknown token: ",
        listed(dropped),
        ". Left out.",
      ),
    walk.normalized && el("p", { class: "note" }, ...changedText(walk)),
  );
}

/** The words that the tokenizer changed before it split the text, or the whole text where words don't match. */
function changedText({ text, normalized }) {
  const [before, after] = [text.trim().split(/\s+/), normalized.split(" ")];
  const pairs = before.map((word, n) => [word, after[n]]).filter(([old, now]) => old !== now);
  const shown = new Map(before.length === after.length ? pairs.slice(0, MOST_CHANGED) : [[text, normalized]]);
  const words = [...shown].flatMap(([old, now], n) => [n ? ", " : "", tokenNode(old), " → ", tokenNode(now)]);
  const more = before.length === after.length && pairs.length > MOST_CHANGED ? ", …" : "";
  return ["The tokenizer changes the text before it splits it: ", ...words, `${more}.`];
}

/** The same tokens with the numbers that they are known by. */
export function idsPanel(walk) {
  const times = new Map();
  for (const { id } of walk.tokens) times.set(id, (times.get(id) ?? 0) + 1);
  const segmented = walk.tokens.some((token) => token.segment);
  const cards = walk.tokens.map(({ token, id, position, segment }) =>
    el(
      "li",
      { class: `card segment-${segment} ${times.get(id) > 1 ? "again" : ""}` },
      tokenNode(token, 16),
      el("span", { class: "arrow", "aria-hidden": "true" }, "↓"),
      el("strong", {}, id),
      el("small", {}, `position ${position}`),
      segmented && el("small", {}, `segment ${segment}`),
    ),
  );
  const repeated = [...times].filter(([, n]) => n > 1);
  const token = (id) => walk.tokens.find((one) => one.id === id).token;
  const notes = repeated.map(([id, n]) =>
    el("p", { class: "note" }, tokenNode(token(id)), ` occurs ${n} times: the same id, ${id}, each time.`),
  );
  return el("div", {}, el("ol", { class: "cards" }, cards), notes);
}

/**
 * The lines of numbers of a step.
 *
 * @param {any} walk
 * @param {string} key
 * @returns {import("./rows.js").Line[]}
 */
export function linesOf(walk, key) {
  const { before, after } = sumsOf(walk);
  if (key === "lookup") return lookupLines(walk);
  if (key === "scaled") return scaledLines(walk);
  if (isAdded(key)) return addedLines(walk, key, before[key], after[key]);
  if (key === "normalized")
    return changedLines(walk, before[key], walk.steps[key], "sum", (row) => momentsOf(row));
  if (key === "projected" && before[key][0].length === walk.steps[key][0].length)
    return changedLines(walk, before[key], walk.steps[key], "before");
  return walk.tokens.map((token, t) =>
    line(token.token, walk.steps[key][t], `${brief(token.token)} at ${t}`, { first: t > 0 }),
  );
}

/** What has to be said beside a step's numbers. */
export function notesOf(walk, key) {
  const notes = [];
  const drawn = untrainedNote(walk, key);
  if (drawn) notes.push(drawn);
  if (key === "output" && untrainedNote(walk)) notes.push(untrainedNote(walk));
  if (key === "tokens" && walk.tokens.some((token) => token.segment) && !("segment" in walk.steps)) {
    notes.push("This recipe adds no rows for segments.");
  }
  return notes;
}

function lookupLines(walk) {
  const seen = new Map();
  return walk.tokens.map((token, t) => {
    const earlier = seen.get(token.id);
    if (earlier === undefined) seen.set(token.id, t);
    const mark =
      earlier === undefined ? `row ${count(token.id)}` : `row ${count(token.id)}, as at ${earlier}`;
    return line(token.token, walk.steps.lookup[t], `${brief(token.token)}, row ${token.id}`, {
      mark,
      first: t > 0,
    });
  });
}

function scaledLines(walk) {
  return walk.tokens.flatMap((token, t) => [
    line(token.token, walk.steps.lookup[t], `${brief(token.token)}, its row`, {
      role: "term",
      first: t > 0,
      mark: "row",
      scaleOf: 0,
    }),
    operation(`× ${fixed(walk.scale, 4)}`, walk.steps.scaled[t], `${brief(token.token)}, scaled`, {
      role: "sum",
      scaleOf: 1,
    }),
  ]);
}

function addedLines(walk, key, before, after) {
  return walk.tokens.flatMap((token, t) => {
    const which = key in token ? `${key} ${token[key]}` : `${key} 0`;
    return [
      line(token.token, before[t], `${brief(token.token)}, before`, { role: "term", first: t > 0 }),
      operation(`+ ${which}`, walk.steps[key][t], `${which}, what is added`, { role: "term" }),
      operation("=", after[t], `${brief(token.token)} + ${which}`, { role: "sum" }),
    ];
  });
}

function changedLines(walk, before, after, name, mark = () => null) {
  return walk.tokens.flatMap((token, t) => [
    line(token.token, before[t], `${brief(token.token)}, ${name}`, {
      role: "term",
      first: t > 0,
      mark: mark(before[t]),
    }),
    operation("→", after[t], `${brief(token.token)}, after`, {
      role: "sum",
      scaleOf: 1,
      mark: mark(after[t]),
    }),
  ]);
}

function momentsOf(row) {
  const mean = row.reduce((sum, x) => sum + x, 0) / row.length;
  const variance = row.reduce((sum, x) => sum + (x - mean) ** 2, 0) / row.length;
  return `mean ${fixed(mean, 2)}, std ${fixed(Math.sqrt(variance), 2)}`;
}

function line(token, values, name, more = {}) {
  return { label: tokenNode(token, 14), values, name, ...more };
}

function operation(sign, values, name, more = {}) {
  return { label: el("span", { class: "sign" }, sign), values, name, ...more };
}

function listed(words) {
  return words.flatMap((word, n) => (n ? [", ", tokenNode(word)] : [tokenNode(word)]));
}
