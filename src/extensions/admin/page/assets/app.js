// SPDX-License-Identifier: Apache-2.0
// The page: navigation, health, and the view that the address names.

import { setToken } from "./api.js";
import { element, note, setAttribute, setText } from "./dom.js";
import { Live } from "./live.js";
import { componentAddress } from "./model.js";
import { Rates } from "./rates.js";
import * as cardinality from "./view-cardinality.js";
import * as component from "./view-component.js";
import * as components from "./view-components.js";
import * as composites from "./view-composites.js";
import * as config from "./view-config.js";
import * as graph from "./view-graph.js";
import * as ledger from "./view-ledger.js";
import * as query from "./view-query.js";
import * as rules from "./view-rules.js";
import * as sources from "./view-sources.js";
import * as tap from "./view-tap.js";
import * as targets from "./view-targets.js";

const GRAPH = "status/graph";
/** The topic of all views: the head of the page shows it. */
const HEALTH = "status/health";
const VIEWS = { graph, components, ledger, targets, sources, composites, query, cardinality, rules, tap, config };
/** Views that no entry of the navigation leads to. */
const OTHERS = { component };
/** An object would have `constructor`, too. */
const ALL = new Map(Object.entries({ ...VIEWS, ...OTHERS }));

const main = document.getElementById("main");
const health = document.getElementById("health");
const stream = document.getElementById("stream");
const rates = new Rates();
const pages = new Map();
let current = {};
/** Why topics have no page, by topic. */
const failures = new Map();
let warnings = null;

/** A link to the component of a log name: `exporters::otlp` or `processors::batch@metrics`. */
function linkTo(name) {
  const [, kind, id] = /^([a-z]+)s::([^@]+)/.exec(name) ?? [];
  return kind ? element("a", { href: componentAddress(kind, id) }, name) : name;
}

function showHealth({ ready, reason, troubles, version }) {
  const names = Object.keys(troubles);
  const text = `${!ready ? reason : names.length > 0 ? `trouble: ${names.join(", ")}` : "ready"} · ${version}`;
  // Links that do not change stay, and so does the focus.
  if (health.textContent !== text) {
    const links = names.flatMap((name, index) => (index > 0 ? [", ", linkTo(name)] : [linkTo(name)]));
    health.replaceChildren(...(ready && names.length > 0 ? ["trouble: ", ...links, ` · ${version}`] : [text]));
  }
  setAttribute(health, "data-mark", ready ? (names.length > 0 ? "warn" : "good") : "bad");
}

function received(topic, page) {
  if (page.status === "success") failures.delete(topic);
  else failures.set(topic, page.error);
  setText(warnings, [...failures].map(([name, why]) => `${name}: ${why}`).join("; "));
  warnings.hidden = failures.size === 0;
  if (page.status !== "success") return;
  pages.set(topic, page.data);
  if (topic === GRAPH) rates.add(page.data);
  if (topic === HEALTH) showHealth(page.data);
  else current.update?.(topic, page.data);
}

const STATES = { live: "live", paused: "paused", lost: "connection lost" };
const live = new Live(received, (state, why) => {
  setText(stream, why ? `${STATES[state]}: ${why}` : STATES[state]);
  setAttribute(stream, "data-mark", state === "lost" ? "bad" : null);
});

/** The parts of the address behind `#/`. */
function address() {
  const parts = location.hash.split("/").slice(1);
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return parts;
  }
}

function navigate() {
  const [name = "graph", ...parts] = address();
  const view = ALL.get(name);
  current.close?.();
  current = {};
  failures.clear();
  warnings = note("", "error");
  warnings.hidden = true;
  document.title = `${view?.title ?? "Not found"} · tidegate`;
  main.replaceChildren(element("h1", {}, view?.title ?? "Not found"), warnings);
  for (const link of document.querySelectorAll("#views a")) {
    setAttribute(link, "aria-current", link.hash === `#/${name}` ? "page" : null);
  }
  // At phone width the navigation scrolls sideways.
  document.querySelector("#views a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  if (!view) {
    main.append(note(`No view is named ${name}.`));
    return;
  }
  current = view.open(main, { rates, parts, heading: main.firstElementChild }) ?? {};
  const topics = current.topics ?? view.topics;
  for (const topic of topics) if (pages.has(topic)) current.update?.(topic, pages.get(topic));
  live.read([HEALTH, ...topics]);
}

function askForToken() {
  const dialog = document.getElementById("token");
  if (!dialog.open) dialog.showModal();
}

const list = document.getElementById("views");
for (const [name, view] of Object.entries(VIEWS)) {
  list.append(element("li", {}, element("a", { href: `#/${name}` }, view.title)));
}
document.getElementById("token").addEventListener("close", () => {
  const field = document.getElementById("token-text");
  if (!field.value) return;
  setToken(field.value);
  field.value = "";
  navigate();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("unauthenticated", askForToken);
addEventListener("hashchange", () => {
  navigate();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
navigate();
