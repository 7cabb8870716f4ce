/**
 * The seam of a page that is one file: the exports of api.js, answered from what the file holds.
 *
 * Each part lies in a script element of type application/json and is read when it is first needed.
 */

import { METRICS, QUERY_METHODS as ANALOGIES, unknown } from "./address.js";
import { plane } from "./local_plane.js";
import { Rows, widened } from "./local_rows.js";
import { Words } from "./local_words.js";
import { count, unpacked } from "./numbers.js";
import { quoted, unquoted } from "./shown.js";

/** What the file can't answer: one sentence to show. */
export class ApiError extends Error {}

/**
 * Answer a call; see api.js.
 *
 * @param {string} path
 * @param {Object<string, any>} [params]
 * @returns {Promise<any>}
 */
export async function ask(path, params = {}, { signal } = {}) {
  await new Promise((resolve) => setTimeout(resolve)); // so that what waits is drawn first
  if (signal?.aborted) throw new DOMException("no longer needed", "AbortError");
  const given = Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  return ANSWERS[path](given);
}

/** @returns {Promise<any>} plotly, whose script lies in the file and runs when a map is first drawn */
export async function loadPlotly() {
  if (window.Plotly) return window.Plotly;
  const held = document.getElementById("plotly");
  if (!held) throw new ApiError("This file was written where plotly is not installed, so that it holds no map.");
  const script = document.createElement("script");
  script.textContent = held.textContent;
  const create = document.createElement;
  // plotly adds a style sheet for maps of the earth, which the page's policy refuses: it gets an empty element
  document.createElement = (tag, ...more) => create.call(document, tag === "style" ? "template" : tag, ...more);
  document.head.append(script);
  delete document.createElement;
  return window.Plotly;
}

const ANSWERS = {
  table: () => part("table"),
  tokens: () => part("tokens"),
  walk: recordedWalk,
  map: ({ method = "pca", dims = 2, center, remove = 0 }) => {
    if (method !== "pca" || Number(remove) || (center !== undefined && !isOn(center))) throw new ApiError(`This file holds the map by PCA alone; ${ELSEWHERE}`);
    return part(`map-${dims}`);
  },
  kept: ({ method = "pca", dims = 2, k }) => {
    const found = part(`kept-${dims}`);
    if (method !== "pca" || (k !== undefined && Number(k) !== found.k)) throw new ApiError(`This file holds the share kept by PCA for k = ${found.k} alone; ${ELSEWHERE}`);
    return found;
  },
  clusters: ({ k, seed }) => {
    const found = part("clusters");
    const asked = (value, held) => value === undefined || Number(value) === held;
    if (!asked(k, found.k) || !asked(seed, found.seed)) throw new ApiError(`This file holds ${found.k} clusters of seed ${found.seed} alone; ${ELSEWHERE}`);
    return found;
  },
  neighbors,
  analogy,
  similarity,
  heatmap,
  complete: ({ prefix, n = 12 }) => ({ tokens: words().complete(prefix, Number(n)).map(tokenOf) }),
};

const ELSEWHERE = "`tokenspace explore` on a machine with the table answers all.";
const MOST_ALIKE = 8; // other ids that are told of one token
const parts = new Map();

function part(name) {
  if (!parts.has(name)) {
    const held = document.getElementById(`data-${name}`);
    if (!held) throw new ApiError(part("table").missing[name] ?? `This file was written without this (${name}); ${ELSEWHERE}`);
    parts.set(name, JSON.parse(held.textContent));
  }
  return parts.get(name);
}

function made(name, make) {
  if (!parts.has(name)) parts.set(name, make());
  return parts.get(name);
}

function words() {
  return made("words", () => {
    const { tokens, placeholder, verbatim } = part("tokens");
    return new Words(tokens, part("table").encoding, unpacked(placeholder), verbatim);
  });
}

/** The rows; where the file was written without them, that is said. */
function rows() {
  return made("rows in memory", () => {
    const { left_out: leftOut } = part("table");
    if (leftOut) throw new ApiError(`${leftOut} ${ELSEWHERE}`);
    const { dim, dtype } = part("rows");
    const values = widened(bytesOf("rows-data"), dtype);
    const top = { mean: unpacked(part("top").mean), directions: unpacked(part("top").directions) };
    return new Rows(values, dim, top, unpacked(part("tokens").placeholder));
  });
}

