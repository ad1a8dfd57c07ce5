// Server-sent events by fetch: EventSource cannot send a token, and tells no status.
import { createParser } from 'eventsource-parser'

import { Problem, raw } from './client'

export interface StreamEvent {
  name: string
  data: unknown
  id: string | undefined
}

export interface StreamHandlers {
  event: (event: StreamEvent) => void
  /** Whether it is connected; false while it tries to come back. */
  state: (isLive: boolean) => void
  problem: (problem: Problem) => void
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 15_000

/**
 * Follow a stream until the signal aborts; after a lost connection it goes on behind the last event that had an id.
 */
export async function follow(path: string, handlers: StreamHandlers, signal: AbortSignal): Promise<void> {
  let last: string | undefined
  let pause = FIRST_PAUSE_MS
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { accept: 'text/event-stream' }
      if (last !== undefined) headers['last-event-id'] = last
      const response = await raw(path, { headers, signal })
      handlers.state(true)
      pause = FIRST_PAUSE_MS
      const parser = createParser({
        onEvent: (event) => {
          if (event.id !== undefined) last = event.id
          handlers.event({ name: event.event ?? 'message', data: JSON.parse(event.data), id: event.id })
        },
      })
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) parser.feed(piece.value)
    } catch (error) {
      if (signal.aborted) return
      // What is refused is refused again; what is away comes back.
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
        handlers.state(false)
        handlers.problem(error)
        return
      }
    }
    if (signal.aborted) return
    handlers.state(false)
    await new Promise((resolve) => setTimeout(resolve, pause))
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS)
  }
}
