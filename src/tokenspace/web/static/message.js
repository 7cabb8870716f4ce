/** The page's one line for what it put right by itself. */

/** @param {string} text "" for nothing to say */
export function tell(text) {
  const line = document.getElementById("message");
  line.textContent = text;
  line.hidden = text === "";
}
