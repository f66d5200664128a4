// SPDX-License-Identifier: Apache-2.0
// One component: its health, last error, counters and settings.

import { element, note, setText, table } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { isNameOf, logName, nodeQueue, troubleOf } from "./model.js";
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
  root.append(health, queue, notices, ...(kind === "extension" ? [] : [numbers.root, links]), element("h2", {}, "Settings, secrets masked"), text);

  const update = {
    "status/graph"(graph) {
      const trouble = troubleOf(graph, kind, id);
      setText(health, trouble ?? "good");
      health.setAttribute("data-mark", trouble ? "bad" : "good");
      const own = graph.components.filter((one) => one.class === kind && one.id === id);
      const fill = nodeQueue({ parts: own });
      const refusal = fill >= 1 ? " A full queue with on_full: refuse (the default) refuses batches for all exporters of the pipeline." : "";
      setText(queue, fill === null ? "" : `The queue is ${percent(fill)} full.${refusal}`);
      numbers.update(own.flatMap(counters));
    },
    "status/config"({ yaml }) {
      setText(text, settings(yaml, kind, id) ?? "It is not in the configuration.");
    },
    "status/notices"(page) {
      const own = Object.entries(page).filter(([key]) => isNameOf(key, kind, id));
      notices.replaceChildren(...own.flatMap(([, texts]) => texts).map((one) => element("li", {}, one)));
    },
  };
  return { update: (topic, page) => update[topic]?.(page) };
}
