import { expect, test } from 'vitest'

import { settle } from './layout'

const ids = Array.from({ length: 30 }, (_, at) => `n${at}`)
const links = ids.slice(1).map((id, at): [string, string] => [id, ids[Math.floor(at / 3)]!])

test('the same graph has the same picture', () => {
  expect(settle(ids, links)).toEqual(settle(ids, links))
})

test('no two nodes lie upon each other, not even without links', () => {
  for (const ties of [links, []]) {
    const places = [...settle(ids, ties).values()]
    const nearest = Math.min(...places.flatMap((one, i) => places.slice(i + 1).map((other) => Math.hypot(one.x - other.x, one.y - other.y))))
    expect(nearest).toBeGreaterThan(30)
  }
})

test('what is added moves nothing', () => {
  const before = settle(ids, links)
  const after = settle([...ids, 'new'], [...links, ['new', 'n3']], before)
  for (const id of ids) expect(after.get(id)).toEqual(before.get(id))
  const [added, friend] = [after.get('new')!, after.get('n3')!]
  expect(Math.hypot(added.x - friend.x, added.y - friend.y)).toBeLessThan(500)
})
