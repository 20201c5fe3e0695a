// Shows the OpenAPI document of this server, and lets each operation be tried. Texts go in as text, never as markup.

const METHODS = ["get", "post", "put", "patch", "delete"];
const form = document.getElementById("who");
const root = new URL("../", import.meta.url);
let spec = {};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function resolved(thing) {
  let found = thing;
  while (found && found.$ref) found = found.$ref.slice(2).split("/").reduce((at, key) => at[key], spec);
  return found;
}

function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

// A description: what stands between backticks is code.
function prose(text) {
  return (text || "").split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const some = schema.anyOf || schema.oneOf;
  if (some && !schema.type) return some.map(typeOf).join(" | ");
  const kind = [].concat(schema.type || "anything").join(" | ");
  return kind.startsWith("array") ? kind.replace("array", `array of ${typeOf(schema.items) || "anything"}`) : kind;
}

function limits(schema) {
  const found = [];
  if (schema.minimum !== undefined && Math.abs(schema.minimum) < 1e15) found.push(`from ${schema.minimum}`);
  if (schema.maximum !== undefined && schema.maximum < 1e15) found.push(`to ${schema.maximum}`);
  if (schema.maxLength) found.push(`at most ${schema.maxLength} characters`);
  if (schema.maxItems) found.push(`at most ${schema.maxItems}`);
  if (schema.default !== undefined) found.push(`default ${JSON.stringify(schema.default)}`);
  return found.join(", ");
}

function table(head, rows) {
  const line = (kind, cells) => make("tr", {}, ...cells.map((cell) => make(kind, {}, ...[].concat(cell))));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, line("th", head)),
    make("tbody", {}, ...rows.map((cells) => line("td", cells)))));
}

// A schema as a table of its keys; the schemas it refers to open one by one, so that recursion is no matter.
function shape(schema) {
  const whole = resolved(schema) || {};
  if (whole.properties) {
    const must = new Set(whole.required || []);
    const rows = Object.entries(whole.properties).map(([key, value]) => {
      const meaning = prose([value.description || resolved(value).description, limits(value)].filter(Boolean).join(" "));
      return [[make("code", {}, key), must.has(key) ? make("span", { class: "must", title: "required" }, " *") : ""],
        make("span", { class: "type" }, typeOf(value)), [...meaning, ...links(value)]];
    });
    return table(["key", "type", "meaning"], rows);
  }
  return make("div", {}, make("p", { class: "type" }, typeOf(whole)), ...links(whole));
}

function links(schema) {
  const names = new Set();
  const look = (value) => {
    if (value && typeof value === "object") {
      if (typeof value.$ref === "string") names.add(value.$ref);
      else Object.values(value).forEach(look);
    }
  };
  look(schema);
  return [...names].map(($ref) => {
    const details = make("details", { class: "shape" }, make("summary", {}, $ref.split("/").pop()));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(shape({ $ref }));
    });
    return details;
  });
}

function content(body) {
  return Object.entries(body || {}).flatMap(([media, shown]) => [
    make("p", { class: "type" }, media),
    "example" in shown ? make("pre", { tabindex: "0" }, pretty(shown.example)) : null,
    make("details", { class: "shape" }, make("summary", {}, `Schema: ${typeOf(shown.schema)}`), shape(shown.schema)),
  ]);
}

function answers(operation) {
  return Object.entries(operation.responses).map(([status, given]) => {
    const answer = resolved(given);
    const headers = Object.keys(answer.headers || {}).filter((name) => name !== "X-Request-ID");
    const good = status < "400";
    return make("details", { class: "shape", ...(good && status === "200" ? { open: "" } : {}) },
      make("summary", {}, make("span", { class: good ? "status-good" : "status-bad" }, status), " ", ...prose(answer.description)),
      headers.length ? make("p", { class: "type" }, `Headers: ${headers.join(", ")}`) : null, ...content(answer.content));
  });
}

function parameters(operation) {
  const rows = (operation.parameters || []).map(resolved).map((one) => [
    [make("code", {}, one.name), one.required ? make("span", { class: "must", title: "required" }, " *") : ""],
    one.in, prose(one.description || (one.schema && one.schema.description))]);
  return rows.length ? [make("h3", {}, "Parameters"), table(["name", "in", "meaning"], rows)] : [];
}

function headersOf(operation) {
  const names = new Set((operation.parameters || []).map(resolved).map((one) => one.name));
  const headers = {};
  const { tenant, database, key } = Object.fromEntries(new FormData(form));
  if (names.has("X-Tenant-ID")) headers["X-Tenant-ID"] = tenant || "demo";
  if (names.has("X-Database") && database) headers["X-Database"] = database;
  if (key) headers.Authorization = `Bearer ${key}`;
  return headers;
}

// Show a stream as it comes, until it ends or is ended.
async function follow(answer, ended, result) {
  const shown = make("pre", { tabindex: "0" });
  result.replaceChildren(make("p", { class: "status-good" }, `${answer.status}, what comes is shown `,
    make("button", { type: "button", onclick: () => ended.abort() }, "Stop")), shown);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) shown.append(part.value);
    shown.append("(ended by the server)");
  } catch (error) {
    shown.append(ended.signal.aborted ? "(stopped)" : `(${error.message})`);
  }
}

