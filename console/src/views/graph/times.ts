// What was true when, as known when: versions of facts, compared by times of microseconds written as texts.
import type { Answer, Schemas } from '../../api/client'

export type Drawn = Answer<'graph_draw'>
export type DrawnEntity = Schemas['DrawnEntity']
export type DrawnFact = Schemas['DrawnFact']
type Version = Schemas['DrawnVersion']

/** A time in the world, and a time of knowledge, as `stamp` writes them. */
export interface Instant {
  asOf: string
  knownAt: string
}

/** A time of the service in UTC with six digits, so that texts sort as times do: the browser's own dates end at milliseconds. */
export function stamp(time: string): string {
  const found = /^(.{19})(?:\.(\d{1,6}))?(?:Z|\+00:00)$/.exec(time)
  if (found) return `${found[1]}.${(found[2] ?? '').padEnd(6, '0')}Z`
  return `${new Date(time).toISOString().slice(0, -1)}000Z`
}

/** The version of a fact that was known at a time of knowledge. */
export function versionAt(fact: DrawnFact, knownAt: string): Version | undefined {
  return fact.versions.find((one) => stamp(one.recorded_at) <= knownAt && (!one.superseded_at || knownAt < stamp(one.superseded_at)))
}

/** The version by which a fact holds at an instant; undefined if it does not. */
export function holdsAt(fact: DrawnFact, { asOf, knownAt }: Instant): Version | undefined {
  const version = versionAt(fact, knownAt)
  if (!version || (version.valid_from && asOf < stamp(version.valid_from))) return undefined
  return !version.valid_to || asOf < stamp(version.valid_to) ? version : undefined
}

export type Change = 'same' | 'new' | 'gone'

/** How a fact differs between two instants; undefined if it holds at neither. */
export function changeBetween(fact: DrawnFact, then: Instant, now: Instant): Change | undefined {
  const before = holdsAt(fact, then) !== undefined
  const after = holdsAt(fact, now) !== undefined
  if (before && after) return 'same'
  if (after) return 'new'
  return before ? 'gone' : undefined
}

/** The moments at which something in the drawing begins or ends, in the world and in what is known, with now. */
export function stepsOf(drawing: Drawn): { world: string[]; known: string[] } {
  const now = stamp(drawing.drawn_at)
  const world = new Set([now])
  const known = new Set([now])
  for (const { versions } of drawing.facts) {
    for (const one of versions) {
      for (const time of [one.valid_from, one.valid_to]) if (time) world.add(stamp(time))
      for (const time of [one.recorded_at, one.superseded_at]) if (time) known.add(stamp(time))
    }
  }
  return { world: [...world].sort(), known: [...known].sort() }
}

/** Parts of one graph as one drawing. */
export function joined(parts: Drawn[]): Drawn {
  const first = parts[0]!
  const unique = <T extends { id: string }>(rows: T[]) => [...new Map(rows.map((row) => [row.id, row])).values()]
  return {
    ...first,
    entities: unique(parts.flatMap((part) => part.entities)),
    facts: unique(parts.flatMap((part) => part.facts)),
    episodes: unique(parts.flatMap((part) => part.episodes)),
    truncated: parts.some((part) => part.truncated),
  }
}
