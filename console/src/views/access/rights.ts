// Who may what: patterns of keys as a matrix of tokens and areas.
import type { Schemas } from '../../api/client'

export type Token = Schemas['TokenInfo']
export type Right = 'write' | 'read' | 'none'
export interface Area {
  pattern: string
  title: string
}

/** Whether a pattern matches every key that another one matches; a wild card there is a symbol here. */
export function covers(pattern: string, other: string): boolean {
  const body = pattern.replace(/[.+^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*').replaceAll('?', '[^*]')
  return new RegExp(`^${body}$`, 's').test(other)
}

export function rightOn(token: Token, area: Area): Right {
  if (token.writable.some((one) => covers(one, area.pattern))) return 'write'
  return token.readable.some((one) => covers(one, area.pattern)) ? 'read' : 'none'
}

/** The scopes of the namespace, and what some token may use besides. */
export function areasOf(tokens: Token[], namespace: string): Area[] {
  const own = `${namespace}:`
  const scope = (name: string): Area => ({ pattern: `${own}${name}:*`, title: name })
  const actors = [...new Set(tokens.flatMap((one) => one.actor ?? []))].filter((one) => one !== 'shared').sort()
  const scopes = [scope('shared'), ...actors.map(scope)]
  const known = new Set([`${own}*`, 'global:*', ...scopes.map((one) => one.pattern)])
  const others = [...new Set(tokens.flatMap((one) => [...one.readable, ...one.writable]))].filter((one) => !known.has(one)).sort()
  return [...scopes, ...others.map((pattern) => ({ pattern, title: pattern }))]
}
