// An agent in another language, with nothing but fetch(): node rest.js URL TOKEN
// Prints what it saw as one line of JSON; test_rest_curl.py judges it.
"use strict";

const [url, token] = process.argv.slice(2);
const api = `${url}/api/v1`;

async function ask(method, path, { body, headers = {}, shown = token } = {}) {
  const sent = { authorization: `Bearer ${shown}`, ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  const response = await fetch(api + path, { method, headers: sent, body: body && JSON.stringify(body) });
  const text = await response.text();
  return {
    status: response.status,
    tag: response.headers.get("etag"),
    type: response.headers.get("content-type"),
    data: text ? JSON.parse(text) : null,
  };
}

/** The events of a stream, until so many have come. */
async function events(path, count, headers = {}) {
  const leave = new AbortController();
  const response = await fetch(api + path, {
    headers: { authorization: `Bearer ${token}`, ...headers },
    signal: leave.signal,
  });
  const found = [];
  let text = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
      if (fields.data) found.push({ name: fields.event, id: fields.id, data: JSON.parse(fields.data) });
    }
    if (found.length >= count) break;
  }
  leave.abort();
  return found.slice(0, count);
}

async function main() {
  const key = encodeURIComponent("plan/today ü");
  const path = `/store/values/${key}`;
  const value = { text: "naïve ☂", big: 9007199254740991, list: [1, 2.5, null, true] };
  const written = await ask("PUT", path, { body: { value } });
  const read = await ask("GET", path);
  const same = await ask("GET", path, { headers: { "if-none-match": read.tag } });
  const late = await ask("PUT", path, { body: { value: 1 }, headers: { "if-match": '"1"' } });
  const stranger = await ask("GET", path, { shown: "smt_wrong" });
  const [started] = await events("/changes", 1);
  for (const number of [1, 2, 3]) await ask("PUT", `/store/values/k${number}`, { body: { value: number } });
  const first = await events("/changes", 2, { "last-event-id": started.id });
  const rest = await events("/changes", 3, { "last-event-id": first[1].id });
  return { value, written, read, same, late, stranger, changes: [...first.slice(1), ...rest.slice(1)] };
}

main().then(
  (seen) => console.log(JSON.stringify(seen)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
