// The page: data in, times and search put on the picture.
const data = JSON.parse(document.getElementById("data").textContent);
const one = (id) => document.getElementById(id);
const nodes = new Map(data.entities.map((entity) => [entity.id, { ...entity, degree: 1 }]));
const byType = new Map();
for (const node of nodes.values()) byType.set(node.type, [...(byType.get(node.type) ?? []), node]);
const types = [...byType].sort((left, right) => right[1].length - left[1].length);
types.forEach(([, members], place) => members.forEach((node) => { node.colour = Math.min(place, COLOURS); }));

const edges = data.facts.filter((fact) => nodes.has(fact.source) && nodes.has(fact.target))
  .map((fact) => ({ ...fact, from: nodes.get(fact.source), to: nodes.get(fact.target) }));
const lanes = new Map();
for (const edge of edges) {
  edge.from.degree += 1;
  edge.to.degree += 1;
  const pair = JSON.stringify([edge.source, edge.target].sort());
  const count = lanes.get(pair) ?? 0;
  lanes.set(pair, count + 1);
  edge.lane = (count % 2 ? 1 : -1) * Math.ceil(count / 2);
}

const hidden = new Set();
let chosen = null;
let hits = [];
let hitPlace = -1;

const picture = new Picture([...nodes.values()], edges, {
  chosenNode: (node) => choose(node),
  chosenEdge: (edge) => choose(edge),
  chosenNothing: () => choose(null),
  focused: (node) => {
    rove(node);
    picture.reveal(node);
  },
  tipOfNode: (node) => [node.name, node.type].filter(Boolean).join("\n"),
  tipOfEdge: (edge) => `${edge.fact}\n${interval(versionAt(edge, knownTime.moment) ?? edge.versions[0])}`,
  tip,
});
const panel = new Panel(data, nodes, (thing) => choose(thing));

const worldSteps = [-Infinity, ...new Set([...moments(data.facts, [0, 1]), data.drawn_at])].sort((left, right) => left - right);
const knownSteps = [...moments(data.facts, [2, 3]), LATEST];
const worldTime = new Timeline(one("world"), worldSteps, worldSteps.indexOf(data.drawn_at), nameOfWorld, refresh);
const knownTime = new Timeline(one("known"), knownSteps, knownSteps.length - 1, nameOfKnown, refresh);

function nameOfWorld(moment) {
  if (moment === -Infinity) return "the beginning";
  return moment === data.drawn_at ? `${dated(moment)} (now)` : dated(moment);
}

function nameOfKnown(moment) {
  return moment === LATEST ? "now" : dated(moment);
}

function refresh() {
  const world = worldTime.moment, known = knownTime.moment;
  const counts = { holds: 0, past: 0, future: 0, unknown: 0 };
  const busy = new Set();
  for (const fact of data.facts) {
    const state = stateAt(fact, world, known);
    counts[state] += 1;
    if (state === "holds" || state === "past") busy.add(fact.source).add(fact.target);
  }
  for (const edge of edges) {
    edge.shape.classList.remove("holds", "past", "future", "unknown");
    edge.shape.classList.add(stateAt(edge, world, known));
    edge.shape.classList.toggle("off", hidden.has(edge.from.type) || hidden.has(edge.to.type));
  }
  for (const node of nodes.values()) {
    node.shape.classList.toggle("quiet", !busy.has(node.id));
    node.shape.classList.toggle("off", hidden.has(node.type) || (node.recorded_at > known && !busy.has(node.id)));
  }
  const part = data.truncated ? ` · only a part of the graph` : "";
  one("counts").textContent = `${counts.holds} ${counts.holds === 1 ? "fact holds" : "facts hold"}, ${counts.past} past · `
    + `${nodes.size} ${nodes.size === 1 ? "entity" : "entities"}${part}`;
  tell();
}

function choose(thing) {
  chosen = thing;
  for (const node of nodes.values()) node.shape.classList.toggle("chosen", thing !== null && node.id === thing.id);
  for (const edge of edges) {
    edge.shape.classList.toggle("hot", thing !== null && [edge.id, edge.source, edge.target].includes(thing.id));
  }
  if (thing?.shape && nodes.has(thing.id)) rove(thing);
  tell();
}

