// Places for nodes: links pull, nodes push each other away, the middle holds all together. There is no chance in it, so
// the same graph has the same picture, in whatever window.

export interface Spot {
  x: number
  y: number
}
interface Body extends Spot {
  vx: number
  vy: number
  degree: number
  isHeld: boolean
}

const SPRING = 130
const PUSH = 9000
const PULL = 0.06
// Windows are wide: the middle holds less from side to side.
const MIDDLE_X = 0.006
const MIDDLE_Y = 0.014
const BRAKE = 0.62
const GOLDEN = 2.399963
const FARTHEST_STEP = 60
/** Pairs of nodes that are compared at most, so that a large graph does not keep the reader waiting. */
const MOST_PAIRS = 12_000_000

/**
 * Places of nodes by id.
 *
 * @param ids the nodes, in an order that is always the same.
 * @param links pairs of them.
 * @param held places that stay as they are; new nodes find theirs around those.
 */
export function settle(ids: string[], links: [string, string][], held: Map<string, Spot> = new Map()): Map<string, Spot> {
  const bodies = new Map<string, Body>()
  const near = new Map(links.flatMap(([a, b]) => [[a, b], [b, a]] as [string, string][]).filter(([, other]) => held.has(other)))
  ids.forEach((id, at) => {
    const angle = at * GOLDEN
    const far = 40 * Math.sqrt(at + 0.5)
    const from = held.get(near.get(id) ?? '') ?? { x: 0, y: 0 }
    const start = held.get(id) ?? { x: from.x + 1.5 * far * Math.cos(angle), y: from.y + far * Math.sin(angle) }
    bodies.set(id, { ...start, vx: 0, vy: 0, degree: 1, isHeld: held.has(id) })
  })
  const pairs = links.flatMap(([a, b]) => {
    const [one, other] = [bodies.get(a), bodies.get(b)]
    return one && other && one !== other ? [[one, other] as [Body, Body]] : []
  })
  for (const pair of pairs) for (const one of pair) one.degree++
  const all = [...bodies.values()]
  const rounds = Math.max(40, Math.min(320, Math.round((2 * MOST_PAIRS) / (all.length * all.length + 1))))
  for (let round = 0; round < rounds; round++) step(all, pairs, 1 - round / rounds)
  return new Map([...bodies].map(([id, { x, y }]) => [id, { x, y }]))
}

function step(all: Body[], pairs: [Body, Body][], heat: number): void {
  all.forEach((one, i) => {
    for (let j = i + 1; j < all.length; j++) push(one, all[j]!, j - i, heat)
  })
  for (const [one, other] of pairs) pull(one, other, heat)
  for (const one of all) {
    one.vx = (one.vx - one.x * MIDDLE_X * heat) * BRAKE
    one.vy = (one.vy - one.y * MIDDLE_Y * heat) * BRAKE
    if (one.isHeld) continue
    one.x += Math.max(-FARTHEST_STEP, Math.min(FARTHEST_STEP, one.vx))
    one.y += Math.max(-FARTHEST_STEP, Math.min(FARTHEST_STEP, one.vy))
  }
}

function push(one: Body, other: Body, apart: number, heat: number): void {
  const dx = other.x - one.x
  const dy = other.y - one.y || 0.01 * apart
  const square = dx * dx + dy * dy
  const force = (PUSH * heat) / Math.max(square, 60) / Math.sqrt(square)
  one.vx -= dx * force
  one.vy -= dy * force
  other.vx += dx * force
  other.vy += dy * force
}

function pull(one: Body, other: Body, heat: number): void {
  const dx = other.x - one.x
  const dy = other.y - one.y
  const far = Math.hypot(dx, dy) || 1
  // A hub with many links would else be torn about by the sum of them.
  const force = ((far - SPRING) / far) * PULL * heat * (2 / Math.sqrt(Math.min(one.degree, other.degree)))
  const share = one.degree / (one.degree + other.degree)
  one.vx += dx * force * (1 - share)
  one.vy += dy * force * (1 - share)
  other.vx -= dx * force * share
  other.vy -= dy * force * share
}
