/** What an address asks for that the page doesn't know: said once, in the server's words, and put right. */

import { sentence } from "./message.js";
import { METHODS } from "./map_methods.js";
import { COLORINGS } from "./map_colors.js";
import { count } from "./numbers.js";
import { quoted } from "./shown.js";

export const QUERY_METHODS = ["3cosadd", "3cosmul"];
export const METRICS = ["cosine", "dot", "l2"];
const ASKS = ["neighbors", "analogy", "similarity", "rows"];
const WIDEST = 2 ** 16; // a model may be wider than its table
const LARGEST_SEED = 2 ** 32 - 1;

/**
 * @param {Object<string, string>} now the page's state, its view being known
 * @param {any} table `/api/table`'s answer
 * @returns {{changes: Object<string, null>, message: string}} keys to take out, and what to say of them
 */
export function corrected(now, table) {
  const changes = {};
  const said = [];
  for (const [key, [label, refusal, instead]] of Object.entries(rules(now, table))) {
    if (now[key] === undefined) continue;
    const refused = refusal(now[key], label === key ? label : `${label} (${key})`);
    if (!refused) continue;
    changes[key] = null;
    said.push(sentence(`${refused}; showing ${instead}.`));
  }
  return { changes, message: said.join(" ") };
}

/** What is said of a name that is none of those known. */
export function unknown(name, value, allowed) {
  return `${name} ${quoted(value, 40)} is not known; allowed: ${allowed.join(", ")}`;
}

/** Of each key: its label on the page, what is wrong with a value if anything is, and what is shown then. */
function rules({ view, ask }, table) {
  const one = (allowed) => (value, name) => !allowed.includes(value) && unknown(name, value, allowed);
  const within = (least, most) => (value, name) => {
    if (/^\d{1,10}$/.test(value) && Number(value) >= least && Number(value) <= most) return null;
    const range = least === most ? count(least) : `from ${count(least)} to ${count(most)}`;
    const found = /^\d{1,15}$/.test(value) ? count(Number(value)) : quoted(value, 40);
    return `${name} must be ${range}, found ${found}`;
  };
  const row = within(0, table.rows - 1);
  const dim = (width) => ["dimension", within(0, width - 1), "the first one"];
  if (view === "walk")
    return {
      recipe: ["recipe", one((table.recipes ?? []).map(({ name }) => name)), "the table's own"],
      dim: dim(Math.max(table.dim, WIDEST)),
    };
  if (view === "query") {
    const { k, remove } = table.limits;
    const ids = ["a_id", "b_id", "c_id"].map((key) => [key, ["id", row, "the first word"]]);
    return {
      ask: ["question", one(ASKS), "neighbors"],
      metric: ["metric", one(METRICS), "cosine"],
      method: ["method", one(QUERY_METHODS), "3CosAdd"],
      k: ["how many", within(1, k), ask === "analogy" ? "5" : "10"],
      remove: ["top directions removed", within(0, remove), table.defaults.remove],
      id: ["id", row, "the first word"],
      ...Object.fromEntries(ids),
      dim: dim(table.dim),
    };
  }
  const clusters = Math.min(table.limits.clusters, table.rows);
  return {
    method: ["projection", one(Object.keys(METHODS)), "PCA"],
    dims: ["dimensions", one(Math.min(table.rows, table.dim) > 2 ? ["2", "3"] : ["2"]), "two dimensions"],
    seed: ["seed", within(0, LARGEST_SEED), "0"],
    color: ["color", one(COLORINGS.map(([name]) => name)), "the kind of token"],
    k: ["clusters", within(1, clusters), "as many as suit the table"],
    id: ["id", row, "no token chosen"],
  };
}
