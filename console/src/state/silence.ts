// Actors that fell silent, what they changed last, and who went on with it: read off the change feed.
import type { FeedEntry } from './changes.svelte'

export interface Silence {
  actor: string
  /** When it was noticed. */
  at: string
  last: FeedEntry | null
  /** The first change of the same key by somebody else afterwards. */
  successor: FeedEntry | null
}

const PRESENCE = /^[^:]*:\$presence:(.*)$/s

/** Newest first; without those that came back. */
export function silencesOf(entries: FeedEntry[]): Silence[] {
  const found = new Map<string, Silence>()
  entries.forEach((entry, i) => {
    if (entry.kind === 'gap' || !entry.operation.startsWith('presence.')) return
    const actor = PRESENCE.exec(entry.key)?.[1]
    if (actor === undefined) return
    found.delete(actor)
    if (entry.operation !== 'presence.lapse') return
    // It fell silent before others noticed: what it changed last may have been taken over already.
    const at = entries.slice(0, i).findLastIndex((one) => one.actor === actor && !one.operation.startsWith('presence.'))
    const last = entries[at] ?? null
    const successor = last && (entries.slice(at + 1).find((one) => one.key === last.key && one.actor !== actor) ?? null)
    found.set(actor, { actor, at: entry.at, last, successor })
  })
  return [...found.values()].reverse()
}
