/** What an address asks for that the page doesn't know: said once, and put right. */

import { METHODS } from "./map_methods.js";
import { COLORINGS } from "./map_colors.js";
import { brief } from "./shown.js";

const QUERY_METHODS = ["3cosadd", "3cosmul"];
const METRICS = ["cosine", "dot", "l2"];
const ASKS = ["neighbors", "analogy", "similarity", "rows"];

/**
 * @param {Object<string, string>} now the page's state, its view being known
 * @param {any} table `/api/table`'s answer
 * @returns {{changes: Object<string, null>, message: string}} keys to take out, and what to say of them
 */
export function corrected(now, table) {
  const changes = {};
  const said = [];
  for (const [key, [known, instead]] of Object.entries(rules(now.view, table))) {
    if (now[key] === undefined || known(now[key])) continue;
    changes[key] = null;
    said.push(`${key} “${brief(now[key], 40)}” is not known here; showing ${instead}.`);
  }
  return { changes, message: said.join(" ") };
}

function rules(view, table) {
  const one = (names) => (value) => names.includes(value);
  const below = (limit) => (value) => /^\d{1,10}$/.test(value) && Number(value) < limit;
  const dim = [below(Math.max(table.dim, 2 ** 16)), "the first dimension"]; // a model may be wider than its table
  if (view === "walk") return { dim };
  if (view === "query")
    return {
      dim,
      ask: [one(ASKS), "neighbors"],
      metric: [one(METRICS), "cosine"],
      method: [one(QUERY_METHODS), "3CosAdd"],
      id: [below(table.rows), "the first word"],
    };
  return {
    method: [one(Object.keys(METHODS)), "PCA"],
    dims: [one(Math.min(table.rows, table.dim) > 2 ? ["2", "3"] : ["2"]), "two dimensions"],
    color: [one(COLORINGS.map(([name]) => name)), "the kind of token"],
    id: [below(table.rows), "no token chosen"],
  };
}
