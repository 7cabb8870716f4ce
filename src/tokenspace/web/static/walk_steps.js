/** The walk's document (what `embed --json` prints) told as steps, each with its formula, shapes and meaning. */

import { count, fixed, plural } from "./numbers.js";

/**
 * @typedef {Object} Step
 * @property {string} key in the address
 * @property {string} name on the stepper
 * @property {string} formula
 * @property {string} shape of what leaves it
 * @property {string[]} meaning sentences
 */

const NOTHING_BETWEEN =
  "No transformer body stands between here: the input itself is taken as the hidden state, so this shows the arithmetic, not a model's prediction.";

const CONTEXTS =
  "The looked-up row itself is scored, without scale and positions: so skip-gram was trained.";

/**
 * The steps that this document has, in order.
 *
 * @param {any} walk
 * @param {{rows: number, dim: number}} table
 * @returns {Step[]}
 */
export function stepsOf(walk, table) {
  const T = walk.tokens.length;
  const steps = [
    {
      key: "tokens",
      name: "tokens",
      formula: "text → tokens",
      shape: `(${T},)`,
      meaning: ["The tokenizer cuts the text into pieces that the vocabulary has."],
    },
    {
      key: "ids",
      name: "ids",
      formula: "token → id",
      shape: `(${T},)`,
      meaning: [
        "Each token is known by a number: its row in the table. From here on the text is gone; only the numbers go in.",
      ],
    },
  ];
  for (const key of Object.keys(walk.steps))
    steps.push({ key, shape: shapeOf(walk.steps[key]), ...told(key, walk, table) });
  if (noHead(walk) === null) steps.push(predict(walk, table), gradient(walk, table));
  return steps;
}

/** Why nothing can score these vectors, in a sentence; null where a head can. */
export function noHead(walk) {
  const given = width(walk, walk.hidden ?? "output");
  if (walk.head && walk.head.width === given) return null;
  const takes = walk.head ? `takes width ${count(walk.head.width)}` : "does not fit";
  const between = walk.steps.projected ? "a projection stands between" : "the model's body stands between";
  return `Scores and gradient are left out: the head ${takes}, these vectors have ${count(given)}; ${between}.`;
}

/** The part of `name` that the table lacks and that was drawn at random, said; null if it has it. */
export function untrainedNote(walk, name = null) {
  const drawn = (walk.untrained ?? []).filter((part) => name === null || part === name);
  if (!drawn.length) return null;
  return `The table has no ${drawn.join(" and ")} rows of its own: these were drawn at random, untrained.`;
}

/** Each step's vectors before it is added to: "position" stands beside the sum of all that came before. */
export function sumsOf(walk) {
  const before = {};
  const after = {};
  let current = null;
  for (const [key, rows] of Object.entries(walk.steps)) {
    before[key] = current;
    current =
      current !== null && isAdded(key)
        ? current.map((row, t) => row.map((x, d) => Math.fround(x + rows[t][d])))
        : rows;
    after[key] = current;
  }
  return { before, after };
}

/** Whether a step's numbers are rows to add, rather than what the vectors are after it. */
export function isAdded(key) {
  return !["lookup", "scaled", "normalized", "dropout", "projected", "output"].includes(key);
}

function told(key, walk, table) {
  const known = {
    lookup: {
      name: "rows",
      formula: "x = E[id]",
      meaning: [
        `Each id picks one row of the table E (${count(table.rows)} × ${count(table.dim)}). Nothing is computed: it is indexing.`,
        "A token that occurs twice picks the same row twice.",
      ],
    },
    scaled: {
      name: "× scale",
      formula: `x ← x × ${scaleText(walk)}`,
      meaning: [scaleMeaning(walk)],
    },
    position: {
      name: "+ position",
      formula: "x ← x + P[position]",
      meaning: [positionText(walk), "The same token at two places is two different vectors from here on."],
    },
    segment: {
      name: "+ segment",
      formula: "x ← x + S[segment]",
      meaning: ["A row for the text that the token belongs to: 0 for the first, 1 for its pair."],
    },
    normalized: {
      name: "LayerNorm",
      formula: "x ← γ (x − mean) / √(variance + ε) + β",
      meaning: [
        `Each vector by itself: mean 0 and variance 1 over its ${count(width(walk, "normalized"))} numbers, then the learned γ and β.`,
      ],
    },
    projected: {
      name: "projection",
      formula: "x ← x W + b",
      meaning: [
        `From the table's width ${count(table.dim)} to the model's ${count(width(walk, "projected"))}.`,
      ],
    },
    dropout: { name: "dropout", formula: "x ← x", meaning: dropoutText(walk) },
    output: {
      name: "input",
      formula: "= the transformer's input",
      meaning: ["What the transformer's first layer receives.", noHead(walk)].filter(Boolean),
    },
  };
  return (
    known[key] ?? {
      name: `+ ${key}`,
      formula: `x ← x + ${key}[0]`,
      meaning: [`A row of the ${key} table is added.`],
    }
  );
}

