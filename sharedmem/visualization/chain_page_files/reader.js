// The note that was chosen.
class Reader {
  constructor(notes, told) {
    Object.assign(this, { notes, told });
    this.root = document.getElementById("reader");
    this.content = document.getElementById("told");
  }

  hide() {
    this.root.hidden = true;
  }

  show(note) {
    const within = this.content.contains(document.activeElement);
    this.content.replaceChildren(
      made("p", { className: `state ${note.status}` }, `${note.status.replace("_", " ")} · ${note.reason.replace("_", " ")}`),
      made("h2", {}, isolated(note.id)),
      made("p", { className: "soft" }, `made ${note.made}, changed ${note.changed} UTC · `, isolated(note.user),
        note.session ? made("span", {}, " · ", isolated(note.session)) : null),
      note.text ? made("div", { className: "text", dir: "auto" }, note.text) : this.elsewhere(note),
      ...this.others("Became", note.next === null ? [] : [note.next]),
      ...this.others("Came from", note.sources),
      ...this.list("Tags", note.tags),
      ...this.list("What could not be done", note.degraded),
      ...this.links(note),
      ...this.resolutions(note),
      ...this.messages(note),
    );
    this.root.hidden = false;
    // The button that was pressed is gone: who came by keys goes on from the top of the note.
    if (within) this.root.focus({ preventScroll: true });
  }

  elsewhere(note) {
    return made("p", { className: "soft" }, note.archived ? "Its text is archived at " : "It has no text.", isolated(note.archived ?? ""));
  }

  others(title, ids) {
    if (!ids.length) return [];
    return [made("h3", {}, title), made("ul", {}, ...ids.map((id) => {
      const place = this.notes.findIndex((note) => note.id === id);
      if (place < 0) return made("li", { className: "soft" }, isolated(id), " (not in this picture)");
      const button = made("button", { type: "button" }, isolated(shortened(beginning(this.notes[place].text) || id, 60)));
      button.addEventListener("click", () => this.told(place));
      return made("li", {}, button);
    }))];
  }

  list(title, texts) {
    if (!texts.length) return [];
    return [made("h3", {}, title), made("ul", { className: "flat" }, ...texts.map((text) => made("li", { dir: "auto" }, text)))];
  }

  links(note) {
    return this.list("Resembled", note.links.map((one) => [one.memory_id,
      one.link_strength === null ? null : `strength ${one.link_strength.toFixed(2)}, similarity ${one.similarity_score.toFixed(2)}`,
      one.relationship_type && one.relationship_type.replace("_", " ")].filter(Boolean).join(" · ")));
  }

  resolutions(note) {
    return this.list("What was decided", note.resolutions.map((one) =>
      `${one.operation} ${one.memory_id} (${Math.round(one.confidence_score * 100)} %, ${one.decided_by || "unknown"}): ${one.reasoning}`));
  }

  messages(note) {
    if (!note.messages.length) return [];
    return [made("h3", {}, "Made of"), made("ul", {}, ...note.messages.map((one) => made("li", {},
      made("p", { className: "soft" }, isolated(one.who)), made("blockquote", { dir: "auto" }, one.says))))];
  }
}
