// SPDX-License-Identifier: Apache-2.0
// Build, process, reloads, cluster and the configuration.

import { data } from "./api.js";
import { element, facts, note, setText, table } from "./dom.js";
import { time } from "./format.js";

const RELOADS = [
  { title: "Time", text: (row) => time(row.time) },
  { title: "Cause", text: (row) => row.cause },
  { title: "Result", text: (row) => (row.success ? "applied" : "failed, the old one runs"), mark: (row) => (row.success ? "good" : "bad") },
  { title: "Changes", text: (row) => (row.changed ?? []).join("\n") },
  { title: "Error", text: (row) => row.error ?? "" },
];

const BUILD = ["version", "revision", "buildDate"];
const PROCESS = ["hostname", "startTime", "lastConfigTime", "CWD"];

export const title = "Configuration";
export const topics = ["status/config", "status/cluster"];

/** Shows the view. */
export function open(root) {
  let reading = new AbortController();
  const about = element("div");
  const reloads = table({ caption: "Reloads, newest first", columns: RELOADS, key: (row) => `${row.time} ${row.cause}`, empty: "The configuration of the start runs." });
  const clusters = element("pre", { tabindex: "0", "aria-label": "Clusters" });
  const text = element("pre", { tabindex: "0", "aria-label": "Configuration" });
  root.append(element("h2", {}, "Build and process"), about, element("h2", {}, "Reloads"), reloads.root,
    element("h2", {}, "Clusters"), clusters, element("h2", {}, "Configuration, secrets masked"), text);

  async function read() {
    // An older answer must not replace a newer one.
    reading.abort();
    reading = new AbortController();
    const { signal } = reading;
    try {
      const paths = ["status/buildinfo", "status/runtimeinfo", "status/flags"];
      const [build, process, flags] = await Promise.all(paths.map((path) => data(path, signal)));
      const shown = (name, value) => (name.endsWith("Time") ? time(value) : value);
      const pairs = [...BUILD.map((name) => [name, build[name]]), ...PROCESS.map((name) => [name, shown(name, process[name])])];
      about.replaceChildren(facts([...pairs, ...Object.entries(flags)]));
    } catch (error) {
      if (!signal.aborted) about.replaceChildren(note(error.message, "error"));
    }
  }

  read();
  return {
    close: () => reading.abort(),
    update(topic, page) {
      if (topic === "status/config") {
        setText(text, page.yaml);
        reloads.update(page.reloads);
        // The gateway sends this topic after each reload and to each new stream, so also after a restart.
        read();
      }
      if (topic === "status/cluster") {
        const isAlone = Object.keys(page).length === 0;
        setText(clusters, isAlone ? "This gateway is not in a cluster." : JSON.stringify(page, null, 1));
      }
    },
  };
}
