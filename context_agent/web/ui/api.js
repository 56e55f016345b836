// Requests to this server. They send the token if there is one, and return errors as sentences and streams as events.
"use strict";

const TOKEN = "ctx1-token";
const ofTab = storageOf("sessionStorage");
const ofBrowser = storageOf("localStorage");

/** Return the browser's storage. If the reader blocks it, return one that lasts as long as the page. */
function storageOf(name) {
  try {
    return window[name];
  } catch {
    const values = new Map();
    return { getItem: (key) => values.get(key) ?? null, setItem: (key, value) => values.set(key, value), removeItem: (key) => values.delete(key) };
  }
}

const LOST = "The connection was lost before the answer came. Ask again.";

/** An error that the server answered. Its `code` is for programs. */
class ServerError extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** Return the response of a path. If the server requires a token, ask the reader for it. Throws `ServerError`. */
async function request(path, options = {}) {
  for (;;) {
    const token = ofTab.getItem(TOKEN);
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const response = await fetch(path, { ...options, headers }).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new ServerError("The server does not answer. Check that it runs.", "unreachable");
    });
    if (response.ok) return response;
    const { error } = await response.json().catch(() => ({}));
    if (response.status !== 401) throw new ServerError(error ? error.message : `The server answered ${response.status}.`, error?.code);
    ofTab.setItem(TOKEN, await askForToken(token ? "The server refused this token." : ""));
  }
}

async function getJson(path) {
  return (await request(path)).json();
}

async function postJson(path, body, options = {}) {
  return request(path, { ...options, method: "POST", headers: { "Content-Type": "application/json", ...options.headers }, body: JSON.stringify(body) });
}

/** Return the token that the reader enters. A page without the dialog sends the reader to the page that has it. */
function askForToken(reason) {
  const dialog = document.getElementById("login");
  if (!dialog) throw new ServerError("This server requires a token: enter it on the page where you ask.", "invalid_api_key");
  const input = document.getElementById("token");
  document.getElementById("loginreason").textContent = reason;
  input.value = "";
  dialog.oncancel = (event) => event.preventDefault();
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(input.value.trim());
  });
}

/** Yield the server-sent events of a response, as `{ event, data }`. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new ServerError(LOST, "lost");
    });
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = new Map(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.has("event")) yield { event: fields.get("event"), data: JSON.parse(fields.get("data")) };
    }
  }
}
