// A picture that is moved by hand, by wheel and by pinching. A subclass says what is gripped and what becomes of it.
class View {
  constructor(largest) {
    Object.assign(this, { largest, view: { x: 0, y: 0, k: 1 }, pointers: new Map() });
    this.svg = document.getElementById("picture");
    this.canvas = document.getElementById("canvas");
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
    const grip = this.gripped(event.target);
    if (!grip) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.svg.setPointerCapture(event.pointerId);
    this.grip = { ...grip, way: 0 };
    this.svg.classList.add("moving");
  }

  moved(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    const dx = event.clientX - last.x, dy = event.clientY - last.y;
    if (this.pointers.size === 2) this.pinch(event, last);
    Object.assign(last, { x: event.clientX, y: event.clientY });
    this.grip.way += Math.hypot(dx, dy);
    this.dragged(this.grip, dx, dy);
  }

  pinch(event, last) {
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
    const before = Math.hypot(last.x - other.x, last.y - other.y), after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
    const box = this.svg.getBoundingClientRect();
    if (before > 0) this.zoom(after / before, (event.clientX + other.x) / 2 - box.left, (event.clientY + other.y) / 2 - box.top);
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.svg.classList.remove("moving");
    this.released(this.grip);
  }

  // By as much as the pointers have moved together.
  panBy(dx, dy) {
    this.pan(dx / this.pointers.size, dy / this.pointers.size);
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.apply();
  }

  zoom(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const k = Math.max(0.05, Math.min(this.largest, this.view.k * factor));
    this.view.x = x - ((x - this.view.x) * k) / this.view.k;
    this.view.y = y - ((y - this.view.y) * k) / this.view.k;
    this.view.k = k;
    this.apply();
  }

  apply() {
    this.canvas.setAttribute("transform", `translate(${this.view.x} ${this.view.y}) scale(${this.view.k})`);
  }
}
