import { expect, test } from 'vitest'

import { areasOf, covers, rightOn, type Token } from './rights'

const token = (more: Partial<Token>): Token =>
  ({ id: 'a', actor: 'bob', readable: ['desk:*', 'global:*'], writable: ['desk:bob:*', 'desk:shared:*', 'global:*'], ...more }) as Token

test('a pattern covers what it matches whole', () => {
  expect(covers('desk:*', 'desk:bob:*')).toBe(true)
  expect(covers('desk:bob:*', 'desk:*')).toBe(false)
  expect(covers('desk:a?c', 'desk:a*c')).toBe(false)
  expect(covers('desk:a.c', 'desk:abc')).toBe(false)
})

test('areas are the scopes of actors, and what somebody may use besides', () => {
  const ada = token({ actor: 'ada', readable: ['desk:*', 'global:*', 'other:*'], writable: ['desk:ada:*', 'desk:team*'] })
  expect(areasOf([token({}), ada, token({ actor: null })], 'desk').map((one) => one.title)).toEqual(['shared', 'ada', 'bob', 'desk:team*', 'other:*'])
})

test('an actor writes its own scope and reads the others', () => {
  const [shared, ada, bob] = areasOf([token({}), token({ actor: 'ada' })], 'desk')
  expect([shared, ada, bob].map((area) => rightOn(token({}), area!))).toEqual(['write', 'read', 'write'])
  expect(rightOn(token({ writable: [] }), bob!)).toBe('read')
  expect(rightOn(token({}), { pattern: 'other:*', title: 'other:*' })).toBe('none')
})
