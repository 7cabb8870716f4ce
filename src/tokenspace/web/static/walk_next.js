/** What to read after the walk: shown below its last step. Titles alone, so that a page in a file loads nothing. */

import { el } from "./dom.js";

const READING = [
  ["How the layer works, in words and numbers", "tokenspace: docs/concepts.md, docs/layer.md"],
  ["How rows are learned", "tokenspace: docs/learning.md, docs/training.md; Mikolov et al. 2013, “Distributed Representations of Words and Phrases and their Compositionality” (arXiv 1310.4546)"],
  ["Attention, which these vectors enter", "Vaswani et al. 2017, “Attention Is All You Need” (arXiv 1706.03762)"],
  ["Positions inside attention", "Su et al. 2021, “RoFormer: Enhanced Transformer with Rotary Position Embedding” (arXiv 2104.09864); Press, Smith and Lewis 2022, “Train Short, Test Long” (arXiv 2108.12409)"],
  ["One table for input and output", "Press and Wolf 2017, “Using the Output Embedding to Improve Language Models” (arXiv 1608.05859)"],
  ["Words split into pieces", "Sennrich, Haddow and Birch 2016, “Neural Machine Translation of Rare Words with Subword Units” (arXiv 1508.07909)"],
];

/** @returns {HTMLElement} a short list of topics, each with its sources */
export function nextReading() {
  const entries = READING.map(([topic, source]) => [el("dt", {}, topic), el("dd", {}, source)]);
  return el("section", { class: "reading" }, el("h3", {}, "What to read next"), el("dl", {}, entries.flat()));
}
