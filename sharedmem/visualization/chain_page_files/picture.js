// The picture: a box for each note and an arrow for each step, moved by hand, by wheel and by keys.
const STATUSES = ["active", "conflict_pending", "updated", "deleted", "archived"];

function beginning(text) {
  return text.split("\n").map((line) => line.trim()).find((line) => line && !line.startsWith("#")) ?? "";
}

class Picture extends View {
  constructor(notes, told) {
    super(5);
    Object.assign(this, { notes, told });
    this.pairs = links(notes);
    this.places = arrange(notes, this.pairs);
    this.arrows = this.pairs.map((pair) => this.arrow(pair));
    this.boxes = notes.map((note, place) => this.box(note, place));
    this.listen();
    addEventListener("resize", () => this.fit());
  }

  box(note, place) {
    const { x, y } = this.places[place];
    const state = note.status.replace("_", " ");
    const shape = drawn("g", { class: `note ${note.status}`, transform: `translate(${x} ${y})`, tabindex: "-1", role: "button",
      "aria-label": `${state}, ${note.made}: ${beginning(note.text) || note.id}` },
    drawn("rect", { width: WIDTH, height: HEIGHT, rx: 10 }),
    drawn("text", { x: 12, y: 22, class: "first" }, shortened(beginning(note.text) || note.id, 25)),
    drawn("text", { x: 12, y: 42, class: "second" }, `${state} · ${note.made.slice(0, 10)}`));
    shape.dataset.id = note.id;
    shape.addEventListener("keydown", (event) => this.pressedOn(place, event));
    shape.addEventListener("focus", () => this.reveal(place));
    document.getElementById("notes").append(shape);
    return shape;
  }

  arrow({ from, to, agreed }) {
    const start = this.places[from], end = this.places[to];
    const x = start.x + WIDTH, y = start.y + HEIGHT / 2, ex = end.x - 3, ey = end.y + HEIGHT / 2, bend = Math.max(40, (ex - x) / 2);
    const path = drawn("path", { class: agreed ? "arrow" : "arrow doubtful",
      d: `M${x} ${y} C${x + bend} ${y} ${ex - bend} ${ey} ${ex} ${ey}` });
    document.getElementById("arrows").append(path);
    return path;
  }

  // What was there by a version, and which one that is.
  show(newest, chosen) {
    this.boxes.forEach((box, place) => {
      box.classList.toggle("later", place > newest);
      box.classList.toggle("chosen", place === chosen);
      box.setAttribute("tabindex", place === chosen ? "0" : "-1");
    });
    this.pairs.forEach(({ from, to }, place) => this.arrows[place].classList.toggle("later", Math.max(from, to) > newest));
  }

  gripped(target) {
    return { place: this.boxes.indexOf(target.closest(".note")) };
  }

  dragged({ way }, dx, dy) {
    if (way > 4) this.panBy(dx, dy);
  }

  released({ place, way }) {
    if (way <= 4) this.told(place);
  }

  fit() {
    if (!this.places.length) return;
    const right = Math.max(...this.places.map(({ x }) => x)) + WIDTH, bottom = Math.max(...this.places.map(({ y }) => y)) + HEIGHT;
    // What is read covers the right side, where there is room enough for both.
    const reader = document.getElementById("reader"), covered = this.svg.clientWidth > 760 ? reader.offsetWidth : 0;
    const width = this.svg.clientWidth - covered || 1, height = this.svg.clientHeight || 1;
    const k = Math.max(0.05, Math.min(1.4, width / (right + 80), height / (bottom + 120)));
    this.view = { k, x: (width - k * right) / 2, y: (height - k * bottom) / 2 };
    this.apply();
  }

  reveal(place) {
    const { k } = this.view, left = this.places[place].x * k + this.view.x, top = this.places[place].y * k + this.view.y;
    const out = left < 0 || top < 0 || left + WIDTH * k > this.svg.clientWidth || top + HEIGHT * k > this.svg.clientHeight;
    if (out) this.pan(this.svg.clientWidth / 2 - left - (WIDTH * k) / 2, this.svg.clientHeight / 2 - top - (HEIGHT * k) / 2);
  }

  pressedOn(place, event) {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" || event.key === " ") this.told(place);
    else if (ways[event.key]) this.boxes[this.neighbour(place, ways[event.key])]?.focus({ preventScroll: true });
    else return;
    event.preventDefault();
  }

  // The one that lies best in that direction: straight ahead counts more than near.
  neighbour(place, [right, down]) {
    let best = -1, least = Infinity;
    this.places.forEach(({ x, y }, other) => {
      const dx = x - this.places[place].x, dy = y - this.places[place].y, ahead = dx * right + dy * down;
      const cost = ahead + 2.5 * Math.abs(dx * down - dy * right);
      if (ahead > 0 && cost < least && !this.boxes[other].classList.contains("later")) [best, least] = [other, cost];
    });
    return best;
  }
}
