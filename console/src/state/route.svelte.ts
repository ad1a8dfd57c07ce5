// Addresses behind `#`: `#/data/plan?pattern=chat*`. Each state of a view that a colleague may want to see is in them.

export interface Place {
  view: string
  /** What stands behind the view, decoded. */
  parts: string[]
  query: URLSearchParams
}

export function parsePlace(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s)
  const [view = '', ...parts] = path.split('/').map(decode)
  return { view: view || 'overview', parts: parts.filter((part) => part !== ''), query: new URLSearchParams(query) }
}

export function spellPlace(view: string, parts: string[] = [], query: Record<string, string | undefined> = {}): string {
  const kept = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value) kept.set(name, value)
  const words = kept.toString()
  return `#/${[view, ...parts].map(encodeURIComponent).join('/')}${words ? `?${words}` : ''}`
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

class Router {
  place = $state.raw(parsePlace(location.hash))

  constructor() {
    addEventListener('hashchange', () => (this.place = parsePlace(location.hash)))
  }

  /** Go to a place; `replace` leaves no step in the history, for what changes while somebody types. */
  go(hash: string, { replace = false } = {}): void {
    if (replace) {
      history.replaceState(null, '', hash)
      this.place = parsePlace(hash)
    } else {
      location.hash = hash
    }
  }

  /** Change words of the query, and leave the rest as it is. */
  tune(changes: Record<string, string | undefined>): void {
    const { view, parts, query } = this.place
    this.go(spellPlace(view, parts, { ...Object.fromEntries(query), ...changes }), { replace: true })
  }
}

export const router = new Router()
