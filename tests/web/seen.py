"""What a browser shows of numbers, read back."""

import re
from decimal import ROUND_HALF_UP, Decimal

MINUS = "\u2212"


def numbers(text):
    """The numbers in a shown text."""
    plain = text.replace(MINUS, "-").replace(",", "")
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", plain)]


def number(text):
    """The one number that a cell shows."""
    (found,) = numbers(text)
    return found


def written(x, digits=3):
    """``x`` as the page writes it: with a real minus sign, and never a negative zero."""
    text = str(Decimal(x).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))  # ties away from 0, as in JS
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", MINUS)


def lines(page, within="#walk"):
    """Each row of the numbers on the page: its label, and the numbers as they are shown."""
    page.wait_for_selector(f"{within} .numbers tbody td")
    return page.evaluate(
        """(within) => [...document.querySelectorAll(`${within} .numbers tbody tr`)].map((row) => [
            row.querySelector("th").innerText.replace(/\\s+/g, " ").trim(),
            [...row.querySelectorAll("td")].map((cell) => cell.innerText),
        ])""",
        within,
    )


TOO_WIDE = """() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const found = [`${scrollWidth} of ${clientWidth} pixels`];
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
        const range = document.createRange();  // a text may leave the box of its element
        range.selectNode(nodes.currentNode);
        const { right } = range.getBoundingClientRect();
        if (right > clientWidth + 0.5) found.push(`${right}: ${nodes.currentNode.textContent.slice(0, 80)}`);
    }
    return found;
}"""


def too_wide(page):
    """What makes a page scroll sideways once it has settled; nothing if it fits."""
    for _ in range(20):
        if not (found := page.evaluate(TOO_WIDE)):
            break
        page.wait_for_timeout(100)
    return found
