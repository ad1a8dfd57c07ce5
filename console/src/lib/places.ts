// Where a change is shown: what the service keeps for memory, notes, queues and the like in the view of its kind.
import { spellPlace } from '../state/route.svelte'
import { views } from '../views'

const VIEW_OF_KIND: Record<string, string> = {
  memory: 'memory',
  note: 'notes',
  cache: 'cache',
  graph: 'graph',
  conversation: 'conversations',
  plan: 'decisions',
  execution: 'decisions',
  session: 'decisions',
  queue: 'queues',
  presence: 'agreement',
  lock: 'agreement',
  leader: 'agreement',
  semaphore: 'agreement',
  rwlock: 'agreement',
  stats: 'decisions',
}
const HAS_PAGES = new Set(['memory', 'notes'])

export function placeOfChange({ operation, key }: { operation: string; key: string }): string {
  const view = VIEW_OF_KIND[operation.split('.')[0] ?? ''] ?? ''
  if (!operation.includes('.') || !(view in views)) return spellPlace('data', [key])
  if (view === 'conversations') return spellPlace(view, [conversationOf(key)])
  if (view === 'agreement' && !operation.startsWith('presence.')) return spellPlace(view, [operation.split('.')[0] ?? '', key.replace(/^[^:]*:shared:(?=[^:]*$)/, '')])
  if (view === 'decisions') return spellPlace(view, key.split(':').slice(2))
  const own = /^[^:]*:\$[a-z]+:(.*)$/.exec(key)
  return spellPlace(view, HAS_PAGES.has(view) ? [own?.[1] ?? key] : [])
}

/** The id of the conversation that the feed names by a key of the service. */
export function conversationOf(key: string): string {
  return key.replace(':$conversation:', ':')
}
