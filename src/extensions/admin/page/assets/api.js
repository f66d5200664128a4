// SPDX-License-Identifier: Apache-2.0
// Requests to the gateway, and its event streams. `EventSource` can't send a token and hides the reason of a refusal, so
// streams are read with `fetch`.

const TOKEN = "tidegate.token";
const SCHEME = "tidegate.scheme";

/** The longest event, in characters. */
const MAX_EVENT = 8 << 20;

/** A refusal of the gateway. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keeps a token until the tab closes. */
export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, authorization: `${sessionStorage.getItem(SCHEME) ?? "Bearer"} ${token}` } : more;
}

async function message(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text.trim() || answer.statusText;
  }
}

async function send(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", ...options, headers: headers(options.headers ?? {}) });
  if (answer.ok) return answer;
  if (answer.status === 401) {
    const scheme = (answer.headers.get("www-authenticate") ?? "Bearer").split(" ")[0];
    sessionStorage.setItem(SCHEME, scheme);
    sessionStorage.removeItem(TOKEN);
    // For Basic, the browser has asked already.
    if (scheme.toLowerCase() !== "basic") dispatchEvent(new CustomEvent("unauthenticated"));
  }
  throw new ApiError(answer.status, await message(answer));
}

/** The whole answer of Prometheus's API: `data`, `warnings`, `infos`. */
export async function page(path, parameters, signal) {
  const form = parameters && new URLSearchParams(parameters);
  const answer = await send(`/api/v1/${path}`, form ? { method: "POST", body: form, signal } : { signal });
  return answer.json();
}

/** The data of a page of Prometheus's API. */
export async function data(path, signal) {
  return (await page(path, undefined, signal)).data;
}

function parse(text) {
  const event = { name: "message", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("event:")) event.name = line.slice(6).trim();
    else if (line.startsWith("data:")) event.data += line.slice(5).replace(/^ /, "");
  }
  return event.data ? event : null;
}

/** Reads server-sent events until the stream ends or `signal` aborts it. `open()` is called at its start. */
export async function events(path, signal, onEvent, open = () => {}) {
  const answer = await send(path, { signal, headers: { accept: "text/event-stream" } });
  open();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    // What was there before has no end of an event.
    const searched = Math.max(0, rest.length - 1);
    rest += value;
    for (let end = rest.indexOf("\n\n", searched); end >= 0; end = rest.indexOf("\n\n")) {
      const event = parse(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event) onEvent(event.name, event.data);
    }
    if (rest.length > MAX_EVENT) throw new ApiError(0, "the gateway sent an event that is too long");
  }
}
