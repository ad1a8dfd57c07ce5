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
      await read(response, (event) => {
        if (event.id !== undefined) last = event.id
        handlers.event(event)
      })
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

/**
 * Begin work of the service that tells how far it is, and return its result: the data of the event with that name.
 * The work ends when the signal aborts, or the connection is lost.
 */
export async function work(path: string, result: string, progress: (done: number) => void, signal: AbortSignal): Promise<unknown> {
  const response = await raw(path, { method: 'POST', headers: { accept: 'text/event-stream' }, signal })
  let found: { data: unknown } | undefined
  let problem: Problem | undefined
  await read(response, ({ name, data }) => {
    if (name === 'progress') progress((data as { done: number }).done)
    else if (name === result) found = { data }
    else if (name === 'problem') problem = Problem.of(Number((data as { status?: number }).status ?? 500), data)
  }).catch((error: unknown) => {
    if (signal.aborted) throw error
  })
  if (problem) throw problem
  if (!found) throw Problem.away()
  return found.data
}

async function read(response: Response, take: (event: StreamEvent) => void): Promise<void> {
  const parser = createParser({
    onEvent: (event) => take({ name: event.event ?? 'message', data: JSON.parse(event.data), id: event.id }),
  })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) parser.feed(piece.value)
}
