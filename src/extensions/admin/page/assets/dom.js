// SPDX-License-Identifier: Apache-2.0
// Elements. All text goes through `textContent`, so no text of the gateway is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** The most rows that a table shows. */
const MAX_ROWS = 500;

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element. Properties that are functions listen to events. Children are nodes or text. */
export function element(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** An SVG element. */
export function shape(name, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

/** Sets the text of a node if it differs. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute if it differs; `null` removes it. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** A message in place of data. */
export function note(text, kind = "note") {
  return element("p", { class: kind, role: kind === "error" ? "alert" : null }, text);
}

/** A box that scrolls sideways, also by keyboard. */
export function scrollable(label, ...children) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
}

/** A list of names and values. */
export function facts(pairs) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    list.append(element("div", {}, element("dt", {}, name), element("dd", {}, String(value))));
  }
  return list;
}

/**
 * A table whose rows change in place, so that focus and selection stay.
 *
 * `columns`: `{title, text(row), number, href(row), draw(cell, row), mark(row)}`. `key(row)` identifies a row. `filter`: shows a
 * field that selects rows by their text. `empty`: the text without rows.
 */
export function table({ caption, columns, key, empty = "None.", filter = false }) {
  const body = element("tbody");
  const head = columns.map((column) => element("th", { scope: "col", class: column.number ? "number" : null }, column.title));
  const note = element("p", { class: "note", role: "status" });
  const field = element("input", { type: "search", "aria-label": `Filter: ${caption}`, placeholder: "filter", input: () => draw() });
  const grid = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)), body);
  const scroll = scrollable(caption, grid);
  const known = new Map();
  let rows = [];
  // Before the first data, "No rows" would be wrong.
  let isKnown = false;

  function selected() {
    const wanted = field.value.trim().toLowerCase();
    if (!filter || !wanted) return rows;
    const has = (row) => columns.some((column) => column.text && column.text(row).toLowerCase().includes(wanted));
    return rows.filter(has);
  }

  function line(name) {
    const cells = columns.map((column, index) => {
      const tag = index === 0 ? "th" : "td";
      return element(tag, { class: column.number ? "number" : null, scope: index === 0 ? "row" : null });
    });
    const entry = { cells, row: element("tr", {}, ...cells) };
    known.set(name, entry);
    return entry;
  }

  function write(entry, row) {
    columns.forEach((column, index) => {
      const cell = entry.cells[index];
      if (column.draw) column.draw(cell, row);
      else if (column.href?.(row)) {
        const link = cell.firstElementChild ?? cell.appendChild(element("a"));
        setAttribute(link, "href", column.href(row));
        setText(link, column.text(row));
      } else setText(cell, column.text(row));
      if (column.mark) setAttribute(cell, "data-mark", column.mark(row) ?? null);
    });
  }

  function update(next) {
    rows = next;
    isKnown = true;
    draw();
  }

  function textOfNone() {
    if (rows.length > 0) return "No row matches.";
    return isKnown ? empty : "Waiting for the gateway.";
  }

  function draw() {
    const all = selected();
    const shown = all.slice(0, MAX_ROWS);
    const names = new Set();
    shown.forEach((row, index) => {
      const name = key(row);
      if (names.has(name)) return;
      names.add(name);
      const entry = known.get(name) ?? line(name);
      write(entry, row);
      if (body.children[index] !== entry.row) body.insertBefore(entry.row, body.children[index] ?? null);
    });
    for (const [name, entry] of known) {
      if (names.has(name)) continue;
      entry.row.remove();
      known.delete(name);
    }
    scroll.hidden = shown.length === 0;
    setText(note, shown.length === 0 ? textOfNone() : all.length > shown.length ? `${all.length - shown.length} more rows.` : "");
  }

  const parts = filter ? [element("div", { class: "bar" }, field), scroll, note] : [scroll, note];
  const root = element("section", {}, ...parts);
  draw();
  return { root, update };
}
