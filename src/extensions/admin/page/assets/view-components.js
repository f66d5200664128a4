// SPDX-License-Identifier: Apache-2.0
// All components with their health, and the notices.

import { element, table } from "./dom.js";
import { count, percent, quantiles, rate } from "./format.js";
import { componentAddress, nodeDrops, nodeLatency, nodeQueue, nodeRate, troubleOf } from "./model.js";

/** One row a component, whatever the number of its signals and pipelines. */
function rows(graph) {
  const all = new Map();
  const add = (kind, id) => {
    const key = `${kind} ${id}`;
    if (!all.has(key)) all.set(key, { key, kind, id, parts: [], trouble: troubleOf(graph, kind, id) });
    return all.get(key);
  };
  for (const one of graph.components) add(one.class, one.id).parts.push(one);
  for (const id of graph.extensions ?? []) add("extension", id);
  return [...all.values()];
}

/** Items since the start that a receiver refused or could not take. */
const refusals = (row) => row.parts.reduce((sum, one) => sum + (one.refused ?? 0) + (one.failed ?? 0), 0);

const columns = (rates) => [
  { title: "Component", text: (row) => row.id, href: (row) => componentAddress(row.kind, row.id) },
  { title: "Class", text: (row) => row.kind },
  { title: "Health", text: (row) => row.trouble ?? "good", mark: (row) => (row.trouble ? "bad" : "good") },
  { title: "In", number: true, text: (row) => (row.parts.length === 0 ? "–" : rate(nodeRate(row, row.kind === "receiver" ? "accepted" : "entered", rates))) },
  { title: "Out", number: true, text: (row) => (["processor", "connector", "exporter"].includes(row.kind) ? rate(nodeRate(row, "left", rates)) : "–") },
  { title: "Queue", number: true, text: (row) => (nodeQueue(row) === null ? "–" : percent(nodeQueue(row))) },
  { title: "Sends, p50 / p99", number: true, text: (row) => quantiles(nodeLatency(row)) },
  { title: "Refused", number: true, text: (row) => (row.kind === "receiver" ? count(refusals(row)) : "–"), mark: (row) => (refusals(row) > 0 ? "warn" : null) },
  { title: "Dropped", number: true, text: (row) => (["receiver", "extension"].includes(row.kind) ? "–" : count(nodeDrops(row))), mark: (row) => (nodeDrops(row) > 0 ? "bad" : null) },
  { title: "Signals", text: (row) => [...new Set(row.parts.map((one) => one.signal))].join(", ") },
];

const NOTICES = [
  { title: "Component", text: (row) => row.component },
  { title: "Notice", text: (row) => row.text },
];

export const title = "Components";
export const topics = ["status/graph", "status/notices"];

/** Shows the view. */
export function open(root, { rates }) {
  const list = table({ caption: "Components", columns: columns(rates), key: (row) => row.key, filter: true });
  const notices = table({ caption: "Notices of probable mistakes", columns: NOTICES, key: (row) => `${row.component} ${row.text}`, empty: "No notices." });
  root.append(list.root, element("h2", {}, "Notices"), notices.root);
  return {
    update(topic, page) {
      if (topic === "status/graph") list.update(rows(page));
      else notices.update(Object.entries(page).flatMap(([component, texts]) => texts.map((text) => ({ component, text }))));
    },
  };
}
