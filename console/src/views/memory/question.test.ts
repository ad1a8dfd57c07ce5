import { expect, test } from 'vitest'

import { filtersOf, recipeOf, signalParts } from './question'

test('filters are what the address spells', () => {
  expect(filtersOf(new URLSearchParams('category=offer&tags=rent, flat,&user_id='))).toEqual({ category: 'offer', tags: ['rent', 'flat'] })
  expect(filtersOf(new URLSearchParams('since=yesterday&query=rent'))).toBeNull()
})

test('weights are numbers, and days become seconds', () => {
  expect(recipeOf(new URLSearchParams('text=0.9&half_life_days=2&vector=much'))).toEqual({ text: 0.9, half_life_s: 172_800 })
  expect(recipeOf(new URLSearchParams('query=rent'))).toBeNull()
})

test('signals are added up by group', () => {
  const signal = (name: string, contribution: number) => ({ name, contribution, score: 1, rank: null, weight: 1 })
  const parts = signalParts([signal('text', 0.5), signal('thread', 0.2), signal('question', -0.1)], ['words', 'meaning', 'neighbours', 'reranker', 'speaker', 'time'])
  expect(parts.map(([, value]) => Number(value.toFixed(3)))).toEqual([0.5, 0, 0, 0, 0.1, 0])
})
