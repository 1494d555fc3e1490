// Elements with text. Nothing is ever set as HTML, so that names are text whatever they hold.

export const byId = (id) => document.getElementById(id);

export function element(tag, { text = "", kind = "", ...properties } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (kind) made.className = kind;
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|[^\S ]/gu; // control characters, marks without width, blanks that look alike

// A name as text: in quotes if it could not be told from another one, or not be seen, otherwise.
export function nameText(name) {
  const shown = name.replace(UNSEEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
  return shown === name && /^\S+( \S+)*$/.test(name) ? name : `"${shown}"`;
}

// Table with a head; without rows the text `none`. Cells are texts or elements; null is a value not known.
export function table(heads, rows, none) {
  if (!rows.length) return element("p", { text: none, kind: "quiet" });
  const head = element("tr", {}, ...heads.map((text) => element("th", { text, scope: "col" })));
  const body = rows.map((cells) => element("tr", {}, ...cells.map(cellOf)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function cellOf(cell) {
  return cell instanceof Node ? element("td", {}, cell) : element("td", { text: String(cell ?? "not known") });
}