function bytesOf(name) {
  const text = atob(document.getElementById(`data-${name}`).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function recordedWalk({ text, pair = null, recipe }) {
  const walks = part("walks");
  const of = walks.filter((walk) => walk.text === text && walk.pair === pair);
  const found = of.find((walk) => recipe === undefined || walk.recipe === recipe);
  if (found) return found;
  if (of.length) throw new ApiError(`This file holds that walk under ${of.map((walk) => walk.recipe).join(", ")} alone; ${ELSEWHERE}`);
  const texts = [...new Set(walks.map((walk) => JSON.stringify(walk.text) + (walk.pair ? ` with the pair ${JSON.stringify(walk.pair)}` : "")))];
  throw new ApiError(`A file has no tokenizer: it holds the walks of ${texts.join(", ")} alone. ${ELSEWHERE}`);
}

function tokenOf(id) {
  return { token: part("tokens").tokens[id], id };
}

/** What a word or an id stands for. A word that is no token needs a tokenizer to be composed. */
function resolved(word, id) {
  const { rows, limits } = part("table");
  if (id !== undefined) {
    const row = within("id", id, 0, rows - 1);
    return { word: tokenOf(row).token, ids: [row], tokens: [tokenOf(row).token], also: words().also(row, MOST_ALIKE) };
  }
  if (word === undefined) throw new ApiError("give a word, or a row's id");
  if (word.length > limits.word) throw new ApiError(`a word has 1 to ${count(limits.word)} characters here, found ${count(word.length)}`);
  const found = words().find(word);
  if (found >= 0) {
    const { token } = tokenOf(found);
    return { word: unquoted(word) === token ? token : word, ids: [found], tokens: [token], also: words().also(found, MOST_ALIKE) };
  }
  const near = words().complete(word.slice(0, 4), 3).map((id) => quoted(tokenOf(id).token));
  const hint = near.length ? `; there are ${near.join(", ")}` : "";
  throw new ApiError(`${quoted(word, limits.word)} is not ${rows === 1 ? "the one token" : `one of the ${count(rows)} tokens`} of this vocabulary, and a file has no tokenizer to split it${hint}`);
}

function switches({ center, remove = 0 }) {
  const taken = within("top directions removed (remove)", remove, 0, part("table").limits.remove);
  return { center: isOn(center) || taken > 0, remove: taken };
}

function howMany(k) {
  return within("how many (k)", k, 1, part("table").limits.k);
}

/** A whole number of a call, or the server's refusal of it. */
function within(name, value, least, most) {
  const number = Number(value);
  if (Number.isInteger(number) && number >= least && number <= most) return number;
  throw new ApiError(`${name} must be from ${count(least)} to ${count(most)}, found ${Number.isFinite(number) ? count(number) : quoted(String(value))}`);
}

function oneOf(name, value, allowed) {
  if (!allowed.includes(value)) throw new ApiError(unknown(name, value, allowed));
}

function isOn(value) {
  return value === true || value === 1 || value === "1";
}

function hitsOf(hits) {
  return hits.map(({ id, score }) => ({ ...tokenOf(id), score }));
}

function neighbors(given) {
  const { q, id, metric = "cosine" } = given;
  const k = howMany(given.k ?? 10);
  oneOf("metric", metric, METRICS);
  const [{ center, remove }, query] = [switches(given), resolved(q, id)];
  const recorded = document.getElementById("data-neighbors") ? part("neighbors") : null;
  const plain = recorded && metric === "cosine" && !center;
  if (plain && (k <= recorded.k || part("table").left_out)) {
    const hits = recordedHits(recorded, query.ids[0]).slice(0, k);
    return { query: { ...query, zero: part("table").zero.includes(query.ids[0]) }, hits, settings: { metric, center, remove, k: Math.min(k, recorded.k) } };
  }
  const zero = rows().raw(query.ids).every((x) => x === 0);
  return { query: { ...query, zero }, hits: hitsOf(rows().neighbors(query.ids, k, metric, center, remove)), settings: { metric, center, remove, k } };
}

function recordedHits({ ids, scores, k }, id) {
  const all = made("nearest ids", () => unpacked(ids));
  const values = made("nearest scores", () => unpacked(scores));
  const hits = [];
  for (let n = id * k; n < (id + 1) * k; n++) if (all[n] >= 0) hits.push({ id: all[n], score: values[n] });
  return hitsOf(hits);
}

function analogy(given) {
  const { method = "3cosadd" } = given;
  const k = howMany(given.k ?? 5);
  oneOf("method", method, ANALOGIES);
  const { center, remove } = switches(given);
  const asked = ["a", "b", "c"].map((name) => resolved(given[name], given[`${name}_id`]));
  const ids = asked.map((one) => one.ids[0]);
  const { hits, ...vectors } = rows().analogy(ids, k, method, center, remove);
  if (!hits.length) throw new ApiError("the table has no fourth row that could answer the analogy");
  return {
    hits: hitsOf(hits),
    words: Object.fromEntries(asked.map(({ ids, also }, n) => ["abc"[n], { ...tokenOf(ids[0]), also }])),
    arrows: plane(vectors, rows().vector([hits[0].id], center, remove)),
    settings: { method, center, remove, k },
  };
}

function similarity(given) {
  const { center, remove } = switches(given);
  const [a, b] = ["a", "b"].map((name) => resolved(given[name], given[`${name}_id`]));
  return { ...rows().similarity(a.ids, b.ids, center, remove), a, b, settings: { center, remove } };
}

function heatmap({ q = [], id = [] }) {
  const most = part("table").limits.rows;
  const many = [q, id].flat().length;
  if (many < 1 || many > most) throw new ApiError(`a heat map here shows 1 to ${most} rows, found ${count(many)}`);
  const asked = [...[q].flat().map((word) => resolved(word)), ...[id].flat().map((row) => resolved(undefined, row))];
  const drawn = asked.map(({ ids, tokens, also }) => ({ label: tokens[0], id: ids[0], tokens, also, values: Array.from(rows().raw(ids)) }));
  const sizes = drawn.flatMap(({ values }) => values.map(Math.abs)).sort((a, b) => a - b);
  return { rows: drawn, limit: quantile(sizes, part("table").within) || sizes.at(-1) || 1 };
}

/** The number of a sorted list below which `share` of it lies: the higher one, between two. */
function quantile(sorted, share) {
  return sorted[Math.ceil(share * (sorted.length - 1))];
}
