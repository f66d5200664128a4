// SPDX-License-Identifier: Apache-2.0
// Tap: a copy of the data that enters or leaves a component.

import { data, events } from "./api.js";
import { element, note, setText } from "./dom.js";
import { count } from "./format.js";

/** The most items that the page keeps. */
const MAX_ITEMS = 200;

/** The most characters of an item that the page shows. */
const MAX_CHARS = 4000;

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1).slice(0, MAX_CHARS);
  } catch {
    return text.slice(0, MAX_CHARS);
  }
}

export const title = "Tap";
// A reload, which may change the components, changes it.
export const topics = ["status/config"];

/** Shows the view. `#/tap/COMPONENT` chooses a component. */
export function open(root, { parts: [first = ""] }) {
  let abort = null;
  let [seen, skipped, unreadable, why] = [0, 0, 0, ""];
  const names = element("datalist", { id: "components" });
  const component = element("input", { id: "component", list: "components", required: true, autocomplete: "off", placeholder: "receivers::otlp" });
  component.value = first;
  const side = element("select", {}, element("option", { value: "" }, "usual"), element("option", { value: "input" }, "input"), element("option", { value: "output" }, "output"));
  const filter = element("input", { id: "where", autocomplete: "off", placeholder: "all items" });
  const limit = element("input", { id: "limit", type: "number", min: 1, max: 10000, value: 100 });
  const start = element("button", { type: "submit" }, "Start");
  const stop = element("button", { type: "button", disabled: true, click: () => abort?.abort() }, "Stop");
  const state = element("p", { class: "note", role: "status" });
  const failure = element("div", {});
  const items = element("ol", { class: "items", reversed: true, "aria-label": "Items" });

  function received(name, text) {
    if (name === "item") {
      seen += 1;
      items.prepend(element("li", {}, element("pre", { tabindex: "0" }, pretty(text))));
      if (items.childElementCount > MAX_ITEMS) items.lastElementChild.remove();
    } else if (name === "skipped") {
      skipped += JSON.parse(text).batches ?? 0;
    } else if (name === "unreadable") {
      const page = JSON.parse(text);
      unreadable += page.batches;
      why = page.error;
    }
    const end = name === "end" ? ` It ended: ${JSON.parse(text).reason}.` : "";
    const lost = unreadable > 0 ? ` ${count(unreadable)} batches can't be decoded: ${why}.` : "";
    setText(state, `${count(seen)} items, ${count(skipped)} batches skipped.${lost}${end}`);
  }

  async function run() {
    abort?.abort();
    const mine = new AbortController();
    abort = mine;
    [seen, skipped, unreadable, why] = [0, 0, 0, ""];
    items.replaceChildren();
    failure.replaceChildren();
    stop.disabled = false;
    setText(state, "Waiting for items.");
    const query = new URLSearchParams({ component: component.value.trim(), limit: limit.value });
    if (side.value) query.set("direction", side.value);
    if (filter.value.trim()) query.set("where", filter.value.trim());
    try {
      await events(`/api/v1/tap?${query}`, mine.signal, received);
    } catch (error) {
      if (!mine.signal.aborted) {
        failure.replaceChildren(note(error.status === 403 ? `The tap is not allowed: ${error.message}` : error.message, "error"));
        setText(state, "");
      }
    }
    if (abort === mine) stop.disabled = true;
  }

  const field = (text, input) => element("label", {}, `${text} `, input);
  const form = element("form", { class: "bar", submit: (event) => { event.preventDefault(); run(); } },
    field("Component", component), field("Side", side), field("Where", filter), field("Items", limit), start, stop, names);
  root.append(form, failure, state, items);
  const closing = new AbortController();

  async function listComponents() {
    try {
      const { components } = await data("status/graph", closing.signal);
      const paths = [...new Set(components.map((one) => one.path))];
      names.replaceChildren(...paths.map((value) => element("option", { value })));
    } catch {
      // The names only help to write one.
    }
  }

  let known = "";
  return {
    close() {
      closing.abort();
      abort?.abort();
    },
    update(topic, { yaml }) {
      if (topic !== "status/config" || yaml === known) return;
      known = yaml;
      listComponents();
    },
  };
}
