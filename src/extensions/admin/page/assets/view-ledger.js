// SPDX-License-Identifier: Apache-2.0
// The ledger: what went into each component is what came out, was absorbed, dropped or is held.

import { element, note, table } from "./dom.js";
import { exact } from "./format.js";
import { drops, keyOf } from "./rates.js";

const NAMES = ["entered", "made", "restored", "left", "absorbed", "held"];

function incoming(one) {
  return one.entered + one.made + one.restored;
}

function outgoing(one) {
  return one.left + one.absorbed + drops(one) + one.held;
}

function reasons(one) {
  return Object.entries(one.dropped).map(([reason, items]) => `${reason} ${exact(items)}`).join(", ");
}

function sum(rows) {
  const total = { path: "all components", signal: "", dropped: {} };
  for (const name of NAMES) total[name] = rows.reduce((all, row) => all + row[name], 0);
  for (const row of rows) {
    for (const [reason, items] of Object.entries(row.dropped)) total.dropped[reason] = (total.dropped[reason] ?? 0) + items;
  }
  return total;
}

const cell = (title, value) => ({ title, number: true, text: (row) => exact(value(row)) });

const COLUMNS = [
  { title: "Component", text: (row) => row.path },
  { title: "Signal", text: (row) => row.signal },
  cell("In", (row) => row.entered),
  cell("+ Made", (row) => row.made),
  cell("+ Restored", (row) => row.restored),
  cell("= Out", (row) => row.left),
  cell("+ Absorbed", (row) => row.absorbed),
  { ...cell("+ Dropped", drops), mark: (row) => (drops(row) > 0 ? "bad" : null) },
  cell("+ Held", (row) => row.held),
  {
    title: "Sum",
    number: true,
    text: (row) => (incoming(row) === outgoing(row) ? exact(incoming(row)) : `${exact(incoming(row) - outgoing(row))} off`),
    mark: (row) => (incoming(row) === outgoing(row) ? "good" : "bad"),
  },
  { title: "Reasons of drops", text: reasons },
];

const RECEIVERS = [
  { title: "Receiver", text: (row) => row.id },
  { title: "Signal", text: (row) => row.signal },
  cell("Accepted", (row) => row.accepted),
  { ...cell("Refused", (row) => row.refused), mark: (row) => (row.refused > 0 ? "warn" : null) },
  { ...cell("Failed", (row) => row.failed), mark: (row) => (row.failed > 0 ? "bad" : null) },
];

export const title = "Ledger";
export const topics = ["status/graph"];

/** Shows the view. */
export function open(root) {
  const receivers = table({ caption: "Receivers, items since the start", columns: RECEIVERS, key: keyOf });
  const ledger = table({ caption: "Ledger, items since the start", columns: COLUMNS, key: keyOf });
  root.append(
    element("p", {}, "In + made + restored = out + absorbed + dropped + held."),
    ledger.root,
    receivers.root,
    note("A refused item is still with its sender. A scraped one is offered again until the next scrape, then it is lost. A dropped item is lost."),
  );
  return {
    update(topic, graph) {
      const rows = graph.components.filter((one) => one.class !== "receiver");
      ledger.update([...rows, sum(rows)]);
      receivers.update(graph.components.filter((one) => one.class === "receiver"));
    },
  };
}
