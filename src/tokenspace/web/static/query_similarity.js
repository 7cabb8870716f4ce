/** How alike two words are: three measures, raw and under the switches. */

import { TokenField } from "./complete.js";
import { el, fill } from "./dom.js";
import { fixed } from "./numbers.js";
import { composed, twins } from "./query_neighbors.js";
import { HeatMap } from "./query_rows.js";
import { brief } from "./shown.js";
import { setState } from "./state.js";
import { answersUnder, columns } from "./switches.js";

const MEASURES = [
  ["cosine", "cosine", "of the angle between them"],
  ["dot", "dot product", "Σ aᵢ bᵢ"],
  ["l2", "distance (L2)", "√ Σ (aᵢ − bᵢ)²"],
];

/** See `QueryView`, which drives it. */
export class SimilarityQuery {
  constructor({ table, ask }) {
    const [a, b = a] = table.defaults.words;
    this.first = { a, b };
    this.ask = ask;
    this.switches = ["remove"];
    const onpick = () => setState(this.typed());
    this.words = {
      a: new TokenField({ label: "First word", required: true, onpick }),
      b: new TokenField({ label: "Second word", required: true, onpick }),
    };
    this.fields = [this.words.a.node, this.words.b.node];
  }

  read(now) {
    return readWords(now, this.first);
  }

  typed() {
    return typedWords(this.words);
  }

  async answer(asked, { remove }, now) {
    const setWords = wordsLater(this.words, asked);
    const settings = columns(remove);
    const answers = answersUnder(settings, (params) => this.ask("similarity", { ...asked, ...params }));
    const { a, b, cosine } = await answers[0];
    setWords({ a, b });
    const head = el(
      "tr",
      {},
      el("td", {}),
      settings.map((column) => el("th", { scope: "col" }, column.name)),
    );
    const body = MEASURES.map(([key, name, about]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, name, el("small", {}, about)),
        answers.map((answer) => numberCell(answer, key)),
      ),
    );
    this.heat = new HeatMap(await this.ask("heatmap", rowsAsked(asked, ["a", "b"])), now);
    this.summary = `The cosine of ${brief(a.word)} and ${brief(b.word)} is ${fixed(cosine, 4)}.`;
    const table = el("table", { class: "measures" }, el("thead", {}, head), el("tbody", {}, body));
    return [
      composed(a),
      composed(b),
      asked.a !== undefined && twins(a.tokens[0], a.ids[0], a.also),
      asked.b !== undefined && twins(b.tokens[0], b.ids[0], b.also),
      el("div", { class: "scroller" }, table),
      el("h3", {}, "The rows themselves"),
      this.heat.node,
    ];
  }

  drawn() {
    this.heat.drawn();
  }
}

/** A number of an answer, once that is there. */
function numberCell(answer, key) {
  const cell = el("td", { class: "number" }, "…");
  answer.then(
    (found) => fill(cell, fixed(found[key], 4)),
    (error) => {
      cell.textContent = "–";
      cell.title = error.message;
    },
  );
  return cell;
}

/** The words of a query in the address: `a=WORD`, or `a_id=N` where a token was picked. */
export function readWords(now, defaults) {
  const asked = {};
  for (const [name, word] of Object.entries(defaults)) {
    if (now[`${name}_id`] !== undefined) asked[`${name}_id`] = now[`${name}_id`];
    else asked[name] = now[name] ?? word;
  }
  return asked;
}

/** The same from the fields. */
export function typedWords(fields) {
  const typed = {};
  for (const [name, one] of Object.entries(fields)) {
    const { word, id } = one.value;
    typed[name] = id === null ? word : null;
    typed[`${name}_id`] = id;
  }
  return typed;
}

/** @returns what puts the answer's words into the fields; a field that one types in until then keeps its word */
export function wordsLater(fields, asked) {
  const setters = Object.entries(fields).map(([name, one]) => [name, one.setLater()]);
  return (answered) => {
    for (const [name, set] of setters) {
      const id = asked[`${name}_id`];
      set(asked[name] ?? answered[name].word ?? answered[name].token, id === undefined ? null : Number(id));
    }
  };
}

/** The heat map's question for the words of a query, and then the ids of its hits. */
export function rowsAsked(asked, names, hits = []) {
  const q = names.map((name) => asked[name]).filter((word) => word !== undefined);
  const id = [...names.map((name) => asked[`${name}_id`]).filter((one) => one !== undefined), ...hits];
  return { q, id };
}
