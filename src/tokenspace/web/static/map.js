/** The map: every row of the table as a point. */

import { ask, loadPlotly } from "./api.js";
import { TokenField } from "./complete.js";
import { choices, el, field, fill, select } from "./dom.js";
import { byCluster, byHonesty, byKind, byNorm, byNothing, COLORINGS } from "./map_colors.js";
import { METHODS } from "./map_methods.js";
import { Plot } from "./map_plot.js";
import { chosen, lassoed, legend } from "./map_side.js";
import { sentence } from "./message.js";
import { count, percent, unpacked } from "./numbers.js";
import { brief, tokenNode } from "./shown.js";
import { setState } from "./state.js";

const TWO_OR_THREE = [
  ["2", "2"],
  ["3", "3"],
];
const NEIGHBORS = 10;
const KEPT = 10;

/** The view; `show` brings it to a state. */
export class MapView {
  /** @param {any} table `/api/table`'s answer @param {() => Promise<any>} tokens `/api/tokens`'s, asked for once */
  constructor(table, tokens) {
    this.table = table;
    this.askTokens = tokens;
    this.answers = new Map(); // question -> answer: a coloring that was fetched comes back at once
    this.only = null;
    this.chosenId = null;
    this.lasso = [];
    this.search = new TokenField({
      label: "Find a token",
      placeholder: "type to complete",
      onpick: ({ id }) => setState({ id }),
    });
    this.methods = Object.entries(METHODS).filter(([method]) => table.methods?.[method]);
    this.method = select(this.methods, "pca", (method) => setState({ method }));
    this.dims = select(
      table.rows > 2 && table.dim > 2 ? TWO_OR_THREE : TWO_OR_THREE.slice(0, 1),
      "2",
      (dims) => setState({ dims }),
    );
    this.seed = el("input", {
      type: "number",
      min: 0,
      max: 2 ** 32 - 1,
      value: 0,
      onchange: () => this.seed.reportValidity() && setState({ seed: this.seed.value }),
    });
    this.color = select(COLORINGS, "kind", (color) => setState({ color }));
    this.k = el("input", {
      type: "number",
      min: 1,
      max: Math.min(table.limits.clusters, table.rows),
      placeholder: "auto",
      onchange: () => this.k.reportValidity() && setState({ k: this.k.value }),
    });
    this.kField = field("Clusters", this.k);
    this.progress = el("div", { class: "progress-line", role: "status" });
    this.plotNode = el("div", {
      class: "map-plot",
      tabindex: "0",
      role: "application",
      "aria-label": "Map of all tokens. Arrow keys move, plus and minus zoom, 0 shows all.",
      onkeydown: (event) => this.#key(event),
    });
    this.stage = el("div", { class: "map-stage" }, this.plotNode);
    this.tip = el("div", { class: "map-tip", hidden: true });
    this.caption = el("p", { class: "soft caption" });
    this.dragging = choices(
      "What dragging does",
      [
        ["pan", "Drag moves"],
        ["lasso", "Drag draws a lasso"],
      ],
      "pan",
      (mode) => this.plot?.drag(mode),
    );
    this.sides = {
      chosen: el("div", { "aria-live": "polite" }),
      lasso: el("div", { "aria-live": "polite" }),
      legend: el("div", {}),
    };
    const onsubmit = (event) => {
      event.preventDefault();
      this.#find();
    };
    this.node = el(
      "div",
      { class: "map" },
      el(
        "form",
        { class: "ask", onsubmit },
        this.search.node,
        el("button", { type: "submit" }, "Find"),
        field("Projection", this.method),
        field("Dimensions", this.dims),
        field("Seed", this.seed),
        field("Color", this.color),
        this.kField,
      ),
      el(
        "div",
        { class: "map-body" },
        el("div", { class: "map-frame" }, this.#tools(), this.stage, this.tip, this.caption),
        el("div", { class: "map-side" }, Object.values(this.sides)),
      ),
    );
    window
      .matchMedia("(prefers-color-scheme: dark)")
      .addEventListener("change", () => this.points && this.#draw());
  }

  /** @param {Object<string, string>} now the page's state */
  async show(now) {
    if (Math.min(this.table.rows, this.table.dim) < 2) {
      const size = `${count(this.table.rows)} × ${count(this.table.dim)}`;
      fill(this.node, el("p", { class: "note" }, `A map needs two rows and two dimensions; this table is ${size}.`));
      return;
    }
    this.#forget();
    const request = (this.request = new AbortController());
    this.#reflect(now);
    try {
      await this.#open(now, request.signal);
    } catch (error) {
      if (request.signal.aborted) return;
      this.#say(sentence(error.message), true);
    }
  }

  hide() {
    this.#forget();
    this.tip.hidden = true;
  }

  /** What is still being asked is no longer wanted. */
  #forget() {
    this.request?.abort();
    this.finding?.abort();
  }

  async #open(now, signal) {
    const where = { method: now.method ?? "pca", dims: now.dims ?? "2", seed: now.seed ?? "0" };
    this.#say(this.points ? "" : `Laying out ${count(this.table.rows)} tokens …`);
    const [plotly, tokens, map] = await Promise.all([
      loadPlotly(),
      this.#tokens(),
      this.#answer("map", where, signal, METHODS[where.method] ?? where.method),
    ]);
    const coloring = await this.#coloring(now, where, tokens, signal);
    if (signal.aborted) return;
    this.plot ??= new Plot(plotly, this.plotNode, {
      onhover: (id, event) => this.#tell(id, event),
      onclick: (id) => setState({ id }),
      onlasso: (ids) => this.#lassoed(ids),
    });
    this.stage.append(this.plot.overlay.node);
    const id = await this.#choose(now.id === undefined ? null : Number(now.id), coloring, signal);
    if (signal.aborted) return;
    if (map !== this.map || coloring !== this.coloring) await this.#redraw(map, coloring);
    else if (id !== this.chosenId) await this.plot.redraw();
    else this.plot.resize();
    if (signal.aborted) return;
    this.#say(coloring.refused ?? "", coloring.refused !== undefined);
    const flies = id !== null && id !== this.chosenId;
    this.chosenId = id;
    if (flies) await this.plot.fly(id, this.neighbors);
  }

