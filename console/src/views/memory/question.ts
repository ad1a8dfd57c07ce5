// What is asked of memory, as the address of the view says it, and what comes of the answer.
import type { Schemas } from '../../api/client'

export const FILTERS = ['category', 'importance', 'memory_type', 'user_id', 'agent_id', 'thread_id', 'tags', 'since', 'until'] as const

/** Weights that can be turned, with what the service takes without them. */
export const WEIGHTS: Record<string, { usual: number; most: number; step: number }> = {
  text: { usual: 0.6, most: 1, step: 0.05 },
  vector: { usual: 0.4, most: 1, step: 0.05 },
  author: { usual: 2, most: 4, step: 0.1 },
  thread: { usual: 0.25, most: 1, step: 0.05 },
  question: { usual: 0.85, most: 2, step: 0.05 },
  date: { usual: 1.5, most: 4, step: 0.1 },
  recency: { usual: 0, most: 4, step: 0.1 },
  half_life_days: { usual: 30, most: 365, step: 1 },
}
/** Terms of a search beside its recipe. */
export const TERMS: Record<string, { usual: number; most: number; step: number }> = {
  diversity: { usual: 0, most: 1, step: 0.05 },
  threshold: { usual: 0, most: 1, step: 0.05 },
}
const DAY_S = 86_400

/** Signals by what people ask of them; the colours of the bars follow this order. */
const GROUPS = [['text'], ['vector'], ['neighbours'], ['reranker'], ['author', 'thread', 'question'], ['date', 'recency', 'importance']]

/** The filter that an address spells, or null. Days are those of the reader. */
export function filtersOf(query: URLSearchParams): Record<string, unknown> | null {
  const given: Record<string, unknown> = {}
  for (const name of FILTERS) {
    const value = query.get(name)?.trim()
    if (!value) continue
    if (name === 'tags') given[name] = value.split(',').map((tag) => tag.trim()).filter(Boolean)
    else if (name === 'since' || name === 'until') {
      const day = new Date(`${value}T${name === 'since' ? '00:00:00.000' : '23:59:59.999'}`)
      if (!Number.isNaN(day.getTime())) given[name] = day.toISOString()
    } else given[name] = value
  }
  return Object.keys(given).length ? given : null
}

/** The weights that an address spells, or null where all are the usual ones. */
export function recipeOf(query: URLSearchParams): Record<string, number> | null {
  const given: Record<string, number> = {}
  for (const name of Object.keys(WEIGHTS)) {
    const value = numberOf(query, name)
    if (value === null) continue
    if (name === 'half_life_days') given['half_life_s'] = value * DAY_S
    else given[name] = value
  }
  return Object.keys(given).length ? given : null
}

export function numberOf(query: URLSearchParams, name: string): number | null {
  const value = query.get(name)
  return value === null || value === '' || Number.isNaN(Number(value)) ? null : Number(value)
}

/** The contributions of a hit by group, named as given; what lowers the score is left to the table of signals. */
export function signalParts(signals: readonly Schemas['Signal'][], names: readonly string[]): [string, number][] {
  return GROUPS.map((group, i) => [
    names[i] ?? group[0]!,
    signals.filter((signal) => group.includes(signal.name)).reduce((sum, signal) => sum + signal.contribution, 0),
  ])
}

/** What the positive parts of a hit add up to. */
export function gained(parts: [string, number][]): number {
  return parts.reduce((sum, [, value]) => sum + Math.max(0, value), 0)
}

/** Fields of a memory that differ between two versions, with both values. */
export function differences(before: Schemas['MemoryItem'], after: Schemas['MemoryItem']): [field: string, before: unknown, after: unknown][] {
  const fields = ['memory', 'content', 'summary', 'category', 'importance', 'memory_type', 'tags', 'collections', 'user_id', 'ttl', 'metadata'] as const
  return fields
    .filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]))
    .filter((field) => field !== 'content' || after.content !== after.memory || before.content !== before.memory)
    .map((field) => [field, before[field], after[field]])
}
