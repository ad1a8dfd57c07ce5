// The public REST API, typed by its OpenAPI document: `await ask(api.GET('/api/v1/queues/{queue}', ...))`.
import createClient from 'openapi-fetch'

import { session } from '../state/session.svelte'
import type { components, operations, paths } from './schema'

export type Schemas = components['schemas']
/** What an operation answers: `Answer<'queue_stats'>`. */
export type Answer<Name extends keyof operations> = operations[Name] extends {
  responses: { 200: { content: { 'application/json': infer Body } } }
}
  ? Body
  : never

/** A refusal of the service, or its absence; `message` can be shown to people as it is. */
export class Problem extends Error {
  readonly code: string
  readonly status: number
  /** What the service said besides: `current_version` of a conflict, for instance. */
  readonly details: Record<string, unknown>

  constructor(status: number, code: string, message: string, details: Record<string, unknown> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.details = details
  }

  static of(status: number, body: unknown): Problem {
    const told = typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {}
    const message = told['detail'] ?? told['title'] ?? `The service answered ${status}.`
    return new Problem(status, String(told['code'] ?? ''), String(message), told)
  }

  static away(): Problem {
    return new Problem(0, 'away', 'The service does not answer. The console goes on by itself when it is back.')
  }
}

const base = new URL('../', document.baseURI.replace(/[#?].*$/, '')).href.replace(/\/$/, '')

async function reach(request: Request): Promise<Response> {
  const shown = session.token
  if (shown) request.headers.set('authorization', `Bearer ${shown}`)
  let response: Response
  try {
    response = await fetch(request)
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    session.isAway = true
    throw Problem.away()
  }
  session.isAway = false
  // Whoever is refused has to show a token again; what was typed stays on the page. Refusals of an earlier token come late.
  if (response.status === 401 && shown === session.token) session.refuse(Problem.of(401, await response.clone().json().catch(() => null)))
  return response
}

export const api = createClient<paths>({ baseUrl: base, fetch: reach })

/** Where the service is; addresses of its own pages and of downloads begin with it. */
export const serviceUrl = base

/** The answer of a call, or its refusal as a `Problem`. */
export async function ask<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call
  if (!response.ok) throw Problem.of(response.status, error)
  return data as T
}

/** A call to what OpenAPI describes as a stream or a file, or to an address outside of `/api/v1`. */
export async function raw(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await reach(new Request(base + path, init))
  if (!response.ok) throw Problem.of(response.status, await response.json().catch(() => null))
  return response
}
