// SPDX-License-Identifier: Apache-2.0
// One component: its health, last error, queues, durations, counters and settings.

import { element, note, setText, table } from "./dom.js";
import { Durations } from "./durations.js";
import { count, duration, percent, quantiles, rate } from "./format.js";
import { isNameOf, logName, nodeQueue, queuesOf, troubleOf } from "./model.js";
import { keyOf } from "./rates.js";

const KINDS = ["receiver", "processor", "exporter", "connector", "extension"];

/** The lines of a component in the configuration. */
export function settings(yaml, kind, id) {
  const lines = yaml.split("\n");
  const start = lines.indexOf(`${kind}s:`);
  if (start < 0) return null;
  const found = [];
  for (const line of lines.slice(start + 1)) {
    if (/^\S/.test(line)) break;
    const isName = /^ {2}\S/.test(line);
    if (isName && found.length > 0) break;
    const isWanted = isName && (line.startsWith(`  ${id}:`) || line.startsWith(`  ${JSON.stringify(id)}:`));
    if (isWanted || found.length > 0) found.push(line.slice(2));
  }
  return found.length > 0 ? found.join("\n") : null;
}

const COUNTERS = ["accepted", "refused", "failed", "entered", "made", "restored", "left", "absorbed", "held"];

function counters(component) {
  const rows = COUNTERS.filter((name) => component[name] !== undefined).map((name) => ({ component, name, value: component[name] }));
  const reasons = Object.entries(component.dropped ?? {});
  return [...rows, ...reasons.map(([reason, value]) => ({ component, name: `dropped: ${reason}`, value }))];
}

const QUEUES = [
  { title: "Endpoint", text: (row) => row.endpoint ?? "all" },
  { title: "Signal", text: (row) => row.signal },
  { title: "In the queue", number: true, text: (row) => count(row.used) },
  { title: "Capacity", number: true, text: (row) => count(row.capacity) },
  { title: "Fill", number: true, text: (row) => percent(row.fill), mark: (row) => (row.fill >= 1 ? "bad" : row.fill > 0.8 ? "warn" : null) },
  { title: "Sends, p50 / p99", number: true, text: (row) => quantiles(row.latency) },
];

function upTo(bounds) {
  if (bounds === null) return "–";
  return Number.isFinite(bounds.most) ? `≤ ${duration(bounds.most)}` : `> ${duration(bounds.above)}`;
}

const DURATIONS = [
  { title: "Pipeline", text: (row) => row.pipeline },
  { title: "Batches", number: true, text: (row) => count(row.batches) },
  { title: "p50", number: true, text: (row) => upTo(row.p50) },
  { title: "p99", number: true, text: (row) => upTo(row.p99) },
];

const NO_TABLES = { roots: [], topics: [], showQueues: () => {}, update: {} };

/** The tables that only components of a kind have. */
function ownTables(kind, id) {
  if (kind === "exporter") {
    const queues = table({ caption: "Queues, and the duration of sends in the last minute", columns: QUEUES, key: (row) => `${row.signal} ${row.endpoint ?? ""}`, empty: "It has no queue." });
    return { ...NO_TABLES, roots: [queues.root], showQueues: (parts) => queues.update(queuesOf(parts)) };
  }
  if (kind === "processor") {
    const empty = "It has no durations: set level: detailed of service::telemetry::metrics to measure them.";
    const rows = table({ caption: "Time that it takes for a batch, last minute", columns: DURATIONS, key: (row) => row.pipeline, empty });
    const durations = new Durations(id);
    const update = { "status/durations": (page) => rows.update(durations.add(page)) };
    return { ...NO_TABLES, roots: [rows.root], topics: Object.keys(update), update };
  }
  return NO_TABLES;
}

export const title = "Component";
export const topics = ["status/graph", "status/config", "status/notices"];

/** Shows the view. */
export function open(root, { rates, parts: [kind, id = ""], heading }) {
  if (!KINDS.includes(kind)) {
    root.append(note("No component has this address."));
    return {};
  }
  setText(heading, `${kind} ${id}`);
  document.title = `${id} · tidegate`;
  const health = element("p", { class: "health" });
  const queue = element("p", { class: "note" });
  const notices = element("ul", { class: "notices" });
  const numbers = table({
    caption: "Items since the start",
    columns: [
      { title: "Counter", text: (row) => row.name },
      { title: "Where", text: (row) => row.component.pipeline ?? "" },
      { title: "Signal", text: (row) => row.component.signal },
      { title: "Items", number: true, text: (row) => count(row.value) },
      { title: "Rate", number: true, text: (row) => (row.name.startsWith("dropped") || row.name === "held" ? "–" : rate(rates.of(row.component, row.name))) },
    ],
    key: (row) => `${keyOf(row.component)} ${row.name}`,
    empty: "It counts no items.",
  });
  const text = element("pre", { tabindex: "0", "aria-label": "Settings" });
  const links = element("p", {}, element("a", { href: `#/tap/${encodeURIComponent(logName(kind, id))}` }, "Tap this component"));
  const own = ownTables(kind, id);
  root.append(health, queue, notices, ...own.roots, ...(kind === "extension" ? [] : [numbers.root, links]), element("h2", {}, "Settings, secrets masked"), text);

  const update = {
    "status/graph"(graph) {
      const trouble = troubleOf(graph, kind, id);
      setText(health, trouble ?? "good");
      health.setAttribute("data-mark", trouble ? "bad" : "good");
      const parts = graph.components.filter((one) => one.class === kind && one.id === id);
      const fill = nodeQueue({ parts });
      const refusal = fill >= 1 ? " A full queue with on_full: refuse (the default) refuses batches for all exporters of the pipeline." : "";
      const name = queuesOf(parts).length > 1 ? "The fullest queue" : "The queue";
      setText(queue, fill === null ? "" : `${name} is ${percent(fill)} full.${refusal}`);
      own.showQueues(parts);
      numbers.update(parts.flatMap(counters));
    },
    "status/config"({ yaml }) {
      setText(text, settings(yaml, kind, id) ?? "It is not in the configuration.");
    },
    "status/notices"(page) {
      const ours = Object.entries(page).filter(([key]) => isNameOf(key, kind, id));
      notices.replaceChildren(...ours.flatMap(([, texts]) => texts).map((one) => element("li", {}, one)));
    },
    ...own.update,
  };
  return { topics: [...topics, ...own.topics], update: (topic, page) => update[topic]?.(page) };
}