function trial(path, method, operation) {
  const fields = (operation.parameters || []).map(resolved).filter((one) => one.in === "path" || one.in === "query")
    .map((one) => [one, make("input", { name: one.name, spellcheck: "false" })]);
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  const text = media ? pretty(media.example || {}) : "";
  const body = media ? make("textarea", { rows: String(Math.min(12, text.split("\n").length + 1)), spellcheck: "false" }) : null;
  if (body) body.value = text;
  const result = make("div", { role: "status" });
  let stop = () => {};
  async function send(event) {
    event.preventDefault();
    const address = new URL(path.slice(1).replace(/{(\w+)}/g, (_, name) => {
      const [, input] = fields.find(([one]) => one.name === name);
      return encodeURIComponent(input.value);
    }), root);
    for (const [one, input] of fields) if (one.in === "query" && input.value) address.searchParams.set(one.name, input.value);
    const headers = headersOf(operation);
    if (body) headers["Content-Type"] = "application/json";
    const started = performance.now();
    try {
      stop();
      const ended = new AbortController();
      stop = () => ended.abort();
      const answer = await fetch(address, { method: method.toUpperCase(), headers, body: body ? body.value : undefined, signal: ended.signal });
      if ((answer.headers.get("Content-Type") || "").startsWith("text/event-stream")) return await follow(answer, ended, result);
      const said = await answer.text();
      const json = (answer.headers.get("Content-Type") || "").startsWith("application/json");
      let shown = said;
      if (json) { try { shown = pretty(JSON.parse(said)); } catch { shown = said; } }
      result.replaceChildren(
        make("p", { class: answer.ok ? "status-good" : "status-bad" },
          `${answer.status} in ${Math.round(performance.now() - started)} ms, request ${answer.headers.get("X-Request-ID")}`),
        make("pre", { tabindex: "0" }, shown));
    } catch (error) {
      result.replaceChildren(make("p", { class: "status-bad" }, `No answer: ${error.message}`));
    }
  }
  return [make("h3", {}, "Try it"), make("form", { class: "try", onsubmit: send },
    ...fields.map(([one, input]) => make("label", {}, one.name, input)),
    body ? make("label", {}, "Body", body) : null, make("button", {}, "Send"), result)];
}

function card(path, method, operation) {
  const details = make("details", { class: "operation", id: operation.operationId },
    make("summary", {}, make("span", { class: `method ${method.toUpperCase()}` }, method.toUpperCase()),
      make("span", { class: "path" }, path), make("span", { class: "what" }, operation.summary || "")));
  details.dataset.words = `${method} ${path} ${operation.summary} ${operation.description || ""}`.toLowerCase();
  details.addEventListener("toggle", () => {
    if (details.open) history.replaceState(null, "", `#${details.id}`);
    if (!details.open || details.children.length > 1) return;
    const body = operation.requestBody;
    details.append(make("div", { class: "inside" },
      operation.description ? make("p", {}, ...prose(operation.description)) : null, ...trial(path, method, operation),
      ...parameters(operation), ...(body ? [make("h3", {}, "Body"), ...content(body.content).slice(2)] : []),
      make("h3", {}, "Answers"), ...answers(operation)));
  });
  return details;
}

function render() {
  document.getElementById("version").textContent = spec.info.version;
  document.getElementById("about").textContent = spec.info.description;
  const sections = new Map((spec.tags || []).map((tag) => [tag.name,
    make("section", { id: `group-${tag.name}` }, make("h2", {}, tag.name), make("p", {}, tag.description || ""))]));
  for (const [path, methods] of Object.entries(spec.paths))
    for (const method of METHODS) if (methods[method]) sections.get(methods[method].tags[0]).append(card(path, method, methods[method]));
  document.getElementById("groups").replaceChildren(...[...sections.keys()].map((name) =>
    make("li", {}, make("a", { href: `#group-${name}` }, name))));
  document.getElementById("operations").replaceChildren(...sections.values());
  show();
}

// Open and show the operation that the address names.
function show() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
  const summary = target.querySelector("summary");
  if (summary) summary.focus({ preventScroll: true });
}

function find() {
  const wanted = form.elements.find.value.trim().toLowerCase();
  for (const section of document.querySelectorAll("main section")) {
    const cards = [...section.querySelectorAll("details.operation")];
    for (const one of cards) one.hidden = !one.dataset.words.includes(wanted);
    section.hidden = cards.every((one) => one.hidden);
  }
}

for (const name of ["tenant", "database", "key"]) form.elements[name].value = sessionStorage.getItem(`kbcore.${name}`) || "";
form.addEventListener("input", (event) => {
  const { name, value } = event.target;
  if (name === "find") find();
  else sessionStorage.setItem(`kbcore.${name}`, value);
});
addEventListener("hashchange", show);
form.addEventListener("submit", (event) => event.preventDefault());

try {
  spec = await (await fetch(new URL("openapi.json", root))).json();
  render();
} catch (error) {
  document.getElementById("state").textContent = `The document could not be read: ${error.message}`;
}
