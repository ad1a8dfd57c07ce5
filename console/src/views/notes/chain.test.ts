import { expect, test } from 'vitest'

import { chainRows, firstLine, type Note } from './chain'

const note = (id: string, ...sources: string[]) => ({ id, sources, memory_note: '' }) as unknown as Note

test('lanes part where a note has several sources', () => {
  // a and b become s1; s1 and c become s2.
  const { rows, lanes } = chainRows([note('a'), note('b'), note('s1', 'b', 'a'), note('c'), note('s2', 'c', 's1')])
  expect(rows.map((row) => row.note.id)).toEqual(['s2', 'c', 's1', 'b', 'a'])
  expect(rows[0]).toMatchObject({ lane: 0, above: [], below: [0, 1] })
  expect(rows[1]).toMatchObject({ lane: 0, above: [0], through: [1], below: [] })
  expect(rows[2]).toMatchObject({ lane: 1, above: [1], through: [], below: [1, 0] })
  expect(rows[3]).toMatchObject({ lane: 1, above: [1], through: [0], below: [] })
  expect(rows[4]).toMatchObject({ lane: 0, above: [0], through: [], below: [] })
  expect(lanes).toBe(2)
})

test('a source that is missing has no lane', () => {
  expect(chainRows([note('s', 'gone')]).rows).toMatchObject([{ lane: 0, below: [] }])
})

test('a note is named by its first words', () => {
  expect(firstLine({ id: 'n', memory_note: '## Summary\n\nThe rent is 900 euro.\nmore' })).toBe('The rent is 900 euro.')
  expect(firstLine({ id: 'n', memory_note: '' })).toBe('n')
})
