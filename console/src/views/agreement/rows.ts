// Names of locks and the like as rows of a table: one for each holder, with its fence.
import type { Schemas } from '../../api/client'
import { formatNumber } from '../../lib/format'
import { text } from '../../text'

export type Entry = Schemas['CoordinationEntry']
export type Kind = Entry['kind']
export const KINDS: Kind[] = ['lock', 'leader', 'semaphore', 'rwlock', 'barrier', 'limit']

export interface Row {
  key: string
  entry: Entry
  holder: Schemas['Holder'] | null
  /** What is told where nobody holds anything. */
  state: string
  left_ms: number | null
}

export function stateOf(entry: Entry): string {
  if (entry.kind === 'barrier') return text.agreement.arrived(formatNumber(entry.waiting), formatNumber(entry.parties ?? 0))
  if (entry.kind === 'limit') return text.agreement.used(formatNumber(entry.used ?? 0))
  return text.agreement.nobody
}

export function rowsOf(entries: Entry[]): Row[] {
  return entries.flatMap((entry): Row[] => {
    const key = `${entry.kind} ${entry.name}`
    const { holders } = entry
    if (!holders.length) return [{ key, entry, holder: null, state: stateOf(entry), left_ms: entry.remaining === null ? null : entry.remaining * 1000 }]
    return holders.map((holder, i) => ({ key: i ? `${key} ${holder.token}` : key, entry, holder, state: '', left_ms: holder.remaining_ms }))
  })
}

/** Seconds that are left of what had so many milliseconds when it was asked for. */
export function timeLeft(ms: number, askedAt: number, now: number): number {
  return Math.max(0, (ms - Math.max(0, now - askedAt)) / 1000)
}
