// The picture: one shape for each entity and each fact, moved by hand, by wheel and by keys.
const COLOURS = 9;

class Picture extends View {
  constructor(nodes, edges, told) {
    super(6);
    Object.assign(this, { nodes, edges, told });
    this.layout = new Layout(nodes, edges.filter((edge) => edge.from !== edge.to).map((edge) => [edge.from, edge.to]));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    edges.forEach((edge) => this.addEdge(edge));
    nodes.forEach((node) => this.addNode(node));
    this.layout.settle();
    this.place();
    this.listen();
    this.fit();
    addEventListener("resize", () => this.fit());
  }

  addNode(node) {
    node.radius = Math.min(20, 7 + 1.8 * Math.sqrt(node.degree));
    node.shape = drawn("g", { class: "node", tabindex: "-1", role: "button", "aria-label": `${node.name} ${node.type}`.trim() },
      drawn("circle", { r: node.radius, class: `c${node.colour}` }),
      drawn("text", { y: node.radius + 14 }, shortened(node.name, 32)));
    node.shape.dataset.id = node.id;
    node.shape.addEventListener("keydown", (event) => this.pressedOn(node, event));
    node.shape.addEventListener("focus", () => this.told.focused(node));
    this.hover(node.shape, () => this.told.tipOfNode(node));
    document.getElementById("nodes").append(node.shape);
  }

  addEdge(edge) {
    const line = { class: "stroke" }, reach = { class: "reach" };
    edge.stroke = drawn("path", line);
    edge.reach = drawn("path", reach);
    edge.label = drawn("text", {}, shortened(edge.type.replaceAll("_", " "), 32));
    edge.shape = drawn("g", { class: "edge", "aria-hidden": "true" }, edge.stroke, edge.reach, edge.label);
    edge.shape.dataset.id = edge.id;
    edge.reach.addEventListener("click", () => this.told.chosenEdge(edge));
    this.hover(edge.shape, () => this.told.tipOfEdge(edge));
    document.getElementById("edges").append(edge.shape);
  }

  hover(shape, text) {
    shape.addEventListener("pointermove", (event) => this.told.tip(text(), event));
    shape.addEventListener("pointerleave", () => this.told.tip(null));
  }

  place() {
    for (const node of this.nodes) node.shape.setAttribute("transform", `translate(${node.x.toFixed(1)} ${node.y.toFixed(1)})`);
    for (const edge of this.edges) {
      const { path, x, y } = edge.from === edge.to ? loop(edge) : bow(edge);
      edge.stroke.setAttribute("d", path);
      edge.reach.setAttribute("d", path);
      edge.label.setAttribute("x", x.toFixed(1));
      edge.label.setAttribute("y", y.toFixed(1));
    }
  }

  gripped(target) {
    const shape = target.closest(".node");
    if (target.closest(".reach") && !shape) return null;
    return { node: shape ? this.nodes.find((node) => node.shape === shape) : null };
  }

  dragged({ node, way }, dx, dy) {
    if (node && way > 4) this.drag(node, dx, dy);
    else if (!node) this.panBy(dx, dy);
  }

  released({ node, way }) {
    if (node) node.held = false;
    if (node && way <= 4) this.told.chosenNode(node);
    if (!node && way <= 4) this.told.chosenNothing();
  }

  drag(node, dx, dy) {
    node.held = true;
    node.x += dx / this.view.k;
    node.y += dy / this.view.k;
    this.place();
    if (this.still.matches || this.nodes.length > 400) return;
    const resting = this.layout.heat < 0.02;
    this.layout.heat = 0.25;
    if (resting) requestAnimationFrame(() => this.relax());
  }

  relax() {
    this.layout.step();
    this.layout.heat *= 0.96;
    this.place();
    if (this.layout.heat >= 0.02) requestAnimationFrame(() => this.relax());
  }

  fit() {
    const seen = this.nodes.filter((node) => !node.shape.classList.contains("off"));
    if (!seen.length) return;
    const xs = seen.map((node) => node.x), ys = seen.map((node) => node.y);
    const left = Math.min(...xs) - 60, right = Math.max(...xs) + 60, top = Math.min(...ys) - 40, bottom = Math.max(...ys) + 50;
    const width = this.svg.clientWidth || 1, height = this.svg.clientHeight || 1;
    const k = Math.max(0.05, Math.min(1.6, width / (right - left), height / (bottom - top)));
    this.view = { k, x: width / 2 - (k * (left + right)) / 2, y: height / 2 - (k * (top + bottom)) / 2 };
    this.apply();
  }

  centre(node) {
    this.view.x = this.svg.clientWidth / 2 - node.x * this.view.k;
    this.view.y = this.svg.clientHeight / 2 - node.y * this.view.k;
    this.apply();
  }

  reveal(node) {
    const x = node.x * this.view.k + this.view.x, y = node.y * this.view.k + this.view.y;
    if (x < 0 || y < 0 || x > this.svg.clientWidth || y > this.svg.clientHeight) this.centre(node);
  }

  pressedOn(node, event) {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" || event.key === " ") this.told.chosenNode(node);
    else if (ways[event.key]) this.neighbour(node, ways[event.key])?.shape.focus({ preventScroll: true });
    else return;
    event.preventDefault();
  }

  // The one that lies best in that direction: straight ahead counts more than near.
  neighbour(node, [right, down]) {
    let best = null, least = Infinity;
    for (const other of this.nodes) {
      const dx = other.x - node.x, dy = other.y - node.y, ahead = dx * right + dy * down;
      if (other === node || ahead <= 0 || other.shape.classList.contains("off")) continue;
      const cost = ahead + 2.5 * Math.abs(dx * down - dy * right);
      if (cost < least) [best, least] = [other, cost];
    }
    return best;
  }
}

function bow(edge) {
  const { from, to } = edge;
  const dx = to.x - from.x, dy = to.y - from.y, far = Math.hypot(dx, dy) || 1;
  const side = from.id < to.id ? 1 : -1;
  const bend = side * edge.lane * 34;
  const cx = (from.x + to.x) / 2 - (dy / far) * bend, cy = (from.y + to.y) / 2 + (dx / far) * bend;
  const start = edgeOf(from, cx, cy, 0), end = edgeOf(to, cx, cy, 3);
  return { path: `M${start} Q${cx.toFixed(1)} ${cy.toFixed(1)} ${end}`, x: (from.x + to.x + 2 * cx) / 4, y: (from.y + to.y + 2 * cy) / 4 - 3 };
}

function edgeOf(node, x, y, gap) {
  const dx = x - node.x, dy = y - node.y, far = Math.hypot(dx, dy) || 1, radius = node.radius + gap;
  return `${(node.x + (dx / far) * radius).toFixed(1)} ${(node.y + (dy / far) * radius).toFixed(1)}`;
}

function loop(edge) {
  const { x, y, radius } = edge.from, reach = radius + 26 + 12 * Math.abs(edge.lane);
  const path = `M${(x - radius * 0.7).toFixed(1)} ${(y - radius * 0.7).toFixed(1)} C${x - reach} ${y - reach * 1.6} `
    + `${x + reach} ${y - reach * 1.6} ${(x + radius * 0.7 + 2).toFixed(1)} ${(y - radius * 0.7 - 2).toFixed(1)}`;
  return { path, x, y: y - reach * 1.25 };
}
