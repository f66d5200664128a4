// SPDX-License-Identifier: Apache-2.0
// Composites with their state and their last two minutes.

import { sparkline } from "./chart.js";
import { table } from "./dom.js";
import { duration, labels, number } from "./format.js";
import { POINTS, Past } from "./rates.js";

/** The most groups whose past is kept. */
const MAX_PASTS = 500;

const MARKS = { fresh: "good", partial: "warn", stale: "bad", absent: "bad" };

const keyOf = (row) => `${row.name} ${JSON.stringify(row.labels)} ${row.function} ${row.expr ?? ""}`;

/** Why there is no value. */
function absence(row) {
  if (row.state !== "absent") return "";
  return row.expr ? "the expression selects nothing" : "no source has reported, or all have left";
}

export const title = "Composites";
export const topics = ["composites"];

/** Shows the view. */
export function open(root) {
  const pasts = new Map();

  function draw(cell, row) {
    const entry = pasts.get(keyOf(row));
    if (!entry) return;
    if (!cell.contains(entry.line.root)) cell.replaceChildren(entry.line.root);
    entry.line.update(entry.past.values);
  }

  const list = table({
    caption: "Composites",
    columns: [
      { title: "Composite", text: (row) => row.name },
      { title: "Group", text: (row) => labels(row.labels) },
      { title: "Value", number: true, text: (row) => number(row.value) },
      { title: "Two minutes", draw },
      { title: "State", text: (row) => row.state, mark: (row) => MARKS[row.state] ?? "warn" },
      { title: "Age", number: true, text: (row) => duration(row.age_ms === null ? null : row.age_ms / 1000) },
      { title: "Sources", number: true, text: (row) => (row.sources ? `${row.sources.reporting} of ${row.sources.expected}` : "–") },
      { title: "Function", text: (row) => row.expr ?? [row.function, row.window, row.across && `across ${row.across}`].filter(Boolean).join(" ") },
      { title: "Min", number: true, text: (row) => number(row.min) },
      { title: "Max", number: true, text: (row) => number(row.max) },
      { title: "Problem", text: (row) => row.error ?? row.collision ?? absence(row) },
    ],
    key: keyOf,
    empty: "No composites: declare them in a composite processor.",
    filter: true,
  });
  root.append(list.root);

  function remember(rows) {
    const names = new Set(rows.map(keyOf));
    for (const name of pasts.keys()) if (!names.has(name)) pasts.delete(name);
    for (const row of rows) {
      const name = keyOf(row);
      if (!pasts.has(name) && pasts.size < MAX_PASTS) pasts.set(name, { past: new Past(), line: sparkline(`Values of ${row.name}`, POINTS) });
      pasts.get(name)?.past.add(row.value ?? Number.NaN);
    }
  }

  return {
    update(topic, rows) {
      if (topic !== "composites") return;
      remember(rows);
      list.update(rows);
    },
  };
}
