/** Elements made of text nodes: nothing on this page is ever parsed as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Object<string, any>} [attributes] `on…` are listeners, `data` and `style` objects; null is left out
 * @param {...(Node|string|number|null|undefined|Array)} children strings become text nodes
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for SVG. @returns {SVGElement} */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace what `parent` holds. */
export function fill(parent, ...children) {
  parent.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return parent;
}

/** A label over its control, joined for screen readers. */
export function field(label, control, hint = null) {
  if (!control.id) control.id = `field-${(field.count = (field.count ?? 0) + 1)}`;
  return el(
    "div",
    { class: "field" },
    el("label", { for: control.id }, label),
    control,
    hint && el("small", {}, hint),
  );
}

/** A <select> of [value, text] pairs. */
export function select(options, value, onchange) {
  const control = el("select", { onchange: () => onchange(control.value) });
  for (const [key, text] of options) control.append(el("option", { value: key }, text));
  control.value = value;
  return control;
}

/**
 * Choices of which one is pressed, as buttons in a row.
 *
 * @param {string} label what the group is, for screen readers
 */
export function choices(label, options, value, onchoose) {
  const group = el("div", { class: "choices", role: "group", "aria-label": label });
  const press = (chosen) => {
    for (const button of group.children)
      button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
  };
  for (const [key, text] of options) {
    const onclick = () => {
      press(key);
      onchoose(key);
    };
    group.append(el("button", { type: "button", data: { value: key }, onclick }, text));
  }
  press(value);
  group.press = press;
  return group;
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "style")
      for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => (child instanceof Node ? child : String(child))),
  );
  return node;
}