function predict(walk, table) {
  const matrix = walk.tied === false ? "O.T" : "E.T";
  const hidden = walk.hidden === "lookup" ? "E[id]" : "hidden";
  return {
    key: "predict",
    name: "scores",
    formula: logitsFormula(walk.head, matrix, hidden),
    shape: `(${walk.tokens.length}, ${table.rows})`,
    meaning: [
      `Back from vectors to tokens: each position is multiplied with ${scoringRows(walk)}.${headText(walk.head)} Softmax makes shares of the ${plural(table.rows, "score")}.`,
      between(walk),
    ],
  };
}

/** What the vectors are multiplied with. */
function scoringRows(walk) {
  if (walk.no_head) {
    const stand = walk.tied ? "the table E, transposed, in place of a head" : "the table's output rows O, in place of a head";
    return `${stand} (${walk.no_head})`;
  }
  if (walk.tied !== false) return "the same table E, transposed: the head is tied";
  return walk.hidden === "lookup" ? "the rows O that skip-gram learned for contexts" : "the head's own rows O";
}

/** What stands between the vectors of the text and those that are scored: nothing. */
function between(walk) {
  return walk.hidden === "lookup" ? CONTEXTS : NOTHING_BETWEEN;
}

function gradient(walk, table) {
  const tied = walk.tied !== false;
  const twice =
    "The table is used twice, so a row's gradient is the sum of two: through the lookup, from every position where its token was read; through the head, from every position, since every row is scored. The last position has no next token: nothing goes through its lookup.";
  const once =
    "A row's gradient is the sum over every position where its token stands; all other rows get none through the lookup.";

  return {
    key: "gradient",
    name: "gradient",
    formula: tied ? "∂loss/∂E[i] = Σ where i was read + Σ where i was scored" : "∂loss/∂E[i] = Σ over the positions of i",
    shape: `(${table.rows}, ${table.dim})`,
    meaning: [
      `One step of descent on the mean cross entropy of each next token. ${tied ? twice : once} Row after = row − learning rate × gradient.`,
      between(walk),
      tied && walk.no_head && `The table stands in for the checkpoint's head (${walk.no_head}).`,
    ].filter(Boolean),
  };
}

/** `hidden · E.T` with all that the head does around it. */
function logitsFormula({ hidden_scale: before, bias, logit_scale: after, soft_cap: cap }, matrix, hidden) {
  let scores = `${before === null ? hidden : `(${short(before)} ${hidden})`} · ${matrix}`;
  if (bias) scores += " + b";
  if (after !== null) scores = `${short(after)} × ${bias ? `(${scores})` : scores}`;
  return `logits = ${cap === null ? scores : `${short(cap)} tanh((${scores}) / ${short(cap)})`}`;
}

function headText({ hidden_scale: before, bias, logit_scale: after, soft_cap: cap, width: D }) {
  const root = before !== null && Math.abs(before * Math.sqrt(D) - 1) < 1e-6;
  return [
    before !== null && ` The hidden state is first multiplied with ${short(before)}${root ? " = 1 / √D" : ""}.`,
    bias && " The head's bias b adds a number for each token.",
    after !== null && ` The scores are multiplied with ${short(after)}.`,
    cap !== null && ` tanh bends them into ±${short(cap)}.`,
  ]
    .filter(Boolean)
    .join("");
}

function short(x) {
  return String(Number(x.toPrecision(5)));
}

/** Whether the scale is the width's root: "exact", "rounded" (to bfloat16's 8 binary digits), or null. */
function rootOf(walk) {
  const root = Math.sqrt(walk.d_model);
  const off = Math.abs(walk.scale - root) / root;
  if (off < 1e-6) return "exact";
  return toBfloat16(root) === walk.scale ? "rounded" : null;
}

function toBfloat16(x) {
  const bits = new Uint32Array(new Float32Array([x]).buffer);
  bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(bits.buffer)[0];
}

function scaleText(walk) {
  const root = rootOf(walk);
  if (root === "exact") return `√${walk.d_model} = ${fixed(walk.scale, 4)}`;
  return root === "rounded" ? `√${walk.d_model} ≈ ${short(walk.scale)}` : fixed(walk.scale, 4);
}

function scaleMeaning(walk) {
  const root = rootOf(walk);
  const which = root === "rounded" ? ", √D rounded to bfloat16" : root === "exact" ? ", √D" : "";
  const why = walk.steps.position
    ? ", so that positions, which are about 1 in size, don't drown the tokens"
    : "";
  return `Every number times one constant${which}${why}.`;
}

function positionText(walk) {
  const kind = walk.layer?.position;
  if (kind === "sinusoidal")
    return "A row for each position is added: sines and cosines of the position, computed, not learned.";
  if (kind === "learned") return "A row for each position is added, from a table that is learned.";
  return "A row for each position is added.";
}

function dropoutText(walk) {
  const rate = walk.dropout;
  const training =
    typeof rate === "number"
      ? `In training each number would be set to 0 with probability ${rate}, and the rest divided by ${fixed(1 - rate, 2)}.`
      : "It drops numbers only in training.";
  return [`Off: nothing changes. ${training}`];
}

function shapeOf(rows) {
  return `(${rows.length}, ${rows[0].length})`;
}

function width(walk, key) {
  return (walk.steps[key] ?? walk.steps.output)[0].length;
}
