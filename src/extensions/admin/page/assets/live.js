// SPDX-License-Identifier: Apache-2.0
// The one stream of the page: the topics of the view, while somebody can see it.

import { events } from "./api.js";

const PATH = "/api/v1/status/stream";
const FIRST_DELAY = 1000;
const MAX_DELAY = 10000;

/** Reads topics of the gateway and reconnects. A hidden page reads nothing. */
export class Live {
  #topics = [];
  #onPage;
  #onState;
  #abort = null;
  #timer = 0;
  #delay = FIRST_DELAY;

  /** `onPage(topic, page)`: a topic has changed. `onState(state, why)`: `live`, `paused` or `lost`. */
  constructor(onPage, onState) {
    this.#onPage = onPage;
    this.#onState = onState;
    document.addEventListener("visibilitychange", () => this.#start());
  }

  /** Reads these topics from now on. */
  read(topics) {
    this.#topics = topics;
    this.#start();
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #start() {
    this.#stop();
    if (document.hidden) {
      this.#onState("paused", "");
      return;
    }
    const abort = new AbortController();
    this.#abort = abort;
    const query = this.#topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
    let [why, isRefused] = ["the stream ended", false];
    const opened = () => {
      this.#delay = FIRST_DELAY;
      this.#onState("live", "");
    };
    const received = (topic, text) => {
      if (this.#topics.includes(topic)) this.#onPage(topic, JSON.parse(text));
      else if (topic === "ended") why = JSON.parse(text).error;
    };
    try {
      await events(`${PATH}?${query}`, abort.signal, received, opened);
    } catch (error) {
      why = error.message;
      isRefused = error.status === 401;
    }
    if (abort.signal.aborted) return;
    this.#onState("lost", why);
    // Without credentials each attempt would count as a failure. The next `read` tries again.
    if (isRefused) return;
    this.#timer = setTimeout(() => this.#start(), this.#delay);
    this.#delay = Math.min(2 * this.#delay, MAX_DELAY);
  }
}