function tell() {
  if (chosen === null) panel.hide();
  else if (chosen.versions) panel.fact(chosen, worldTime.moment, knownTime.moment);
  else panel.entity(chosen, worldTime.moment, knownTime.moment);
}

// One stop for the Tab key; arrows go on from there.
function rove(node) {
  for (const other of nodes.values()) other.shape.setAttribute("tabindex", other === node ? "0" : "-1");
}

function tip(text, event) {
  const box = one("tip");
  box.hidden = text === null;
  if (text === null) return;
  box.textContent = text;
  const around = box.parentElement.getBoundingClientRect();
  box.style.left = `${Math.min(event.clientX - around.left + 14, around.width - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.max(8, Math.min(event.clientY - around.top + 14, around.height - box.offsetHeight - 8))}px`;
}

const folded = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

function search() {
  const words = folded(one("query").value).split(/\s+/).filter(Boolean);
  const fits = (...texts) => words.length > 0 && words.every((word) => folded(texts.join(" ")).includes(word));
  hits = [...nodes.values()].filter((node) => fits(node.name, node.type, ...node.aliases));
  hitPlace = -1;
  const found = new Set(hits);
  let lines = 0;
  for (const edge of edges) {
    const hit = fits(edge.fact, edge.type.replaceAll("_", " "));
    lines += hit ? 1 : 0;
    if (hit) [edge.from, edge.to].forEach((node) => found.add(node));
    edge.shape.classList.toggle("hit", hit);
  }
  hits.push(...[...found].filter((node) => !hits.includes(node)));
  for (const node of nodes.values()) node.shape.classList.toggle("hit", found.has(node));
  picture.svg.classList.toggle("searching", words.length > 0);
  one("found").textContent = words.length ? `${found.size + lines} found` : "";
}

function nextHit() {
  if (!hits.length) return;
  hitPlace = (hitPlace + 1) % hits.length;
  choose(hits[hitPlace]);
  picture.centre(hits[hitPlace]);
}

function legend() {
  for (const [type, members] of types) {
    const dot = drawn("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" },
      drawn("circle", { cx: 6, cy: 6, r: 6, class: `c${members[0].colour}` }));
    const button = made("button", { type: "button" }, dot, isolated(type || "no type"), ` ${members.length}`);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!hidden.delete(type)) hidden.add(type);
      button.setAttribute("aria-pressed", String(!hidden.has(type)));
      refresh();
    });
    one("legend").append(made("li", {}, button));
  }
}

function pressed(event) {
  const typing = event.target.matches("input:not([type=checkbox]):not([type=range])");
  if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
  const acts = {
    "/": () => one("query").focus(), "+": () => picture.zoom(1.25), "=": () => picture.zoom(1.25),
    "-": () => picture.zoom(0.8), 0: () => picture.fit(), Escape: () => leave(event.target),
  };
  if (!acts[event.key]) return;
  acts[event.key]();
  event.preventDefault();
}

function leave(place) {
  if (place === one("query")) {
    place.value = "";
    search();
    place.blur();
    return;
  }
  const back = chosen;
  choose(null);
  back?.shape?.focus();
}

one("group").textContent = data.group_id;
one("query").addEventListener("input", search);
one("search").addEventListener("submit", (event) => { event.preventDefault(); nextHit(); });
one("past").addEventListener("change", () => picture.svg.classList.toggle("without-past", !one("past").checked));
one("labels").checked = edges.length <= 40;
one("labels").addEventListener("change", () => picture.svg.classList.toggle("with-labels", one("labels").checked));
picture.svg.classList.toggle("with-labels", one("labels").checked);
one("nearer").addEventListener("click", () => picture.zoom(1.25));
one("farther").addEventListener("click", () => picture.zoom(0.8));
one("fit").addEventListener("click", () => picture.fit());
one("close").addEventListener("click", () => leave(null));
addEventListener("keydown", pressed);
legend();
refresh();
picture.fit();
if (nodes.size) rove(nodes.values().next().value);
document.documentElement.dataset.ready = "true";
