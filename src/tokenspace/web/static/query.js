/** The query view: which question is asked, and with which switches its answers stand side by side. */

import { ask } from "./api.js";
import { choices, el, field, fill, select } from "./dom.js";
import { sentence } from "./message.js";
import { AnalogyQuery } from "./query_analogy.js";
import { NeighborsQuery } from "./query_neighbors.js";
import { RowsQuery } from "./query_rows.js";
import { SimilarityQuery } from "./query_similarity.js";
import { setState, state } from "./state.js";

const KINDS = [
  ["neighbors", "Neighbors"],
  ["analogy", "Analogy"],
  ["similarity", "Similarity"],
  ["rows", "Heat map"],
];

/** The view; `show` brings it to a state. */
export class QueryView {
  /** @param {any} table `/api/table`'s answer */
  constructor(table) {
    this.table = table;
    this.most = table.limits.remove;
    const asking = { table, ask: (path, params) => this.#ask(path, params) };
    this.queries = {
      neighbors: new NeighborsQuery(asking),
      analogy: new AnalogyQuery(asking),
      similarity: new SimilarityQuery(asking),
      rows: new RowsQuery(asking),
    };
    this.tabs = choices("Question", KINDS, "neighbors", (ask) => setState({ ask }));
    this.removed = el("input", {
      type: "number",
      required: true,
      min: 0,
      max: this.most,
      value: table.defaults.remove,
      onchange: () => this.#switched(),
    });
    this.metric = select(
      [
        ["cosine", "cosine"],
        ["dot", "dot product"],
        ["l2", "−distance (L2)"],
      ],
      "cosine",
      (metric) => setState({ metric }),
    );
    this.k = el("input", {
      type: "number",
      required: true,
      min: 1,
      max: table.limits.k,
      value: 10,
      onchange: () => this.#switched(),
    });
    this.method = select(
      [
        ["3cosadd", "3CosAdd"],
        ["3cosmul", "3CosMul"],
      ],
      "3cosadd",
      (method) => setState({ method }),
    );
    this.fields = {
      metric: field("Metric", this.metric),
      k: field("How many", this.k),
      method: field("Method", this.method),
      remove: field("Top directions removed", this.removed),
    };
    this.form = el("form", { class: "ask", onsubmit: (event) => this.#submitted(event) });
    this.status = el("p", { class: "status", role: "status" });
    this.answer = el("div", { class: "answer" });
    this.node = el("div", { class: "query" }, this.tabs, this.form, this.status, this.answer);
  }

  /** @param {Object<string, string>} now the page's state */
  async show(now) {
    const kind = now.ask in this.queries ? now.ask : "neighbors";
    const query = this.queries[kind];
    this.tabs.press(kind);
    if (this.query !== query) {
      this.query = query;
      const switches = query.switches.filter((name) => name !== "remove" || this.most > 0);
      const fields = switches.map((name) => this.fields[name]);
      fill(this.form, query.fields, fields, el("button", { type: "submit", class: "primary" }, "Ask"));
      fill(this.answer);
      this.shown = null;
    }
    this.metric.value = now.metric ?? "cosine";
    this.method.value = now.method ?? "3cosadd";
    this.k.value = now.k ?? (kind === "analogy" ? 5 : 10);
    this.removed.value = now.remove ?? this.table.defaults.remove;
    const asked = query.read(now);
    const key = JSON.stringify([
      kind,
      asked,
      this.metric.value,
      this.method.value,
      this.k.value,
      this.removed.value,
    ]);
    if (key === this.shown) return;
    this.shown = key;
    await this.#answer(query, asked, now);
  }

  hide() {
    this.request?.abort();
    this.shown = null;
  }

  async #answer(query, asked, now) {
    this.request?.abort();
    const request = (this.request = new AbortController());
    this.node.setAttribute("aria-busy", "true");
    this.#say("Asking …", false);
    try {
      const settings = {
        k: Number(this.k.value),
        metric: this.metric.value,
        method: this.method.value,
        remove: Number(this.removed.value),
      };
      const nodes = await query.answer(asked, settings, now);
      if (request.signal.aborted) return;
      fill(this.answer, nodes);
      query.drawn?.();
      this.#say(query.summary, false);
    } catch (error) {
      if (request.signal.aborted) return;
      fill(this.answer);
      this.#say(sentence(error.message), true);
    } finally {
      if (this.request === request) this.node.removeAttribute("aria-busy");
    }
  }

  #say(text, wrong) {
    this.status.textContent = text;
    this.status.classList.toggle("error", wrong);
  }

  #ask(path, params) {
    return ask(path, params, { signal: this.request.signal });
  }

  #switched() {
    const fields = [this.k, this.removed].filter((one) => one.isConnected);
    if (!fields.every((one) => one.reportValidity())) return;
    setState(Object.fromEntries(fields.map((one) => [one === this.k ? "k" : "remove", Number(one.value)])));
  }

  #submitted(event) {
    event.preventDefault();
    this.shown = null; // ask again, even if nothing changed
    setState(this.query.typed(), { quiet: true });
    this.show(state());
  }
}
