// The details of what was chosen.
class Panel {
  constructor(data, nodes, chosen) {
    Object.assign(this, { data, nodes, chosen, episodes: new Map(Object.entries(data.episodes)) });
    this.root = document.getElementById("details");
    this.told = document.getElementById("told");
  }

  show(content) {
    const within = this.told.contains(document.activeElement);
    this.told.replaceChildren(...content);
    this.root.hidden = false;
    // The button that was pressed is gone: who came by keys goes on from the top of the panel.
    if (within) this.root.focus({ preventScroll: true });
  }

  hide() {
    this.root.hidden = true;
  }

  entity(node, world, known) {
    const facts = this.data.facts.filter((fact) => fact.source === node.id || fact.target === node.id);
    const ways = { holds: "Holds", past: "Past", future: "Later" };
    const lists = Object.entries(ways).map(([state, title]) => {
      const some = facts.filter((fact) => stateAt(fact, world, known) === state);
      return some.length ? [made("h3", {}, title), this.list(some, known)] : [];
    });
    const also = node.aliases.length ? made("p", { className: "soft" }, "also ", isolated(node.aliases.join(", "))) : null;
    this.show([
      made("h2", {}, isolated(node.name)),
      node.type ? made("p", { className: "soft" }, isolated(node.type)) : "",
      also ?? "",
      node.summary ? made("p", { dir: "auto" }, node.summary) : "",
      ...(lists.flat().length ? lists.flat() : [made("p", { className: "soft" }, "Nothing is told of it at these times.")]),
    ]);
  }

  list(facts, known) {
    return made("ul", {}, ...facts.map((fact) => {
      const version = versionAt(fact, known);
      const button = made("button", { type: "button" }, made("span", { dir: "auto" }, fact.fact),
        made("br"), made("span", { className: "soft" }, interval(version)));
      button.addEventListener("click", () => this.chosen(fact));
      return made("li", {}, button);
    }));
  }

  fact(fact, world, known) {
    const state = { holds: "holds", past: "is past", future: "is to come", unknown: "is not known" }[stateAt(fact, world, known)];
    const ends = [fact.source, fact.target].filter((id) => this.nodes.has(id)).map((id) => this.end(this.nodes.get(id)));
    this.show([
      made("h2", { dir: "auto" }, fact.fact),
      made("p", { className: "soft" }, isolated(fact.type.replaceAll("_", " ")), ` · ${state} at these times`),
      made("h3", {}, "About"), made("ul", {}, ...ends),
      made("h3", {}, "What was known of it"), this.versions(fact, known),
      ...this.provenance(fact),
    ]);
  }

  end(node) {
    const button = made("button", { type: "button" }, isolated(node.name));
    button.addEventListener("click", () => this.chosen(node));
    return made("li", {}, button);
  }

  versions(fact, known) {
    const cells = (tag, texts) => texts.map((text) => made(tag, {}, text));
    const now = versionAt(fact, known);
    const rows = fact.versions.map((version) => made("tr", { className: version === now ? "now" : "" }, ...cells("td", [
      version[0] === null ? "unknown" : dated(version[0]),
      version[1] === null ? "open" : dated(version[1]),
      dated(version[2]),
      version[3] === null ? "now" : dated(version[3]),
    ])));
    const head = made("tr", {}, ...cells("th", ["true from", "until", "known from", "until"]));
    return made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows));
  }

  provenance(fact) {
    if (!fact.episodes.length) return [];
    const told = fact.episodes.map((id) => {
      const episode = this.episodes.get(id);
      const place = [isolated(id), episode ? ` · ${dated(episode.at)} · ` : "", episode ? isolated(episode.source) : ""];
      const words = episode ? made("blockquote", { dir: "auto" }, episode.text) : null;
      return made("li", {}, made("p", { className: "soft" }, ...place), words);
    });
    return [made("h3", {}, "Who says so"), made("ul", {}, ...told)];
  }
}
