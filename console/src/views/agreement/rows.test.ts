import { describe, expect, it } from 'vitest'

import { rowsOf, timeLeft, type Entry } from './rows'

const nothing = { holders: [], waiting: 0, parties: null, used: null, algorithm: null, remaining: null }
const lock: Entry = { ...nothing, kind: 'semaphore', name: 'gpu', waiting: 1, holders: [{ token: 7, actor: 'ada', remaining_ms: 900, shared: true }, { token: 9, actor: 'bob', remaining_ms: 1200, shared: true }] }

describe('rows', () => {
  it('are one for each holder, under keys of their own', () => {
    expect(rowsOf([lock]).map((row) => [row.key, row.holder?.actor, row.left_ms])).toEqual([
      ['semaphore gpu', 'ada', 900],
      ['semaphore gpu 9', 'bob', 1200],
    ])
  })
  it('say what barriers and limits are at', () => {
    const barrier: Entry = { ...nothing, kind: 'barrier', name: 'gate', waiting: 2, parties: 3 }
    const limit: Entry = { ...nothing, kind: 'limit', name: 'api', used: 1200, remaining: 2 }
    expect(rowsOf([barrier, limit]).map((row) => [row.state, row.left_ms])).toEqual([
      ['2 of 3 have arrived', null],
      ['1,200 used', 2000],
    ])
  })
})

describe('what is left', () => {
  it('counts down, and not below nothing', () => {
    expect([timeLeft(900, 1000, 1400), timeLeft(900, 1000, 5000), timeLeft(900, 1000, 500)]).toEqual([0.5, 0, 0.9])
  })
})
