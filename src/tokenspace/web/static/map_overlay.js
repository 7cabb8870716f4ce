/**
 * What lies over the points of a flat map: lines from a token to its neighbors, rings, and names where they don't
 * overlap. It is drawn here rather than by plotly, which puts such things under its WebGL points and reads names
 * as a kind of HTML.
 */

import { fill, svg } from "./dom.js";
import { brief } from "./shown.js";

const CHARACTER = 7.4; // CSS pixels, about
const LINE = 17;
const LONGEST = 28;
const MOST_LABELS = 16;

/** @typedef {{id: number, text: string}} Named */

export class Overlay {
  constructor() {
    this.node = svg("svg", { class: "map-overlay", "aria-hidden": "true" });
  }

  /**
   * @param {any} layout plotly's full layout, whose axes say where the window lies
   * @param {{x: ArrayLike<number>, y: ArrayLike<number>}} points
   * @param {?{id: number, text: string, neighbors: Named[]}} marked
   * @param {Named[]} labels the most important first
   * @param {Object<string, number>} moving the ranges of a drag that is under way, as plotly tells them
   */
  draw(layout, points, marked, labels, moving = {}) {
    const x = scale(layout.xaxis, "xaxis", moving);
    const y = scale(layout.yaxis, "yaxis", moving);
    const at = (id) => [x(points.x[id]), y(points.y[id])];
    const names = marked ? [marked, ...marked.neighbors, ...labels] : labels;
    const window = {
      left: layout.xaxis._offset,
      top: layout.yaxis._offset,
      width: layout.xaxis._length,
      height: layout.yaxis._length,
    };
    const inner = svg(
      "svg",
      {
        x: window.left,
        y: window.top,
        width: window.width,
        height: window.height,
        viewBox: `${window.left} ${window.top} ${window.width} ${window.height}`,
      },
      marked && marks(marked, at),
      placed(names, at, window).map((label) =>
        svg(
          "text",
          { x: label.x, y: label.y, "text-anchor": "middle", class: label.id === marked?.id ? "chosen" : "" },
          label.text,
        ),
      ),
    );
    fill(this.node, inner);
  }

  clear() {
    fill(this.node);
  }
}

function marks({ id, neighbors }, at) {
  const [x1, y1] = at(id);
  const others = neighbors.map((other) => at(other.id));
  return [
    others.map(([x2, y2]) => svg("line", { x1, y1, x2, y2 })),
    others.map(([cx, cy]) => svg("circle", { cx, cy, r: 4.5 })),
    svg("circle", { cx: x1, cy: y1, r: 7, class: "chosen" }),
  ];
}

/** The names that fit into the window without overlapping an earlier one. */
function placed(names, at, { left, top, width, height }) {
  const labels = [];
  for (const { id, text } of names) {
    const shortened = brief(text, LONGEST);
    const half = (CHARACTER * [...shortened].length) / 2;
    const [px, py] = at(id);
    if (px < left || px > left + width || py < top || py > top + height) continue;
    const x = Math.min(Math.max(px, left + half + 2), left + width - half - 2);
    const y = py - 10 < top + LINE ? py + LINE + 4 : py - 10;
    const free = labels.every(
      (other) => Math.abs(other.x - x) > half + other.half + 4 || Math.abs(other.y - y) > LINE,
    );
    if (free) labels.push({ id, text: shortened, x, y, half });
    if (labels.length === MOST_LABELS) break;
  }
  return labels;
}

/** From an axis' numbers to pixels of the plot. */
function scale(axis, name, moving) {
  const [low, high] = [
    moving[`${name}.range[0]`] ?? axis.range[0],
    moving[`${name}.range[1]`] ?? axis.range[1],
  ];
  const upwards = name === "yaxis";
  return (value) => {
    const share = (value - low) / (high - low);
    return axis._offset + axis._length * (upwards ? 1 - share : share);
  };
}
