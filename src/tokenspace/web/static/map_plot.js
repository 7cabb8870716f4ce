/**
 * The drawing of the map by plotly. Plotly reads its texts as a kind of HTML, so it gets none of a token's but the
 * few labels, escaped; what one hovers over is told to the page, which writes it as text.
 */

import { amountScale, isDark } from "./colors.js";
import { brief } from "./shown.js";

const FLY_MS = 350;
const FLY_POINTS = 60000; // a larger map jumps: it can't be drawn many times a second
const LABEL_WIDTH = 7.2; // CSS pixels a character
const LABEL_HEIGHT = 17;

/** @typedef {{x: Float32Array, y: Float32Array, z: ?Float32Array}} Points */

export class Plot {
  /**
   * @param {any} plotly
   * @param {HTMLElement} node where it is drawn
   * @param {{onhover: (id: ?number, event: ?MouseEvent) => void, onclick: (id: number) => void, onlasso: (ids: number[]) => void}} hears
   */
  constructor(plotly, node, hears) {
    this.plotly = plotly;
    this.node = node;
    this.hears = hears;
    this.dragmode = "pan";
    this.labels = [];
    this.marked = null;
    this.listening = false;
  }

  /**
   * Draw all points.
   *
   * @param {Points} points
   * @param {string[]} axes
   * @param {import("./map_colors.js").Coloring} coloring
   * @param {?Set<number>} only groups that are drawn; all if null
   * @param {{id: number, text: string}[]} labels to write where there is room, the most important first
   */
  async draw(points, axes, coloring, only, labels) {
    const moved = points !== this.points;
    this.points = points;
    this.axes = axes;
    this.labels = labels;
    this.flat = !points.z;
    this.groups = coloring.groups.filter((_, n) => only === null || only.has(n));
    this.traces = this.groups.map((group) => this.#trace(group, coloring.amount));
    if (moved) this.view = (this.view ?? 0) + 1;
    await this.#react();
    this.#listen();
  }

  /** Mark a token with lines to its neighbors, when next drawn; null marks none. @param {?{id: number, text: string, neighbors: {id: number, text: string}[]}} marked */
  mark(marked) {
    this.marked = marked;
  }

  /** Draw the marks alone anew. */
  async redraw() {
    await this.#react();
  }

  /** Bring point `id` into the middle, near enough to see what is around it and wide enough for `others`. */
  async fly(id, others = []) {
    const { x, y, z } = this.points;
    if (z) {
      const center = { x: this.#place(x, id), y: this.#place(y, id), z: this.#place(z, id) };
      await this.plotly.relayout(this.node, { "scene.camera.center": center, "scene.camera.eye": { x: center.x + 0.5, y: center.y + 0.5, z: center.z + 0.35 } });
      return;
    }
    const { xaxis, yaxis } = this.node._fullLayout;
    const wide = Math.max(0, ...others.map((other) => Math.max(Math.abs(x[other] - x[id]), (Math.abs(y[other] - y[id]) * xaxis._length) / yaxis._length)));
    const half = Math.max(0.03 * extent(x), 1.15 * wide);
    await this.#move([x[id] - half, x[id] + half], y[id]);
  }

  async zoom(factor) {
    if (!this.flat) {
      const { eye, center = { x: 0, y: 0, z: 0 } } = this.node._fullLayout.scene.camera;
      const nearer = Object.fromEntries(["x", "y", "z"].map((axis) => [axis, center[axis] + (eye[axis] - center[axis]) * factor]));
      await this.plotly.relayout(this.node, { "scene.camera.eye": nearer });
      return;
    }
    const { xaxis, yaxis } = this.node._fullLayout;
    const middle = (xaxis.range[0] + xaxis.range[1]) / 2;
    const half = ((xaxis.range[1] - xaxis.range[0]) / 2) * factor;
    await this.#relayout([middle - half, middle + half], (yaxis.range[0] + yaxis.range[1]) / 2);
  }

  /** Shift the window by shares of its width and height. */
  async pan(right, up) {
    if (!this.flat) return;
    const { xaxis, yaxis } = this.node._fullLayout;
    const shift = (axis, by) => axis.range.map((end) => end + by * (axis.range[1] - axis.range[0]));
    await this.plotly.relayout(this.node, { "xaxis.range": shift(xaxis, right), "yaxis.range": shift(yaxis, up) });
  }

  async reset() {
    if (this.flat) await this.plotly.relayout(this.node, { "xaxis.autorange": true, "yaxis.autorange": true });
    else await this.plotly.relayout(this.node, { "scene.camera": { eye: { x: 1.25, y: 1.25, z: 1.25 }, center: { x: 0, y: 0, z: 0 } } });
  }

  /** "pan" or "lasso". */
  async drag(mode) {
    this.dragmode = mode;
    if (this.flat) await this.plotly.relayout(this.node, { dragmode: mode });
  }

  /** Forget a lasso's selection. */
  async unselect() {
    await this.plotly.relayout(this.node, { selections: [] });
    await this.plotly.restyle(this.node, { selectedpoints: [null] });
  }

  resize() {
    if (this.listening) this.plotly.Plots.resize(this.node);
  }

  #trace({ ids, color, values }, amount) {
    const { x, y, z } = this.points;
    const pick = (axis) => Float32Array.from(ids, (i) => axis[i]);
    const size = ids.length && x.length > 100000 ? 3 : x.length > 20000 ? 4 : 6;
    const marker = { size: this.flat ? size : Math.max(2, size - 2), opacity: 0.75, color: values ?? color };
    if (values) Object.assign(marker, { colorscale: amountScale(), cmin: amount.low, cmax: amount.high, showscale: false });
    return {
      type: this.flat ? "scattergl" : "scatter3d",
      mode: "markers",
      x: pick(x),
      y: pick(y),
      ...(z && { z: pick(z) }),
      marker,
      hoverinfo: "none",
      showlegend: false,
    };
  }

  #react() {
    const overlay = this.#overlay();
    this.written = overlay.at(-1).x; // the labels' places
    const traces = [...this.traces, ...overlay];
    return this.plotly.react(this.node, traces, this.#layout(), { displayModeBar: false, scrollZoom: true, responsive: true, doubleClick: "reset" });
  }

  #layout() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const rule = style.getPropertyValue("--rule").trim();
    const axis = (n) => ({ title: { text: escaped(this.axes[n] ?? ""), standoff: 10 }, gridcolor: rule, zerolinecolor: rule, linecolor: rule, automargin: true });
    const common = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: style.fontFamily, size: 12 },
      margin: { l: 12, r: 16, t: 16, b: 56 },
      hovermode: "closest",
      hoverdistance: 12,
      showlegend: false,
      uirevision: `points ${this.view}`,
      autosize: true,
    };
    if (!this.flat) return { ...common, scene: { xaxis: axis(0), yaxis: axis(1), zaxis: axis(2), aspectmode: "cube" } };
    return { ...common, dragmode: this.dragmode, xaxis: axis(0), yaxis: { ...axis(1), scaleanchor: "x" } };
  }

  /** Lines to neighbors, rings round the marked points, and labels where they don't overlap. */
  #overlay() {
    const { x, y, z } = this.points;
    const ink = isDark() ? "#f0f2f4" : "#15181c";
    const type = z ? "scatter3d" : "scatter";
    const at = (ids) => ({ x: ids.map((i) => x[i]), y: ids.map((i) => y[i]), ...(z && { z: ids.map((i) => z[i]) }) });
    const base = { type, hoverinfo: "skip", showlegend: false };
    const overlay = [];
    const wanted = [...this.labels];
    if (this.marked) {
      const { id, text, neighbors } = this.marked;
      const path = (axis) => neighbors.flatMap((other) => [axis[id], axis[other.id], null]);
      const lines = { x: path(x), y: path(y), ...(z && { z: path(z) }) };
      const rings = [id, ...neighbors.map((other) => other.id)];
      overlay.push({ ...base, ...lines, mode: "lines", line: { color: ink, width: z ? 3 : 1.25 }, opacity: 0.7 });
      overlay.push({ ...base, ...at(rings), mode: "markers", marker: { size: rings.map((_, n) => (n ? 9 : 14)), color: "rgba(0,0,0,0)", line: { color: ink, width: 2 }, symbol: z ? "circle" : rings.map((_, n) => (n ? "circle" : "diamond")) } });
      wanted.unshift({ id, text }, ...(z ? [] : neighbors));
    }
    const placed = z ? wanted.slice(0, 1) : this.#withRoom(wanted);
    overlay.push({ ...base, ...at(placed.map((one) => one.id)), mode: "text", text: placed.map((one) => (z ? unmarked : escaped)(brief(one.text, 28))), textposition: "top center", textfont: { color: ink, size: 13 } });
    return overlay;
  }

  /** Of the labels those that overlap no earlier one, as the map now lies. */
  #withRoom(labels) {
    const axes = this.node._fullLayout;
    const room = this.node.clientWidth - 60;
    const range = axes?.xaxis && this.drawnView === this.view ? axes.xaxis.range : ends(this.points.x);
    const scale = room / (range[1] - range[0] || 1);
    const placed = [];
    for (const label of labels) {
      const [x, y] = [this.points.x[label.id] * scale, this.points.y[label.id] * scale];
      const half = (LABEL_WIDTH * Math.min(28, [...label.text].length)) / 2;
      if (placed.every((other) => Math.abs(other.x - x) > half + other.half + 4 || Math.abs(other.y - y) > LABEL_HEIGHT)) placed.push({ ...label, x, y, half });
    }
    return placed;
  }

  #listen() {
    this.drawnView = this.view;
    if (this.listening) return;
    this.listening = true;
    const idOf = (point) => (point.curveNumber < this.groups.length ? this.groups[point.curveNumber].ids[point.pointNumber] : null);
    this.node.on("plotly_hover", ({ points, event }) => this.hears.onhover(idOf(points[0]), event));
    this.node.on("plotly_unhover", () => this.hears.onhover(null, null));
    this.node.on("plotly_click", ({ points }) => {
      const id = idOf(points[0]);
      if (id !== null) this.hears.onclick(id);
    });
    this.node.on("plotly_selected", (event) => {
      if (event?.lassoPoints || event?.range) this.hears.onlasso(event.points.map(idOf).filter((id) => id !== null));
    });
    let timer = null;
    this.node.on("plotly_relayout", () => {
      if (this.flying || !this.flat) return;
      clearTimeout(timer);
      timer = setTimeout(() => this.#relabel(), 120);
    });
  }

  /** Other labels may have room at another scale; where none do there is nothing to draw. */
  #relabel() {
    const written = this.#overlay().at(-1).x;
    if (String(written) !== String(this.written)) this.#react();
  }

  async #move(to, y) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches || this.points.x.length > FLY_POINTS;
    const { xaxis, yaxis } = this.node._fullLayout;
    const from = [...xaxis.range];
    const fromY = (yaxis.range[0] + yaxis.range[1]) / 2;
    const start = performance.now();
    this.flying = true;
    for (let share = still ? 1 : 0; share < 1; ) {
      await new Promise(requestAnimationFrame);
      share = Math.min(1, (performance.now() - start) / FLY_MS);
      const eased = 1 - (1 - share) ** 3;
      await this.#relayout([from[0] + (to[0] - from[0]) * eased, from[1] + (to[1] - from[1]) * eased], fromY + (y - fromY) * eased);
    }
    this.flying = false;
    await this.#relayout(to, y);
  }

  #relayout(rangeX, middleY) {
    const { xaxis, yaxis } = this.node._fullLayout;
    const half = (((rangeX[1] - rangeX[0]) / 2) * yaxis._length) / xaxis._length;
    return this.plotly.relayout(this.node, { "xaxis.range": rangeX, "yaxis.range": [middleY - half, middleY + half] });
  }

  /** Where a number of an axis lies in the scene's unit cube, whose middle is 0. */
  #place(axis, id) {
    const [low, high] = ends(axis);
    return (axis[id] - (low + high) / 2) / (high - low || 1);
  }
}

function extent(axis) {
  const [low, high] = ends(axis);
  return high - low || 1;
}

function ends(axis) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of axis) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Text that plotly's SVG labels show as it is. */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** The same for its 3-D labels, which know tags but no entities: a tag with a gap is none. */
function unmarked(text) {
  return text.replaceAll("<", "<\u200a");
}
