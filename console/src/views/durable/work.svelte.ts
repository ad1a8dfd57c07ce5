// Work of the service that takes a while: how far it is, and what came of it. It ends with the view that began it.
import { Problem } from '../../api/client'
import { work } from '../../api/stream'

export class Work<T> {
  isRunning = $state(false)
  done = $state(0)
  isStopped = $state(false)
  result = $state.raw<T | null>(null)
  problem = $state.raw<Problem | null>(null)
  #path: string
  #name: string
  #ending: AbortController | null = null

  constructor(path: string, name: string) {
    this.#path = path
    this.#name = name
  }

  async run(): Promise<void> {
    const ending = (this.#ending = new AbortController())
    this.isRunning = true
    this.isStopped = false
    this.done = 0
    this.result = null
    this.problem = null
    try {
      this.result = (await work(this.#path, this.#name, (done) => (this.done = done), ending.signal)) as T
    } catch (error) {
      if (ending.signal.aborted) this.isStopped = true
      else this.problem = error instanceof Problem ? error : new Problem(0, 'console', String(error))
    } finally {
      this.isRunning = false
    }
  }

  stop(): void {
    this.#ending?.abort()
  }
}
