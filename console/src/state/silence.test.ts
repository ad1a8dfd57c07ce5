import { describe, expect, it } from 'vitest'

import type { FeedEntry } from './changes.svelte'
import { silencesOf } from './silence'

const entry = (operation: string, key: string, actor: string, at = '2026-01-01T00:00:00Z'): FeedEntry => ({ kind: 'change', operation, key, actor, at, version: 1, cursor: '1' })

describe('who fell silent', () => {
  const story = [
    entry('presence.join', 'n:$presence:ada', 'ada'),
    entry('set', 'n:claims:one', 'ada'),
    entry('set', 'n:claims:two', 'bob'),
    entry('set', 'n:claims:one', 'bob'),
    entry('presence.lapse', 'n:$presence:ada', 'bob'),
  ]
  it('is told with what it changed last, and who went on with it', () => {
    expect(silencesOf(story).map((one) => [one.actor, one.last?.key, one.successor?.actor])).toEqual([['ada', 'n:claims:one', 'bob']])
  })
  it('is nobody who came back, or left by itself', () => {
    expect(silencesOf([...story, entry('presence.join', 'n:$presence:ada', 'ada')])).toEqual([])
    expect(silencesOf([...story, entry('presence.leave', 'n:$presence:ada', 'ada')])).toEqual([])
  })
  it('may have changed nothing', () => {
    expect(silencesOf([entry('presence.lapse', 'n:$presence:eve', 'bob')])).toEqual([{ actor: 'eve', at: '2026-01-01T00:00:00Z', last: null, successor: null }])
  })
})
