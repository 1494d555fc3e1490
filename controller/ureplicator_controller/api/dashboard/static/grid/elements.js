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
