// SPDX-License-Identifier: Apache-2.0
// The positions of the boxes. A node is in the column of its longest path from a receiver, exporters are in the last column,
// and each pipeline has a row.

export const BOX = { width: 172, height: 54 };
export const GAP = { x: 104, y: 26 };
const MARGIN = 12;

function levels(model) {
  const level = new Map([...model.nodes.keys()].map((key) => [key, 0]));
  // The graph has no cycle, so this many passes are enough.
  for (let pass = 0; pass < model.nodes.size; pass += 1) {
    let changed = false;
    for (const { from, to } of model.edges) {
      if (level.get(to.key) > level.get(from.key)) continue;
      level.set(to.key, level.get(from.key) + 1);
      changed = true;
    }
    if (!changed) break;
  }
  const last = Math.max(0, ...level.values());
  for (const node of model.nodes.values()) if (node.kind === "exporter") level.set(node.key, last);
  return level;
}

/** Moves the boxes of a column apart, in the order of the rows that they want. */
function spread(column) {
  column.sort((one, other) => one.y - other.y);
  const step = BOX.height + GAP.y;
  for (let index = 1; index < column.length; index += 1) {
    column[index].y = Math.max(column[index].y, column[index - 1].y + step);
  }
}

/** The left upper corner of each node by its key, and the size of the picture. */
export function layout(model) {
  const level = levels(model);
  const columns = [];
  const places = new Map();
  for (const node of model.nodes.values()) {
    const column = level.get(node.key);
    const row = node.rows.reduce((sum, one) => sum + one, 0) / node.rows.length;
    const place = { x: MARGIN + column * (BOX.width + GAP.x), y: MARGIN + row * (BOX.height + GAP.y) };
    (columns[column] ??= []).push(place);
    places.set(node.key, place);
  }
  columns.forEach(spread);
  const all = [...places.values()];
  const width = Math.max(0, ...all.map((place) => place.x)) + BOX.width + MARGIN;
  const height = Math.max(0, ...all.map((place) => place.y)) + BOX.height + MARGIN;
  return { places, width, height };
}
