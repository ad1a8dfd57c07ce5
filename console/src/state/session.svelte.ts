// Who looks: the token lives in this tab alone, and is gone when the tab is closed.
import type { Problem } from '../api/client'

const PLACE = 'sharedmem.token'

export interface Caller {
  namespace: string
  actor: string | null
  read_only: boolean
  operator: boolean
  label: string
  expires: string | null
  version: string
}

class Session {
  token = $state(sessionStorage.getItem(PLACE) ?? '')
  caller = $state<Caller | null>(null)
  /** Why a token has to be shown, in the words of the service. */
  refusal = $state('')
  asksForToken = $state(false)
  isAway = $state(false)

  /** Whether changes may be offered. */
  get mayWrite(): boolean {
    return this.caller !== null && !this.caller.read_only
  }

  use(token: string): void {
    this.token = token.trim()
    this.asksForToken = false
    this.refusal = ''
    if (this.token) sessionStorage.setItem(PLACE, this.token)
    else sessionStorage.removeItem(PLACE)
  }

  refuse(problem?: Problem): void {
    this.asksForToken = true
    this.refusal = problem?.message ?? ''
  }

  end(): void {
    this.use('')
    this.caller = null
    this.asksForToken = true
  }
}

export const session = new Session()
