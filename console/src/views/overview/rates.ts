// Counts that only rise, and what they have risen by in the last minute.

interface Sample {
  at: number
  value: number
}
const SPAN_MS = 60_000

export class Rate {
  #samples: Sample[] = []

  /** Take a count; returns what it rose by within the last minute, or since it is watched. */
  take(value: number, at: number): number {
    // A count that fell was begun anew.
    if (value < (this.#samples.at(-1)?.value ?? 0)) this.#samples = []
    this.#samples.push({ at, value })
    // The newest sample that is a minute old is where the minute begins.
    while (this.#samples.length > 2 && this.#samples[1]!.at <= at - SPAN_MS) this.#samples.shift()
    return value - this.#samples[0]!.value
  }
}

export interface Cost {
  tokens: number
  calls: number
  /** Request units of the durable tier. */
  units: number
}

const LINE = /^(\w+)(?:\{[^\n]*\})? ([\d.e+-]+)$/

/** What models and the durable tier have cost, of the numbers that Prometheus reads. */
export function costOf(metrics: string): Cost {
  const cost: Cost = { tokens: 0, calls: 0, units: 0 }
  for (const line of metrics.split('\n')) {
    const [, name = '', value = ''] = LINE.exec(line) ?? []
    if (/^sharedmem_(llm|embedding|rerank)_tokens(_total)?$/.test(name)) cost.tokens += Number(value)
    else if (/^sharedmem_(llm|embedding|rerank)_requests(_total)?$/.test(name)) cost.calls += Number(value)
    else if (/^sharedmem_request_units(_total)?$/.test(name)) cost.units += Number(value)
  }
  return cost
}
