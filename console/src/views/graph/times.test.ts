import { describe, expect, test } from 'vitest'

import { changeBetween, type DrawnFact, holdsAt, stamp, stepsOf } from './times'

const at = (asOf: string, knownAt: string) => ({ asOf: stamp(asOf), knownAt: stamp(knownAt) })
// Ada lived in Oslo from 2020; in 2023 it became known that she had left in 2022.
const fact: DrawnFact = {
  id: 'f',
  source_id: 'ada',
  type: 'lives_in',
  target_id: 'oslo',
  value: '',
  fact: 'Ada lives in Oslo',
  episode_ids: [],
  versions: [
    { valid_from: '2020-01-01T00:00:00Z', valid_to: null, recorded_at: '2020-02-01T00:00:00Z', superseded_at: '2023-01-01T00:00:00.000002Z' },
    { valid_from: '2020-01-01T00:00:00Z', valid_to: '2022-01-01T00:00:00Z', recorded_at: '2023-01-01T00:00:00.000002Z', superseded_at: null },
  ],
}

describe('both times', () => {
  test('microseconds are kept', () => {
    expect(stamp('2023-01-01T00:00:00.000002Z') > stamp('2023-01-01T00:00:00Z')).toBe(true)
    expect(stamp('2023-01-01T01:00:00+01:00')).toBe('2023-01-01T00:00:00.000000Z')
  })
  test('a fact holds as it was known then', () => {
    expect(holdsAt(fact, at('2022-06-01T00:00:00Z', '2022-06-01T00:00:00Z'))).toBeDefined()
    expect(holdsAt(fact, at('2022-06-01T00:00:00Z', '2024-01-01T00:00:00Z'))).toBeUndefined()
    expect(holdsAt(fact, at('2021-01-01T00:00:00Z', '2024-01-01T00:00:00Z'))).toBeDefined()
    expect(holdsAt(fact, at('2021-01-01T00:00:00Z', '2020-01-15T00:00:00Z'))).toBeUndefined()
    expect(holdsAt(fact, at('2022-01-01T00:00:00Z', '2024-01-01T00:00:00Z'))).toBeUndefined()
  })
  test('two instants differ', () => {
    const then = at('2022-06-01T00:00:00Z', '2022-06-01T00:00:00Z')
    const now = at('2022-06-01T00:00:00Z', '2024-01-01T00:00:00Z')
    expect(changeBetween(fact, then, now)).toBe('gone')
    expect(changeBetween(fact, now, then)).toBe('new')
    expect(changeBetween(fact, then, then)).toBe('same')
    expect(changeBetween(fact, now, now)).toBeUndefined()
  })
  test('the sliders stop where something changes', () => {
    const { world, known } = stepsOf({ group_id: 'g', drawn_at: '2024-01-01T00:00:00Z', entities: [], facts: [fact], episodes: [], truncated: false })
    expect(world.map((time) => time.slice(0, 4))).toEqual(['2020', '2022', '2024'])
    expect(known).toHaveLength(3)
  })
})
