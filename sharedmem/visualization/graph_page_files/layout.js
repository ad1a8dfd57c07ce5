// Places for nodes: links pull, nodes push each other away, the middle holds all together. No chance in it.
// Screens are wide: the middle holds less from side to side.
const SPRING = 120, PUSH = 4600, PULL = 0.06, MIDDLE_X = 0.007, MIDDLE_Y = 0.013, BRAKE = 0.62;

class Layout {
  constructor(nodes, links) {
    this.nodes = nodes;
    this.links = links;
    this.heat = 1;
    nodes.forEach((node, place) => {
      const angle = place * 2.399963, far = 34 * Math.sqrt(place + 0.5);
      Object.assign(node, { x: far * Math.cos(angle), y: far * Math.sin(angle), vx: 0, vy: 0, held: false });
    });
  }

  settle() {
    const rounds = Math.max(60, Math.min(320, Math.round(90000 / (this.nodes.length + 1))));
    for (let round = 0; round < rounds; round += 1) {
      this.heat = 1 - round / rounds;
      this.step();
    }
    this.heat = 0;
  }

  step() {
    this.push();
    for (const [one, other] of this.links) this.pull(one, other);
    for (const node of this.nodes) this.move(node);
  }

  push() {
    const { nodes } = this;
    for (let i = 0; i < nodes.length; i += 1) {
      for (let j = i + 1; j < nodes.length; j += 1) {
        const one = nodes[i], other = nodes[j];
        const dx = other.x - one.x, dy = (other.y - one.y) || 0.01 * (j - i);
        const force = (PUSH * this.heat) / Math.max(dx * dx + dy * dy, 60);
        const away = Math.sqrt(dx * dx + dy * dy);
        one.vx -= (dx / away) * force;
        one.vy -= (dy / away) * force;
        other.vx += (dx / away) * force;
        other.vy += (dy / away) * force;
      }
    }
  }

  pull(one, other) {
    const dx = other.x - one.x, dy = other.y - one.y;
    const far = Math.hypot(dx, dy) || 1;
    // A hub with many links would else be torn about by the sum of them.
    const force = ((far - SPRING) / far) * PULL * this.heat * (2 / Math.sqrt(Math.min(one.degree, other.degree)));
    const share = one.degree / (one.degree + other.degree);
    one.vx += dx * force * (1 - share);
    one.vy += dy * force * (1 - share);
    other.vx -= dx * force * share;
    other.vy -= dy * force * share;
  }

  move(node) {
    node.vx = (node.vx - node.x * MIDDLE_X * this.heat) * BRAKE;
    node.vy = (node.vy - node.y * MIDDLE_Y * this.heat) * BRAKE;
    if (node.held) return;
    node.x += Math.max(-60, Math.min(60, node.vx));
    node.y += Math.max(-60, Math.min(60, node.vy));
  }
}
