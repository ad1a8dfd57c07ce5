"use strict";
// Draws openapi.json. All text goes through textContent: nothing in the description can become markup or a script.
const address = document.body.dataset.address;
const root = address.slice(0, -"/openapi.json".length);
const METHODS = ["get", "put", "post", "patch", "delete"];
const byId = (id) => document.getElementById(id);
let description;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

function resolve(one) {
  return one.$ref ? one.$ref.split("/").slice(1).reduce((found, part) => found[part], description) : one;
}

// -- types and fields ------------------------------------------------------------------------------

function showSchema(name) {
  const close = element("button", { click: () => dialog.close() }, "Close");
  const dialog = element("dialog", {}, element("h2", {}, name), ...fieldsOf(description.components.schemas[name]), close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function joined(parts) {
  return parts.flatMap((part, at) => (at ? [" | ", ...part] : part));
}

function typeOf(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [element("button", { class: "type", click: () => showSchema(name) }, name)];
  }
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (choices) return joined(choices.map(typeOf));
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" | ")];
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.type === "array") return ["list of ", ...(schema.items ? typeOf(schema.items) : ["any"])];
  if (schema.type === "object" && schema.additionalProperties?.constructor === Object) {
    return ["object of ", ...typeOf(schema.additionalProperties)];
  }
  return [[].concat(schema.type ?? "any").join(" | ") + (schema.format ? ` (${schema.format})` : "")];
}

function row(name, schema, isRequired) {
  const known = "default" in schema && schema.default !== null ? `default ${JSON.stringify(schema.default)}` : "";
  const needed = isRequired ? "required" : known;
  return element(
    "tr",
    {},
    element("td", {}, element("code", {}, name)),
    element("td", {}, ...typeOf(schema)),
    element("td", {}, needed ? element("span", { class: "dim" }, `${needed}. `) : "", schema.description ?? ""),
  );
}

function fieldsOf(schema) {
  const found = schema.$ref ? resolve(schema) : schema;
  const about = found.description && schema.$ref ? [element("p", {}, found.description)] : [];
  if (!found.properties) return [...about, element("p", {}, ...typeOf(schema))];
  const rows = Object.entries(found.properties).map(([name, one]) => row(name, one, found.required?.includes(name)));
  return [...about, element("table", {}, ...rows)];
}

// -- one operation ---------------------------------------------------------------------------------

function jsonSchemaOf(one) {
  return resolve(one).content?.["application/json"]?.schema;
}

function answersOf(operation) {
  const [good, bad] = [[], []];
  for (const status of Object.keys(operation.responses).sort()) (status < "400" ? good : bad).push(status);
  const parts = good.flatMap((status) => {
    const schema = jsonSchemaOf(operation.responses[status]);
    return [element("h3", {}, `Answer ${status}`), ...(schema ? fieldsOf(schema) : [])];
  });
  const problems = bad.map((status) => `${status} ${resolve(operation.responses[status]).description}`);
  return [...parts, element("h3", {}, "Problems"), element("p", { class: "dim" }, problems.join(" · "))];
}

function urlOf(path, inputs) {
  let url = path;
  const query = new URLSearchParams();
  for (const { parameter, input } of inputs) {
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    if (parameter.in === "query" && input.value) query.append(parameter.name, input.value);
  }
  return root + url + (query.size ? `?${query}` : "");
}

async function send(method, path, inputs, body, answer) {
  const headers = {};
  if (byId("token").value) headers.Authorization = `Bearer ${byId("token").value}`;
  if (body) headers["Content-Type"] = "application/json";
  for (const { parameter, input } of inputs) {
    if (parameter.in === "header" && input.value) headers[parameter.name] = input.value;
  }
  answer.textContent = "…";
  const began = performance.now();
  try {
    const found = await fetch(urlOf(path, inputs), { method: method.toUpperCase(), headers, body: body?.value });
    const kind = found.headers.get("content-type") ?? "";
    const text = kind.includes("event-stream") ? "a stream: read it with curl" : await found.text();
    const shown = kind.includes("json") && text ? JSON.stringify(JSON.parse(text), null, 2) : text;
    answer.textContent = `${found.status} ${found.statusText}, ${Math.round(performance.now() - began)} ms\n\n${shown}`;
  } catch (error) {
    answer.textContent = `not sent: ${error.message}`;
  }
}

