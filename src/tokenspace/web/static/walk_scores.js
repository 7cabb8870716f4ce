/** The way back: what the head scores highest at each position. */

import { el } from "./dom.js";
import { sentence } from "./message.js";
import { fixed, percent, plural } from "./numbers.js";
import { tokenNode } from "./shown.js";

/** @param {any} walk a document with `predictions` */
export function scoresPanel(walk) {
  if (!walk.predictions)
    return el("p", { class: "note" }, sentence(walk.left_out?.predictions ?? "This table has no head that can score."));
  const positions = walk.predictions.map((candidates, t) =>
    el(
      "li",
      { class: "scored" },
      el(
        "h3",
        {},
        tokenNode(walk.tokens[t].token, 20),
        el("small", {}, ` position ${walk.tokens[t].position}`),
      ),
      el(
        "ol",
        { class: "bars" },
        candidates.map((candidate) => bar(candidate)),
      ),
    ),
  );
  return el("div", {}, el("ol", { class: "scores" }, positions), zeroInputs(walk), untrained(walk));
}

/** The tokens whose own row is zeros, so that their scores say nothing of them; null where there is none. */
function zeroInputs({ tokens, steps }) {
  const isZero = (_, t) => steps.lookup[t].every((x) => x === 0);
  const names = [...new Set(tokens.filter(isZero).map((token) => token.token))];
  if (!names.length) return null;
  const named = names.flatMap((name, n) => [n ? ", " : "", tokenNode(name)]);
  return el("p", { class: "note" }, ...named, ": read as a row of zeros, never trained; its scores say nothing of it.");
}

/** The rows that have no share, said; null where each has. */
function untrained({ scoring }) {
  const { rows, first } = scoring?.untrained ?? { rows: 0 };
  if (!rows) return null;
  const named = first.flatMap((token, n) => [n ? ", " : "", tokenNode(token)]);
  const more = rows > first.length ? ", …" : "";
  return el("p", { class: "note" }, `Left out: ${plural(rows, "row")} of zeros, never trained: `, ...named, `${more}.`);
}

function bar({ token, id, logit, probability }) {
  return el(
    "li",
    { title: `id ${id}, logit ${fixed(logit, 4)}`, style: { "--share": probability } },
    tokenNode(token, 18),
    el("span", { class: "number" }, `logit ${fixed(logit, 2)}`),
    el("span", { class: "number" }, percent(probability)),
  );
}
