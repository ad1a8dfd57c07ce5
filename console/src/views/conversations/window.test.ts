import { expect, test } from 'vitest'

import { fit, partOf, roleOf, textOf, tokensOf, type Turn } from './window'

const turn = (tokens: number, role: string): Turn => ({ key: '', position: 0, role, part: partOf(role), text: '', value: '', tokens, actor: '', at: null })

test('a window holds the newest turns that fit', () => {
  const turns = [turn(50, 'system'), turn(30, 'user'), turn(20, 'ai'), turn(10, 'human')]
  const held = fit(turns, 60)
  expect([held.count, held.tokens]).toEqual([3, 60])
  expect(Object.fromEntries(held.parts)).toEqual({ system: 0, user: 40, assistant: 20, tool: 0, other: 0 })
  expect(fit(turns, 5).count).toBe(0)
})

test('entries of any form have a text, a role and a length', () => {
  expect(textOf({ role: 'user', content: [{ type: 'text', text: 'a' }, { type: 'image' }, 'b'] })).toBe('a\nb')
  expect(textOf({ role: 'assistant', content: '', tool_calls: [1] })).toContain('tool_calls')
  expect([roleOf('hello'), roleOf(null), roleOf({ type: 'ai' })]).toEqual(['other', 'other', 'ai'])
  expect([tokensOf('12345'), tokensOf(''), tokensOf(null)]).toEqual([2, 0, 1])
})
