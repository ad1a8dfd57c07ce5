import { describe, expect, it } from 'vitest'

import { formatAge, formatBytes, formatSpan, formatTime, preview, toCsv } from './format'

describe('spans', () => {
  it('name their two largest units', () => {
    expect([0.0124, 3.04, 42, 61, 4800, 86_400, 90_061].map(formatSpan)).toEqual([
      '12 ms', '3 s', '42 s', '1 min 1 s', '1 h 20 min', '1 d', '1 d 1 h',
    ])
  })
  it('look back and ahead', () => {
    expect(formatAge(1000, 61_000)).toBe('1 min ago')
    expect(formatAge(61_000, 1000)).toBe('in 1 min')
  })
})

describe('sizes', () => {
  it('have a unit', () => {
    expect([0, 999, 1234, 1_500_000].map(formatBytes)).toEqual(['0 B', '999 B', '1.2 KB', '1.5 MB'])
  })
})

describe('times', () => {
  it('leave out the date of today', () => {
    const now = new Date(2026, 10, 24, 12, 0, 0)
    expect(formatTime(new Date(2026, 10, 24, 9, 5, 7), now)).toBe('09:05:07')
    expect(formatTime(new Date(2026, 10, 23, 9, 5, 7), now)).toBe('23 Nov 2026, 09:05:07')
  })
})

describe('tables as CSV', () => {
  it('quote what would break a row, and disarm formulas', () => {
    expect(toCsv(['key', 'value'], [['a,b', 'say "hi"'], ['=1+1', -2]])).toBe(
      'key,value\r\n"a,b","say ""hi"""\r\n\'=1+1,-2\r\n',
    )
  })
})

describe('previews', () => {
  it('are one short line', () => {
    expect(preview({ a: [1, 2] })).toBe('{"a":[1,2]}')
    expect(preview('x'.repeat(200), 10)).toBe('xxxxxxxxxx…')
  })
})
