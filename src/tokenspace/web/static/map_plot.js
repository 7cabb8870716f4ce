/**
 * The drawing of the map by plotly. Plotly reads its texts as a kind of HTML, so it gets no token but the one chosen
 * in three dimensions, which it can't read so; what one hovers over is told to the page, which writes it as text.
 */

import { amountScale, isDark } from "./colors.js";
import { Overlay } from "./map_overlay.js";
import { brief } from "./shown.js";

const NARROW = 560; // pixels: in three dimensions longer titles are cut
const FLY_MS = 350;
const FADED_POINTS = 2000;
const FLY_POINTS = 60000; // a larger map jumps: it can't be drawn many times a second
const CENTERED = { center: { x: 0, y: 0, z: -0.12 } };
const CONFIG = { displayModeBar: false, scrollZoom: true, responsive: true, doubleClick: "reset" };

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
    this.overlay = new Overlay();
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

  /** Draw the marks anew, and the points only where they hang together. */
  async redraw() {
    if (this.flat) this.#lay();
    else await this.#react();
  }

  /** Bring point `id` into the middle, near enough to see what is around it and wide enough for `others`. */
  async fly(id, others = []) {
    const { x, y, z } = this.points;
    if (z) {
      const center = { x: this.#place(x, id), y: this.#place(y, id), z: this.#place(z, id) };
      await this.plotly.relayout(this.node, {
        "scene.camera.center": center,
        "scene.camera.eye": this.#from(
          center,
          [0.8, 0.8, 0.55].map((step) => step * Math.max(1, this.#reach(id, others) / 0.45)),
        ),
      });
      return;
    }
    const { xaxis, yaxis } = this.node._fullLayout;
    const wide = Math.max(
      0,
      ...others.map((other) =>
        Math.max(Math.abs(x[other] - x[id]), (Math.abs(y[other] - y[id]) * xaxis._length) / yaxis._length),
      ),
    );
    const half = Math.max(0.03 * extent(x), 1.15 * wide);
    await this.#move([x[id] - half, x[id] + half], y[id]);
  }

  async zoom(factor) {
    if (!this.flat) {
      const { eye, center = { x: 0, y: 0, z: 0 } } = this.node._fullLayout.scene.camera;
      const nearer = Object.fromEntries(
        ["x", "y", "z"].map((axis) => [axis, center[axis] + (eye[axis] - center[axis]) * factor]),
      );
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
    await this.plotly.relayout(this.node, {
      "xaxis.range": shift(xaxis, right),
      "yaxis.range": shift(yaxis, up),
    });
  }

  async reset() {
    if (this.flat)
      await this.plotly.relayout(this.node, { "xaxis.autorange": true, "yaxis.autorange": true });
    else
      await this.plotly.relayout(this.node, { "scene.camera": this.#home() });
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

  async resize() {
    if (!this.listening) return;
    await this.plotly.Plots.resize(this.node);
    this.#lay();
  }

  #trace({ ids, color, values }, amount) {
    const { x, y, z } = this.points;
    const pick = (axis) => Float32Array.from(ids, (i) => axis[i]);
    const size = ids.length && x.length > 100000 ? 3 : x.length > 20000 ? 4 : 6;
    const marker = { size: this.flat ? size : Math.max(2, size - 2), opacity: 0.75, color: values ?? color };
    if (values)
      Object.assign(marker, {
        colorscale: amountScale(),
        cmin: amount.low,
        cmax: amount.high,
        showscale: false,
      });
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

  async #react() {
    // In space points stand before the lines of a token that is chosen, so they fade.
    const opacity = this.points.x.length > FADED_POINTS ? 0.12 : 0.4;
    const faded = (trace) => ({ ...trace, marker: { ...trace.marker, opacity } });
    const points = this.flat || !this.marked ? this.traces : this.traces.map(faded);
    const traces = [...points, ...this.#marks()];
    await this.plotly.react(this.node, traces, this.#layout(), CONFIG);
    this.#lay();
  }

  #layout() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const rule = style.getPropertyValue("--rule").trim();
    const narrow = !this.flat && this.node.clientWidth < NARROW; // the caption holds the titles whole
    const axis = (n) => ({
      title: { text: escaped((this.axes[n] ?? "").split(narrow ? " (" : "\n")[0]), standoff: 10 },
      exponentformat: "e", // a power set high is an inline style, which the page's policy refuses
      gridcolor: rule,
      zerolinecolor: rule,
      linecolor: rule,
      automargin: true,
    });
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
    if (!this.flat)
      return {
        ...common,
        margin: { l: 0, r: 0, t: 0, b: 0 },
        scene: {
          xaxis: axis(0),
          yaxis: axis(1),
          zaxis: axis(2),
          aspectmode: "cube",
          camera: this.#home(),
          annotations: this.#name(ink),
        },
      };
    return { ...common, dragmode: this.dragmode, xaxis: axis(0), yaxis: { ...axis(1), scaleanchor: "x" } };
  }

  /** Where a map in space is first seen from: far enough that the axes' titles stand in the window. */
  #home() {
    return { ...CENTERED, eye: this.#from(CENTERED.center, [1.4, 1.4, 1.15]) };
  }

  /** The eye as far from `center` as `steps`, and farther where the window is narrow. */
  #from(center, steps) {
    const { clientWidth: width, clientHeight: height } = this.node;
    const far = Math.max(1, Math.min(2.6, (1.3 * height) / (width || 1)));
    return { x: center.x + far * steps[0], y: center.y + far * steps[1], z: center.z + far * steps[2] };
  }

  /** The name of the token chosen, over all points. */
  #name(ink) {
    if (!this.marked) return [];
    const { x, y, z } = this.points;
    const { id, text } = this.marked;
    return [
      {
        x: x[id],
        y: y[id],
        z: z[id],
        text: escaped(brief(text, 28)),
        showarrow: false,
        yshift: 16,
        font: { color: ink, size: 14 },
        bgcolor: isDark() ? "rgba(28, 32, 38, 0.75)" : "rgba(255, 255, 255, 0.75)",
      },
    ];
  }

  /** In three dimensions plotly draws the lines and the rings. */
  #marks() {
    if (this.flat || !this.marked) return [];
    const { x, y, z } = this.points;
    const { id, neighbors } = this.marked;
    const ink = isDark() ? "#f0f2f4" : "#15181c";
    const base = { type: "scatter3d", hoverinfo: "skip", showlegend: false };
    const path = (axis) => neighbors.flatMap((other) => [axis[id], axis[other.id], null]);
    const rings = [id, ...neighbors.map((other) => other.id)];
    const at = (axis) => rings.map((i) => axis[i]);
    return [
      { ...base, x: path(x), y: path(y), z: path(z), mode: "lines", line: { color: ink, width: 3 } },
      {
        ...base,
        x: at(x),
        y: at(y),
        z: at(z),
        mode: "markers",
        marker: {
          size: rings.map((_, n) => (n ? 5 : 8)),
          color: "rgba(0,0,0,0)",
          line: { color: ink, width: 2 },
        },
      },
    ];
  }

  /** What lies over a flat map, where it now is. */
  #lay(moving) {
    if (this.flat) this.overlay.draw(this.node._fullLayout, this.points, this.marked, this.labels, moving);
    else this.overlay.clear();
  }

  #listen() {
    if (this.listening) return;
    this.listening = true;
    const idOf = (point) =>
      point.curveNumber < this.groups.length ? this.groups[point.curveNumber].ids[point.pointNumber] : null;
    this.node.on("plotly_hover", ({ points, event }) => this.hears.onhover(idOf(points[0]), event));
    this.node.on("plotly_unhover", () => this.hears.onhover(null, null));
    this.node.on("plotly_click", ({ points }) => {
      const id = idOf(points[0]);
      if (id !== null) this.hears.onclick(id);
    });
    this.node.on("plotly_selected", (event) => {
      if (event?.lassoPoints || event?.range)
        this.hears.onlasso(event.points.map(idOf).filter((id) => id !== null));
    });
    for (const name of ["plotly_relayouting", "plotly_relayout"])
      this.node.on(name, (moving) => this.#lay(moving));
    this.node.on("plotly_afterplot", () => this.#lay());
  }

  async #move(to, y) {
    const still =
      window.matchMedia("(prefers-reduced-motion: reduce)").matches || this.points.x.length > FLY_POINTS;
    const { xaxis, yaxis } = this.node._fullLayout;
    const from = [...xaxis.range];
    const fromY = (yaxis.range[0] + yaxis.range[1]) / 2;
    const start = performance.now();
    for (let share = still ? 1 : 0; share < 1;) {
      await new Promise(requestAnimationFrame);
      share = Math.min(1, (performance.now() - start) / FLY_MS);
      const eased = 1 - (1 - share) ** 3;
      await this.#relayout(
        [from[0] + (to[0] - from[0]) * eased, from[1] + (to[1] - from[1]) * eased],
        fromY + (y - fromY) * eased,
      );
    }
    await this.#relayout(to, y);
  }

  #relayout(rangeX, middleY) {
    const { xaxis, yaxis } = this.node._fullLayout;
    const half = (((rangeX[1] - rangeX[0]) / 2) * yaxis._length) / xaxis._length;
    return this.plotly.relayout(this.node, {
      "xaxis.range": rangeX,
      "yaxis.range": [middleY - half, middleY + half],
    });
  }

  /** How far the farthest of `others` lies from `id` in the scene's unit cube. */
  #reach(id, others) {
    const axes = [this.points.x, this.points.y, this.points.z];
    const apart = (axis, other) => this.#place(axis, other) - this.#place(axis, id);
    return Math.max(0, ...others.map((other) => Math.hypot(...axes.map((axis) => apart(axis, other)))));
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

/** A title as plotly shows it unread. */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