function sender(method, path, operation, parameters) {
  const inputs = parameters.map((parameter) => {
    const label = `${parameter.name}${parameter.required ? " (required)" : ""}`;
    const input = element("input", { "aria-label": label, value: parameter.required ? (parameter.example ?? "") : "" });
    return { parameter, input, row: element("tr", {}, element("td", {}, label), element("td", {}, input)) };
  });
  const content = operation.requestBody?.content?.["application/json"];
  const body = content && element("textarea", { rows: 8, "aria-label": "body" });
  if (body) body.value = JSON.stringify(content.example ?? {}, null, 2);
  const answer = element("pre", { class: "answer", "aria-live": "polite" });
  return [
    element("h3", {}, "Try it"),
    element("table", {}, ...inputs.map((one) => one.row)),
    body,
    element("button", { class: "send", click: () => send(method, path, inputs, body, answer) }, "Send"),
    answer,
  ];
}

function inside(method, path, operation) {
  const parameters = (operation.parameters ?? []).map(resolve);
  const parts = [element("p", { class: "dim" }, operation.operationId)];
  if (operation.description) parts.push(element("p", {}, operation.description));
  if (parameters.length) {
    const rows = parameters.map((one) => {
      return row(`${one.name} (${one.in})`, { ...one.schema, description: one.description }, one.required);
    });
    parts.push(element("h3", {}, "Parameters"), element("table", {}, ...rows));
  }
  const schema = operation.requestBody && jsonSchemaOf(operation.requestBody);
  if (schema) parts.push(element("h3", {}, "Body"), ...fieldsOf(schema));
  return [...parts, ...answersOf(operation), ...sender(method, path, operation, parameters)];
}

function operationElement(method, path, operation) {
  const details = element(
    "details",
    { class: "operation", id: operation.operationId },
    element(
      "summary",
      {},
      element("span", { class: "method" }, method.toUpperCase()),
      element("span", { class: "path" }, path),
      " ",
      element("span", { class: "dim" }, operation.summary ?? ""),
    ),
  );
  details.dataset.text = `${method} ${path} ${operation.operationId} ${operation.summary}`.toLowerCase();
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(element("div", { class: "inside" }, ...inside(method, path, operation)));
    }
    if (details.open) history.replaceState(null, "", `#${operation.operationId}`);
  });
  return details;
}

// -- the page --------------------------------------------------------------------------------------

function openNamed() {
  const named = byId(decodeURIComponent(location.hash.slice(1)));
  if (named?.matches("details")) {
    named.open = true;
    named.scrollIntoView();
  }
}

function find() {
  const words = byId("find").value.toLowerCase().split(/\s+/);
  for (const section of document.querySelectorAll("main section")) {
    let shown = 0;
    for (const one of section.querySelectorAll("details.operation")) {
      one.hidden = !words.every((word) => one.dataset.text.includes(word));
      shown += one.hidden ? 0 : 1;
    }
    section.hidden = shown === 0;
  }
}

function draw() {
  byId("version").textContent = description.info.version;
  byId("summary").textContent = description.info.summary ?? "";
  const byTag = new Map(description.tags.map((tag) => [tag.name, []]));
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((one) => one in methods)) {
      const tag = methods[method].tags?.[0] ?? "other";
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operationElement(method, path, methods[method]));
    }
  }
  const about = new Map(description.tags.map((tag) => [tag.name, tag.description ?? ""]));
  const sections = [...byTag].filter(([, operations]) => operations.length).map(([tag, operations]) => {
    return element("section", {}, element("h2", {}, tag), element("p", { class: "dim" }, about.get(tag) ?? ""), ...operations);
  });
  byId("operations").replaceChildren(...sections);
}

async function start() {
  byId("source").href = address;
  try {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    description = await answer.json();
  } catch (error) {
    byId("state").textContent = `The description cannot be loaded: ${error.message}`;
    return;
  }
  draw();
  byId("find").addEventListener("input", find);
  window.addEventListener("hashchange", openNamed);
  openNamed();
}

start();
