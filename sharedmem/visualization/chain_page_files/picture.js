// The picture: a box for each note and an arrow for each step, moved by hand, by wheel and by keys.
const SVG = "http://www.w3.org/2000/svg";
const STATUSES = ["active", "conflict_pending", "updated", "deleted", "archived"];

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function shortened(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

function beginning(text) {
  return text.split("\n").map((line) => line.trim()).find((line) => line && !line.startsWith("#")) ?? "";
}

class Picture {
  constructor(notes, told) {
    Object.assign(this, { notes, told, view: { x: 0, y: 0, k: 1 }, pointers: new Map() });
    this.svg = document.getElementById("picture");
    this.canvas = document.getElementById("canvas");
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

  listen() {
    this.svg.addEventListener("pointerdown", (event) => this.down(event));
    this.svg.addEventListener("pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) this.svg.addEventListener(name, (event) => this.up(event));
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
    }, { passive: false });
  }

  down(event) {
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.svg.setPointerCapture(event.pointerId);
    this.grip = { place: this.boxes.indexOf(event.target.closest(".note")), way: 0 };
    this.svg.classList.add("moving");
  }

  moved(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    const dx = event.clientX - last.x, dy = event.clientY - last.y;
    if (this.pointers.size === 2) this.pinch(event, last);
    Object.assign(last, { x: event.clientX, y: event.clientY });
    this.grip.way += Math.hypot(dx, dy);
    if (this.grip.way > 4) this.pan(dx / this.pointers.size, dy / this.pointers.size);
  }

  pinch(event, last) {
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
    const before = Math.hypot(last.x - other.x, last.y - other.y), after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const around = this.svg.getBoundingClientRect();
    if (before > 0) this.zoom(after / before, (event.clientX + other.x) / 2 - around.left, (event.clientY + other.y) / 2 - around.top);
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.svg.classList.remove("moving");
    if (this.grip.way <= 4) this.told(this.grip.place);
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.place();
  }

  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const k = Math.max(0.05, Math.min(5, this.view.k * factor));
    this.view.x = x - ((x - this.view.x) * k) / this.view.k;
    this.view.y = y - ((y - this.view.y) * k) / this.view.k;
    this.view.k = k;
    this.place();
  }

  fit() {
    if (!this.places.length) return;
    const right = Math.max(...this.places.map(({ x }) => x)) + WIDTH, bottom = Math.max(...this.places.map(({ y }) => y)) + HEIGHT;
    // What is read covers the right side, where there is room enough for both.
    const reader = document.getElementById("reader"), covered = this.svg.clientWidth > 760 ? reader.offsetWidth : 0;
    const width = this.svg.clientWidth - covered || 1, height = this.svg.clientHeight || 1;
    const k = Math.max(0.05, Math.min(1.4, width / (right + 80), height / (bottom + 120)));
    this.view = { k, x: (width - k * right) / 2, y: (height - k * bottom) / 2 };
    this.place();
  }

  reveal(place) {
    const { k } = this.view, left = this.places[place].x * k + this.view.x, top = this.places[place].y * k + this.view.y;
    const out = left < 0 || top < 0 || left + WIDTH * k > this.svg.clientWidth || top + HEIGHT * k > this.svg.clientHeight;
    if (out) this.pan(this.svg.clientWidth / 2 - left - (WIDTH * k) / 2, this.svg.clientHeight / 2 - top - (HEIGHT * k) / 2);
  }

  place() {
    this.canvas.setAttribute("transform", `translate(${this.view.x} ${this.view.y}) scale(${this.view.k})`);
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
