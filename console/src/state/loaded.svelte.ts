// What a view has asked for: the answer, the refusal, or neither yet. A later question overtakes an earlier one.
import { Problem } from '../api/client'

export class Loaded<T> {
  data = $state.raw<T | null>(null)
  problem = $state.raw<Problem | null>(null)
  isLoading = $state(false)
  #turn = 0

  async load(question: () => Promise<T>): Promise<void> {
    const turn = ++this.#turn
    this.isLoading = true
    try {
      const data = await question()
      if (turn !== this.#turn) return
      this.data = data
      this.problem = null
    } catch (error) {
      if (turn !== this.#turn) return
      this.problem = error instanceof Problem ? error : new Problem(0, 'console', String(error))
    } finally {
      if (turn === this.#turn) this.isLoading = false
    }
  }

  clear(): void {
    this.#turn++
    this.data = null
    this.problem = null
    this.isLoading = false
  }
}
