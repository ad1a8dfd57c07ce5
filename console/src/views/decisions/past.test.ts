import { describe, expect, it } from 'vitest'

import { planSteps, sessionSteps, type Past, type Refusal } from './past'

const plan = { plan_id: '1', plan_hash: 'c18188c2', session_id: 'desk', symbol: 'BTC', action: 'BUY', confidence: 0.9, reasoning: 'the trend', method: '', timestamp_ms: 1000, time_since_ms: null, similarity: null }
const execution = {
  plan_id: '1', plan_hash: 'c18188c2', session_id: 'desk', symbol: 'BTC', action: 'BUY', confidence: 0.9, status: '', executed: false,
  order_id: '', order_size_usdt: 0, timestamp_ms: 3000, error: '', state: 'orphaned' as const, fence: 7, attempt: 1, actor: 'ada', lease_ends_ms: 4000,
}
const past: Past = { plan, execution }
const refusal: Refusal = { what: 'plan', plan_id: '1', symbol: 'BTC', actor: 'bob', timestamp_ms: 2000 }

describe('what happened', () => {
  it('to a plan is told in its order', () => {
    expect(planSteps(past, [refusal, { ...refusal, plan_id: '2' }]).map((step) => step.at)).toEqual([1000, 2000, 3000, 4000])
  })
  it('in a session is told newest first, each with what it is about', () => {
    const steps = sessionSteps([past], [refusal])
    expect(steps.map((step) => step.at)).toEqual([4000, 3000, 2000, 1000])
    expect(steps[1]?.title).toBe('BTC BUY: ada began it, attempt 1, fence 7')
    expect(steps[2]?.title).toBe('BTC: a plan of bob was refused as a duplicate')
  })
})
