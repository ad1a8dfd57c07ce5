import { describe, expect, it } from 'vitest'

import { costOf, Rate } from './rates'

describe('a rate', () => {
  it('is what a count rose by in the last minute', () => {
    const rate = new Rate()
    expect([rate.take(100, 0), rate.take(130, 30_000), rate.take(150, 60_000), rate.take(190, 90_000)]).toEqual([0, 30, 50, 60])
  })
  it('begins anew with its count', () => {
    const rate = new Rate()
    rate.take(100, 0)
    expect(rate.take(2, 10_000)).toBe(0)
  })
})

describe('costs', () => {
  it('are added over models', () => {
    const metrics = '# TYPE sharedmem_llm_tokens_total counter\nsharedmem_llm_tokens_total{direction="read",model="a b"} 120\nsharedmem_llm_tokens_total{direction="written",model="a"} 30\nsharedmem_embedding_requests_total{outcome="ok"} 2\nsharedmem_request_units 3.5\nsharedmem_http_requests_total 9\n'
    expect(costOf(metrics)).toEqual({ tokens: 150, calls: 2, units: 3.5 })
  })
})