  async #redraw(map, coloring) {
    if (map !== this.map) {
      const [x, y, z = null] = map.points.map(unpacked);
      this.points = { x, y, z };
      this.lasso = [];
      fill(this.sides.lasso);
    }
    if (coloring !== this.coloring) this.only = null;
    this.map = map;
    this.coloring = coloring;
    this.caption.textContent = captionOf(map, this.table);
    await this.#draw();
  }

  async #draw() {
    fill(
      this.sides.legend,
      legend(this.coloring, this.only, (only) => this.#show(only)),
    );
    await this.plot.draw(this.points, this.map.axes, this.coloring, this.only, this.#labels());
  }

  #show(only) {
    this.only = only;
    this.#draw();
  }

  /** Names of clusters on the map, each at the point of its own that is nearest to their middle. */
  #labels() {
    return this.coloring.groups
      .map((group, n) => [group, n])
      .filter(
        ([group, n]) =>
          group.cluster !== undefined && group.ids.length && (this.only === null || this.only.has(n)),
      )
      .map(([group]) => ({ id: middlePoint(group.ids, this.points), text: brief(group.name, 28) }));
  }

  /** Mark a token and list its neighbors. @returns {Promise<?number>} its id, if it is one */
  async #choose(id, coloring, signal) {
    const tokens = this.all.tokens;
    if (id === null || !(id >= 0 && id < tokens.length)) {
      fill(this.sides.chosen);
      this.plot.mark(null);
      return null;
    }
    const setSearch = this.search.setLater();
    const { hits } = await this.#answer(
      "neighbors",
      { id, k: NEIGHBORS, metric: "cosine", center: 0, remove: 0 },
      signal,
    );
    if (signal.aborted) return id;
    setSearch(tokens[id], id);
    const kind = this.table.kinds[this.all.kind[id]];
    fill(
      this.sides.chosen,
      chosen(
        { token: tokens[id], id, kind, norm: this.all.norm[id], told: coloring.told?.(id), hits },
        (next) => setState({ id: next }),
        () => setState({ id: null }),
      ),
    );
    this.neighbors = hits.map((hit) => hit.id);
    this.plot.mark({ id, text: tokens[id], neighbors: hits.map((hit) => ({ id: hit.id, text: hit.token })) });
    return id;
  }

  async #coloring(now, where, tokens, signal) {
    const color = now.color ?? "kind";
    const key = JSON.stringify([
      color,
      color === "cluster" && [now.k, now.seed],
      color === "honesty" && where,
    ]);
    if (!this.answers.has(key)) {
      try {
        this.answers.set(key, await this.#colored(color, now, where, tokens, signal));
      } catch (error) {
        if (signal.aborted) throw error;
        const refused = sentence(error.message); // the map itself can be shown
        return this.coloring?.refused === refused ? this.coloring : byNothing(this.table.rows, refused);
      }
    }
    const coloring = this.answers.get(key);
    const typing = document.activeElement === this.k;
    if (color === "cluster" && now.k === undefined && !typing) this.k.value = coloring.k;
    return coloring;
  }

  async #colored(color, now, where, tokens, signal) {
    if (color === "cluster")
      return byCluster(await this.#answer("clusters", { k: now.k, seed: where.seed }, signal, "Clusters"));
    if (color === "honesty")
      return byHonesty(await this.#answer("kept", { ...where, k: KEPT }, signal, "Honesty"), this.table.rows);
    if (color === "norm") return byNorm(tokens.norm);
    return byKind(tokens.kind, this.table.kinds);
  }

  async #answer(path, params, signal, name = null) {
    const key = JSON.stringify([path, params]);
    if (!this.answers.has(key)) {
      const progress = (fraction) => name && this.#progress(name, fraction);
      this.answers.set(key, await ask(path, params, { signal, progress }));
    }
    return this.answers.get(key);
  }

  async #tokens() {
    if (!this.all) {
      const { tokens, kind, norm } = await this.askTokens();
      this.all = { tokens, kind: unpacked(kind), norm: unpacked(norm) };
    }
    return this.all;
  }

  #find() {
    const { word, id } = this.search.value;
    if (id !== null) setState({ id });
    else if (word) this.#complete(word);
  }

  async #complete(word) {
    this.finding?.abort();
    const { signal } = (this.finding = new AbortController());
    try {
      const { tokens } = await ask("complete", { prefix: word, n: 1 }, { signal });
      if (tokens.length) setState({ id: tokens[0].id });
      else this.#say(`No token begins with or contains ${brief(word)}.`, true);
    } catch (error) {
      if (!signal.aborted) this.#say(sentence(error.message), true);
    }
  }

  #lassoed(ids) {
    this.lasso = ids;
    const clear = () => {
      fill(this.sides.lasso);
      this.plot.unselect();
    };
    fill(
      this.sides.lasso,
      lassoed(ids, this.all.tokens, (id) => setState({ id }), clear),
    );
  }

  #tell(id, event) {
    this.tip.hidden = id === null;
    if (id === null) return;
    fill(this.tip, tokenNode(this.all.tokens[id], 60), ` id ${id}, ${this.table.kinds[this.all.kind[id]]}`);
    const frame = this.stage.parentElement.getBoundingClientRect();
    const left = Math.min(
      (event?.clientX ?? frame.left) - frame.left + 14,
      frame.width - this.tip.offsetWidth - 4,
    );
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${(event?.clientY ?? frame.top) - frame.top + 14}px`;
  }

  #tools() {
    const button = (text, label, onclick) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick }, text);
    return el(
      "div",
      { class: "map-tools" },
      this.dragging,
      button("+", "Zoom in", () => this.plot?.zoom(0.6)),
      button("−", "Zoom out", () => this.plot?.zoom(1 / 0.6)),
      button("All", "Show all points", () => this.plot?.reset()),
      this.progress,
    );
  }

  #key(event) {
    const act = {
      ArrowLeft: () => this.plot.pan(-0.2, 0),
      ArrowRight: () => this.plot.pan(0.2, 0),
      ArrowUp: () => this.plot.pan(0, 0.2),
      ArrowDown: () => this.plot.pan(0, -0.2),
      "+": () => this.plot.zoom(0.6),
      "-": () => this.plot.zoom(1 / 0.6),
      0: () => this.plot.reset(),
    }[event.key];
    if (!act || !this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  #reflect(now) {
    this.method.value = now.method ?? "pca";
    this.dims.value = now.dims ?? "2";
    this.seed.value = now.seed ?? "0";
    this.color.value = now.color ?? "kind";
    this.k.value = now.k ?? "";
    this.kField.hidden = this.color.value !== "cluster";
    const [, lasso] = this.dragging.children;
    lasso.disabled = this.dims.value === "3";
    lasso.title = lasso.disabled ? "a lasso needs two dimensions" : "";
  }

  #progress(name, fraction) {
    if (!this.bar?.isConnected) {
      this.bar = el("progress", { max: 1, "aria-label": name });
      this.barText = el("span", {});
      fill(this.progress, this.barText, this.bar);
    }
    if (fraction === null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    this.barText.textContent = fraction === null ? `${name} …` : `${name}: ${percent(fraction, 0)}`;
  }

  #say(text, wrong = false) {
    this.progress.textContent = text;
    this.progress.classList.toggle("error", wrong);
  }
}

function captionOf(map, table) {
  const versions = Object.entries(map.versions ?? {}).map(([name, version]) => `${name} ${version}`);
  const settings = Object.entries(map.settings ?? {})
    .filter(([, value]) => ["string", "number"].includes(typeof value) && value !== 0)
    .map(([name, value]) => `${name} ${value}`);
  if (map.settings?.center) settings.unshift("centered");
  const axes = map.points.length > 2 ? [`axes: ${map.axes.join(", ")}`] : []; // in space their titles turn out of sight
  const parts = [
    `${METHODS[map.method] ?? map.method} of all ${count(table.rows)} rows`,
    `seed ${map.seed}`,
    ...axes,
    ...settings,
    ...versions,
  ];
  if (map.method !== "pca") parts.push("distances between far groups mean little here");
  return `${parts.join("; ")}.`;
}

function middlePoint(ids, { x, y }) {
  const median = (axis) => Float32Array.from(ids, (i) => axis[i]).sort()[ids.length >> 1];
  const [mx, my] = [median(x), median(y)];
  let best = ids[0];
  for (const i of ids)
    if (Math.hypot(x[i] - mx, y[i] - my) < Math.hypot(x[best] - mx, y[best] - my)) best = i;
  return best;
}
