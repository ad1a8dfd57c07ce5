// The change feed of the namespace, once for the whole page: views say what they want to hear of.
import { api, ask, type Problem } from '../api/client'
import { follow } from '../api/stream'

export interface FeedEntry {
  kind: 'change' | 'gap'
  key: string
  operation: string
  version: number
  actor: string
  at: string
  cursor: string
}

/** Entries that are kept for views that open later; older ones are let go, so that an hour of feed stays flat. */
const MOST_KEPT = 5000
/** How far back the page looks when it opens; versions are microseconds since 1970. */
const LOOKS_BACK_MS = 15 * 60_000

class ChangeFeed {
  isLive = $state(false)
  problem = $state.raw<Problem | null>(null)
  /** Oldest first. */
  entries = $state.raw<FeedEntry[]>([])
  #listeners = new Set<(entry: FeedEntry) => void>()
  #waiting: FeedEntry[] = []
  #ending: AbortController | null = null
  /** Where the feed stood when the page opened: what views have loaded holds all up to there. */
  #news = 0

  async start(): Promise<void> {
    this.stop()
    const ending = new AbortController()
    this.#ending = ending
    this.problem = null
    const newest = await ask(api.GET('/api/v1/changes/cursor')).catch(() => null)
    this.#news = newest === null ? 0 : Number.parseInt(newest.cursor, 10)
    void follow(
      `/api/v1/changes?since=${(Date.now() - LOOKS_BACK_MS) * 1000}`,
      {
        state: (isLive) => (this.isLive = isLive),
        problem: (problem) => (this.problem = problem),
        event: ({ name, data }) => {
          if (name === 'change' || name === 'gap') this.#take({ ...(data as FeedEntry), kind: name })
        },
      },
      ending.signal,
    )
  }

  stop(): void {
    this.#ending?.abort()
    this.#ending = null
    this.isLive = false
  }

  /** Hear each change from now on; returns what ends it. */
  listen(listener: (entry: FeedEntry) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #take(entry: FeedEntry): void {
    if (entry.kind === 'gap' || entry.version > this.#news) for (const listener of this.#listeners) listener(entry)
    // Drawn once a frame, however many come.
    if (this.#waiting.push(entry) > 1) return
    setTimeout(() => {
      this.entries = [...this.entries, ...this.#waiting].slice(-MOST_KEPT)
      this.#waiting = []
    }, 50)
  }
}

export const changes = new ChangeFeed()

/**
 * Load again when something changes, at most twice a second, for as long as the effect of the caller lives.
 */
export function reloadOn(concerns: (entry: FeedEntry) => boolean, reload: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  const end = changes.listen((entry) => {
    if (timer === undefined && (entry.kind === 'gap' || concerns(entry))) {
      timer = setTimeout(() => {
        timer = undefined
        reload()
      }, 500)
    }
  })
  return () => {
    clearTimeout(timer)
    end()
  }
}
